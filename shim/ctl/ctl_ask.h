/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* For clients of other processes' sockets: finds the socket directories, and reads parts of an answer. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Returns the time of a monotonic clock, for deadlines. */
int64_t gp_ask_now_ms(void);

/* Calls back for each directory in which this process looks for sockets, until the callback returns false. */
void gp_ask_each_dir(bool (*fn)(void *arg, int dir_fd), void *arg);

/* True if GPUPOOL_RUNTIME_DIR names a usable directory. Then only processes with sockets in it are meant. */
bool gp_ask_is_dir_named(void);

/*
 * For root: calls back for each default socket directory of another user, until the callback returns false. At most
 * USERS_MAX directories are visited, in the order of the directory listings.
 */
void gp_ask_each_user(bool (*fn)(void *arg, int dir_fd, uid_t uid), void *arg);

/*
 * Move *at past a text, or past a number as JSON writes it: digits, without a leading 0. Return false, and leave *at as
 * it is, if *at does not begin with that.
 */
bool gp_ask_take_text(const char **at, const char *text);
bool gp_ask_take_number(const char **at, uint64_t *ret_number);
