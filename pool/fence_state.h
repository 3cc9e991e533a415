/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What a sequence of fences consists of: see fence.h. */

#include <stdatomic.h>

#include "backend.h"
#include "lock.h"
#include "work.h"

enum { GP_FENCE_FREERS = 16 };

struct gp_fence {
	struct gp_backend backend;
	char apart[GP_LINES_APART]; /* what follows is read by each allocation and free, and written once a fence */
	_Atomic uint64_t started;   /* highest number given out */
	_Atomic uint64_t ordered;   /* everything later waits for this one and all before */
	_Atomic uint64_t completed; /* this one and all before are done */
	_Atomic uint64_t published; /* the last one recorded, by anybody */
	_Atomic uint64_t published_at_free; /* the last one recorded at a free */
	_Atomic uint64_t clean, clean_epoch; /* the last one recorded, and when (work.h); the epoch is written last */
	_Atomic bool was_ready;	    /* the last query found all complete that it asked for */
	_Atomic bool lags;	    /* what was recorded a while ago is not done yet */
	_Atomic bool is_in_order;   /* all work of the context is done in the order in which it came */
	char apart_too[GP_LINES_APART];
	_Atomic uint64_t records, queries, orders, waits; /* for the statistics */

	struct gp_mutex lock; /* guards what follows, and is held across any other record, query and order */
	uint64_t lag_seq, lag_since_ns; /* a fence that was not complete at that time, while there is one */
	bool is_lag_seen; /* nor long after that time */
	uint64_t usual_wait_ns; /* until a fence was complete that somebody waited for */
	uint64_t given; /* the last order that the driver was told of */
	unsigned head, count;
	struct gp_fence_entry {
		uint64_t seq;
		int slot;
		unsigned n_freers; /* not 0: the program's own free would have waited for all that it covers */
		pthread_t freers[GP_FENCE_FREERS]; /* who made that free, or another at the same time */
	} ring[GP_FENCE_SLOTS]; /* published and not known to be complete, oldest at head */
	unsigned n_spare;
	int16_t spare[GP_FENCE_SLOTS]; /* slots that nobody may look at any more */
	struct gp_mutex wait_lock; /* held across a record that makes the host wait, without the other lock */
};
