/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A backend that passes every call on and records the answer. Pools that are recorded get it in place of their own,
 * with an argument that names the pool; the others do not know that it exists.
 */

#include "record_backend.h"

#include <errno.h>
#include <stdlib.h>

struct recorder {
	struct gp_backend backend; /* the pool's own */
	uint32_t number;
};

static uint32_t n_pools;
static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_RECORD_TABLE); /* whoever makes a number known */

static const struct gp_backend *own(const void *arg)
{
	return &((const struct recorder *)arg)->backend;
}

static void answer(const void *arg, enum gp_record_kind kind, uint64_t a, uint64_t b, uint64_t c)
{
	gp_record_answer(((const struct recorder *)arg)->number, kind, (const uint64_t[]){a, b, c});
}

static int reserve(void *arg, uint64_t bytes, uint64_t *ret_addr)
{
	int r = own(arg)->ops->reserve(own(arg)->arg, bytes, ret_addr);

	answer(arg, GP_RECORD_RESERVE, r ? 0 : *ret_addr, bytes, (uint64_t)r);
	return r;
}

static int release(void *arg, uint64_t addr)
{
	int r = own(arg)->ops->release(own(arg)->arg, addr);

	answer(arg, GP_RECORD_RELEASE, addr, (uint64_t)r, 0);
	return r;
}

static int release_begin(void *arg, uint64_t addr, int slot)
{
	int r = own(arg)->ops->release_begin(own(arg)->arg, addr, slot);

	/* Else it is released in another way, which is recorded. */
	if (r != -ENOTSUP)
		answer(arg, GP_RECORD_RELEASE, addr, (uint64_t)r, 1);
	return r;
}

static bool can_release_behind(void *arg)
{
	return own(arg)->ops->can_release_behind(own(arg)->arg);
}

static int release_poll(void *arg)
{
	int r = own(arg)->ops->release_poll(own(arg)->arg);

	answer(arg, GP_RECORD_RETURNED, (uint64_t)r, 0, 0);
	return r;
}

static int release_drain(void *arg, uint64_t max_ns)
{
	int r = own(arg)->ops->release_drain(own(arg)->arg, max_ns);

	answer(arg, GP_RECORD_RETURNED, (uint64_t)r, 0, 0);
	return r;
}

static int fence_record(void *arg, int slot, bool is_at_free, uint64_t *ret_epoch)
{
	int r = own(arg)->ops->fence_record(own(arg)->arg, slot, is_at_free, ret_epoch);

	answer(arg, GP_RECORD_FENCE, (uint64_t)slot, (uint64_t)r, gp_record_is_calm(*ret_epoch));
	return r;
}

static bool fence_record_waits(void *arg)
{
	const struct gp_backend *be = own(arg);

	return be->ops->fence_record_waits && be->ops->fence_record_waits(be->arg);
}

static int fence_query(void *arg, int slot)
{
	int r = own(arg)->ops->fence_query(own(arg)->arg, slot);

	answer(arg, GP_RECORD_QUERY, (uint64_t)slot, (uint64_t)r, 0);
	return r;
}

static bool fence_is_beyond(void *arg, int slot)
{
	const struct gp_backend *be = own(arg);
	bool is_beyond;

	if (!be->ops->fence_is_beyond)
		return false;
	is_beyond = be->ops->fence_is_beyond(be->arg, slot);
	answer(arg, GP_RECORD_BEYOND, is_beyond, 0, 0);
	return is_beyond;
}

static int fence_order(void *arg, int slot)
{
	int r = own(arg)->ops->fence_order(own(arg)->arg, slot);

	answer(arg, GP_RECORD_ORDER, (uint64_t)slot, (uint64_t)r, 0);
	return r;
}

static void pause_(void *arg, unsigned attempt)
{
	own(arg)->ops->pause(own(arg)->arg, attempt);
}

static bool trim_driver(void *arg)
{
	bool is_any = own(arg)->ops->trim_driver(own(arg)->arg);

	answer(arg, GP_RECORD_TRIM, is_any, 0, 0);
	return is_any;
}

/* What others did shows in what the driver answers next. */
static uint64_t ask_contexts(void *arg, uint64_t bytes)
{
	const struct gp_backend *be = own(arg);

	return be->ops->ask_contexts ? be->ops->ask_contexts(be->arg, bytes) : 0;
}

static uint64_t ask_processes(void *arg, uint64_t bytes)
{
	const struct gp_backend *be = own(arg);

	return be->ops->ask_processes ? be->ops->ask_processes(be->arg, bytes) : 0;
}

static uint64_t available(void *arg)
{
	uint64_t bytes = own(arg)->ops->available(own(arg)->arg);

	answer(arg, GP_RECORD_AVAILABLE, bytes, 0, 0);
	return bytes;
}

static uint64_t now_ns(void *arg)
{
	return own(arg)->ops->now_ns(own(arg)->arg);
}

static uint64_t ask_siblings(void *arg, uint64_t bytes, bool may_wait)
{
	const struct gp_backend *be = own(arg);

	return be->ops->ask_siblings ? be->ops->ask_siblings(be->arg, bytes, may_wait) : 0;
}

