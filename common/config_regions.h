/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The value of GPUPOOL_REGIONS: rules that put the threads of an unmodified program into regions (region.h). */

#include <stdbool.h>

#include "size.h"

enum { GP_REGION_RULES_MAX = 16, GP_REGION_TEXT_MAX = 64 };

enum gp_region_way {
	GP_REGION_BY_NVTX,    /* NVTX ranges of that name; each name is a region */
	GP_REGION_BY_THREAD,  /* threads of that name */
	GP_REGION_BY_LIBRARY, /* calls from a file of that name */
	GP_REGION_COLD,       /* puts nothing in a region: the memory of regions of that name is cold (GPUPOOL_SPILL) */
};

struct gp_config_regions {
	unsigned n;
	struct gp_region_rule {
		enum gp_region_way way;
		char pattern
			[GP_REGION_TEXT_MAX];  /* a star stands for any text, a question mark for any one character */
		char name[GP_REGION_TEXT_MAX]; /* of the region; empty: the name that matched the pattern */
	} rules[GP_REGION_RULES_MAX];
};

/*
 * Reads "off", or a list of nvtx[=PATTERN], thread=PATTERN[:NAME], lib=PATTERN[:NAME] and cold=PATTERN. Returns 0 or
 * -EINVAL.
 */
int gp_config_regions_parse(const char *text, struct gp_config_regions *ret, struct gp_text_error *error);

bool gp_config_regions_has(const struct gp_config_regions *regions, enum gp_region_way way);
/* True if a rule says that regions of this name are cold. */
bool gp_config_regions_is_cold(const struct gp_config_regions *regions, const char *name);
bool gp_region_pattern_matches(const char *pattern, const char *text);
