/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The administrator's settings: DIRECTORY/gpupool.conf, then DIRECTORY/gpupool.d/ *.conf in the order of their names.
 * The directory is /etc unless the user names another one.
 *
 *	# for all processes
 *	GPUPOOL_POOL=vmm
 *
 *	[user alice]			also a number
 *	GPUPOOL_LIMIT=8GiB
 *
 *	[job 47*]			a pattern of the job's id: * and ? as in regions
 *	GPUPOOL_LIMIT_GROUP=32GiB
 *
 *	[all]				for all processes again
 *
 * A file counts only if its owner is root, or the user where the user has named the directory, and no other user can
 * write to it or to its directory. Reading allocates nothing but what readdir() needs, and prints nothing.
 */

#include <stdbool.h>
#include <sys/types.h>

#define GP_CONFIG_ETC "/etc"

enum { GP_CONFIG_ORIGIN_MAX = 128 }; /* bytes of "FILE:LINE", with the NUL */

/* The process that the files are read for. */
struct gp_config_process {
	uid_t uid;
	const char *user; /* its name if it is known otherwise than by /etc/passwd; or NULL */
	const char *job;  /* or NULL */
};

struct gp_config_lines {
	/* A setting that is for the process. */
	void (*setting)(void *arg, const char *origin, const char *name, const char *value);

	/* A line, or with the file's name as its origin a file, that is ignored. */
	void (*problem)(void *arg, const char *origin, const char *text, const char *why, const char *next);
	void *arg;
};

/* is_default: the directory is not one that the user has named. */
void gp_config_files_read(const char *directory, bool is_default, const struct gp_config_process *process,
	const struct gp_config_lines *lines);
