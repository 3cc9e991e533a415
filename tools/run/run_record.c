/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "run_record.h"

static enum run_status check_directory(const char *path)
{
	char directory[PATH_MAX + sizeof("/.")];
	const char *slash = strrchr(path, '/');
	int length = slash ? (int)(slash - path) : 1;

	/* "/." at the end makes access() fail for a name that is not a directory. */
	snprintf(directory, sizeof(directory), "%.*s/.", length, slash ? path : ".");
	if (access(directory, W_OK | X_OK) == 0)
		return RUN_OK;
	run_error("name a file in an existing directory that you may write to.", "cannot record to %s: %.*s: %s.", path,
		length ? length : 1, slash ? path : ".", strerror(errno));
	return RUN_FAILED;
}

enum run_status run_record_check(const struct gp_config *config)
{
	char path[PATH_MAX];
	struct stat st;

	if (!config->is_enabled || !*config->record_file)
		return RUN_OK;
	gp_file_read_names(environ);
	if (!gp_file_expand(path, sizeof(path), config->record_file)) {
		run_error("use a shorter name.", "cannot record to %s: the name is too long.", config->record_file);
		return RUN_FAILED;
	}
	if (lstat(path, &st) < 0)
		return check_directory(path);
	run_error("remove it, or use another name; %p in the name gives each process a separate file.",
		"cannot record to %s: it exists, and is not overwritten.", path);
	return RUN_FAILED;
}
