/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The driver's allocator that a context's segments come from (GPUPOOL_BACKEND): the configured one if the device
 * supports it, or cuMemAlloc. The layers above do not depend on it: fences, kinds and limits work the same.
 *
 * Managed memory is used only on devices where the host may access it at any time. On other devices the driver does
 * not move single pages, does not give more memory than the device has, and copies all managed memory to the device
 * and back at every launch.
 */

#include "backend_supply.h"

#include "async.h"
#include "spill.h"
#include "shim/base/log.h"
#include "shim/context/driver_call.h"
#include "shim/driver/driver_table.h"

static bool can_be_managed(const struct gp_context *context)
{
	return gp_real.cuMemAllocManaged &&
	       gp_driver_has(context->device->index, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);
}

static void set_backend(struct gp_context *context, enum gp_config_backend backend)
{
	atomic_store(&context->backend, backend);
	atomic_store(&context->device->backend, backend);
}

void gp_backend_setup(struct gp_context *context)
{
	enum gp_config_backend wanted = gp_state.config.backend;
	bool can_be = wanted == GP_CONFIG_BACKEND_DEVICE;

	if (wanted == GP_CONFIG_BACKEND_MANAGED)
		can_be = can_be_managed(context);
	else if (wanted == GP_CONFIG_BACKEND_ASYNC)
		can_be = gp_async_is_possible(context);
	set_backend(context, can_be ? wanted : GP_CONFIG_BACKEND_DEVICE);
	if (!can_be)
		atomic_fetch_or(&context->downgraded, GP_DOWNGRADED_BACKEND);
}

const char *gp_backend_name(enum gp_config_backend backend)
{
	static const char *const names[] = {
		[GP_CONFIG_BACKEND_DEVICE] = "device",
		[GP_CONFIG_BACKEND_MANAGED] = "managed",
		[GP_CONFIG_BACKEND_ASYNC] = "async",
	};

	return names[backend];
}

static CUresult call_driver(struct gp_context *context, CUdeviceptr *ptr, uint64_t bytes)
{
	switch (atomic_load_explicit(&context->backend, memory_order_relaxed)) {
	case GP_CONFIG_BACKEND_MANAGED:
		return gp_real.cuMemAllocManaged(ptr, bytes, CU_MEM_ATTACH_GLOBAL);
	case GP_CONFIG_BACKEND_ASYNC:
		return gp_async_take(context, ptr, bytes);
	default:
		return gp_real.cuMemAlloc_v2(ptr, bytes);
	}
}

uint64_t gp_backend_ask_available(void)
{
	size_t available, total;

	return gp_real.cuMemGetInfo_v2(&available, &total) ? UINT64_MAX : available;
}

/* A scope takes three calls of the driver, so the allocation and the question share one. */
static CUresult take(struct gp_context *context, CUdeviceptr *ptr, uint64_t bytes, uint64_t *ret_available)
{
	struct gp_driver_scope scope;
	CUresult r = gp_driver_enter(&scope, context->handle);

	if (r)
		return r;
	r = call_driver(context, ptr, bytes);
	if (!r && ret_available)
		*ret_available = gp_backend_ask_available();
	gp_driver_leave(&scope);
	return r;
}

static void count_allocs(void *arg, struct gp_pool *pool)
{
	struct gp_stats stats;

	gp_pool_stats(pool, &stats);
	*(uint64_t *)arg += stats.driver_allocs;
}

/*
 * True if r shows that the configured allocator is forbidden: the driver may claim support that a container or a
 * virtual machine forbids. False once the context has memory from that allocator: a context cannot have memory of both
 * allocators, since they free it by different calls.
 */
static bool is_forbidden(struct gp_context *context, CUresult r)
{
	uint64_t n_allocs = 0;

	if ((r != CUDA_ERROR_NOT_SUPPORTED && r != CUDA_ERROR_NOT_FOUND && r != CUDA_ERROR_NOT_PERMITTED) ||
		gp_context_backend_is(context, GP_CONFIG_BACKEND_DEVICE))
		return false;
	gp_context_each_pool(context, count_allocs, &n_allocs);
	return !n_allocs;
}

CUresult gp_backend_take(struct gp_context *context, CUdeviceptr *ptr, uint64_t bytes, uint64_t *ret_available)
{
	CUresult r = take(context, ptr, bytes, ret_available);

	if (gp_likely(!r) || !is_forbidden(context, r))
		return r;
	set_backend(context, GP_CONFIG_BACKEND_DEVICE);
	atomic_fetch_or(&context->downgraded, GP_DOWNGRADED_BACKEND);
	return take(context, ptr, bytes, ret_available);
}

enum gp_config_backend gp_backend_of(uint64_t addr)
{
	struct gp_pool *pool = gp_addrmap_pool_of(&gp_state.device_map, addr);
	enum gp_config_backend backend = GP_CONFIG_BACKEND_DEVICE;

	if (pool)
		backend = atomic_load(&((struct gp_context *)gp_pool_owner(pool))->backend);
	gp_pool_put(pool);
	return backend;
}

void gp_backend_log_downgrades(struct gp_context *context)
{
	unsigned downgraded = atomic_exchange(&context->downgraded, 0);
	const char *why = atomic_load(&context->device->why_kind);

	if (downgraded & GP_DOWNGRADED_KIND && gp_state.config.pool == GP_CONFIG_POOL_AUTO)
		gp_log(GP_LOG_INFO, GP_CONFIG_CHOICE "pool type %s on device %d%s%s",
			gp_kind_name(atomic_load(&context->device->kind)), context->device->index,
			why ? ", since " : "", why ? why : "");
	else if (downgraded & GP_DOWNGRADED_KIND)
		gp_log(GP_LOG_WARN, "pool type vmm is not available on device %d: using split instead, since %s",
			context->device->index, why ? why : "the driver cannot map memory there");
	if (downgraded & GP_DOWNGRADED_BACKEND)
		gp_log(GP_LOG_WARN,
			"GPUPOOL_BACKEND=%s is not available on device %d, which %s: using device memory instead",
			gp_backend_name(gp_state.config.backend), context->device->index,
			gp_state.config.backend == GP_CONFIG_BACKEND_MANAGED
				? "does not let the host access managed memory at any time"
				: "does not support stream-ordered memory");
	if (downgraded & GP_DOWNGRADED_SPILL)
		gp_spill_log_no_effect(context);
}
