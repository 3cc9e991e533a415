/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "memops.h"

#include "driver_call.h"
#include "shim/driver/driver_table.h"

static CUresult add_flag(void)
{
	unsigned flags;
	CUresult r = gp_real.cuCtxGetFlags(&flags);

	return r || flags & CU_CTX_SYNC_MEMOPS ? r : gp_real.cuCtxSetFlags(flags | CU_CTX_SYNC_MEMOPS);
}

static CUresult add_flag_to(struct gp_context *context)
{
	struct gp_driver_scope scope;
	CUresult r;

	if (!gp_context_enter(context))
		return CUDA_ERROR_INVALID_VALUE; /* the memory has ended with it */
	r = gp_driver_enter(&scope, context->handle);
	if (!r) {
		r = add_flag();
		gp_driver_leave(&scope);
	}
	gp_context_leave(context);
	return r == CUDA_ERROR_NOT_FOUND ? CUDA_ERROR_NOT_SUPPORTED : r; /* the driver's own refusal */
}

/* It is noted first, so that calls of the program which set flags afterwards keep it. */
CUresult gp_memops_synchronise(struct gp_context *context)
{
	bool was_noted;
	CUresult r;

	if (!gp_real.cuCtxGetFlags || !gp_real.cuCtxSetFlags)
		return CUDA_ERROR_NOT_SUPPORTED;
	was_noted = atomic_exchange(&context->syncs_memops, true);
	r = add_flag_to(context);
	if (r && !was_noted)
		atomic_store(&context->syncs_memops, false);
	return r;
}

unsigned gp_memops_flags(CUcontext handle)
{
	struct gp_context *context = gp_table_find(handle, -1);
	unsigned flags = context && atomic_load(&context->syncs_memops) ? CU_CTX_SYNC_MEMOPS : 0;

	gp_context_put(context);
	return flags;
}

void gp_memops_restore(CUdevice device)
{
	struct gp_context *context = gp_table_find(NULL, device);

	if (context && atomic_load(&context->syncs_memops))
		(void)add_flag_to(context);
	gp_context_put(context);
}
