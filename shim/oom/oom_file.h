/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * GPUPOOL_OOM_FILE: the report of an out-of-memory error as a file, which outlives the process. It holds the answer to
 * the request "oom", at most GP_OOM_FILE_MAX bytes. It atomically replaces the process's previous report, and only the
 * user can access it. By default it lies in the socket directory, where the newest GP_OOM_FILES_MAX reports are kept.
 */

#include <stddef.h>

#include "oom.h"
#include "common/oom_name.h"

/*
 * Writes the file unless GPUPOOL_OOM_FILE is off. A failure is logged: at level warn if the user named the file, else
 * at level info. No lock may be held.
 */
void gp_oom_save(const struct gp_oom *oom);

/* Writes the argument with which gpupool-stat oom finds the report: the process, or the file that the user named. */
const char *gp_oom_where(char *text, size_t size);
