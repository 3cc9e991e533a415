/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Whether a zone still holds what gpupool filled it with. */

#include "debug_io.h"
#include "debug_zone.h"

enum gp_finding_what { GP_WRITE_AFTER_FREE, GP_WRITE_PAST_END, GP_WRITE_BEFORE_START, GP_N_FINDINGS };

enum gp_finding_when {
	GP_SEEN_AT_FREE,    /* of the block */
	GP_SEEN_AT_REUSE,   /* before somebody else gets it */
	GP_SEEN_AT_RELEASE, /* before it goes back to the driver */
	GP_SEEN_AT_CHECK,   /* somebody asked for it */
};

enum { GP_FINDING_BYTES = 16 };

struct gp_finding {
	enum gp_finding_what what;
	enum gp_finding_when when;
	struct gp_zone_block block; /* its context is not to be used */
	int device;
	uint64_t first; /* address of the first byte that is wrong, of those that were looked at */
	uint64_t n_wrong;
	unsigned n_bytes;
	unsigned char bytes[GP_FINDING_BYTES]; /* from the first on */
	uint64_t time_ns, times;
};

/* The places around a block that the program did not ask for. How many: up to 2. */
unsigned gp_zone_guards(const struct gp_zone_block *block, struct gp_debug_piece pieces[static 2]);

/* Whether there is anything to look at. */
bool gp_zone_is_watched(const struct gp_zone *zone);

/*
 * Looks at the zone, of which nothing may change meanwhile, and notes what is wrong; that is not wrong again. 0, or
 * what gp_debug_io_read says. A finding for each thing that may be wrong, n_wrong is 0 if it is not.
 */
int gp_zone_check(struct gp_zone *zone, enum gp_finding_when when, struct gp_finding found[static GP_N_FINDINGS]);
