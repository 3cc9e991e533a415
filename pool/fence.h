/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The fences of one context. They show when freed memory may have a new owner, without knowledge of the streams. This
 * is the grace period of read-copy-update, applied to GPU memory.
 *
 * A fence is a number and a recorded event that covers everything submitted to the context before the record.
 *
 *     record:  s = ++started; record the event; publish s
 *     free:    block.seq = started, read after the program's own submissions
 *
 * block.seq is the block's fence sequence. Every fence s > block.seq was recorded after the free, so it covers all work
 * that could touch the block. The block is
 *
 *   - *completed* once such a fence has completed: the GPU no longer uses the block;
 *   - *ordered* once a GPU wait was made for such a fence: all later work of the context waits for it on the GPU.
 *
 * Details:
 *
 *   - `started` is raised before the record, so the next fence covers a free that races with a record.
 *   - A number whose record failed is skipped: a later fence covers more.
 *   - Numbers begin at 2, and 1 is complete from the start. So fence sequence 0 means that no GPU work uses the block.
 *   - If submissions are reported (submission.h) and none happened since fence s was recorded, then s covers memory
 *     that is freed now, too, as if it had been freed before the record. Its fence sequence is s - 1.
 */

#include <pthread.h>

#include "backend.h"
#include "lock.h"
#include "submission.h"
#include "tuning.h"

enum { GP_FENCE_FREERS = 16 };

struct gp_fence {
	struct gp_backend backend;
	char apart[GP_LINES_APART];  /* what follows is read by every allocation and free, written once per fence */
	_Atomic uint64_t started;    /* highest fence number given out */
	_Atomic uint64_t gpu_waited; /* all later work waits on the GPU for this fence and all before */
	_Atomic uint64_t completed;  /* this fence and all before are complete */
	_Atomic uint64_t published;  /* the last fence recorded, by any thread */
	_Atomic uint64_t published_at_free;  /* the last fence recorded at a free */
	_Atomic uint64_t clean, clean_epoch; /* the last fence, and its epoch (submission.h), which is written last */
	_Atomic bool was_ready;              /* the last poll found everything complete that it asked for */
	_Atomic bool lags;                   /* the GPU lags: a fence recorded a while ago is not complete yet */
	_Atomic bool is_serial;              /* serial mode: later work of the context follows earlier work */
	char apart_after[GP_LINES_APART];
	_Atomic uint64_t records, queries, gpu_waits, host_waits; /* for the statistics */

	struct gp_mutex lock;           /* guards what follows; held across every other record, query and GPU wait */
	uint64_t lag_seq, lag_since_ns; /* a fence that was incomplete at that time; 0: none */
	bool is_lag_seen;               /* the fence was still incomplete GP_LAG_NS later */
	uint64_t usual_wait_ns;         /* how long waits for a fence took of late */
	uint64_t gpu_wait_seq;          /* the last fence for which a GPU wait was made */
	unsigned head, count;
	struct gp_fence_entry {
		uint64_t seq;
		int slot;
		unsigned n_freers; /* not 0: a free recorded the fence, and would have waited for all that it covers */
		pthread_t freers[GP_FENCE_FREERS]; /* the threads whose frees the record covers */
	} ring[GP_FENCE_SLOTS];                    /* published and not known to be complete, oldest at head */
	unsigned n_spare;
	int16_t spare[GP_FENCE_SLOTS]; /* unused slots */
	struct gp_mutex wait_lock;     /* serialises records that make the host wait, for which `lock` is released */
};

void gp_fence_init(struct gp_fence *f, const struct gp_backend *backend);
void gp_fence_deinit(struct gp_fence *f);
void gp_fence_quiesce(struct gp_fence *f); /* returns once all driver calls under way have ended */
void gp_fence_drop(struct gp_fence *f); /* the context is gone: later calls neither reach the driver nor find a fence */

/*
 * Ensures that a fence later than `seq` is recorded, by this thread or another. is_at_free: true if this is
 * part of a free, which may make later work wait for all earlier work. Other fences cover work that no thread may
 * have to wait for without bound. 0; -EBUSY while a capture forbids it; -EAGAIN if too many fences are outstanding;
 * or the driver's error.
 */
int gp_fence_record(struct gp_fence *f, uint64_t seq, bool is_at_free);

/*
 * As gp_fence_record at a free. -EAGAIN while another thread is calling the driver for a fence: retry at a later free.
 */
int gp_fence_try_record(struct gp_fence *f, uint64_t seq);

/* Polls the fences. 0 if any has completed, -EAGAIN if none, -EBUSY, or the driver's error. */
int gp_fence_poll(struct gp_fence *f);

/*
 * Polls only the fence that covers blocks with this fence sequence. 0 if it has completed, also if another thread saw
 * that; -EAGAIN if it has not or no fence covers them.
 */
int gp_fence_poll_seq(struct gp_fence *f, uint64_t seq);

