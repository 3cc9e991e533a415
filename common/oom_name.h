/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The names of saved reports in a socket directory: PID.START.oom. The library writes these files, and gpupool-stat
 * reads them.
 */

#include "socket_name.h"

enum {
	GP_OOM_FILE_MAX = 256 << 10, /* bytes of a report */
	GP_OOM_FILES_MAX = 64,       /* reports that are kept in a directory */
};

#define GP_OOM_SUFFIX ".oom"

static inline void gp_oom_name_format(char name[static GP_CTL_NAME_MAX], pid_t pid, uint64_t start_ticks)
{
	gp_socket_name_format(name, pid, start_ticks, GP_OOM_SUFFIX);
}

/* Returns false if the name is not that of a saved report. */
static inline bool gp_oom_name_parse(const char *name, pid_t *ret_pid, uint64_t *ret_start_ticks)
{
	return gp_socket_name_parse(name, GP_OOM_SUFFIX, ret_pid, ret_start_ticks);
}
