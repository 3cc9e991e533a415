/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A backend that forwards every call to a pool's real backend and records the answer. Only recorded pools have it. Its
 * argument is the pool's struct recorder.
 */

#include "record_backend.h"

#include <errno.h>
#include <stdlib.h>

#include "record.h"

struct recorder {
	struct gp_backend backend; /* the pool's real backend */
	uint32_t number;
};

static uint32_t n_pools;

/* Chunks of all pools that have slept, or whose handle was the name of such a chunk. */
static struct named {
	uint64_t handle, name;
} * all_named;
static size_t n_named, named_room;
static uint64_t n_fresh; /* names */

/* Guards the chunks. A thread that numbers and records a pool holds it, too. */
static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_RECORD_TABLE);

static const struct gp_backend *backend_of(const void *arg)
{
	return &((const struct recorder *)arg)->backend;
}

static void record_answer(const void *arg, enum gp_record_kind kind, uint64_t a, uint64_t b, uint64_t c)
{
	gp_record_answer(((const struct recorder *)arg)->number, kind, (const uint64_t[]){a, b, c});
}

static int reserve(void *arg, uint64_t bytes, uint64_t *ret_addr, uint64_t *ret_available)
{
	int r = backend_of(arg)->ops->reserve(backend_of(arg)->arg, bytes, ret_addr, ret_available);

	record_answer(arg, GP_RECORD_RESERVE, r ? 0 : *ret_addr, bytes, (uint64_t)r);
	if (!r && ret_available)
		record_answer(arg, GP_RECORD_AVAILABLE, *ret_available, 0, 0);
	return r;
}

static int release(void *arg, uint64_t addr)
{
	int r = backend_of(arg)->ops->release(backend_of(arg)->arg, addr);

	record_answer(arg, GP_RECORD_RELEASE, addr, (uint64_t)r, 0);
	return r;
}

static int release_begin(void *arg, uint64_t addr, int slot)
{
	int r = backend_of(arg)->ops->release_begin(backend_of(arg)->arg, addr, slot);

	/* After -ENOTSUP the pool calls release, which is recorded instead. */
	if (r != -ENOTSUP)
		record_answer(arg, GP_RECORD_RELEASE, addr, (uint64_t)r, 1);
	return r;
}

static bool can_release_behind(void *arg)
{
	return backend_of(arg)->ops->can_release_behind(backend_of(arg)->arg);
}

static bool is_first_release_slow(void *arg)
{
	const struct gp_backend *be = backend_of(arg);

	return be->ops->is_first_release_slow && be->ops->is_first_release_slow(be->arg);
}

static int release_poll(void *arg)
{
	int r = backend_of(arg)->ops->release_poll(backend_of(arg)->arg);

	record_answer(arg, GP_RECORD_RETURNED, (uint64_t)r, 0, 0);
	return r;
}

static int release_drain(void *arg, uint64_t max_ns)
{
	int r = backend_of(arg)->ops->release_drain(backend_of(arg)->arg, max_ns);

	record_answer(arg, GP_RECORD_RETURNED, (uint64_t)r, 0, 0);
	return r;
}

static int fence_record(void *arg, int slot, bool is_at_free, uint64_t *ret_epoch)
{
	int r = backend_of(arg)->ops->fence_record(backend_of(arg)->arg, slot, is_at_free, ret_epoch);

	record_answer(arg, GP_RECORD_FENCE, (uint64_t)slot, (uint64_t)r, gp_record_is_calm(*ret_epoch));
	return r;
}

static bool fence_record_waits(void *arg)
{
	const struct gp_backend *be = backend_of(arg);

	return be->ops->fence_record_waits && be->ops->fence_record_waits(be->arg);
}

static int fence_query(void *arg, int slot)
{
	int r = backend_of(arg)->ops->fence_query(backend_of(arg)->arg, slot);

	record_answer(arg, GP_RECORD_QUERY, (uint64_t)slot, (uint64_t)r, 0);
	return r;
}

static bool fence_is_beyond(void *arg, int slot)
{
	const struct gp_backend *be = backend_of(arg);
	bool is_beyond;

	if (!be->ops->fence_is_beyond)
		return false;
	is_beyond = be->ops->fence_is_beyond(be->arg, slot);
	record_answer(arg, GP_RECORD_BEYOND, is_beyond, 0, 0);
	return is_beyond;
}

static int fence_gpu_wait(void *arg, int slot)
{
	int r = backend_of(arg)->ops->fence_gpu_wait(backend_of(arg)->arg, slot);

	record_answer(arg, GP_RECORD_ORDER, (uint64_t)slot, (uint64_t)r, 0);
	return r;
}

static void fence_failed(void *arg)
{
	const struct gp_backend *be = backend_of(arg);

	if (be->ops->fence_failed)
		be->ops->fence_failed(be->arg);
}

static void pause_(void *arg, unsigned attempt)
{
	backend_of(arg)->ops->pause(backend_of(arg)->arg, attempt);
}

