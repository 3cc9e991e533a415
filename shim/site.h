/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Call sites: stacks that are the same are one site with a number, from 1, for the life of the process. Memory for them
 * comes from the kernel, is bounded, and is never given back.
 */

#include <stddef.h>
#include <stdint.h>

enum { GP_SITES_MAX = 1 << 15 };

/* 0 or -ENOMEM. May be called again. */
int gp_site_init(void);

/* The number of the site; 0 if there is no room for another. */
uint32_t gp_site_intern(const uintptr_t *frames, unsigned n);

/* An allocation of that many bytes was made there. */
void gp_site_count(uint32_t site, uint64_t bytes);

struct gp_site_info {
	const uintptr_t *frames; /* stay */
	unsigned n_frames;
	uint64_t n_allocs, bytes; /* made there so far */
};

void gp_site_info(uint32_t site, struct gp_site_info *ret);

uint32_t gp_sites_count(void);	  /* the highest number */
uint64_t gp_sites_dropped(void); /* stacks for which there was no room */
