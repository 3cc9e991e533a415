/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Hooks of pinned memory: allocations and frees that the pool serves, and what shows that some of it is memory of the
 * host which gpupool has registered.
 */

#include <errno.h>

#include "hook_memory.h"
#include "memory_calls.h"
#include "shim/backend/backend_pinned.h"
#include "shim/backend/registered.h"
#include "shim/debug/debug.h"
#include "shim/driver/driver_table.h"
#include "shim/oom/oom.h"
#include "shim/oom/oom_hook.h"
#include "shim/trace/module.h"
#include "shim/usage/bad_free.h"
static CUresult alloc_pinned(void **ptr, size_t bytes, unsigned kind, bool *ret_is_answered)
{
	struct gp_context *context = gp_state.config.is_pinned_pooled ? gp_context_current() : NULL;
	struct gp_pool *pool = gp_memory_serves(context) ? gp_pinned_get(context, kind) : NULL;
	struct gp_failure failure = {0};
	struct gp_alloc_options options = {.module = gp_module_now(), .ret_failure = &failure};
	CUresult r = CUDA_SUCCESS;
	uint64_t addr = 0;

	options.first = pool ? gp_thread_missed_step(pool, bytes) : GP_STEP_cache;
	*ret_is_answered =
		pool && gp_memory_is_answered(gp_memory_alloc(pool, GP_OOM_HOOK_PINNED, bytes, &options, &addr), &r);
	if (*ret_is_answered && r == CUDA_SUCCESS)
		gp_alloc_info_note_alloc(addr, bytes);
	else if (*ret_is_answered && r == CUDA_ERROR_OUT_OF_MEMORY)
		gp_oom_of_pinned(bytes, &failure);
	if (*ret_is_answered && gp_memory_writes_outputs(r))
		*ptr = (void *)(uintptr_t)addr;
	gp_context_put(context);
	return r;
}

bool gp_memory_alloc_host_hit(void **ptr, size_t bytes, unsigned kind, uint32_t module)
{
	bool is_tried = gp_state.config.is_pinned_pooled && gp_capture_is_none();
	struct gp_context *context = is_tried ? gp_context_current() : NULL;
	struct gp_pool *pool = gp_memory_serves(context) ? gp_pinned_get(context, kind) : NULL;
	struct gp_alloc_options options = {.module = module, .end = GP_STEP_gpuwait};
	uint64_t addr = 0;
	int r = pool ? gp_pool_alloc_with(pool, bytes, &options, &addr) : GP_E_DEAD;

	if (!r)
		gp_alloc_info_note_alloc(addr, bytes);
	if (!r)
		*ptr = (void *)(uintptr_t)addr;
	if (r == -ENOENT)
		gp_thread_note_miss(pool, bytes);
	gp_context_put(context);
	return !r;
}

CUresult hook_cuMemHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
	bool is_answered = false;
	CUresult r = CUDA_SUCCESS;

	if (ptr && bytes && flags < GP_PINNED_ALLOC_HOST)
		r = alloc_pinned(ptr, bytes, flags, &is_answered);
	return is_answered ? r : gp_real.cuMemHostAlloc(ptr, bytes, flags);
}

CUresult hook_cuMemAllocHost_v2(void **ptr, size_t bytes)
{
	bool is_answered = false;
	CUresult r = CUDA_SUCCESS;

	if (ptr && bytes)
		r = alloc_pinned(ptr, bytes, GP_PINNED_ALLOC_HOST, &is_answered);
	return is_answered ? r : gp_real.cuMemAllocHost_v2(ptr, bytes);
}

int gp_memory_free_host(void *ptr)
{
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	enum gp_free_mode mode = GP_FREE_NORMAL;
	int r = gp_memory_wait_before_free(&gp_state.pinned_map, addr, &mode);

	if (gp_unlikely(r))
		return r;
	gp_alloc_info_note_free(addr);
	/* The mode stays GP_FREE_NORMAL: the wait covered one context, and every context can use pinned memory. */
	r = gp_memory_release(&gp_state.pinned_map, addr, mode == GP_FREE_SYNCED, GP_FREE_NORMAL);
	switch (r) {
	case GP_E_DEAD:
		return CUDA_ERROR_INVALID_VALUE;
	case GP_E_NOT_PERMITTED:
		gp_alloc_info_undo_free(addr);
		return CUDA_ERROR_NOT_PERMITTED;
	case GP_E_NOT_USED:
	case GP_E_INTERIOR:
		gp_bad_free_report(
			&gp_state.pinned_map, addr, r == GP_E_NOT_USED ? GP_BAD_FREE_DOUBLE : GP_BAD_FREE_INTERIOR);
		return CUDA_ERROR_INVALID_VALUE;
	default:
		return r;
	}
}

CUresult hook_cuMemFreeHost(void *ptr)
{
	CUresult deferred;
	int r;

	if (gp_memory_has_deferred_error(ptr, &deferred))
		return deferred;
	r = gp_memory_free_host(ptr);
	return r == GP_E_FOREIGN ? gp_real.cuMemFreeHost(ptr) : r;
}

/* A registration of gpupool is always portable. The driver reports that for its own memory only if it was asked. */
CUresult hook_cuMemHostGetFlags(unsigned *flags, void *ptr)
{
	CUresult r = gp_real.cuMemHostGetFlags(flags, ptr);
	bool is_portable;

	if (!r && flags && gp_registered_at((uint64_t)(uintptr_t)ptr, &is_portable) && !is_portable)
		*flags &= ~(unsigned)CU_MEMHOSTREGISTER_PORTABLE;
	return r;
}

/* A registration of gpupool is an allocation to the program, which the driver does not register again. */
CUresult hook_cuMemHostRegister_v2(void *ptr, size_t bytes, unsigned flags)
{
	CUresult r = gp_real.cuMemHostRegister_v2(ptr, bytes, flags);

	if (r == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED && gp_registered_at((uint64_t)(uintptr_t)ptr, NULL))
		return CUDA_ERROR_INVALID_VALUE;
	return r;
}

/*
 * A registration of gpupool is an allocation to the program, which the driver does not unregister: it returns "invalid
 * value" for each address in it, and "not registered" for other memory of the host. So the driver is asked about such
 * memory, and any other error that it has to report is passed on.
 */
CUresult hook_cuMemHostUnregister(void *ptr)
{
	static char unregistered;
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	struct gp_block_info info;
	CUresult r;

	if (gp_likely(!gp_registered_at(addr, NULL)))
		return gp_real.cuMemHostUnregister(ptr);
	r = gp_real.cuMemHostUnregister(&unregistered);
	if (r == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED && !gp_debug_info(&gp_state.pinned_map, addr, &info) &&
		info.is_used)
		return CUDA_ERROR_INVALID_VALUE;
	return r;
}
