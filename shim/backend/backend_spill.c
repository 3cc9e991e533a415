/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The driver creates the memory on the device's NUMA node. It is not the process's own: a forked child does not have
 * it, and the control group of the process need not be charged for it.
 */

#include "backend_spill.h"

#include <errno.h>

#include "shim/base/clock.h"
#include "shim/base/fork.h"
#include "shim/base/log.h"
#include "shim/base/slow_path.h"
#include "shim/context/driver_call.h"
#include "shim/driver/driver_table.h"
#include "spill.h"

static _Atomic uint64_t host_bytes;
static _Atomic uint64_t copied_bytes, copied_ns;

static void reset_in_child(void)
{
	atomic_store(&host_bytes, 0);
}

bool gp_spill_backend_works(void)
{
	return gp_real.cuMemcpyDtoDAsync_v2 && gp_real.cuStreamSynchronize;
}

uint64_t gp_spill_host_bytes(void)
{
	return atomic_load(&host_bytes);
}

uint64_t gp_spill_copied(uint64_t *ret_ns)
{
	*ret_ns = atomic_load(&copied_ns);
	return atomic_load(&copied_bytes);
}

static int result_of(CUresult r)
{
	return r == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : r;
}

static int node_of(const struct gp_context *context)
{
	int node = -1;

	if (!gp_real.cuDeviceGetAttribute ||
		gp_real.cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, context->device->index))
		return 0;
	return gp_max(node, 0);
}

static int spill_create(void *arg, uint64_t bytes, uint64_t *ret_handle)
{
	static const struct gp_fork_child child = {.fn = reset_in_child};
	struct gp_context *context = arg;
	const CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, node_of(context)},
	};
	struct gp_driver_scope scope;
	CUresult r;

	gp_fork_on_child(&child);
	if (!gp_context_enter(context))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	r = gp_driver_enter(&scope, context->handle);
	if (!r) {
		r = gp_real.cuMemCreate(ret_handle, bytes, &properties, 0);
		gp_driver_leave(&scope);
	}
	gp_context_leave(context);
	if (!r)
		atomic_fetch_add(&host_bytes, bytes);
	return result_of(r);
}

static void spill_release(void *arg, uint64_t handle, uint64_t bytes)
{
	struct gp_driver_relaxed relaxed;
	CUresult r;

	if (gp_slow_path_is_any(GP_SLOW_PATH_BYPASS))
		return;
	relaxed = gp_driver_relax();
	r = gp_real.cuMemRelease(handle);
	gp_driver_unrelax(&relaxed);
	if (r && r != CUDA_ERROR_DEINITIALIZED)
		gp_log(GP_LOG_WARN, "the driver refused to take host memory back: error %d", r);
	if (atomic_fetch_sub(&host_bytes, bytes) == bytes)
		gp_spill_note_end();
}

static CUresult copy_and_wait(struct gp_context *context, uint64_t to, uint64_t from, uint64_t bytes)
{
	CUstream stream;
	CUresult r = gp_driver_stream(&context->sleep_stream, &stream);
	uint64_t start_ns = gp_clock_now_ns(NULL);

	if (!r)
		r = gp_real.cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
	if (!r)
		r = gp_real.cuStreamSynchronize(stream);
	if (!r) {
		atomic_fetch_add(&copied_bytes, bytes);
		atomic_fetch_add(&copied_ns, gp_clock_now_ns(NULL) - start_ns);
	}
	/* The memory may go back only when nothing is copied any more. */
	if (r)
		(void)gp_real.cuStreamSynchronize(stream);
	return r;
}

static int spill_copy(void *arg, uint64_t to, uint64_t from, uint64_t bytes)
{
	struct gp_context *context = arg;
	struct gp_driver_scope scope;
	CUresult r;

	if (!gp_context_enter(context))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	r = gp_driver_enter(&scope, context->handle);
	if (!r) {
		r = copy_and_wait(context, to, from, bytes);
		gp_driver_leave(&scope);
	}
	gp_context_leave(context);
	return result_of(r);
}

static bool spill_is_lost(void *arg, int error)
{
	struct gp_context *context = arg;

	if (error > 0 && error < GP_E_FOREIGN)
		(void)gp_driver_result(context, (CUresult)error);
	return gp_slow_path_is_any(GP_SLOW_PATH_BYPASS) || gp_context_is(context, GP_CONTEXT_DEAD | GP_CONTEXT_BROKEN);
}

const struct gp_spill_ops gp_spill_backend = {
	.create = spill_create,
	.release = spill_release,
	.copy = spill_copy,
	.is_lost = spill_is_lost,
	.make_room = gp_spill_make_room,
	.seek = gp_spill_seek,
};