static void detach(void *arg)
{
	struct gp_backend backend = *own(arg);

	free(arg);
	if (backend.ops->detach)
		backend.ops->detach(backend.arg);
}

/* Addresses without memory are not worth a record; a piece of memory is one that has no address of its own. */
static uint64_t name_of(uint64_t handle)
{
	return (handle * GP_ALIGN) & ((UINT64_C(1) << 59) - 1);
}

static int address_reserve(void *arg, uint64_t bytes, uint64_t *ret_addr)
{
	return own(arg)->ops->mapping->address_reserve(own(arg)->arg, bytes, ret_addr);
}

static void address_free(void *arg, uint64_t addr, uint64_t bytes)
{
	own(arg)->ops->mapping->address_free(own(arg)->arg, addr, bytes);
}

static int create(void *arg, uint64_t bytes, uint64_t *ret_handle)
{
	int r = own(arg)->ops->mapping->create(own(arg)->arg, bytes, ret_handle);

	answer(arg, GP_RECORD_RESERVE, r ? 0 : name_of(*ret_handle), bytes, (uint64_t)r);
	return r;
}

static void release_piece(void *arg, uint64_t handle, uint64_t bytes)
{
	own(arg)->ops->mapping->release(own(arg)->arg, handle, bytes);
	answer(arg, GP_RECORD_RELEASE, name_of(handle), 0, 0);
}

static int map(void *arg, uint64_t addr, uint64_t bytes, uint64_t handle, bool *ret_is_stuck)
{
	return own(arg)->ops->mapping->map(own(arg)->arg, addr, bytes, handle, ret_is_stuck);
}

static int unmap(void *arg, uint64_t addr, uint64_t bytes)
{
	return own(arg)->ops->mapping->unmap(own(arg)->arg, addr, bytes);
}

static int wait_for_all(void *arg)
{
	return own(arg)->ops->mapping->wait(own(arg)->arg);
}

static const struct gp_mapping_ops recorded_mapping = {
	.address_reserve = address_reserve,
	.address_free = address_free,
	.create = create,
	.release = release_piece,
	.map = map,
	.unmap = unmap,
	.wait = wait_for_all,
};

static const struct gp_backend_ops recorded = {
	.mapping = &recorded_mapping,
	.reserve = reserve,
	.release = release,
	.release_begin = release_begin,
	.can_release_behind = can_release_behind,
	.release_poll = release_poll,
	.release_drain = release_drain,
	.fence_record = fence_record,
	.fence_record_waits = fence_record_waits,
	.fence_query = fence_query,
	.fence_is_beyond = fence_is_beyond,
	.fence_order = fence_order,
	.pause = pause_,
	.trim_driver = trim_driver,
	.ask_contexts = ask_contexts,
	.ask_processes = ask_processes,
	.ask_siblings = ask_siblings,
	.available = available,
	.now_ns = now_ns,
	.detach = detach,
};

static unsigned flags_of(const struct gp_pool_options *options)
{
	const struct gp_backend *be = &options->backend;
	bool waits = be->ops->fence_record_waits && be->ops->fence_record_waits(be->arg);

	return (options->completion_only ? GP_RECORD_POOL_COMPLETION : 0) |
	       (be->ops->can_release_behind(be->arg) ? GP_RECORD_POOL_BEHIND : 0) | (waits ? GP_RECORD_POOL_WAITS : 0) |
	       (be->work ? GP_RECORD_POOL_SEES : 0);
}

void gp_record_pool(struct gp_pool_options *options, int device, unsigned pinned)
{
	struct recorder *recorder;
	unsigned flags;

	if (!gp_record_is_on())
		return;
	flags = flags_of(options);
	recorder = malloc(sizeof(*recorder));
	if (!recorder) {
		gp_record_fail(-ENOMEM);
		return;
	}
	/* Another thread's pool has the next number, and must not come first. */
	gp_mutex_lock(&lock);
	*recorder = (struct recorder){options->backend, n_pools++};
	gp_record_answer(GP_RECORD_NO_POOL, GP_RECORD_POOL, (const uint64_t[GP_RECORD_FIELDS_MAX]){
		recorder->number, (uint64_t)device, pinned, options->kind, options->granule,
		options->capacity_bytes, atomic_load(&options->budget->limit_bytes), options->pending_bytes_max,
		options->pending_count_max, options->reserve_bytes, options->oom_wait_ns, flags,
		options->sibling ? gp_pool_number(options->sibling) : 0, options->thread_cache_bytes,
		options->page_bytes});
	gp_mutex_unlock(&lock);
	options->number = recorder->number + 1;
	options->backend = (struct gp_backend){&recorded, recorder, options->backend.work};
}

void gp_record_no_pool(struct gp_pool_options *options)
{
	if (options->number)
		free(options->backend.arg);
}

void gp_record_pools_after_fork_child(void)
{
	gp_mutex_init(&lock, GP_RANK_RECORD_TABLE);
}
