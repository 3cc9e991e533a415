/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The report of an out-of-memory as a file, which is there when its process is not any more: GPUPOOL_OOM_FILE. It is
 * what the request "oom" answers, of GP_OOM_FILE_MAX bytes at most, replaces the one before at once, and belongs to the
 * user alone. By default it lies in the socket directory, where the newest GP_OOM_FILES_MAX stay.
 */

#include <stddef.h>

#include "oom.h"
#include "oom_name.h"

/* Writes the file, if there is to be one. No lock may be held. What fails is one line for those who want to know. */
void gp_oom_save(const struct gp_oom *oom);

/* Writes the argument with which gpupool-stat oom finds the report: the process, or the file that the user named. */
const char *gp_oom_where(char *text, size_t size);
