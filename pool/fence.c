/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "fence.h"

#include <errno.h>

void gp_fence_init(struct gp_fence *f, const struct gp_backend *backend)
{
	*f = (struct gp_fence){.backend = *backend, .n_spare = GP_FENCE_SLOTS};
	atomic_init(&f->started, 1);
	atomic_init(&f->completed, 1);
	atomic_init(&f->published, 1);
	atomic_init(&f->published_at_free, 1);
	atomic_init(&f->was_ready, true);
	gp_mutex_init(&f->wait_lock, GP_RANK_FENCE_WAIT);
	gp_mutex_init(&f->lock, GP_RANK_FENCE);
	for (int i = 0; i < GP_FENCE_SLOTS; i++)
		f->spare[i] = (int16_t)(GP_FENCE_SLOTS - 1 - i);
}

void gp_fence_deinit(struct gp_fence *f)
{
	gp_mutex_deinit(&f->lock);
	gp_mutex_deinit(&f->wait_lock);
}

/*
 * Takes the lock for a record. A record that makes the host wait does so without it, so that other threads can poll
 * and allocate meanwhile, as they can beside the driver's own free. wait_lock admits one such record at a time, so
 * that fences are published in their order.
 */
static bool lock_records(struct gp_fence *f)
{
	const struct gp_backend *be = &f->backend;
	bool waits = be->ops->fence_record_waits && be->ops->fence_record_waits(be->arg);

	if (gp_unlikely(waits))
		gp_mutex_lock(&f->wait_lock);
	gp_mutex_lock(&f->lock);
	return waits;
}

static void unlock_records(struct gp_fence *f, bool waits)
{
	gp_mutex_unlock(&f->lock);
	if (gp_unlikely(waits))
		gp_mutex_unlock(&f->wait_lock);
}

/* Must follow the release of the lock, with the result of what was done under it, which it returns. */
static int report(struct gp_fence *f, int r)
{
	const struct gp_backend *be = &f->backend;

	if (gp_unlikely(r && r != -EAGAIN) && be->ops->fence_failed)
		be->ops->fence_failed(be->arg);
	return r;
}

void gp_fence_quiesce(struct gp_fence *f)
{
	unlock_records(f, lock_records(f));
}

/*
 * Adds 1 to a counter that is read without the lock. It is written only with the lock, so a plain addition is enough.
 */
static void bump_locked(_Atomic uint64_t *counter)
{
	uint64_t n = atomic_load_explicit(counter, memory_order_relaxed);

	atomic_store_explicit(counter, n + 1, memory_order_relaxed);
}

static struct gp_fence_entry *nth_locked(struct gp_fence *f, unsigned n)
{
	return &f->ring[(f->head + n) % GP_FENCE_SLOTS];
}

static void drop_oldest_locked(struct gp_fence *f, unsigned n)
{
	for (; n; n--) {
		f->spare[f->n_spare++] = (int16_t)nth_locked(f, 0)->slot;
		f->head = (f->head + 1) % GP_FENCE_SLOTS;
		f->count--;
	}
}

void gp_fence_drop(struct gp_fence *f)
{
	bool waits = lock_records(f);

	/* Without spare slots nothing can be recorded. */
	f->count = f->n_spare = 0;
	unlock_records(f, waits);
}

/* Returns the position behind the last entry that was recorded at a free, or 0 if there is none. */
static unsigned end_of_frees_locked(struct gp_fence *f)
{
	unsigned n = f->count;

	while (n && !nth_locked(f, n - 1)->n_freers)
		n--;
	return n;
}

