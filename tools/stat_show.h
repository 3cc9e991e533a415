/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The screens: each prints what one process has answered. */

#include "stat_survey.h"

enum { STAT_WORDS_MAX = 3 };

struct stat_options {
	const pid_t *pids;
	size_t n_pids;
	bool is_json;
	bool is_quiet;
	bool is_check; /* debug */
	bool is_ascii, has_no_color;
	bool may_change; /* top */
	const char *query, *format; /* of list and status: fields, and how they are written; NULL: not given */
	const char *warn, *crit;    /* of check; NULL: not given */
	int timeout_ms;
	int watch_ms;	     /* again and again; 0: once */
	uint64_t count;	     /* so often; 0: until the end */
	uint64_t max_blocks; /* UINT64_MAX: all */
	const char *device;  /* NULL: all */
	bool is_pinned;

	/* Of leaks. */
	const char *by;	   /* NULL: site */
	const char *diff;  /* a file to compare with; NULL: none */
	const char *from;  /* a file to read instead of asking; NULL: none */
	uint64_t min_bytes, older_ms;

	/* Of stacks: what follows the process id. */
	const char *words[STAT_WORDS_MAX];
	size_t n_words;

	/* Of what others read, as typed; NULL: not given. */
	const char *to, *listen, *output;

	/* Of replay, as typed; NULL: not given. */
	const char *file, *pool, *limit, *reuse;
};

/* "pid 41822  python train.py", cut to the terminal. */
void stat_show_title(const struct stat_process *process, const char *command);

void stat_show_status(const struct stat_process *process, const struct stat_options *options);
void stat_show_blocks(const struct stat_process *process, const struct stat_options *options);
void stat_show_limit(const struct stat_process *process, const struct stat_options *options);
void stat_show_config(const struct stat_process *process, const struct stat_options *options);
void stat_show_oom(const struct stat_process *process, const struct stat_options *options);
void stat_show_stacks(const struct stat_process *process, const struct stat_options *options);
void stat_show_list(const struct stat_survey *survey);

/* The table of an answer's "callers": who holds how much. */
void stat_show_callers(const json_t *callers);
