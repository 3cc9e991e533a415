/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Host memory and copies for pools that fall asleep. The host memory is the process's own, touched by several threads
 * (base/host_pages.h), and then registered with the driver: the driver's own allocation takes ten times as long. Its
 * content does not end with the context. A forked child does not have it: it would keep the memory from going back.
 * While the driver registers one piece, the next one is touched: either takes about as long as the other.
 *
 * The driver may wait for the GPU when memory is unregistered, so that is done only while the gate is closed and the
 * GPU idle (sleep.c). With GPUPOOL_SLEEP_KEEP=on the memory stays registered for the next sleep.
 *
 * The driver maps registered memory for the GPU with pages of 4 KiB: the tables take 2 MiB of the device's memory for
 * each GiB, on each device. So what exceeds GPUPOOL_SLEEP_PINNED is unregistered while the process is asleep.
 * A wake registers it again, piece by piece, while the copies of the pieces before run.
 */

#include "backend_sleep.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "fence_call.h"
#include "pool/tuning.h"
#include "shim/base/clock.h"
#include "shim/base/fork.h"
#include "shim/base/host_pages.h"
#include "shim/base/own_thread.h"
#include "shim/base/slow_path.h"
#include "shim/base/state.h"
#include "shim/context/driver_call.h"
#include "shim/driver/driver_table.h"

/* Memory that is kept. It was registered in a context, with whose end the registration ends. */
struct kept {
	struct kept *next;
	struct gp_context *context; /* a reference */
	void *host;
	uint64_t bytes;
};

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static struct kept *kept;
static _Atomic uint64_t host_bytes, kept_bytes, pinned_bytes;

/* The piece that was touched ahead; host: NULL if there is none. For the thread that puts the process to sleep. */
static struct {
	void *host;
	uint64_t bytes;
} ahead;

static void reset_in_child(void)
{
	gp_mutex_init(&lock, GP_RANK_LEAF);
	kept = NULL;
	ahead.host = NULL;
	atomic_store(&host_bytes, 0);
	atomic_store(&kept_bytes, 0);
	atomic_store(&pinned_bytes, 0);
}

bool gp_sleep_backend_works(void)
{
	return gp_real.cuMemHostRegister_v2 && gp_real.cuMemHostUnregister && gp_real.cuMemcpyDtoHAsync_v2 &&
	       gp_real.cuMemcpyHtoDAsync_v2 && gp_real.cuMemsetD8Async && gp_real.cuEventRecord &&
	       gp_real.cuStreamSynchronize;
}

uint64_t gp_sleep_host_bytes(uint64_t *ret_kept_bytes)
{
	*ret_kept_bytes = atomic_load(&kept_bytes);
	return atomic_load(&host_bytes);
}

uint64_t gp_sleep_pinned_bytes(void)
{
	return atomic_load(&pinned_bytes);
}

/* Returns kept memory of at least these bytes, the smallest, but none of more than twice as many. */
static struct kept **find_kept_locked(const struct gp_context *context, uint64_t bytes)
{
	struct kept **best = NULL;

	for (struct kept **at = &kept; *at; at = &(*at)->next)
		if ((*at)->context == context && (*at)->bytes >= bytes && (*at)->bytes / 2 <= bytes &&
			(!best || (*at)->bytes < (*best)->bytes))
			best = at;
	return best;
}

static bool has_kept(const struct gp_context *context, uint64_t bytes)
{
	bool is_found;

	gp_mutex_lock(&lock);
	is_found = find_kept_locked(context, bytes) != NULL;
	gp_mutex_unlock(&lock);
	return is_found;
}

static void *take_kept(const struct gp_context *context, uint64_t bytes, uint64_t *ret_bytes)
{
	struct kept **best, *found = NULL;
	void *host = NULL;

	gp_mutex_lock(&lock);
	best = find_kept_locked(context, bytes);
	if (best) {
		found = *best;
		*best = found->next;
		host = found->host;
		*ret_bytes = found->bytes;
		atomic_fetch_sub(&kept_bytes, found->bytes);
	}
	gp_mutex_unlock(&lock);
	if (found)
		gp_context_unref(found->context);
	free(found);
	return host;
}

static void unmap(void *host, uint64_t bytes)
{
	gp_host_pages_unmap(host, bytes);
	atomic_fetch_sub(&host_bytes, bytes);
}

/* True if GPUPOOL_SLEEP_HOST leaves room for these bytes beside all that is mapped, if need be without kept memory. */
static bool has_room(struct gp_context *context, uint64_t bytes)
{
	uint64_t bound = gp_state.config.sleep_host_bytes;

	if (bound && atomic_load(&host_bytes) + bytes > bound)
		gp_sleep_host_trim(context);
	return !bound || atomic_load(&host_bytes) + bytes <= bound;
}

