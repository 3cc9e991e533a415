/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * GPUPOOL_DEBUG: the zones of watched memory, by address. A zone is a block that the program holds, or the rest of a
 * block that it has freed. Parts of a freed block leave its zone when they are handed out again or go back to the
 * driver.
 *
 * One lock guards all zones. A requested check (gp_debug_check_all) holds it while it checks a zone, which takes a
 * few driver calls with a bounded wait. So the zone's memory is neither handed out nor given back during the check.
 */

#include "pool/tree.h"
#include "shim/context/context.h"

/* A block as the program knew it, for checks and reports. */
struct gp_zone_block {
	struct gp_context *context; /* holds a reference */
	uint64_t start, end;        /* range of the block in the pool */
	uint64_t segment;           /* base of its driver allocation */
	uint64_t ptr, bytes;        /* the program's address, and the bytes that it requested */
	uint64_t alloc_ns, free_ns;
	uint32_t alloc_site, free_site; /* 0: unknown */
	bool is_pinned;
	bool is_freed;
	bool is_guarded; /* the bytes around the program's are filled, and not known to be damaged */
	bool is_filled;  /* all of it is filled, and not known to be damaged */
};

struct gp_zone {
	struct gp_tree_node by_addr;
	struct gp_zone *next; /* in a list of zones that were taken out */
	uint64_t addr, bytes; /* what is left of the block; all of it while the program holds it */
	bool is_new;          /* the thread that inserts it still owns it, even if it is taken out */
	bool is_out;          /* it was taken out of the tree */
	struct gp_zone_block block;
};

extern struct gp_mutex gp_zones_lock;

/* Makes a zone with a reference to the context. NULL without host memory. */
struct gp_zone *gp_zone_new(struct gp_context *context);
void gp_zone_free(struct gp_zone *zone);

/* Returns false, and does not insert the zone, if its context has ended. */
bool gp_zone_insert_locked(struct gp_zone *zone);
void gp_zone_remove_locked(struct gp_zone *zone);

/* Returns the zone around the address, or NULL. */
struct gp_zone *gp_zone_find_locked(uint64_t addr);

/* Returns the first zone that begins at or behind the address, or NULL. */
struct gp_zone *gp_zone_next_locked(uint64_t addr);

/*
 * Takes out the zones in a range, and cuts those that reach beyond it. Returns them as a list that the caller frees.
 * If host memory for a cut is missing, the bytes behind the cut are not watched any more.
 */
struct gp_zone *gp_zones_take_locked(uint64_t addr, uint64_t bytes);

/* Takes out the zones of a driver allocation. Returns them as a list that the caller frees. */
struct gp_zone *gp_zones_take_segment_locked(uint64_t segment);

/* Frees the zones of a context that has ended. */
void gp_zones_forget_context(const struct gp_context *context);

struct gp_zones_count {
	uint64_t n_held, n_guarded; /* blocks */
	uint64_t n_filled, filled_bytes;
};
void gp_zones_count(struct gp_zones_count *ret);
