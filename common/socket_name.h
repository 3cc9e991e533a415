/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The names of files beside a control socket. A socket is named PID.START.sock, and such a file PID.START and a suffix.
 * The start time tells apart processes with the same process id.
 */

#include <stdio.h>
#include <string.h>

#include "ctl_proto.h"

#define GP_SOCKET_SUFFIX ".sock"

/* suffix: at most as long as GP_SOCKET_SUFFIX. */
static inline void gp_socket_name_format(
	char name[static GP_CTL_NAME_MAX], pid_t pid, uint64_t start_ticks, const char *suffix)
{
	gp_ctl_name_format(name, pid, start_ticks);
	strcpy(name + strlen(name) - strlen(GP_SOCKET_SUFFIX), suffix);
}

/* Returns false if the name is not that of a file with this suffix. */
static inline bool gp_socket_name_parse(const char *name, const char *suffix, pid_t *ret_pid, uint64_t *ret_start_ticks)
{
	size_t length = strlen(name), base = length - strlen(suffix);
	char socket[GP_CTL_NAME_MAX];

	if (length < strlen(suffix) || strcmp(name + base, suffix) != 0 ||
		base + strlen(GP_SOCKET_SUFFIX) >= sizeof(socket))
		return false;
	snprintf(socket, sizeof(socket), "%.*s" GP_SOCKET_SUFFIX, (int)base, name);
	return gp_ctl_name_parse(socket, ret_pid, ret_start_ticks);
}
