/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "fence.h"

#include <errno.h>

enum {
	IN_ORDER_MAX = 64, /* fences outstanding, where hardly anybody asks for them */
	SPINS = 64,        /* while another thread asks: as long as that takes, some microseconds */
};

/* How long who waits goes without asking again. */
#define REST_MIN_NS UINT64_C(1000)
#define REST_MAX_NS UINT64_C(100000)

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
 * A record that makes the host wait does so without the lock, so that others can ask and allocate meanwhile, as they
 * can beside the driver's own free. One at a time, so that fences are published in their order.
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

void gp_fence_quiesce(struct gp_fence *f)
{
	unlock_records(f, lock_records(f));
}

/* Read without the lock, written with it: no other thread adds meanwhile. */
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

/* The position behind the last entry that was recorded at a free; 0 if there is none. */
static unsigned end_of_frees_locked(struct gp_fence *f)
{
	unsigned n = f->count;

	while (n && !nth_locked(f, n - 1)->n_freers)
		n--;
	return n;
}

/* The position of the first entry later than the stamp; count if there is none. */
static unsigned first_after_locked(struct gp_fence *f, uint64_t stamp)
{
	unsigned low = 0, high = f->count;

	while (low < high) {
		unsigned mid = (low + high) / 2;

		if (nth_locked(f, mid)->seq > stamp)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

/* Asks for the entry at a position; if it is complete, so are all older ones, and they leave the ring. */
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

/* What is so already is not written: every thread would have to fetch the line again. */
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

/* Whether the entry stands for this thread's free, too, from now on. */
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

/* The slot is nobody else's meanwhile. */
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
 * The newest fence is watched until it is complete, then the newest of that time. Were the oldest's age looked at
 * instead, each record would have to ask what time it is. That it took long has to be seen while it does: who asks
 * seldom, as one does while the GPU lags, would find each complete after long, and never that it lags no more.
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
 * The driver has later work wait for every record of the context that was made before it is told to, not only for the
 * one named (measured). So while one that no free made is not complete, nothing may be ordered.
 */
static int settle_late_locked(struct gp_fence *f)
{
	if (!f->count || nth_locked(f, f->count - 1)->n_freers)
		return 0;
	return query_locked(f, f->count - 1);
}

static int order_again_locked(struct gp_fence *f)
{
	int r = settle_late_locked(f);
	uint64_t ordered = gp_fence_ordered(f);
	unsigned n = ordered ? first_after_locked(f, ordered - 1) : f->count;

	if (r || n == f->count || nth_locked(f, n)->seq != ordered)
		return r;
	r = f->backend.ops->fence_order(f->backend.arg, nth_locked(f, n)->slot);
	if (!r)
		f->given = ordered;
	return r;
}

/* In order more counts as ordered than the driver was told of. */
static bool is_order_owed_locked(const struct gp_fence *f)
{
	uint64_t ordered = gp_fence_ordered(f);

	return ordered > gp_fence_completed(f) && ordered > f->given;
}

/*
 * Of what is in order hardly anybody asks, so none is asked for here either: the newer half alone tells later what is
 * done. What was ordered upon last stays. Once the GPU lagged, though, nobody else would see that it does no more.
 */
static int make_room_locked(struct gp_fence *f)
{
	bool lags = gp_fence_lags(f), is_ordered_later;
	unsigned half = f->count / 2;
	int r = -EAGAIN;

	if (!gp_fence_is_in_order(f) || !half)
		return f->count ? query_locked(f, 0) : -EAGAIN;
	is_ordered_later = nth_locked(f, half - 1)->seq < gp_fence_ordered(f);
	if (lags || !is_ordered_later)
		r = query_locked(f, half);
	if (lags)
		watch_lag_locked(f);
	if (r != -EAGAIN || !is_ordered_later)
		return r;
	/* How long that one takes nobody will be told. */
	if (!lags && f->lag_seq <= nth_locked(f, half - 1)->seq)
		f->lag_seq = 0;
	drop_oldest_locked(f, half);
	return 0;
}

/* Read without the lock: who sees the epoch sees this fence, or a later one, which is as good. */
static void note_clean_locked(struct gp_fence *f, uint64_t seq, uint64_t epoch)
{
	atomic_store_explicit(&f->clean, seq, memory_order_relaxed);
	if (atomic_load_explicit(&f->clean_epoch, memory_order_relaxed) != epoch)
		atomic_store_explicit(&f->clean_epoch, epoch, memory_order_release);
}

static int record_locked(struct gp_fence *f, bool is_at_free, bool waits)
{
	uint64_t seq, epoch = GP_WORK_NO_EPOCH;
	int slot, r = 0;

	/* No order can be given behind a late record, and then the host would have to wait once the order is due. */
	if (!is_at_free && is_order_owed_locked(f))
		(void)order_again_locked(f);
	if (!f->n_spare || (gp_fence_is_in_order(f) && f->count >= IN_ORDER_MAX))
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
	note_clean_locked(f, seq, f->backend.work ? epoch : GP_WORK_NO_EPOCH);
	bump_locked(&f->records);
	return 0;
}

static int cover_locked(struct gp_fence *f, uint64_t stamp, bool is_at_free, bool waits)
{
	unsigned n = first_after_locked(f, stamp);
	bool is_covered;
	int r = 0;

	/* Somebody recorded after our stamp was read, while we waited for the lock, say: that one covers us. */
	is_covered = n < f->count;
	while (is_at_free && n < f->count && !note_free_locked(f, nth_locked(f, n)))
		n++;
	if (n == f->count && gp_fence_completed(f) <= stamp)
		r = record_locked(f, is_at_free, waits);
	if (r < 0 && is_covered)
		r = 0;
	if (is_at_free && gp_fence_is_in_order(f) && gp_fence_published_at_free(f) > gp_fence_ordered(f))
		atomic_store_explicit(&f->ordered, gp_fence_published_at_free(f), memory_order_release);
	return r;
}

int gp_fence_record(struct gp_fence *f, uint64_t stamp, bool is_at_free)
{
	bool waits = lock_records(f);
	int r = cover_locked(f, stamp, is_at_free, waits);

	unlock_records(f, waits);
	return r;
}

int gp_fence_try_record(struct gp_fence *f, uint64_t stamp)
{
	const struct gp_backend *be = &f->backend;
	int r;

	if (be->ops->fence_record_waits && be->ops->fence_record_waits(be->arg))
		return -EAGAIN;
	if (!gp_mutex_try(&f->lock))
		return -EAGAIN;
	r = cover_locked(f, stamp, true, false);
	gp_mutex_unlock(&f->lock);
	return r;
}

/* With the lock all the while: who else ends the order finds it given, or owed still. */
int gp_fence_set_in_order(struct gp_fence *f, bool is_in_order)
{
	int r = 0;

	gp_mutex_lock(&f->lock);
	set_flag_locked(&f->is_in_order, is_in_order);
	if (!is_in_order && is_order_owed_locked(f))
		r = order_again_locked(f);
	gp_mutex_unlock(&f->lock);
	return r;
}

/* Where the GPU lags one query often tells that nothing is done yet; if something is, find out how much in few. */
static int settle_lagging_locked(struct gp_fence *f)
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

int gp_fence_settle(struct gp_fence *f)
{
	int r = -EAGAIN;

	gp_mutex_lock(&f->lock);
	/* Where the GPU keeps up, one query of the newest settles everything. */
	if (f->count && gp_fence_was_ready(f))
		r = query_locked(f, f->count - 1);
	if (r == -EAGAIN)
		r = settle_lagging_locked(f);
	note_ready_locked(f, !f->count);
	watch_lag_locked(f);
	gp_mutex_unlock(&f->lock);
	return r;
}

/*
 * Takes the lock, or sees that what another thread does with it is enough. Many threads need the same fence at the same
 * time, and each that slept on the lock would be woken once it is of no use any more.
 */
static bool lock_unless_completed(struct gp_fence *f, uint64_t stamp)
{
	for (unsigned i = 0; i < SPINS; i++) {
		if (gp_mutex_try(&f->lock))
			return true;
		gp_pause();
		if (gp_fence_completed(f) > stamp)
			return false;
	}
	gp_mutex_lock(&f->lock);
	return true;
}

int gp_fence_settle_stamp(struct gp_fence *f, uint64_t stamp)
{
	bool is_any;
	unsigned n;
	int r = 0;

	if (!lock_unless_completed(f, stamp))
		return 0;
	if (gp_fence_completed(f) <= stamp) {
		n = first_after_locked(f, stamp);
		is_any = n < f->count;
		r = is_any ? query_locked(f, n) : -EAGAIN;
		if (is_any)
			note_ready_locked(f, !r);
		watch_lag_locked(f);
	}
	gp_mutex_unlock(&f->lock);
	return r;
}

static int order_locked(struct gp_fence *f, unsigned n)
{
	uint64_t seq = nth_locked(f, n)->seq;
	int r;

	if (seq <= gp_fence_ordered(f))
		return 0;
	r = f->backend.ops->fence_order(f->backend.arg, nth_locked(f, n)->slot);
	if (r)
		return r;
	atomic_store_explicit(&f->ordered, seq, memory_order_release);
	f->given = seq;
	bump_locked(&f->orders);
	/* Nobody will order on an older one again, and this one's completion tells of theirs. */
	drop_oldest_locked(f, n);
	return 0;
}

int gp_fence_order(struct gp_fence *f)
{
	int r;

	gp_mutex_lock(&f->lock);
	r = f->count ? settle_late_locked(f) : -EAGAIN;
	if (!r && f->count)
		r = order_locked(f, f->count - 1);
	gp_mutex_unlock(&f->lock);
	return r;
}

int gp_fence_order_again(struct gp_fence *f)
{
	int r;

	gp_mutex_lock(&f->lock);
	r = order_again_locked(f);
	gp_mutex_unlock(&f->lock);
	return r;
}

/* Whether this thread has made a free, at the entry or later, which would have waited for what is not done yet. */
static bool is_due_locked(struct gp_fence *f, unsigned n)
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
 * Who waits leaves the driver alone for most of the time that waits took of late, and then asks at intervals that grow
 * with what it has waited: far fewer queries than one after the other, each of which is in the way of threads that
 * submit work. Longer intervals would cost streams that overlap some of their time (measured).
 */
static uint64_t rest_ns_locked(const struct gp_fence *f, unsigned n_asked, uint64_t waited_ns)
{
	if (n_asked == 1)
		return f->usual_wait_ns / 8 * 7;
	return gp_min(gp_max(waited_ns / 32, REST_MIN_NS), REST_MAX_NS);
}

/* Too short a rest costs queries, too long a one time: so it gets shorter by half, and longer little by little. */
static void note_wait_locked(struct gp_fence *f, unsigned n_asked, uint64_t waited_ns)
{
	uint64_t usual = f->usual_wait_ns;

	if (n_asked == 2)
		waited_ns = gp_min(waited_ns, usual / 2); /* overslept, who knows by how much */
	if (waited_ns > usual)
		waited_ns = usual + (gp_min(waited_ns, REST_MAX_NS) - usual) / 8;
	f->usual_wait_ns = waited_ns;
}

/* 0; -EAGAIN if it is not complete yet; -ENOENT if no fence covers the stamp, or one that nobody has to wait for. */
static int look_locked(struct gp_fence *f, uint64_t stamp, bool may_be_undue, bool *ret_is_due)
{
	unsigned n = first_after_locked(f, stamp);
	int r = gp_fence_completed(f) > stamp ? 0 : n < f->count ? query_locked(f, n) : -ENOENT;

	*ret_is_due = r == -EAGAIN && is_due_locked(f, n);
	return r == -EAGAIN && !*ret_is_due && !may_be_undue ? -ENOENT : r;
}

/*
 * Until then without a question, unless another thread's tells meanwhile: whether it does. Pauses become sleeps with
 * the questions, after 0.7 ms at the latest: a sleep is late, and the driver's own waits spin, by default, throughout.
 */
static bool rest(struct gp_fence *f, uint64_t stamp, unsigned n_asked, uint64_t until_ns, uint64_t *ret_now_ns)
{
	do {
		f->backend.ops->pause(f->backend.arg, n_asked - 1);
		if (gp_fence_completed(f) > stamp)
			return true;
		*ret_now_ns = f->backend.ops->now_ns(f->backend.arg);
	} while (*ret_now_ns < until_ns);
	return false;
}

static int wait(struct gp_fence *f, uint64_t stamp, uint64_t due_max_ns, uint64_t max_ns)
{
	const struct gp_backend *be = &f->backend;
	uint64_t start_ns = be->ops->now_ns(be->arg), undue_since_ns = start_ns, now_ns = start_ns;

	for (unsigned n_asked = 1;; n_asked++) {
		uint64_t rest_ns, left_ns;
		bool is_due;
		int r;

		gp_mutex_lock(&f->lock);
		r = look_locked(f, stamp, max_ns != 0, &is_due);
		if (r == -EAGAIN && n_asked == 1)
			bump_locked(&f->waits);
		if (r == 0 && n_asked > 1)
			note_wait_locked(f, n_asked, now_ns - start_ns);
		rest_ns = rest_ns_locked(f, n_asked, now_ns - start_ns);
		gp_mutex_unlock(&f->lock);
		if (r != -EAGAIN)
			return r;
		/* A question takes its time, too. */
		now_ns = be->ops->now_ns(be->arg);
		if (is_due)
			undue_since_ns = now_ns;
		left_ns = is_due ? due_max_ns - gp_min(due_max_ns, now_ns - start_ns)
				 : max_ns - gp_min(max_ns, now_ns - undue_since_ns);
		if (!left_ns)
			return -EAGAIN;
		if (rest(f, stamp, n_asked, now_ns + gp_min(rest_ns, left_ns), &now_ns))
			return 0;
	}
}

int gp_fence_wait(struct gp_fence *f, uint64_t stamp, uint64_t max_ns)
{
	int r = wait(f, stamp, UINT64_MAX, max_ns);

	return r == -ENOENT ? -EAGAIN : r;
}

int gp_fence_wait_due(struct gp_fence *f, uint64_t stamp, uint64_t max_ns)
{
	return wait(f, stamp, max_ns, 0);
}

int gp_fence_slot_after(struct gp_fence *f, uint64_t stamp)
{
	unsigned n;
	int slot;

	gp_mutex_lock(&f->lock);
	n = first_after_locked(f, stamp);
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
