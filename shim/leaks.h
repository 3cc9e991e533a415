/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What the program holds, put together by where it was allocated, by who called, by size and by age. */

#include "census.h"
#include "ctl_request.h"

struct gp_holders {
	uint32_t number; /* of the site (site.h), or of the caller (caller.h); 0: unknown */
	uint64_t blocks, bytes, requested, pinned_bytes, unpooled_bytes;
	uint64_t oldest_ns, newest_ns; /* times; 0: not known of any */
};

/* As people count: up to a second, ten, a minute, ten, an hour, six, a day, and more. */
enum { GP_N_AGES = 8 };
uint64_t gp_leaks_age_ns(unsigned i); /* from where the class begins */

struct gp_leaks {
	uint64_t now_ns;
	uint64_t n_blocks, bytes; /* counted: older than asked for */
	struct gp_holders without;
	struct gp_holders *sites; /* those with blocks, most bytes first */
	size_t n_sites;
	struct gp_holders *callers; /* likewise; they have all blocks */
	size_t n_callers;
	struct gp_holders sizes[64]; /* from 1 << n bytes */
	struct gp_holders ages[GP_N_AGES];
};

/* Counts blocks that are that old at least. False without host memory. No lock may be held. */
bool gp_leaks_take(struct gp_leaks *leaks, uint64_t older_ns);

/* The same of one device's memory alone, or with -1 of pinned memory. */
bool gp_leaks_take_of(struct gp_leaks *leaks, int device);
void gp_leaks_free(struct gp_leaks *leaks);

/* The first n of them as "callers", an array, as far as half a mebibyte goes. */
void gp_leaks_write_callers(struct gp_json *out, const struct gp_holders *callers, size_t n, uint64_t now_ns);

/* Requests "leaks" and "stacks". */
int gp_leaks_answer(int argc, char **argv, struct gp_json *out);
int gp_stacks_answer(int argc, char **argv, struct gp_json *out);
