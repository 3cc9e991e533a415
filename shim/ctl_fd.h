/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * A descriptor in somebody else's process. Programs close descriptors that they do not know
 * (daemons and launchers close all of them), and the kernel then gives our number to the program's
 * next file. So a number is used, and closed, only after a look whether the same socket is still
 * behind it. A private descriptor table for the server's thread would spare that, but the handlers
 * call the CUDA driver, which needs the program's.
 */

#include <stdbool.h>
#include <stdint.h>

struct gp_ctl_fd {
	int fd; /* -1: none */
	uint32_t device_major, device_minor;
	uint64_t inode;
};

#define GP_CTL_NO_FD ((struct gp_ctl_fd){.fd = -1})

/*
 * Takes a new descriptor over and moves it out of the way of programs that count on low numbers
 * (select, shells, close(0) followed by open). 0 or -errno; the descriptor is closed on failure.
 */
int gp_ctl_fd_adopt(struct gp_ctl_fd *own, int fd);

/*
 * The same for a thread of the program. A number beyond the process's table of descriptors makes
 * the kernel enlarge the table, and where threads share it the kernel first waits for a grace
 * period (10 to 25 ms). So this takes a number at the end of the table as it is; a thread of
 * gpupool's own calls gp_ctl_fd_raise later.
 */
int gp_ctl_fd_adopt_at_once(struct gp_ctl_fd *own, int fd);

/* Moves it to where gp_ctl_fd_adopt would have. It stays where it is if that fails, or if it is not ours any more. */
void gp_ctl_fd_raise(struct gp_ctl_fd *own);

/* Whose file it is, of an open one or (name not "") of one in an open directory; no link is followed. 0 or -errno. */
int gp_ctl_fd_identify(int fd, const char *name, struct gp_ctl_fd *found);
bool gp_ctl_fd_is_same(const struct gp_ctl_fd *one, const struct gp_ctl_fd *other);

bool gp_ctl_fd_is_ours(const struct gp_ctl_fd *own);

/* Closes it if it is ours, forgets it in any case. */
void gp_ctl_fd_close(struct gp_ctl_fd *own);
