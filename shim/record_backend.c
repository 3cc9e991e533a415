/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A backend that passes every call on and records the answer. Pools that are recorded get it in place of their own;
 * the others do not know that it exists. What a pool's owner is to the backend names the pool: its argument.
 *
 * The table is read without a lock: an entry is set while its pool can be used.
 */

#include "record_backend.h"

#include <errno.h>

/* More than there can be contexts at a time, each with all its pinned pools. */
enum { POOLS_MAX = 1024 };

static struct entry {
	_Atomic(const void *) arg;
	_Atomic(const struct gp_backend_ops *) ops;
	_Atomic uint32_t number;
} entries[POOLS_MAX];
static _Atomic unsigned n_entries; /* that were ever used */
static uint32_t n_pools;
static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_RECORD_TABLE); /* whoever changes the table */

static struct entry *find(const void *arg)
{
	unsigned n = atomic_load_explicit(&n_entries, memory_order_acquire);

	for (unsigned i = 0; i < n; i++)
		if (atomic_load_explicit(&entries[i].arg, memory_order_acquire) == arg)
			return &entries[i];
	return NULL;
}

bool gp_record_pool_number(const void *owner, uint32_t *ret_number)
{
	const struct entry *e = find(owner);

	if (e)
		*ret_number = atomic_load_explicit(&e->number, memory_order_relaxed);
	return e != NULL;
}

static const struct gp_backend_ops *ops_of(const void *arg)
{
	return atomic_load_explicit(&find(arg)->ops, memory_order_relaxed);
}

static void answer(const void *arg, enum gp_record_kind kind, uint64_t a, uint64_t b, uint64_t c)
{
	gp_record_answer(atomic_load_explicit(&find(arg)->number, memory_order_relaxed), kind,
		(const uint64_t[]){a, b, c});
}

static int reserve(void *arg, uint64_t bytes, uint64_t *ret_addr)
{
	int r = ops_of(arg)->reserve(arg, bytes, ret_addr);

	answer(arg, GP_RECORD_RESERVE, r ? 0 : *ret_addr, bytes, (uint64_t)r);
	return r;
}

static int release(void *arg, uint64_t addr)
{
	int r = ops_of(arg)->release(arg, addr);

	answer(arg, GP_RECORD_RELEASE, addr, (uint64_t)r, 0);
	return r;
}

static int release_begin(void *arg, uint64_t addr, int slot)
{
	int r = ops_of(arg)->release_begin(arg, addr, slot);

	/* Else it is released in another way, which is recorded. */
	if (r != -ENOTSUP)
		answer(arg, GP_RECORD_RELEASE, addr, (uint64_t)r, 1);
	return r;
}

static bool can_release_behind(void *arg)
{
	return ops_of(arg)->can_release_behind(arg);
}

static int release_poll(void *arg)
{
	int r = ops_of(arg)->release_poll(arg);

	answer(arg, GP_RECORD_RETURNED, (uint64_t)r, 0, 0);
	return r;
}

static int release_drain(void *arg, uint64_t max_ns)
{
	int r = ops_of(arg)->release_drain(arg, max_ns);

	answer(arg, GP_RECORD_RETURNED, (uint64_t)r, 0, 0);
	return r;
}

static int fence_record(void *arg, int slot, bool is_at_free)
{
	int r = ops_of(arg)->fence_record(arg, slot, is_at_free);

	answer(arg, GP_RECORD_FENCE, (uint64_t)slot, (uint64_t)r, 0);
	return r;
}

static bool fence_record_waits(void *arg)
{
	const struct gp_backend_ops *ops = ops_of(arg);

	return ops->fence_record_waits && ops->fence_record_waits(arg);
}

static int fence_query(void *arg, int slot)
{
	int r = ops_of(arg)->fence_query(arg, slot);

	answer(arg, GP_RECORD_QUERY, (uint64_t)slot, (uint64_t)r, 0);
	return r;
}

static bool fence_is_beyond(void *arg, int slot)
{
	const struct gp_backend_ops *ops = ops_of(arg);
	bool is_beyond;

	if (!ops->fence_is_beyond)
		return false;
	is_beyond = ops->fence_is_beyond(arg, slot);
	answer(arg, GP_RECORD_BEYOND, is_beyond, 0, 0);
	return is_beyond;
}

static int fence_order(void *arg, int slot)
{
	int r = ops_of(arg)->fence_order(arg, slot);

	answer(arg, GP_RECORD_ORDER, (uint64_t)slot, (uint64_t)r, 0);
	return r;
}

static void pause_(void *arg, unsigned attempt)
{
	ops_of(arg)->pause(arg, attempt);
}

static bool trim_driver(void *arg)
{
	bool is_any = ops_of(arg)->trim_driver(arg);

	answer(arg, GP_RECORD_TRIM, is_any, 0, 0);
	return is_any;
}

