/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* For who asks other processes: where their sockets are, and what of an answer is what it should be. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A clock for deadlines. */
int64_t gp_ask_now_ms(void);

/* Calls back for each directory in which this process would look for sockets, until that returns false. */
void gp_ask_each_dir(bool (*fn)(void *arg, int dir_fd), void *arg);

/* Whether GPUPOOL_RUNTIME_DIR names a usable directory: then the user means the processes with sockets in it. */
bool gp_ask_is_dir_named(void);

/*
 * For root: each directory in which another user's processes would have their sockets if nobody said otherwise. Users
 * are taken as they come, and not more than some dozens.
 */
void gp_ask_each_user(bool (*fn)(void *arg, int dir_fd, uid_t uid), void *arg);

/* Past a text, or a number as JSON has them; false if something else is there. */
bool gp_ask_take_text(const char **at, const char *text);
bool gp_ask_take_number(const char **at, uint64_t *ret_number);
