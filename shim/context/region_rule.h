/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* GPUPOOL_REGIONS: rules that put threads, or the callers of allocations, into regions. */

#include <stdbool.h>

/*
 * gp_region_has_rules: there is a rule by thread or by library. gp_region_has_caller_rules: there is a rule by library;
 * then threads have no caches. Neither changes after gp_regions_start.
 */
extern bool gp_region_has_rules, gp_region_has_caller_rules;

/* Takes the rules from the settings. To be called once they have been read. */
void gp_regions_start(void);

/* Returns the region in which a rule puts the thread. For threads that have not entered a region themselves. */
int gp_region_by_rule(void);
