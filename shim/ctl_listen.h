/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The listening socket, with a file in the first usable directory, or without one (ctl_abstract.h). */

#include "ctl_fd.h"
#include "ctl_proto.h"

struct gp_ctl_listener {
	struct gp_ctl_fd fd;
	struct gp_ctl_fd file; /* what the name stood for when it was made; its number means nothing */
	uid_t uid;
	char dir[GP_CTL_PATH_MAX]; /* "": none is usable, the socket has no file */
	char name[GP_CTL_NAME_MAX];
	char problems[GP_CTL_PROBLEMS_MAX]; /* of the directories that come before that one; "": none */
};

/*
 * Makes the directory and the socket's name, and then the socket, without a wait for the kernel: gp_ctl_fd_raise is due
 * on another thread. 0, or the -errno of the last attempt.
 */
int gp_ctl_listener_init(struct gp_ctl_listener *listener, const struct gp_ctl_places *places);

/* Makes the socket anew, under the same name. */
int gp_ctl_listener_open(struct gp_ctl_listener *listener);

/* The next client, or -errno; never waits. */
int gp_ctl_listener_accept(struct gp_ctl_listener *listener);

/* Removes the file, if that is what stands there still. */
void gp_ctl_listener_unlink(const struct gp_ctl_listener *listener);