/*
 * There is no other way to take this memory, so GPUPOOL_PINNED_THREADS=0 means what auto means. A number holds for this
 * memory, too.
 */
static void *touch(const struct gp_context *context, uint64_t bytes)
{
	uint64_t threads = gp_state.config.pinned_threads;
	struct gp_host_pages_how how = {
		.threads = threads == GP_CONFIG_THREADS_AUTO ? 0 : (unsigned)threads,
		.node = gp_driver_numa_node(context->device->index),
		.is_own = true,
	};
	void *host = gp_host_pages_map(bytes, &how);

	if (host)
		atomic_fetch_add(&host_bytes, bytes);
	return host;
}

void gp_sleep_host_drop_ahead(void)
{
	if (ahead.host)
		unmap(ahead.host, ahead.bytes);
	ahead.host = NULL;
}

static void *map(struct gp_context *context, uint64_t bytes)
{
	void *host = ahead.host;

	if (host && ahead.bytes == bytes) {
		ahead.host = NULL;
		return host;
	}
	gp_sleep_host_drop_ahead();
	return has_room(context, bytes) ? touch(context, bytes) : NULL;
}

static CUresult register_host(struct gp_context *context, void *host, uint64_t bytes)
{
	struct gp_driver_scope scope;
	CUresult r;

	if (!gp_context_enter(context))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	r = gp_driver_enter(&scope, context->handle);
	if (!r) {
		r = gp_real.cuMemHostRegister_v2(host, bytes, CU_MEMHOSTREGISTER_PORTABLE);
		gp_driver_leave(&scope);
	}
	gp_context_leave(context);
	if (!r)
		atomic_fetch_add(&pinned_bytes, bytes);
	return r;
}

/* A piece to register, and in another thread the next one to touch. */
struct both {
	pthread_t caller; /* the thread that registers */
	struct gp_context *context;
	void *host;
	uint64_t bytes;
	CUresult r;
};

static void *do_one_of(void *arg)
{
	struct both *both = arg;

	if (pthread_equal(pthread_self(), both->caller))
		both->r = register_host(both->context, both->host, both->bytes);
	else
		ahead.host = touch(both->context, ahead.bytes);
	return NULL;
}

/* Without room, or a thread, the next piece is touched when it is asked for. */
static CUresult register_and_touch(struct gp_context *context, void *host, uint64_t bytes, uint64_t next_bytes)
{
	struct both both = {pthread_self(), context, host, bytes, 0};
	bool has_next = next_bytes && !has_kept(context, next_bytes) && gp_host_processors() > 1;

	if (!has_next || !has_room(context, next_bytes))
		return register_host(context, host, bytes);
	ahead.bytes = next_bytes;
	(void)gp_own_threads_run(do_one_of, &both, 2);
	return both.r;
}

/* Does not call the driver once the context has ended: the registration ended with it. */
static void unregister_host(struct gp_context *context, void *host, uint64_t bytes)
{
	struct gp_driver_scope scope;

	atomic_fetch_sub(&pinned_bytes, bytes);
	if (gp_slow_path_is_any(GP_SLOW_PATH_BYPASS) || !gp_context_enter(context))
		return;
	if (!gp_driver_enter(&scope, context->handle)) {
		(void)gp_real.cuMemHostUnregister(host);
		gp_driver_leave(&scope);
	}
	gp_context_leave(context);
}

static int result_of(CUresult r)
{
	return r == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : r;
}

static int host_take(
	void *arg, uint64_t bytes, uint64_t next_bytes, void **ret_host, uint64_t *ret_bytes, bool *ret_is_new)
{
	static const struct gp_fork_child child = {.fn = reset_in_child};
	struct gp_context *context = arg;
	CUresult r;

	gp_fork_on_child(&child);
	*ret_bytes = bytes;
	*ret_host = take_kept(context, bytes, ret_bytes);
	*ret_is_new = !*ret_host;
	if (*ret_host)
		return 0;
	*ret_host = map(context, bytes);
	if (!*ret_host)
		return -ENOMEM;
	r = register_and_touch(context, *ret_host, bytes, next_bytes);
	if (r)
		unmap(*ret_host, bytes);
	return result_of(r);
}

static bool keep(struct gp_context *context, void *host, uint64_t size)
{
	struct kept *piece;

	if (!gp_state.config.is_sleep_memory_kept || gp_context_is(context, GP_CONTEXT_DEAD))
		return false;
	piece = malloc(sizeof(*piece));
	if (!piece)
		return false;
	gp_context_ref(context);
	gp_mutex_lock(&lock);
	*piece = (struct kept){.next = kept, .context = context, .host = host, .bytes = size};
	kept = piece;
	atomic_fetch_add(&kept_bytes, size);
	gp_mutex_unlock(&lock);
	return true;
}

