/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The source of a report or of a conversion: a recording, a saved answer to "leaks", or a process. */

#include <jansson.h>

#include "tools/ask/stat_options.h"
#include "tools/ask/stat_reply.h"
#include "tools/replay/replay_holders.h"

enum stat_source_kind { STAT_SOURCE_RECORDING, STAT_SOURCE_SAVED, STAT_SOURCE_PROCESS };

struct stat_source {
	enum stat_source_kind kind;
	const char *name; /* as typed */
	const char *path; /* to open */
	pid_t pid;        /* of a process */
	uid_t uid;        /* of the process; otherwise the user of gpupool-stat */
	int timeout_ms;

	/* Of a recording. */
	struct replay_file *file;
	struct replay_contents contents;

	/* Of the others the answer to "leaks"; of a recording NULL, or what stat_source_hold() has made. */
	json_t *leaks;
	uint64_t held_ns; /* the moment of that, since the recording began */
	char held[192];   /* which memory that is, and when: "Device memory at its peak, 1.20 s after ..." */
};

/* Opens what options->file names; a number is a process. Returns STAT_OK, or the exit code after a message. */
enum stat_exit stat_source_open(struct stat_source *source, const struct stat_options *options);
void stat_source_close(struct stat_source *source);

/*
 * Makes the answer to "leaks" of a recording: the memory that --device and --pinned choose, held at the moment that
 * --at chooses. Returns STAT_OK, or the exit code after a message.
 */
enum stat_exit stat_source_hold(struct stat_source *source, const struct stat_options *options);

/* True if the user has chosen a moment, or memory of a recording. */
bool stat_source_chooses(const struct stat_options *options);

/* Sends another request to the process. Returns its answer, which the caller releases, or NULL after a message. */
json_t *stat_source_ask(const struct stat_source *source, const char *request, enum stat_exit *ret_exit);

/* Describes the source: "train.rec", or "pid 41822  COMMAND". The text is not clean. */
void stat_source_describe(const struct stat_source *source, char *text, size_t size);
