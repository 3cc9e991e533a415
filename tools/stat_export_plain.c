/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Where libmicrohttpd was not there to build with. */

#include "stat_export.h"

enum stat_exit stat_export_run(const struct stat_command *command, const struct stat_options *options)
{
	stat_error("gpupool-stat metrics", "this gpupool-stat was built without HTTP.");
	return STAT_FAILED;
}