/* What others did shows in what the driver answers next. */
static uint64_t ask_contexts(void *arg, uint64_t bytes)
{
	const struct gp_backend_ops *ops = ops_of(arg);

	return ops->ask_contexts ? ops->ask_contexts(arg, bytes) : 0;
}

static uint64_t ask_processes(void *arg, uint64_t bytes)
{
	const struct gp_backend_ops *ops = ops_of(arg);

	return ops->ask_processes ? ops->ask_processes(arg, bytes) : 0;
}

static uint64_t available(void *arg)
{
	uint64_t bytes = ops_of(arg)->available(arg);

	answer(arg, GP_RECORD_AVAILABLE, bytes, 0, 0);
	return bytes;
}

static uint64_t now_ns(void *arg)
{
	return ops_of(arg)->now_ns(arg);
}

static void detach(void *arg)
{
	const struct gp_backend_ops *ops = ops_of(arg);

	gp_mutex_lock(&lock);
	atomic_store(&find(arg)->arg, NULL);
	gp_mutex_unlock(&lock);
	if (ops->detach)
		ops->detach(arg);
}

/* Addresses without memory are not worth a record; a piece of memory is one that has no address of its own. */
static uint64_t name_of(uint64_t handle)
{
	return (handle * GP_ALIGN) & ((UINT64_C(1) << 59) - 1);
}

static int address_reserve(void *arg, uint64_t bytes, uint64_t *ret_addr)
{
	return ops_of(arg)->mapping->address_reserve(arg, bytes, ret_addr);
}

static void address_free(void *arg, uint64_t addr, uint64_t bytes)
{
	ops_of(arg)->mapping->address_free(arg, addr, bytes);
}

static int create(void *arg, uint64_t bytes, uint64_t *ret_handle)
{
	int r = ops_of(arg)->mapping->create(arg, bytes, ret_handle);

	answer(arg, GP_RECORD_RESERVE, r ? 0 : name_of(*ret_handle), bytes, (uint64_t)r);
	return r;
}

static void release_piece(void *arg, uint64_t handle, uint64_t bytes)
{
	ops_of(arg)->mapping->release(arg, handle, bytes);
	answer(arg, GP_RECORD_RELEASE, name_of(handle), 0, 0);
}

static int map(void *arg, uint64_t addr, uint64_t bytes, uint64_t handle)
{
	return ops_of(arg)->mapping->map(arg, addr, bytes, handle);
}

static int unmap(void *arg, uint64_t addr, uint64_t bytes)
{
	return ops_of(arg)->mapping->unmap(arg, addr, bytes);
}

static int wait_for_all(void *arg)
{
	return ops_of(arg)->mapping->wait(arg);
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
	.available = available,
	.now_ns = now_ns,
	.detach = detach,
};

/* One that was of a pool that never came to be may still be there. NULL: the table is full. */
static struct entry *add_locked(const struct gp_backend *backend)
{
	struct entry *e = find(backend->arg);
	unsigned n = atomic_load(&n_entries);

	if (!e)
		e = find(NULL);
	if (!e && n < POOLS_MAX)
		e = &entries[n++];
	if (!e)
		return NULL;
	atomic_store(&e->ops, backend->ops);
	atomic_store(&e->number, n_pools++);
	atomic_store(&e->arg, backend->arg);
	atomic_store(&n_entries, n);
	return e;
}

static unsigned flags_of(const struct gp_pool_options *options)
{
	const struct gp_backend *be = &options->backend;
	bool waits = be->ops->fence_record_waits && be->ops->fence_record_waits(be->arg);

	return (options->completion_only ? GP_RECORD_POOL_COMPLETION : 0) |
	       (be->ops->can_release_behind(be->arg) ? GP_RECORD_POOL_BEHIND : 0) | (waits ? GP_RECORD_POOL_WAITS : 0);
}

void gp_record_pool(struct gp_pool_options *options, int device, unsigned pinned)
{
	unsigned flags;
	struct entry *e;

	if (!gp_record_is_on())
		return;
	flags = flags_of(options);
	gp_mutex_lock(&lock);
	e = add_locked(&options->backend);
	/* Another thread's pool has the next number, and must not come first. */
	if (e)
		gp_record_answer(GP_RECORD_NO_POOL, GP_RECORD_POOL, (const uint64_t[GP_RECORD_FIELDS_MAX]){
			atomic_load(&e->number), (uint64_t)device, pinned, options->kind, options->granule,
			options->capacity_bytes, atomic_load(&options->budget->limit_bytes), options->pending_bytes_max,
			options->pending_count_max, options->reserve_bytes, options->oom_wait_ns, flags});
	gp_mutex_unlock(&lock);
	if (e)
		options->backend.ops = &recorded;
	else
		gp_record_fail(-ENFILE);
}

void gp_record_table_after_fork_child(void)
{
	gp_mutex_init(&lock, GP_RANK_RECORD_TABLE);
}
