/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* An address to listen at, as typed. */

#include "stat_say.h"

enum { STAT_ADDRESS_MAX = 96 };

/*
 * Listens at "HOST:PORT", "[HOST]:PORT", ":PORT" or "PORT"; HOST is a number or localhost, 127.0.0.1 if there is none.
 * The socket, and in address what it came to, as in a URL. Else the exit code, after a message.
 */
enum stat_exit stat_listen(const char *text, int *ret_fd, char address[static STAT_ADDRESS_MAX]);
