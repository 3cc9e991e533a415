/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run_record.h"
#include "shim/file.h"

static enum run_status check_directory(const char *path)
{
	char directory[PATH_MAX + sizeof("/.")];
	const char *slash = strrchr(path, '/');
	int length = slash ? (int)(slash - path) : 1;

	/* A name that ends in "/." is a directory or an error. */
	snprintf(directory, sizeof(directory), "%.*s/.", length, slash ? path : ".");
	if (access(directory, W_OK | X_OK) == 0)
		return RUN_OK;
	run_error("name a file in a directory that is there and that you may write to.",
		"cannot record to %s: %.*s: %s.", path, length ? length : 1, slash ? path : ".", strerror(errno));
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
	run_error("remove it, or use another name; with %p in it each process has a file of its own.",
		"cannot record to %s: it exists, and is not overwritten.", path);
	return RUN_FAILED;
}
