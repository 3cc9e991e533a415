/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Managed memory. The hook finds the size and the device of an allocation, and makes the driver's call. */

#include "shim/backend/deep.h"
#include "shim/driver/driver_table.h"
#include "unpooled_alloc.h"

/* The arguments, kept since the retry rounds may make the driver's call several times. */
struct managed {
	CUdeviceptr *ptr;
	size_t bytes;
	unsigned flags;
};

static CUresult call_managed(void *arg)
{
	struct managed *a = arg;

	gp_deep_note_refused("managed memory");
	return gp_real.cuMemAllocManaged(a->ptr, a->bytes, a->flags);
}

CUresult hook_cuMemAllocManaged(CUdeviceptr *ptr, size_t bytes, unsigned flags)
{
	struct managed a = {ptr, bytes, flags};
	struct gp_unpooled allocation = {
		.kind = GP_UNPOOLED_POINTER,
		.bytes = ptr ? bytes : 0,
		.device = GP_UNPOOLED_CURRENT,
		.end = GP_UNPOOLED_ENDS_WITH_CONTEXT,
		.call = call_managed,
		.arg = &a,
		.id = ptr,
	};

	return gp_unpooled_clear_if_oom(gp_unpooled_alloc(&allocation), ptr);
}
