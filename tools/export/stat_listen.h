/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Listens at an address that the user typed. */

#include "tools/text/stat_say.h"

enum { STAT_ADDRESS_MAX = 96 };

/*
 * Listens at "HOST:PORT", "[HOST]:PORT", ":PORT" or "PORT". HOST is a numeric address or localhost; the default is
 * 127.0.0.1. Returns STAT_OK, the socket, and in address the bound address in the form of URLs; otherwise returns the
 * exit code, after a message.
 */
enum stat_exit stat_listen(const char *text, int *ret_fd, char address[static STAT_ADDRESS_MAX]);
