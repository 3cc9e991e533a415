/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Call sites: equal stacks are one site with a number, from 1, for the life of the process. Their memory comes from the
 * kernel, is bounded, and is never given back.
 */

#include <stddef.h>
#include <stdint.h>

enum { GP_SITES_MAX = 1 << 15 };

/* Reserves the table. 0 or -ENOMEM. May be called again. */
int gp_site_init(void);

/* Returns the number of the site, adding it if needed; 0 if there is no room for another. */
uint32_t gp_site_intern(const uintptr_t *frames, unsigned n);

/* Counts an allocation of that many bytes at the site. */
void gp_site_count(uint32_t site, uint64_t bytes);

struct gp_site_info {
	const uintptr_t *frames; /* valid for the life of the process */
	unsigned n_frames;
	uint64_t n_allocs, bytes; /* allocated at the site so far */
};

void gp_site_info(uint32_t site, struct gp_site_info *ret);

uint32_t gp_sites_count(void);   /* the highest number */
uint64_t gp_sites_dropped(void); /* stacks for which there was no room */
