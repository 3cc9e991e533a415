/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The listening socket, with a file in the first usable directory, or without one (ctl_abstract.h). */

#include "ctl_fd.h"
#include "common/ctl_proto.h"

struct gp_ctl_listener {
	struct gp_ctl_fd fd;
	struct gp_ctl_fd file; /* the socket's file when it was created; the descriptor number is unused */
	uid_t uid;
	char dir[GP_CTL_PATH_MAX]; /* "": no directory is usable, so the socket has no file */
	char name[GP_CTL_NAME_MAX];
	char problems[GP_CTL_PROBLEMS_MAX]; /* why each directory that was tried before dir is unusable; "": none */
};

/*
 * Creates the directory and the socket. Avoids the wait in the kernel that gp_ctl_fd_adopt_at_once describes, so
 * another thread should call gp_ctl_fd_raise later. Returns 0, or the -errno of the last attempt.
 */
int gp_ctl_listener_init(struct gp_ctl_listener *listener, const struct gp_ctl_dirs *dirs);

/* Creates the socket again, under the same name. */
int gp_ctl_listener_open(struct gp_ctl_listener *listener);

/* Returns the next client's descriptor, or -errno. Never waits. */
int gp_ctl_listener_accept(struct gp_ctl_listener *listener);

/* Removes the file, if the name still refers to it. */
void gp_ctl_listener_unlink(const struct gp_ctl_listener *listener);
