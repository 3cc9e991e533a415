/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Control sockets without a file, for processes that have no usable socket directory, because another user created it
 * first or the file system is read-only. The kernel keeps their names ("abstract" in unix(7)) for each network
 * namespace.
 *
 * Any user can connect to such a socket, and any user can take such a name. So a name proves nothing, and both ends
 * check SO_PEERCRED. A name ends in a random number, so that another user cannot take it before the process does.
 * Clients find it in /proc/net/unix.
 */

#include "ctl_proto.h"

struct gp_ctl_abstract {
	uid_t uid; /* these three are read from the name, and unproven */
	pid_t pid;
	uint64_t start_ticks;
	char name[GP_CTL_NAME_MAX]; /* for gp_ctl_address() with GP_CTL_NO_DIR */
};

/* Makes up a name for a socket of this process: "gpupool-UID/PID.START.RANDOM". Returns 0 or -errno. */
int gp_ctl_abstract_draw(char name[static GP_CTL_NAME_MAX], uid_t uid);

bool gp_ctl_abstract_parse(const char *name, struct gp_ctl_abstract *ret);

/*
 * Calls back for each socket that listens under such a name in this network namespace, until the callback returns
 * false. A name may be reported twice.
 */
void gp_ctl_abstract_each(bool (*fn)(void *arg, const struct gp_ctl_abstract *found), void *arg);
