/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The command in a build without libmicrohttpd. */

#include "stat_export.h"

enum stat_exit stat_export_run(const struct stat_command *command, const struct stat_options *options)
{
	stat_error("gpupool-stat metrics prints them.", "this gpupool-stat was built without HTTP (libmicrohttpd).");
	return STAT_FAILED;
}
