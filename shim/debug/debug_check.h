/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Checks whether a zone still holds the bytes that gpupool filled it with. */

#include "debug_io.h"
#include "debug_zone.h"

enum gp_finding_what { GP_WRITE_AFTER_FREE, GP_WRITE_PAST_END, GP_WRITE_BEFORE_START, GP_N_FINDINGS };

enum gp_finding_when {
	GP_SEEN_AT_FREE,    /* when the block is freed */
	GP_SEEN_AT_REUSE,   /* before the memory is handed out again */
	GP_SEEN_AT_RELEASE, /* before it goes back to the driver */
	GP_SEEN_AT_CHECK,   /* by a check that a client requested */
};

enum { GP_FINDING_BYTES = 16 };

struct gp_finding {
	enum gp_finding_what what;
	enum gp_finding_when when;
	struct gp_zone_block block; /* without a reference: do not use its context */
	int device;
	uint64_t first; /* address of the first wrong byte among those checked */
	uint64_t n_wrong;
	unsigned n_bytes;
	unsigned char bytes[GP_FINDING_BYTES]; /* the bytes found at `first` and behind it */
	uint64_t time_ns, times;               /* when it was found, and how many times */
};

/* Finds the bytes around a block that the program did not request. Returns the number of pieces, at most 2. */
unsigned gp_zone_guards(const struct gp_zone_block *block, struct gp_debug_piece pieces[static 2]);

/* Returns true if the zone holds a fill that can be checked. */
bool gp_zone_is_watched(const struct gp_zone *zone);

/*
 * Compares the zone, which must not change meanwhile, with its fill. A damaged zone is not watched any more, so
 * damage is found once. Returns 0 or the error of gp_debug_io_read. Writes one finding for each enum gp_finding_what;
 * n_wrong is 0 in a finding without damage.
 */
int gp_zone_check(struct gp_zone *zone, enum gp_finding_when when, struct gp_finding found[static GP_N_FINDINGS]);
