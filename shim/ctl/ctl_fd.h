/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * A file descriptor of gpupool in the program's process. Programs close descriptors that they do not know (daemons and
 * launchers close all), and the kernel then gives the number to the program's next file. So before each use, and
 * before the close, gpupool checks that the number still refers to the same socket. With a private descriptor table
 * the server's thread would not have to check, but its handlers call the CUDA driver, which needs the program's table.
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
 * followed by open). Returns 0 or -errno: -EBADF if the program has closed it meanwhile. On failure it is closed.
 */
int gp_ctl_fd_adopt(struct gp_ctl_fd *own, int fd);

/*
 * The same for a thread of the program. A number beyond the end of the process's table of descriptors makes the kernel
 * enlarge the table. If several threads share the table, the kernel first waits for an RCU grace period (10 to 25 ms).
 * So this function takes a number near the end of the table. A thread of gpupool calls gp_ctl_fd_raise later.
 */
int gp_ctl_fd_adopt_at_once(struct gp_ctl_fd *own, int fd);

/*
 * Moves the descriptor to the numbers that gp_ctl_fd_adopt uses. It keeps its number if that fails, or if the number no
 * longer refers to gpupool's file.
 */
void gp_ctl_fd_raise(struct gp_ctl_fd *own);

/*
 * Identifies the file of a descriptor or, if name is not "", of a name in an open directory. Follows no link. Returns
 * 0 or -errno.
 */
int gp_ctl_fd_identify(int fd, const char *name, struct gp_ctl_fd *found);
bool gp_ctl_fd_is_same(const struct gp_ctl_fd *one, const struct gp_ctl_fd *other);

/* True if the number still refers to gpupool's file. */
bool gp_ctl_fd_is_ours(const struct gp_ctl_fd *own);

/* Closes the descriptor if the number still refers to gpupool's file. *own becomes GP_CTL_NO_FD in any case. */
void gp_ctl_fd_close(struct gp_ctl_fd *own);
