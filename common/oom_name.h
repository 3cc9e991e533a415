/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The names of saved reports in a socket directory: PID.START.oom, where a socket is named PID.START.sock. The start
 * time tells apart processes with the same process id. The library writes these files, and gpupool-stat reads them.
 */

#include <stdio.h>
#include <string.h>

#include "ctl_proto.h"

enum {
	GP_OOM_FILE_MAX = 256 << 10, /* bytes of a report */
	GP_OOM_FILES_MAX = 64,       /* reports that are kept in a directory */
};

#define GP_OOM_SUFFIX    ".oom"
#define GP_SOCKET_SUFFIX ".sock"

static inline void gp_oom_name_format(char name[static GP_CTL_NAME_MAX], pid_t pid, uint64_t start_ticks)
{
	gp_ctl_name_format(name, pid, start_ticks);
	strcpy(name + strlen(name) - strlen(GP_SOCKET_SUFFIX), GP_OOM_SUFFIX);
}

/* Returns false if the name is not that of a saved report. */
static inline bool gp_oom_name_parse(const char *name, pid_t *ret_pid, uint64_t *ret_start_ticks)
{
	size_t length = strlen(name), base = length - strlen(GP_OOM_SUFFIX);
	char socket[GP_CTL_NAME_MAX];

	if (length < strlen(GP_OOM_SUFFIX) || strcmp(name + base, GP_OOM_SUFFIX) != 0 ||
		base + strlen(GP_SOCKET_SUFFIX) >= sizeof(socket))
		return false;
	snprintf(socket, sizeof(socket), "%.*s" GP_SOCKET_SUFFIX, (int)base, name);
	return gp_ctl_name_parse(socket, ret_pid, ret_start_ticks);
}
