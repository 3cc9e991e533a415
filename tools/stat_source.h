/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Where a report or another format comes from: a recording, a saved answer to "leaks", or a process. */

#include "replay_run.h"
#include "stat_show.h"

enum stat_source_kind { STAT_SOURCE_RECORDING, STAT_SOURCE_SAVED, STAT_SOURCE_PROCESS };

struct stat_source {
	enum stat_source_kind kind;
	const char *name; /* as typed */
	const char *path; /* to open */
	pid_t pid;	  /* of a process */
	uid_t uid;	  /* its user; of anything else one's own */
	int timeout_ms;

	/* Of a recording. */
	struct replay_file *file;
	struct replay_contents contents;

	/* Of the others: the answer to "leaks". */
	json_t *leaks;
};

/* Opens what options->file names: digits are a process. STAT_OK, or the exit code after a message. */
enum stat_exit stat_source_open(struct stat_source *source, const struct stat_options *options);
void stat_source_close(struct stat_source *source);

/* Says that a recording was damaged, and that it was read as far as it goes: STAT_FAILED then, else STAT_OK. */
enum stat_exit stat_source_end(const char *name, const struct replay_contents *contents);

/* What the process answers to another request, to be released; NULL if it does not, after a message. */
json_t *stat_source_ask(const struct stat_source *source, const char *request, enum stat_exit *ret_exit);

/* "train.rec", "pid 41822": what it is, not clean. */
void stat_source_describe(const struct stat_source *source, char *text, size_t size);
