/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Call sites. All equal stacks are one call site, which keeps its number, from 1 on, for the life of the process. The
 * memory of call sites comes from the kernel, is bounded, and is never given back.
 */

#include <stddef.h>
#include <stdint.h>

enum { GP_SITES_MAX = 1 << 15 };

/* Reserves the table. Returns 0 or -ENOMEM. May be called again. */
int gp_site_init(void);

/* Returns the number of the stack's call site, which is added if needed; 0 if there is no room for another one. */
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
uint64_t gp_sites_dropped(void); /* number of stacks that got no call site because the table was full */
