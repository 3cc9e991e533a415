/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The words of steps.h, and what they work on. */

#include <stdatomic.h>

#include "steps.h"

enum {
	SITE_HELD = 8, /* blocks of each kind that wait to be freed */
	SITE_GOT = 8,
};

/* A place as a scenario uses it. */
struct site {
	struct place place;
	bool is_open;
	CUstream spinning, releasing, working, capturing;
	CUdeviceptr held[SITE_HELD], got[SITE_GOT], taken[SITE_GOT];
	void *held_host[SITE_HELD], *got_host[SITE_GOT];
	uint32_t values[SITE_GOT]; /* that fill what was got */
	unsigned n_held, n_got, n_taken, n_held_host, n_got_host;
};

extern struct site sites[2];
extern _Atomic uint32_t *site_flag; /* that spinning kernels wait for */

/* The second place. */
void sites_open_second(void);

/* Streams, unless alone, and blocks to free: as many as there should be. */
void site_prepare(struct site *site, bool is_alone);
void site_hold(struct site *site);

/* The size of the blocks, until it is another. */
void site_set_bytes(size_t bytes);

/* Waits for all work; the words of memory that are wrong in what was got, which is then freed. */
size_t site_end(struct site *site);

/* What a word of that length does, or NULL. */
typedef void (*word_fn)(struct site *site);
word_fn word_find(const char *text, size_t length);