/* Returns the position of the first entry later than `seq`, or count if there is none. */
static unsigned first_after_locked(struct gp_fence *f, uint64_t seq)
{
	unsigned low = 0, high = f->count;

	while (low < high) {
		unsigned mid = (low + high) / 2;

		if (nth_locked(f, mid)->seq > seq)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

/* Queries the entry at a position. If it is complete, all older ones are, too, and they leave the ring. */
static int query_locked(struct gp_fence *f, unsigned n)
{
	uint64_t seq = nth_locked(f, n)->seq;
	int r = f->backend.ops->fence_query(f->backend.arg, nth_locked(f, n)->slot);

	bump_locked(&f->queries);
	if (r)
		return r;
	drop_oldest_locked(f, n + 1);
	atomic_store_explicit(&f->completed, seq, memory_order_release);
	return 0;
}

/* Stores only on change: a store would invalidate the cache line in every thread. */
static void set_flag_locked(_Atomic bool *flag, bool value)
{
	if (atomic_load_explicit(flag, memory_order_relaxed) != value)
		atomic_store_explicit(flag, value, memory_order_relaxed);
}

static void note_ready_locked(struct gp_fence *f, bool is_ready)
{
	set_flag_locked(&f->was_ready, is_ready);
}

static bool is_freer_locked(const struct gp_fence_entry *entry)
{
	for (unsigned i = 0; i < entry->n_freers; i++)
		if (pthread_equal(entry->freers[i], pthread_self()))
			return true;
	return false;
}

/* Makes the entry stand for this thread's free as well. Returns false if it has no room for another thread. */
static bool note_free_locked(struct gp_fence *f, struct gp_fence_entry *entry)
{
	if (is_freer_locked(entry))
		return true;
	if (entry->n_freers == GP_FENCE_FREERS)
		return false;
	entry->freers[entry->n_freers++] = pthread_self();
	if (entry->seq > gp_fence_published_at_free(f))
		atomic_store_explicit(&f->published_at_free, entry->seq, memory_order_relaxed);
	return true;
}

/*
 * Records a fence in a slot that this thread has taken. Releases the lock meanwhile if the record makes the host wait.
 */
static int record_slot_locked(struct gp_fence *f, int slot, bool is_at_free, bool waits, uint64_t *ret_epoch)
{
	int r;

	if (gp_unlikely(waits))
		gp_mutex_unlock(&f->lock);
	r = f->backend.ops->fence_record(f->backend.arg, slot, is_at_free, ret_epoch);
	if (gp_unlikely(waits))
		gp_mutex_lock(&f->lock);
	return r;
}

static void watch_newest_locked(struct gp_fence *f, uint64_t now_ns)
{
	f->lag_seq = f->count ? nth_locked(f, f->count - 1)->seq : 0;
	f->lag_since_ns = now_ns;
	f->is_lag_seen = false;
}

/*
 * Detects whether the GPU lags. The newest fence is watched until it is complete, then the fence that is newest by
 * then. Watching the age of the oldest fence would need the time at every record.
 *
 * The lag must be seen while the watched fence is incomplete. Fences are polled rarely while the GPU lags. If the age
 * were taken when a fence is found complete, every fence would seem to have taken long, and the lag would never end.
 */
static void watch_lag_locked(struct gp_fence *f)
{
	bool lags = false;
	uint64_t now_ns;

	if (!f->count) {
		watch_newest_locked(f, 0);
	} else {
		now_ns = f->backend.ops->now_ns(f->backend.arg);
		if (f->lag_seq > gp_fence_completed(f)) {
			f->is_lag_seen |= now_ns - f->lag_since_ns >= GP_LAG_NS;
			lags = f->is_lag_seen || gp_fence_lags(f);
		} else {
			lags = f->is_lag_seen;
			watch_newest_locked(f, now_ns);
		}
	}
	set_flag_locked(&f->lags, lags);
}

/*
 * Returns 0 if a GPU wait may be made now. The driver makes later work wait for every record of the context made
 * before the GPU wait, not only for the one named (measured). So if no free recorded the newest fence, it must be
 * complete first.
 */
static int check_gpu_wait_locked(struct gp_fence *f)
{
	if (!f->count || nth_locked(f, f->count - 1)->n_freers)
		return 0;
	return query_locked(f, f->count - 1);
}

static int repeat_gpu_wait_locked(struct gp_fence *f)
{
	int r = check_gpu_wait_locked(f);
	uint64_t gpu_waited = gp_fence_gpu_waited(f);
	unsigned n = gpu_waited ? first_after_locked(f, gpu_waited - 1) : f->count;

	if (r || n == f->count || nth_locked(f, n)->seq != gpu_waited)
		return r;
	r = f->backend.ops->fence_gpu_wait(f->backend.arg, nth_locked(f, n)->slot);
	if (!r)
		f->gpu_wait_seq = gpu_waited;
	return r;
}

/* In serial mode fences count as ordered without a GPU wait. Returns true if the driver still lacks one. */
static bool is_gpu_wait_deferred_locked(const struct gp_fence *f)
{
	uint64_t gpu_waited = gp_fence_gpu_waited(f);

	return gpu_waited > gp_fence_completed(f) && gpu_waited > f->gpu_wait_seq;
}

/*
 * Fences are rarely polled in serial mode, so make room by dropping the older half unqueried: the newer half implies
 * their completion. The last ordered fence stays. If the GPU lagged, query nevertheless, since nothing else would
 * show the end of the lag.
 */
static int make_room_locked(struct gp_fence *f)
{
	bool lags = gp_fence_lags(f), is_gpu_waited_later;
	unsigned half = f->count / 2;
	int r = -EAGAIN;

	if (!gp_fence_is_serial(f) || !half)
		return f->count ? query_locked(f, 0) : -EAGAIN;
	is_gpu_waited_later = nth_locked(f, half - 1)->seq < gp_fence_gpu_waited(f);
	if (lags || !is_gpu_waited_later)
		r = query_locked(f, half);
	if (lags)
		watch_lag_locked(f);
	if (r != -EAGAIN || !is_gpu_waited_later)
		return r;
	/* The watched fence is about to be dropped: stop timing it. */
	if (!lags && f->lag_seq <= nth_locked(f, half - 1)->seq)
		f->lag_seq = 0;
	drop_oldest_locked(f, half);
	return 0;
}

/*
 * Publishes the fence and its epoch. A reader without the lock that sees the epoch sees this fence or a later one, and
 * either covers what it frees.
 */
static void note_clean_locked(struct gp_fence *f, uint64_t seq, uint64_t epoch)
{
	atomic_store_explicit(&f->clean, seq, memory_order_relaxed);
	if (atomic_load_explicit(&f->clean_epoch, memory_order_relaxed) != epoch)
		atomic_store_explicit(&f->clean_epoch, epoch, memory_order_release);
}

static int record_locked(struct gp_fence *f, bool is_at_free, bool waits)
{
	uint64_t seq, epoch = GP_SUBMISSION_NO_EPOCH;
	int slot, r = 0;

	/*
	 * No GPU wait can be made behind a record outside a free. So make the deferred one now; if serial mode ended
	 * later, the host would have to wait.
	 */
	if (!is_at_free && is_gpu_wait_deferred_locked(f))
		(void)repeat_gpu_wait_locked(f);
	if (!f->n_spare || (gp_fence_is_serial(f) && f->count >= GP_SERIAL_FENCES_MAX))
		r = make_room_locked(f);
	if (r > 0 || (r && !f->n_spare))
		return r;
	slot = f->spare[--f->n_spare];
	seq = atomic_load(&f->started) + 1;
	atomic_store(&f->started, seq);
	r = record_slot_locked(f, slot, is_at_free, waits, &epoch);
	if (r) {
		f->spare[f->n_spare++] = (int16_t)slot;
		return r;
	}
	*nth_locked(f, f->count++) = (struct gp_fence_entry){.seq = seq, .slot = slot};
	atomic_store_explicit(&f->published, seq, memory_order_relaxed);
	if (is_at_free)
		(void)note_free_locked(f, nth_locked(f, f->count - 1));
	note_clean_locked(f, seq, f->backend.work ? epoch : GP_SUBMISSION_NO_EPOCH);
	bump_locked(&f->records);
	return 0;
}

static int cover_locked(struct gp_fence *f, uint64_t seq, bool is_at_free, bool waits)
{
	unsigned n = first_after_locked(f, seq);
	bool is_covered;
	int r = 0;

	/* Another thread may have recorded after our fence sequence was read. That fence covers us, too. */
	is_covered = n < f->count;
	while (is_at_free && n < f->count && !note_free_locked(f, nth_locked(f, n)))
		n++;
	if (n == f->count && gp_fence_completed(f) <= seq)
		r = record_locked(f, is_at_free, waits);
	if (r < 0 && is_covered)
		r = 0;
	if (is_at_free && gp_fence_is_serial(f) && gp_fence_published_at_free(f) > gp_fence_gpu_waited(f))
		atomic_store_explicit(&f->gpu_waited, gp_fence_published_at_free(f), memory_order_release);
	return r;
}

int gp_fence_record(struct gp_fence *f, uint64_t seq, bool is_at_free)
{
	bool waits = lock_records(f);
	int r = cover_locked(f, seq, is_at_free, waits);

	unlock_records(f, waits);
	return report(f, r);
}

int gp_fence_try_record(struct gp_fence *f, uint64_t seq)
{
	const struct gp_backend *be = &f->backend;
	int r;

	if (be->ops->fence_record_waits && be->ops->fence_record_waits(be->arg))
		return -EAGAIN;
	if (!gp_mutex_try(&f->lock))
		return -EAGAIN;
	r = cover_locked(f, seq, true, false);
	gp_mutex_unlock(&f->lock);
	return report(f, r);
}

/* Holds the lock throughout: another thread that ends serial mode finds the GPU wait made, or still deferred. */
int gp_fence_set_serial(struct gp_fence *f, bool is_serial)
{
	int r = 0;

	gp_mutex_lock(&f->lock);
	set_flag_locked(&f->is_serial, is_serial);
	if (!is_serial && is_gpu_wait_deferred_locked(f))
		r = repeat_gpu_wait_locked(f);
	gp_mutex_unlock(&f->lock);
	return report(f, r);
}

/*
 * While the GPU lags, the query of the oldest fence usually tells that nothing is complete. If it is, up to two more
 * queries find out roughly how much else is.
 */
static int poll_lagging_locked(struct gp_fence *f)
{
	int r = -EAGAIN, progress = -EAGAIN;

	for (int i = 0; i < 3 && f->count; i++) {
		r = query_locked(f, i == 0 ? 0 : i == 1 ? f->count / 2 : f->count - 1);
		if (r)
			break;
		progress = 0;
	}
	return r == 0 || r == -EAGAIN ? progress : r;
}

int gp_fence_poll(struct gp_fence *f)
{
	int r = -EAGAIN;

	if (gp_fence_is_nothing_to_poll(f))
		return r;
	gp_mutex_lock(&f->lock);
	/* While the GPU keeps up, one query of the newest fence is enough. */
	if (f->count && gp_fence_was_ready(f))
		r = query_locked(f, f->count - 1);
	if (r == -EAGAIN)
		r = poll_lagging_locked(f);
	note_ready_locked(f, !f->count);
	watch_lag_locked(f);
	gp_mutex_unlock(&f->lock);
	return report(f, r);
}

/*
 * Takes the lock and returns true, or returns false once another thread has seen the fence complete. Many threads
 * need the same fence at the same time, and a thread that slept on the lock would be woken when that fence is of no
 * use any more.
 */
static bool lock_unless_completed(struct gp_fence *f, uint64_t seq)
{
	for (unsigned i = 0; i < GP_POLL_SPINS; i++) {
		if (gp_mutex_try(&f->lock))
			return true;
		gp_pause();
		if (gp_fence_completed(f) > seq)
			return false;
	}
	gp_mutex_lock(&f->lock);
	return true;
}

int gp_fence_poll_seq(struct gp_fence *f, uint64_t seq)
{
	bool is_any;
	unsigned n;
	int r = 0;

	if (!lock_unless_completed(f, seq))
		return 0;
	if (gp_fence_completed(f) <= seq) {
		n = first_after_locked(f, seq);
		is_any = n < f->count;
		r = is_any ? query_locked(f, n) : -EAGAIN;
		if (is_any)
			note_ready_locked(f, !r);
		watch_lag_locked(f);
	}
	gp_mutex_unlock(&f->lock);
	return report(f, r);
}

static int gpu_wait_locked(struct gp_fence *f, unsigned n)
{
	uint64_t seq = nth_locked(f, n)->seq;
	int r;

	if (seq <= gp_fence_gpu_waited(f))
		return 0;
	r = f->backend.ops->fence_gpu_wait(f->backend.arg, nth_locked(f, n)->slot);
	if (r)
		return r;
	atomic_store_explicit(&f->gpu_waited, seq, memory_order_release);
	f->gpu_wait_seq = seq;
	bump_locked(&f->gpu_waits);
	/* No GPU wait will be made for an older fence again, and this fence's completion implies theirs. */
	drop_oldest_locked(f, n);
	return 0;
}

int gp_fence_gpu_wait(struct gp_fence *f)
{
	int r;

	gp_mutex_lock(&f->lock);
	r = f->count ? check_gpu_wait_locked(f) : -EAGAIN;
	if (!r && f->count)
		r = gpu_wait_locked(f, f->count - 1);
	gp_mutex_unlock(&f->lock);
	return report(f, r);
}

int gp_fence_gpu_wait_again(struct gp_fence *f)
{
	int r;

	gp_mutex_lock(&f->lock);
	r = repeat_gpu_wait_locked(f);
	gp_mutex_unlock(&f->lock);
	return report(f, r);
}

/* True if this thread has made a free, at this entry or later, that would have waited for the unfinished work. */
static bool is_own_free_locked(struct gp_fence *f, unsigned n)
{
	const struct gp_backend *be = &f->backend;
	bool is_freer = false;

	if (be->ops->fence_is_beyond && be->ops->fence_is_beyond(be->arg, nth_locked(f, n)->slot))
		return false;
	for (; n < f->count && !is_freer; n++)
		is_freer = is_freer_locked(nth_locked(f, n));
	return is_freer;
}

/*
 * A waiting thread first leaves the driver alone for 7/8 of the time that waits took of late, then polls at intervals
 * that grow with the time waited. This needs far fewer queries than polling without pause, and each query delays
 * threads that submit work. Longer intervals would cost overlapping streams some of their time (measured).
 */
static uint64_t pause_ns_locked(const struct gp_fence *f, unsigned n_polls, uint64_t waited_ns)
{
	if (n_polls == 1)
		return f->usual_wait_ns / 8 * GP_FIRST_PAUSE_EIGHTHS;
	return gp_min(gp_max(waited_ns / GP_POLL_INTERVAL_SHARE, GP_POLL_INTERVAL_MIN_NS), GP_POLL_INTERVAL_MAX_NS);
}

/*
 * Learns how long waits take. Too short a first pause costs queries, too long a one costs time. So the estimate
 * shrinks at once, by half if the first pause was too long, and grows by an eighth of the difference.
 */
static void learn_wait_locked(struct gp_fence *f, unsigned n_polls, uint64_t waited_ns)
{
	uint64_t usual = f->usual_wait_ns;

	if (n_polls == 2)
		waited_ns = gp_min(waited_ns, usual / 2); /* overslept by an unknown time */
	if (waited_ns > usual)
		waited_ns = usual + (gp_min(waited_ns, GP_POLL_INTERVAL_MAX_NS) - usual) / GP_WAIT_LEARN_SHARE;
	f->usual_wait_ns = waited_ns;
}

/*
 * Polls the fence that covers `seq`. 0; -EAGAIN if it is not complete yet; -ENOENT if no fence covers `seq`
 * or, unless may_be_other, if no free of this thread would have waited for it.
 */
static int poll_for_wait_locked(struct gp_fence *f, uint64_t seq, bool may_be_other, bool *ret_is_own)
{
	unsigned n = first_after_locked(f, seq);
	int r = gp_fence_completed(f) > seq ? 0 : n < f->count ? query_locked(f, n) : -ENOENT;

	*ret_is_own = r == -EAGAIN && is_own_free_locked(f, n);
	return r == -EAGAIN && !*ret_is_own && !may_be_other ? -ENOENT : r;
}

/*
 * Pauses until then without polling. Returns true if another thread's poll meanwhile finds the fence complete. Pauses
 * turn into sleeps as n_polls grows, after 0.7 ms at the latest: a sleeping thread wakes up late, and the driver's
 * own waits spin throughout by default.
 */
static bool pause_until(struct gp_fence *f, uint64_t seq, unsigned n_polls, uint64_t until_ns, uint64_t *ret_now_ns)
{
	do {
		f->backend.ops->pause(f->backend.arg, n_polls - 1);
		if (gp_fence_completed(f) > seq)
			return true;
		*ret_now_ns = f->backend.ops->now_ns(f->backend.arg);
	} while (*ret_now_ns < until_ns);
	return false;
}

static int wait(struct gp_fence *f, uint64_t seq, uint64_t own_max_ns, uint64_t max_ns)
{
	const struct gp_backend *be = &f->backend;
	uint64_t start_ns = be->ops->now_ns(be->arg), other_since_ns = start_ns, now_ns = start_ns;

	for (unsigned n_polls = 1;; n_polls++) {
		uint64_t pause_ns, left_ns;
		bool is_own;
		int r;

		gp_mutex_lock(&f->lock);
		r = poll_for_wait_locked(f, seq, max_ns != 0, &is_own);
		if (r == -EAGAIN && n_polls == 1)
			bump_locked(&f->host_waits);
		if (r == 0 && n_polls > 1)
			learn_wait_locked(f, n_polls, now_ns - start_ns);
		pause_ns = pause_ns_locked(f, n_polls, now_ns - start_ns);
		gp_mutex_unlock(&f->lock);
		if (r != -EAGAIN)
			return r == -ENOENT ? r : report(f, r);
		/* The poll took time: the clock is read anew. */
		now_ns = be->ops->now_ns(be->arg);
		/* A limit that is the same for both counts from the start. */
		if (is_own && own_max_ns > max_ns)
			other_since_ns = now_ns;
		left_ns = is_own ? own_max_ns - gp_min(own_max_ns, now_ns - start_ns)
				 : max_ns - gp_min(max_ns, now_ns - other_since_ns);
		if (!left_ns)
			return -EAGAIN;
		if (pause_until(f, seq, n_polls, now_ns + gp_min(pause_ns, left_ns), &now_ns))
			return 0;
	}
}

static int wait_for_any(struct gp_fence *f, uint64_t seq, uint64_t own_max_ns, uint64_t max_ns)
{
	int r = wait(f, seq, own_max_ns, max_ns);

	return r == -ENOENT ? -EAGAIN : r;
}

int gp_fence_wait(struct gp_fence *f, uint64_t seq, uint64_t max_ns)
{
	return wait_for_any(f, seq, UINT64_MAX, max_ns);
}

int gp_fence_wait_at_most(struct gp_fence *f, uint64_t seq, uint64_t max_ns)
{
	return wait_for_any(f, seq, max_ns, max_ns);
}

int gp_fence_wait_due(struct gp_fence *f, uint64_t seq, uint64_t max_ns)
{
	return wait(f, seq, max_ns, 0);
}

int gp_fence_slot_after(struct gp_fence *f, uint64_t seq)
{
	unsigned n;
	int slot;

	gp_mutex_lock(&f->lock);
	n = first_after_locked(f, seq);
	slot = n < f->count ? nth_locked(f, n)->slot : GP_NO_SLOT;
	gp_mutex_unlock(&f->lock);
	return slot;
}

uint64_t gp_fence_newest(struct gp_fence *f)
{
	uint64_t seq;
	unsigned end;

	gp_mutex_lock(&f->lock);
	end = end_of_frees_locked(f);
	seq = end ? nth_locked(f, end - 1)->seq : 0;
	gp_mutex_unlock(&f->lock);
	return seq;
}
