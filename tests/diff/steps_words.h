/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The functions behind the words of steps.h, and their state. */

#include <stdatomic.h>

#include "steps.h"

enum {
	SITE_HELD = 8, /* blocks of each kind that a scenario can free */
	SITE_GOT = 8,
};

/* A context, with the streams and blocks that a scenario uses in it. */
struct site {
	struct work_context context;
	bool is_open;
	CUstream spinning, releasing, working, capturing;
	CUdeviceptr held[SITE_HELD], got[SITE_GOT], taken[SITE_GOT];
	void *held_host[SITE_HELD], *got_host[SITE_GOT];
	uint32_t values[SITE_GOT]; /* got[i] is filled with values[i] */
	unsigned n_held, n_got, n_taken, n_held_host, n_got_host;
};

extern struct site sites[2];
extern _Atomic uint32_t *site_flag; /* spinning kernels wait for it to be 1 */

/* Opens the second context. */
void sites_open_second(void);

/* site_prepare creates the streams, unless the site is alone. Both fill the site up with blocks to free. */
void site_prepare(struct site *site, bool is_alone);
void site_hold(struct site *site);

/* Sets the size of the blocks, and frees held blocks of another size. */
void site_set_bytes(size_t bytes);

/* Waits for all work, and frees the allocated blocks. Returns the number of wrong words in them. */
size_t site_end(struct site *site);

/* Returns the function of a word of that length, or NULL. */
typedef void (*word_fn)(struct site *site);
word_fn word_find(const char *text, size_t length);
