/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * GPUPOOL_DEBUG: what is known of memory by address. A zone is a block that the program holds, or what is left of one
 * that it has freed: parts of that are handed out again, or go back to the driver, and are zones no more.
 *
 * One lock guards them all. It is held while an unasked look is taken at a zone (debug.h), which is a few calls of the
 * driver's with a bounded wait: so nobody is given the memory, and it does not go back, before the look is over.
 */

#include "../pool/tree.h"
#include "context.h"

/* As the program knew it, for those who look at it and for reports. */
struct gp_zone_block {
	struct gp_context *context; /* with a reference */
	uint64_t start, end;	    /* what the pool gave */
	uint64_t segment;	    /* the driver's allocation that it lies in */
	uint64_t ptr, bytes;	    /* what the program got and asked for */
	uint64_t given_ns, freed_ns;
	uint32_t given, freed; /* sites; 0: unknown */
	bool is_pinned;
	bool is_freed;
	bool is_guarded; /* what the program did not get is filled, and not known to be damaged */
	bool is_filled;	 /* all of it, and not known to be damaged */
};

struct gp_zone {
	struct gp_tree_node by_addr;
	struct gp_zone *next; /* in a list of those that were taken out */
	uint64_t addr, bytes; /* what is left of it; of a block that is held, all */
	bool is_new;	      /* somebody is still at work on it: he has it even if it was taken out */
	bool is_out;	      /* that happened */
	struct gp_zone_block block;
};

extern struct gp_mutex gp_zones_lock;

/* Of a context, to which it refers; NULL without host memory. */
struct gp_zone *gp_zone_new(struct gp_context *context);
void gp_zone_free(struct gp_zone *zone);

/* Whether it is in place now: not if the context has ended meanwhile. */
bool gp_zone_insert_locked(struct gp_zone *zone);
void gp_zone_remove_locked(struct gp_zone *zone);

/* The zone around the address, or NULL. */
struct gp_zone *gp_zone_find_locked(uint64_t addr);

/* The first that begins there or later, or NULL. */
struct gp_zone *gp_zone_next_locked(uint64_t addr);

/* Takes out what lies there, cutting what does so in part. A list, to be freed; no more than host memory allows. */
struct gp_zone *gp_zones_take_locked(uint64_t addr, uint64_t bytes);

/* Takes out what lies in a driver allocation. */
struct gp_zone *gp_zones_take_segment_locked(uint64_t segment);

/* The context is gone, and all in it. */
void gp_zones_forget_context(const struct gp_context *context);

void gp_zones_after_fork_child(void);

struct gp_zones_count {
	uint64_t n_held, n_guarded; /* blocks */
	uint64_t n_filled, filled_bytes;
};
void gp_zones_count(struct gp_zones_count *ret);
