/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "first_release.h"

#include <unistd.h>

#include "backend.h"
#include "context.h"
#include "ctl_thread.h"
#include "driver.h"
#include "real.h"

enum { QUEUE_MAX = 16 }; /* a thread that releases more meanwhile waits for the driver's call */

#define END_WAIT_NS UINT64_C(1000000000)

static struct {
	struct gp_mutex lock;
	_Atomic pid_t owner; /* the process of the thread */
	_Atomic bool is_ending;
	unsigned n;
	struct entry {
		struct gp_context *context; /* referred to */
		CUdeviceptr addr;
		size_t bytes;
		int slot;
	} entries[QUEUE_MAX]; /* in the order of their releases */
} queue = {.lock = GP_MUTEX_INIT(GP_RANK_LEAF)};

_Atomic bool gp_first_release_is_running; /* changes under the lock */

static CUresult release(const struct entry *entry)
{
	struct gp_driver_scope scope;
	CUresult r;

	if (atomic_load(&queue.is_ending) || !gp_driver_takes_back(entry->context, NULL))
		return CUDA_SUCCESS;
	r = gp_driver_enter(&scope, entry->context->handle);
	if (!r) {
		r = gp_backend_release_behind(entry->context, entry->addr, entry->slot);
		gp_driver_leave(&scope);
	}
	gp_context_leave(entry->context);
	return gp_driver_released(entry->context, r);
}

/* The oldest entry stays in the queue until the driver has been told. */
static bool first(struct entry *ret_entry)
{
	bool is_any;

	gp_mutex_lock(&queue.lock);
	is_any = queue.n != 0;
	if (is_any)
		*ret_entry = queue.entries[0];
	else
		atomic_store(&gp_first_release_is_running, false);
	gp_mutex_unlock(&queue.lock);
	return is_any;
}

static void drop_first(struct gp_context *context, CUresult r)
{
	struct gp_first_release *state = &context->first_release;

	gp_mutex_lock(&queue.lock);
	queue.n--;
	for (unsigned i = 0; i < queue.n; i++)
		queue.entries[i] = queue.entries[i + 1];
	if (r)
		atomic_store(&state->error, (int)r);
	atomic_store(&state->is_over, true);
	atomic_fetch_sub(&state->n_queued, 1);
	gp_mutex_unlock(&queue.lock);
}

static void *release_all(void *unused)
{
	struct entry entry;

	while (first(&entry)) {
		drop_first(entry.context, release(&entry));
		gp_context_unref(entry.context);
	}
	return NULL;
}

static bool is_over(const struct gp_first_release *state)
{
	return atomic_load(&state->is_over) && !atomic_load(&state->n_queued);
}

/* True if a thread has to be started. */
static bool add_locked(struct gp_context *context, CUdeviceptr addr, size_t bytes, int slot)
{
	gp_context_ref(context);
	queue.entries[queue.n++] = (struct entry){context, addr, bytes, slot};
	atomic_fetch_add(&context->first_release.n_queued, 1);
	atomic_store(&queue.owner, getpid());
	return !atomic_exchange(&gp_first_release_is_running, true);
}

enum gp_first_release_way gp_first_release_queue(struct gp_context *context, CUdeviceptr addr, int slot)
{
	enum gp_first_release_way way = GP_FIRST_RELEASE_OVER;
	bool needs_thread = false;
	CUdeviceptr base;
	size_t bytes;

	if (gp_likely(is_over(&context->first_release)))
		return way;
	/* Without the range of addresses there is no telling which of them are queued. */
	if (!gp_real.cuMemGetAddressRange_v2 || gp_real.cuMemGetAddressRange_v2(&base, &bytes, addr))
		return gp_first_release_is_pending(context) ? GP_FIRST_RELEASE_FULL : way;
	gp_mutex_lock(&queue.lock);
	if (!is_over(&context->first_release))
		way = queue.n < QUEUE_MAX ? GP_FIRST_RELEASE_QUEUED : GP_FIRST_RELEASE_FULL;
	if (way == GP_FIRST_RELEASE_QUEUED)
		needs_thread = add_locked(context, addr, bytes, slot);
	gp_mutex_unlock(&queue.lock);
	if (needs_thread && gp_ctl_thread_start(release_all, NULL, GP_STACK_USUAL))
		(void)release_all(NULL);
	return way;
}

bool gp_first_release_is_pending(const struct gp_context *context)
{
	return gp_unlikely(atomic_load(&context->first_release.n_queued) != 0);
}

int gp_first_release_take_error(struct gp_context *context)
{
	if (gp_likely(!atomic_load_explicit(&context->first_release.error, memory_order_relaxed)))
		return 0;
	return atomic_exchange(&context->first_release.error, 0);
}

void gp_first_release_await(const struct gp_context *context)
{
	for (unsigned i = 0; gp_first_release_is_pending(context); i++)
		gp_driver_pause(NULL, i);
}

static bool holds(CUdeviceptr addr)
{
	bool is_held = false;

	gp_mutex_lock(&queue.lock);
	for (unsigned i = 0; i < queue.n; i++)
		is_held |= addr - queue.entries[i].addr < queue.entries[i].bytes;
	gp_mutex_unlock(&queue.lock);
	return is_held;
}

void gp_first_release_settle_slow(CUdeviceptr addr)
{
	for (unsigned i = 0; holds(addr); i++)
		gp_driver_pause(NULL, i);
}

void gp_first_release_end(void)
{
	uint64_t end_ns = gp_driver_now_ns(NULL) + END_WAIT_NS;

	atomic_store(&queue.is_ending, true);
	if (atomic_load(&queue.owner) != getpid())
		return; /* a child that was made without the fork handlers */
	for (unsigned i = 0; atomic_load(&gp_first_release_is_running) && gp_driver_now_ns(NULL) < end_ns; i++)
		gp_driver_pause(NULL, i);
}

void gp_first_release_after_fork_child(void)
{
	gp_mutex_init(&queue.lock, GP_RANK_LEAF);
	atomic_store(&gp_first_release_is_running, false);
	queue.n = 0;
}
