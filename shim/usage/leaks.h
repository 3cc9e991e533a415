/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The blocks that the program holds, added up by call site, by calling module, by size and by age. */

#include "live_blocks.h"
#include "shim/ctl/ctl_request.h"

struct gp_holders {
	uint32_t number; /* of the call site (call_site.h), or of the calling module (module.h); 0: unknown */
	uint64_t blocks, bytes, requested, pinned_bytes, unpooled_bytes;
	uint64_t oldest_ns, newest_ns; /* times of allocation; 0: unknown for all of them */
};

/* Classes of age: up to 1 s, 10 s, 1 min, 10 min, 1 h, 6 h, 1 day, and above. */
enum { GP_N_AGES = 8 };
uint64_t gp_leaks_age_ns(unsigned i); /* the least age of a class */

struct gp_leaks {
	uint64_t now_ns;
	uint64_t n_blocks, bytes;  /* at least as old as requested */
	struct gp_holders without; /* blocks without a call site */
	struct gp_holders *sites;  /* call sites that hold blocks, most bytes first */
	size_t n_sites;
	struct gp_holders *callers; /* likewise; together they hold all blocks */
	size_t n_callers;
	struct gp_holders sizes[64]; /* from 1 << n bytes */
	struct gp_holders ages[GP_N_AGES];
};

/* Counts the blocks that are at least that old. Returns false without host memory. No lock may be held. */
bool gp_leaks_take(struct gp_leaks *leaks, uint64_t older_ns);

/* The same for the memory of one device, or with -1 for pinned memory. */
bool gp_leaks_take_of(struct gp_leaks *leaks, int device);
void gp_leaks_free(struct gp_leaks *leaks);

/* Writes the first n entries as the array "callers", in at most 512 KiB. */
void gp_leaks_write_callers(struct gp_json *out, const struct gp_holders *callers, size_t n, uint64_t now_ns);

/* Answer the commands "leaks" and "stacks". */
int gp_leaks_answer(int argc, char **argv, struct gp_json *out);
int gp_stacks_answer(int argc, char **argv, struct gp_json *out);
