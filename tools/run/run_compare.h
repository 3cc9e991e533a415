/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* gpupool-run --compare: runs a command without gpupool and then with it, and prints a table of the differences. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/summary.h"
#include "run_say.h"
#include "run_spool.h"

enum { RUN_TYPES_MAX = 5, RUN_TYPE_SIZE = 16 };

/* A run without gpupool has no library in it: the pool type none would count, limit and defer. */
struct run_compare {
	char **command;
	char **raw_environment; /* of the run without gpupool */
	unsigned n_types;
	char types[RUN_TYPES_MAX][RUN_TYPE_SIZE]; /* pool types, one for each further run */
};

struct run_result {
	const char *type; /* NULL: without gpupool */
	int status;       /* as waitpid() returns it */
	uint64_t ns, peak_bytes;
	bool has_peak;
	int out_fd, err_fd;
	off_t out_bytes;
	bool has_sum;                     /* with gpupool */
	struct gp_summary sum;            /* of all its processes */
	struct run_difference difference; /* from the first run */
};

/* Reads "split,vmm" into types. Returns RUN_OK, or RUN_USAGE after a message. */
enum run_status run_compare_parse(struct run_compare *compare, const char *text);

/*
 * Runs the command once for each column and prints the table on stdout. Returns 0 if the command succeeded each time
 * with the same output, 1 if it did not, or another status after a message. If a signal ends it, the command is ended
 * as well.
 */
int run_compare(const struct run_compare *compare);
