/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The data that top shows: processes and devices as of their last answers, and the history of the devices. A process
 * that does not answer keeps its last answer, and has an error beside it.
 */

#include "tools/answer/stat_device.h"
#include "tools/answer/stat_rate.h"
#include "tools/ask/stat_options.h"
#include "tools/ask/stat_survey.h"
#include "tools/text/stat_text.h"

enum {
	TOP_DEVICES_MAX = 64,
	TOP_HISTORY = 1024, /* samples */
	TOP_COMMAND_MAX = 512,
	TOP_LABELS_MAX = 64,
	TOP_FILTER_MAX = 48,
	TOP_DEVICES_TEXT_MAX = 32,
	TOP_NOTE_MAX = STAT_COLUMN_MAX + 8,
};

struct top_sample {
	uint64_t used_bytes, held_bytes;
};

/*
 * Processes may number devices differently. The lowest number that any process gives to a device is shown.
 */
struct top_device {
	struct stat_device is;
	bool has_namesake; /* another device is shown with that number */
	uint64_t used_bytes, cached_bytes, pending_bytes, returning_bytes, held_bytes, outside_bytes;
	uint64_t free_bytes; /* UINT64_MAX: unknown */
	bool is_seen;
	struct top_sample history[TOP_HISTORY];
	size_t n_samples; /* taken so far; the history has the last TOP_HISTORY */
};

struct top_row {
	pid_t pid;
	uint64_t start_ticks;
	char user[STAT_TEXT_MAX], command[TOP_COMMAND_MAX], labels[TOP_LABELS_MAX], error[STAT_ERROR_MAX];
	json_t *reply;  /* the last one to "status"; NULL: none yet */
	json_t *before; /* the one before; NULL: none */
	uint64_t used_bytes, cached_bytes, pending_bytes, total_bytes, uptime_ns, n_ooms;
	uint64_t peak_bytes, limit_bytes, n_used_blocks; /* limit_bytes: UINT64_MAX: not all devices have one */
	char devices[TOP_DEVICES_TEXT_MAX];              /* "0", "0,1", or "" */
	char asleep[TOP_NOTE_MAX];                       /* "asleep 28.0 MiB 5m", "waking" or the like, or "" */
	char spilled[TOP_NOTE_MAX];                      /* "in host 2.00 GiB 43.1 ms", or "" */
	struct stat_rates rates;
	double hit_rate; /* from 0 to 1; negative: unknown */
};

enum top_sort {
	TOP_BY_USED,
	TOP_BY_TOTAL,
	TOP_BY_CACHED,
	TOP_BY_HITS,
	TOP_BY_ALLOCS,
	TOP_BY_UP,
	TOP_BY_PID,
	TOP_BY_USER,
	TOP_BY_COMMAND,
	TOP_N_SORTS
};

struct top_model {
	struct stat_survey survey;
	struct top_device *devices; /* TOP_DEVICES_MAX */
	size_t n_devices;
	struct top_row *rows; /* of all processes */
	size_t n_rows;
	struct top_row **shown; /* rows that match the filter, sorted */
	size_t n_shown;
	enum top_sort sort;
	bool is_reversed, has_labels;
	char filter[TOP_FILTER_MAX]; /* a part of command, user or labels, or a pid */
};

void top_model_init(struct top_model *model);
void top_model_deinit(struct top_model *model);

/* Asks all processes. A process that does not answer delays only the first call: later calls do not wait for it. */
void top_model_ask(struct top_model *model, const struct stat_options *options);

/* Sorts and filters the rows again, after the sort order or the filter has changed. */
void top_model_arrange(struct top_model *model);

const char *top_sort_name(enum top_sort sort);
const struct top_row *top_model_find(const struct top_model *model, pid_t pid);