static bool trim_driver(void *arg)
{
	bool is_any = backend_of(arg)->ops->trim_driver(backend_of(arg)->arg);

	record_answer(arg, GP_RECORD_TRIM, is_any, 0, 0);
	return is_any;
}

/*
 * Requests to other contexts and processes, and waits for these, are not recorded: their effect shows in the driver's
 * next answers.
 */
static uint64_t ask_contexts(void *arg, uint64_t bytes)
{
	const struct gp_backend *be = backend_of(arg);

	return be->ops->ask_contexts ? be->ops->ask_contexts(be->arg, bytes) : 0;
}

static uint64_t ask_processes(void *arg, uint64_t bytes)
{
	const struct gp_backend *be = backend_of(arg);

	return be->ops->ask_processes ? be->ops->ask_processes(be->arg, bytes) : 0;
}

static uint64_t ask_group(void *arg, uint64_t bytes)
{
	const struct gp_backend *be = backend_of(arg);

	return be->ops->ask_group ? be->ops->ask_group(be->arg, bytes) : 0;
}

static uint64_t wait_begin(void *arg, uint64_t bytes, struct gp_wait *ret_wait)
{
	const struct gp_backend *be = backend_of(arg);

	return be->ops->wait_begin ? be->ops->wait_begin(be->arg, bytes, ret_wait) : 0;
}

static enum gp_wait_news wait_pause(void *arg, struct gp_wait *wait)
{
	return backend_of(arg)->ops->wait_pause(backend_of(arg)->arg, wait);
}

static void wait_end(void *arg, struct gp_wait *wait, uint64_t waited_ns, bool is_served)
{
	backend_of(arg)->ops->wait_end(backend_of(arg)->arg, wait, waited_ns, is_served);
}

static bool is_wanted(void *arg)
{
	const struct gp_backend *be = backend_of(arg);

	return be->ops->is_wanted && be->ops->is_wanted(be->arg);
}

static uint64_t available(void *arg)
{
	uint64_t bytes = backend_of(arg)->ops->available(backend_of(arg)->arg);

	record_answer(arg, GP_RECORD_AVAILABLE, bytes, 0, 0);
	return bytes;
}

static void count(void *arg, struct gp_stats *stats)
{
	const struct gp_backend *be = backend_of(arg);

	if (be->ops->count)
		be->ops->count(be->arg, stats);
}

static uint64_t now_ns(void *arg)
{
	return backend_of(arg)->ops->now_ns(backend_of(arg)->arg);
}

static uint64_t ask_siblings(void *arg, uint64_t bytes, bool may_wait)
{
	const struct gp_backend *be = backend_of(arg);

	return be->ops->ask_siblings ? be->ops->ask_siblings(be->arg, bytes, may_wait) : 0;
}

static void detach(void *arg)
{
	struct gp_backend backend = *backend_of(arg);

	free(arg);
	if (backend.ops->detach)
		backend.ops->detach(backend.arg);
}

/* No driver has handles of that size. */
#define FRESH_NAMES (UINT64_C(1) << 58)

/*
 * Returns the address that stands for a chunk in records: a chunk is a driver allocation without an address. Reserved
 * addresses without memory are not recorded.
 */
static uint64_t chunk_address(uint64_t handle)
{
	return (handle * GP_ALIGN) & ((UINT64_C(1) << 59) - 1);
}

static void add_name_locked(uint64_t handle, uint64_t name)
{
	size_t room = named_room ? 2 * named_room : 16;
	struct named *more;

	if (n_named == named_room) {
		more = realloc(all_named, room * sizeof(*more));
		if (!more) {
			gp_record_fail(-ENOMEM);
			return;
		}
		all_named = more;
		named_room = room;
	}
	all_named[n_named++] = (struct named){handle, name};
}

/* Returns the name of a new chunk. The driver may use a handle again that is the name of a chunk that has slept. */
static uint64_t name_new(uint64_t handle)
{
	uint64_t name = chunk_address(handle);
	bool is_taken = false;

	gp_mutex_lock(&lock);
	for (size_t i = 0; i < n_named && !is_taken; i++)
		is_taken = all_named[i].name == name;
	if (is_taken) {
		name = FRESH_NAMES + n_fresh++ * GP_ALIGN;
		add_name_locked(handle, name);
	}
	gp_mutex_unlock(&lock);
	return name;
}

static const struct gp_backend *beneath(void *arg)
{
	return backend_of(arg);
}

static uint64_t name_take(void *unused, uint64_t handle)
{
	uint64_t name = chunk_address(handle);

	gp_mutex_lock(&lock);
	for (size_t i = 0; i < n_named; i++) {
		if (all_named[i].handle != handle)
			continue;
		name = all_named[i].name;
		all_named[i] = all_named[--n_named];
		break;
	}
	gp_mutex_unlock(&lock);
	return name;
}

