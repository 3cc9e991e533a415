/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Whether anything was submitted to the GPU since a fence was recorded: if not, that fence covers what is freed now as
 * well, and no other is needed. For that somebody has to see all that any thread submits, and say so once the driver
 * has it. To have the GPU wait for something is as good as work: it may be for another context's, which that fence
 * knows nothing of and a free would have waited for.
 *
 * The word is an epoch, and in its lowest bit whether anybody has looked at it since it began. Who submits ends an
 * epoch only if somebody has: so however much is submitted, the line is written but once between two fences. Who
 * records looks first: what is told later than that ends the epoch, and what was told before is covered.
 */

#include "base.h"

struct gp_work {
	_Atomic uint64_t word;
};

#define GP_WORK_UNSEEN UINT64_MAX /* for good */

enum { GP_WORK_NO_EPOCH = 0 };

#define GP_WORK_INIT ((struct gp_work){1 << 1}) /* the first epoch; before anything is submitted */

/* Something was submitted. If the exchange fails somebody else has ended the epoch. */
static inline void gp_work_note(struct gp_work *work)
{
	uint64_t word = atomic_load(&work->word);

#ifdef GP_BREAK_WORK
	/* Only in a test build, whose suite must find what is handed out too early. */
	return;
#endif
	if (gp_unlikely(word & 1) && word != GP_WORK_UNSEEN)
		(void)atomic_compare_exchange_strong(&work->word, &word, ((word >> 1) + 1) << 1);
}

/* From now on there may be work that nobody says anything of. */
static inline void gp_work_lose(struct gp_work *work)
{
	atomic_store(&work->word, GP_WORK_UNSEEN);
}

/* Before a record: the epoch that it is good for; GP_WORK_NO_EPOCH where one cannot know. */
static inline uint64_t gp_work_look(struct gp_work *work)
{
	uint64_t word = atomic_load(&work->word);

	if (!(word & 1))
		word = atomic_fetch_or(&work->word, 1);
	return word == GP_WORK_UNSEEN ? GP_WORK_NO_EPOCH : word >> 1;
}

/* The epoch by now. */
static inline uint64_t gp_work_epoch(const struct gp_work *work)
{
	return atomic_load_explicit(&work->word, memory_order_acquire) >> 1;
}
