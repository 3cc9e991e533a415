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

/* Returns the least age in class i. */
uint64_t gp_leaks_age_ns(unsigned i);

struct gp_leaks {
	uint64_t now_ns;
	uint64_t n_blocks, bytes;  /* of all blocks that are old enough */
	struct gp_holders without; /* blocks without a call site */
	struct gp_holders *sites;  /* call sites that hold blocks, most bytes first */
	size_t n_sites;
	struct gp_holders *callers; /* calling modules, most bytes first; together they hold all these blocks */
	size_t n_callers;
	struct gp_holders sizes[64];       /* class i: requests of at least 1 << i bytes, and less than twice that */
	struct gp_holders ages[GP_N_AGES]; /* blocks of unknown age are left out */
};

/* Adds up the blocks that are at least older_ns old. Returns false without host memory. No lock may be held. */
bool gp_leaks_take(struct gp_leaks *leaks, uint64_t older_ns);

/* Adds up the blocks of one device, or with -1 those of pinned memory, whatever their age. */
bool gp_leaks_take_of(struct gp_leaks *leaks, int device);
void gp_leaks_free(struct gp_leaks *leaks);

/* Writes the first n entries as the array "callers": as many as fit into 512 KiB and the answer. */
void gp_leaks_write_callers(struct gp_json *out, const struct gp_holders *callers, size_t n, uint64_t now_ns);

/* Answer the commands "leaks" and "stacks". */
int gp_leaks_answer(int argc, char **argv, struct gp_json *out);
int gp_stacks_answer(int argc, char **argv, struct gp_json *out);