static void name_give(void *unused, uint64_t handle, uint64_t name)
{
	gp_mutex_lock(&lock);
	if (name != chunk_address(handle))
		add_name_locked(handle, name);
	gp_mutex_unlock(&lock);
}

static const struct gp_recorder_ops recorder_ops = {
	.beneath = beneath,
	.name_take = name_take,
	.name_give = name_give,
};

static int address_reserve(void *arg, uint64_t bytes, uint64_t *ret_addr)
{
	return backend_of(arg)->ops->mapping->address_reserve(backend_of(arg)->arg, bytes, ret_addr);
}

static void address_free(void *arg, uint64_t addr, uint64_t bytes)
{
	backend_of(arg)->ops->mapping->address_free(backend_of(arg)->arg, addr, bytes);
}

static int create(void *arg, uint64_t bytes, uint64_t *ret_handle)
{
	int r = backend_of(arg)->ops->mapping->create(backend_of(arg)->arg, bytes, ret_handle);

	record_answer(arg, GP_RECORD_RESERVE, r ? 0 : name_new(*ret_handle), bytes, (uint64_t)r);
	return r;
}

static void release_chunk(void *arg, uint64_t handle, uint64_t bytes)
{
	/* Another thread may get the handle as soon as it has gone back. */
	uint64_t name = name_take(arg, handle);

	backend_of(arg)->ops->mapping->release(backend_of(arg)->arg, handle, bytes);
	record_answer(arg, GP_RECORD_RELEASE, name, 0, 0);
}

static int map(void *arg, uint64_t addr, uint64_t bytes, uint64_t handle, bool *ret_is_stuck)
{
	return backend_of(arg)->ops->mapping->map(backend_of(arg)->arg, addr, bytes, handle, ret_is_stuck);
}

static int unmap(void *arg, uint64_t addr, uint64_t bytes)
{
	return backend_of(arg)->ops->mapping->unmap(backend_of(arg)->arg, addr, bytes);
}

static int wait_for_all(void *arg)
{
	return backend_of(arg)->ops->mapping->wait(backend_of(arg)->arg);
}

static const struct gp_mapping_ops recorded_mapping = {
	.address_reserve = address_reserve,
	.address_free = address_free,
	.create = create,
	.release = release_chunk,
	.map = map,
	.unmap = unmap,
	.wait = wait_for_all,
};

static const struct gp_backend_ops recorded = {
	.mapping = &recorded_mapping,
	.recorder = &recorder_ops,
	.reserve = reserve,
	.release = release,
	.release_begin = release_begin,
	.can_release_behind = can_release_behind,
	.is_first_release_slow = is_first_release_slow,
	.release_poll = release_poll,
	.release_drain = release_drain,
	.fence_record = fence_record,
	.fence_record_waits = fence_record_waits,
	.fence_query = fence_query,
	.fence_is_beyond = fence_is_beyond,
	.fence_gpu_wait = fence_gpu_wait,
	.fence_failed = fence_failed,
	.pause = pause_,
	.trim_driver = trim_driver,
	.ask_contexts = ask_contexts,
	.ask_processes = ask_processes,
	.ask_group = ask_group,
	.wait_begin = wait_begin,
	.wait_pause = wait_pause,
	.wait_end = wait_end,
	.is_wanted = is_wanted,
	.ask_siblings = ask_siblings,
	.available = available,
	.count = count,
	.now_ns = now_ns,
	.detach = detach,
};

static unsigned flags_of(const struct gp_pool_options *options)
{
	const struct gp_backend *be = &options->backend;
	bool waits = be->ops->fence_record_waits && be->ops->fence_record_waits(be->arg);
	bool is_slow = be->ops->is_first_release_slow && be->ops->is_first_release_slow(be->arg);

	return (options->completion_only ? GP_RECORD_POOL_COMPLETION : 0) |
	       (be->ops->can_release_behind(be->arg) ? GP_RECORD_POOL_BEHIND : 0) | (waits ? GP_RECORD_POOL_WAITS : 0) |
	       (be->work ? GP_RECORD_POOL_SEES : 0) | (is_slow ? GP_RECORD_POOL_SLOW_RELEASE : 0);
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
	/* The lock keeps POOL records in the order of the numbers, also if another thread makes a pool meanwhile. */
	gp_mutex_lock(&lock);
	*recorder = (struct recorder){options->backend, n_pools++};
	gp_record_answer(GP_RECORD_NO_POOL, GP_RECORD_POOL,
		(const uint64_t[GP_RECORD_FIELDS_MAX]){recorder->number, (uint64_t)device, pinned, options->kind,
			options->granule, options->capacity_bytes, atomic_load(&options->budget->limit_bytes),
			options->pending_bytes_max, options->pending_count_max, options->reserve_bytes,
			options->oom_wait_ns, flags, options->sibling ? gp_pool_number(options->sibling) : 0,
			options->thread_cache_bytes, options->page_bytes});
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
