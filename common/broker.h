/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The broker passes requests for cached memory on to processes of other users and containers: gpupool-stat export
 * --yield, which runs as root. Its socket is in the folder of the machine, which containers share, and every user may
 * connect to it. It understands the requests "yield" and "wanted" of ctl.def, one for each connection, and answers with
 * sums of all processes.
 */

#include <stdbool.h>
#include <sys/types.h>

#include "ctl_proto.h"

#define GP_BROKER_DIR  GP_CTL_RUN_DIR "/exporter"
#define GP_BROKER_NAME "yield.sock"

/* The reason of an error that a later attempt may not have: the user has asked too much, or the broker is busy. */
#define GP_BROKER_BUSY "busy"

enum { GP_BROKER_ANSWER_MAX = 512 }; /* bytes of an answer, with its line end */

/*
 * True if the user may be root of the machine. map: the text of /proc/self/uid_map. In a user namespace in which root
 * of the machine has no number, it is shown as 65534, as is every other user without a number there. So a user who made
 * the broker's folder before root did could pretend to be the broker there. The answers, which are only counted, are
 * all that such a broker can forge.
 */
bool gp_broker_may_be_root(uid_t uid, const char *map);

/*
 * Connects to the broker. Does not wait. Returns a descriptor, or -errno: -ENOENT or -ECONNREFUSED (there is none),
 * -EAGAIN (too busy to accept), -EPERM (the folder or the broker is not of root).
 */
int gp_broker_connect(const char *dir);
