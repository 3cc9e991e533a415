/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The options of a command, as typed on the command line. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { STAT_WORDS_MAX = 3 };

struct stat_options {
	const pid_t *pids;
	size_t n_pids;
	bool is_json;
	bool is_quiet;
	bool is_check; /* of debug */
	bool is_ascii, has_no_color;
	bool may_change;            /* of top */
	const char *query, *format; /* of list and status: fields, and how they are written; NULL: not given */
	const char *warn, *crit;    /* of check; NULL: not given */
	int timeout_ms;
	int watch_ms;        /* the interval; 0: asks once */
	uint64_t count;      /* of answers, with --watch; 0: unlimited */
	uint64_t max_blocks; /* UINT64_MAX: all */
	const char *device;  /* NULL: all */
	bool is_pinned;

	/* Of leaks. */
	const char *by;   /* NULL: site */
	const char *diff; /* a file to compare with; NULL: none */
	const char *from; /* a file to read instead of asking; NULL: none */
	uint64_t min_bytes, older_ms;

	/* Of stacks, limit, defer and region: the words beside the process id. */
	const char *words[STAT_WORDS_MAX];
	size_t n_words;

	/* Of metrics, export, convert and report, as typed; NULL: not given. */
	const char *to, *listen, *output;

	/* Of replay, as typed; NULL: not given. */
	const char *file, *pool, *limit, *reuse;
};
