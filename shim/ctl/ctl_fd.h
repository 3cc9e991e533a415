/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * A file descriptor of gpupool in the program's process. Programs close descriptors that they do not know (daemons and
 * launchers close all), and the kernel then gives the number to the program's next file. So before each use, and
 * before the close, gpupool checks that the number still refers to the same socket. A private descriptor table for the
 * server's thread would make that unnecessary, but the handlers call the CUDA driver, which needs the program's table.
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
 * Takes over a new descriptor and moves it away from the low numbers that programs count on (select, shells, close(0)
 * followed by open). Returns 0 or -errno. On failure the descriptor is closed.
 */
int gp_ctl_fd_adopt(struct gp_ctl_fd *own, int fd);

/*
 * The same for a thread of the program. A number beyond the end of the process's table of descriptors makes the kernel
 * enlarge the table, and if threads share the table the kernel first waits for a grace period (10 to 25 ms). So this
 * takes a number at the end of the table as it is. A thread of gpupool calls gp_ctl_fd_raise later.
 */
int gp_ctl_fd_adopt_at_once(struct gp_ctl_fd *own, int fd);

/*
 * Moves it to the numbers that gp_ctl_fd_adopt uses. It stays where it is if that fails, or if the number is no longer
 * ours.
 */
void gp_ctl_fd_raise(struct gp_ctl_fd *own);

/*
 * Identifies the file of a descriptor or, if name is not "", of a name in an open directory. Follows no link. Returns
 * 0 or -errno.
 */
int gp_ctl_fd_identify(int fd, const char *name, struct gp_ctl_fd *found);
bool gp_ctl_fd_is_same(const struct gp_ctl_fd *one, const struct gp_ctl_fd *other);

bool gp_ctl_fd_is_ours(const struct gp_ctl_fd *own);

/* Closes the descriptor if the number is still ours, and forgets it in any case. */
void gp_ctl_fd_close(struct gp_ctl_fd *own);