static void host_give(void *arg, void *host, uint64_t size, bool is_pinned)
{
	struct gp_context *context = arg;

	if (is_pinned && keep(context, host, size))
		return;
	if (is_pinned)
		unregister_host(context, host, size);
	unmap(host, size);
}

static void host_unpin(void *arg, void *host, uint64_t size)
{
	unregister_host(arg, host, size);
}

static int host_pin(void *arg, void *host, uint64_t size)
{
	return result_of(register_host(arg, host, size));
}

/* Takes a kept piece of any context out of the list: of the given one, or of one that has ended. */
static struct kept *next_to_trim(const struct gp_context *context)
{
	struct kept *found = NULL;

	gp_mutex_lock(&lock);
	for (struct kept **at = &kept; *at && !found;) {
		if ((*at)->context == context || gp_context_is((*at)->context, GP_CONTEXT_DEAD)) {
			found = *at;
			*at = found->next;
			atomic_fetch_sub(&kept_bytes, found->bytes);
		} else {
			at = &(*at)->next;
		}
	}
	gp_mutex_unlock(&lock);
	return found;
}

void gp_sleep_host_trim(struct gp_context *context)
{
	struct kept *piece;

	while ((piece = next_to_trim(context))) {
		unregister_host(piece->context, piece->host, piece->bytes);
		unmap(piece->host, piece->bytes);
		gp_context_unref(piece->context);
		free(piece);
	}
}

/* Calls back in the context, with the private stream. */
static int in_context(void *arg, CUresult (*fn)(CUstream stream, void *arg), void *fn_arg)
{
	struct gp_context *context = arg;
	struct gp_driver_scope scope;
	CUstream stream;
	CUresult r;

	if (!gp_context_enter(context))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	r = gp_driver_enter(&scope, context->handle);
	if (!r) {
		r = gp_driver_stream(&context->sleep_stream, &stream);
		if (!r)
			r = fn(stream, fn_arg);
		gp_driver_leave(&scope);
	}
	gp_context_leave(context);
	return result_of(r);
}

struct copy {
	void *to_host;
	const void *from_host;
	uint64_t addr, bytes;
};

static CUresult submit_copy(CUstream stream, void *arg)
{
	const struct copy *copy = arg;

	return copy->to_host ? gp_real.cuMemcpyDtoHAsync_v2(copy->to_host, copy->addr, copy->bytes, stream)
			     : gp_real.cuMemcpyHtoDAsync_v2(copy->addr, copy->from_host, copy->bytes, stream);
}

static int copy_out(void *arg, void *host, uint64_t addr, uint64_t bytes)
{
	struct copy copy = {.to_host = host, .addr = addr, .bytes = bytes};

	return in_context(arg, submit_copy, &copy);
}

static int copy_in(void *arg, uint64_t addr, const void *host, uint64_t bytes)
{
	struct copy copy = {.from_host = host, .addr = addr, .bytes = bytes};

	return in_context(arg, submit_copy, &copy);
}

static CUresult submit_zero(CUstream stream, void *arg)
{
	const struct copy *copy = arg;

	return gp_real.cuMemsetD8Async(copy->addr, 0, copy->bytes, stream);
}

static int zero(void *arg, uint64_t addr, uint64_t bytes)
{
	struct copy copy = {.addr = addr, .bytes = bytes};

	return in_context(arg, submit_zero, &copy);
}

static CUresult record_mark(CUstream stream, void *event)
{
	return gp_real.cuEventRecord(event, stream);
}

static int copy_mark(void *arg, int slot)
{
	struct gp_context *context = arg;
	int r = gp_backend_event(context, &context->sleep_events[slot]);

	return r ? result_of((CUresult)r) : in_context(arg, record_mark, context->sleep_events[slot]);
}

static CUresult query_mark(CUstream unused, void *event)
{
	return gp_real.cuEventQuery(event);
}

static int copy_wait(void *arg, int slot)
{
	struct gp_context *context = arg;
	unsigned attempt = 0;
	int r;

	while ((r = in_context(arg, query_mark, context->sleep_events[slot])) == CUDA_ERROR_NOT_READY)
		gp_clock_pause(NULL, attempt++);
	return r;
}

static CUresult wait_for_all(CUstream stream, void *unused)
{
	return gp_real.cuStreamSynchronize(stream);
}

static void copy_drain(void *arg)
{
	(void)in_context(arg, wait_for_all, NULL);
}

const struct gp_sleep_ops gp_sleep_backend = {
	.piece_bytes = GP_SLEEP_PIECE,
	.host_take = host_take,
	.host_give = host_give,
	.host_unpin = host_unpin,
	.host_pin = host_pin,
	.copy_out = copy_out,
	.copy_in = copy_in,
	.zero = zero,
	.copy_mark = copy_mark,
	.copy_wait = copy_wait,
	.copy_drain = copy_drain,
};