/*
 * GPU wait: makes all later work of the context wait for the last published fence, which covers every block freed
 * before it. 0 if that is so now; -EBUSY; or the driver's error. -EAGAIN in three cases:
 *
 *   - There is no fence.
 *   - A newer fence that no free recorded is not complete, and no work may be made to wait for such a fence.
 *   - The backend knows of another such record.
 */
int gp_fence_gpu_wait(struct gp_fence *f);

/*
 * Enters or leaves serial mode, in which a record at a free is as good as a GPU wait. Leaving makes the GPU wait that
 * was deferred. 0, or an error if that failed: then the caller has to wait for what counts as ordered.
 */
int gp_fence_set_serial(struct gp_fence *f, bool is_serial);

/*
 * Repeats the last GPU wait, if its fence is not complete, for parts of the context that it does not hold back. 0, or
 * an error as above.
 */
int gp_fence_gpu_wait_again(struct gp_fence *f);

/*
 * Waits on the host until blocks with this fence sequence are completed:
 *
 *   - without bound, while a free that this thread has made since would have waited for the same;
 *   - at most max_ns (UINT64_MAX: without bound) for anything else, which may itself be waiting for this thread.
 *
 * Holds no lock while it waits. 0; -EAGAIN if no fence covers `seq` or the time is up; -EBUSY; or the driver's error.
 */
int gp_fence_wait(struct gp_fence *f, uint64_t seq, uint64_t max_ns);

/* As gp_fence_wait, but at most max_ns whatever this thread has freed. */
int gp_fence_wait_at_most(struct gp_fence *f, uint64_t seq, uint64_t max_ns);

/*
 * As gp_fence_wait, but waits only for what a free of this thread would have waited for, and at most max_ns. -ENOENT
 * if there is no such free.
 */
int gp_fence_wait_due(struct gp_fence *f, uint64_t seq, uint64_t max_ns);

/* Returns the slot of the first published fence later than `seq`, for backend->release_begin; GP_NO_SLOT if none. */
int gp_fence_slot_after(struct gp_fence *f, uint64_t seq);

/* Returns the number of the last fence published at a free that is not known to be complete, or 0. */
uint64_t gp_fence_newest(struct gp_fence *f);

static inline uint64_t gp_fence_started(const struct gp_fence *f)
{
	return atomic_load(&f->started);
}

/* Returns the fence sequence for memory that is freed now. */
static inline uint64_t gp_fence_seq(const struct gp_fence *f)
{
	uint64_t epoch = atomic_load_explicit(&f->clean_epoch, memory_order_acquire);
	uint64_t clean = atomic_load_explicit(&f->clean, memory_order_relaxed);

	if (gp_unlikely(epoch != GP_SUBMISSION_NO_EPOCH) && gp_submission_epoch(f->backend.work) == epoch)
		return clean - 1;
	return gp_fence_started(f);
}

static inline bool gp_fence_was_ready(const struct gp_fence *f)
{
	return atomic_load_explicit(&f->was_ready, memory_order_relaxed);
}

/*
 * True if the GPU has fallen behind. A fence that is merely under way, as one always is with many threads, is not a
 * lag.
 */
static inline bool gp_fence_lags(const struct gp_fence *f)
{
	return atomic_load_explicit(&f->lags, memory_order_relaxed);
}

/* Returns the number of records and queries so far. */
static inline uint64_t gp_fence_calls(const struct gp_fence *f)
{
	return atomic_load_explicit(&f->records, memory_order_relaxed) +
	       atomic_load_explicit(&f->queries, memory_order_relaxed);
}

static inline bool gp_fence_is_serial(const struct gp_fence *f)
{
	return atomic_load_explicit(&f->is_serial, memory_order_relaxed);
}

/*
 * A published fence covers blocks with a fence sequence below this. In gp_fence_published_at_free a free of any thread
 * recorded it.
 */
static inline uint64_t gp_fence_published(const struct gp_fence *f)
{
	return atomic_load_explicit(&f->published, memory_order_relaxed);
}

static inline uint64_t gp_fence_published_at_free(const struct gp_fence *f)
{
	return atomic_load_explicit(&f->published_at_free, memory_order_relaxed);
}

/* The GPU no longer uses blocks with a fence sequence below this. */
static inline uint64_t gp_fence_completed(const struct gp_fence *f)
{
	return atomic_load_explicit(&f->completed, memory_order_acquire);
}

/* False if gp_fence_newest would return 0. */
static inline bool gp_fence_is_any_at_free(const struct gp_fence *f)
{
	return gp_fence_published_at_free(f) > gp_fence_completed(f);
}

/* Later work of the same context may touch blocks with a fence sequence below this. */
static inline uint64_t gp_fence_gpu_waited(const struct gp_fence *f)
{
	uint64_t gpu_waited = atomic_load_explicit(&f->gpu_waited, memory_order_acquire);

	return gp_max(gpu_waited, gp_fence_completed(f));
}

/* True if no fence is outstanding, and a poll would change nothing of what is read without the lock. */
static inline bool gp_fence_is_nothing_to_poll(const struct gp_fence *f)
{
	return gp_fence_published(f) <= gp_fence_completed(f) && gp_fence_was_ready(f) && !gp_fence_lags(f);
}
