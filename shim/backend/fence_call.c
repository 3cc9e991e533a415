/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "fence_call.h"

#include "shim/context/driver_call.h"
#include "shim/driver/driver_table.h"

int gp_backend_event(struct gp_context *context, CUevent *event)
{
	struct gp_driver_scope scope;
	CUresult r;

	if (gp_likely(*event != NULL))
		return CUDA_SUCCESS;
	r = gp_driver_enter(&scope, context->handle);
	if (!r) {
		r = gp_real.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
		gp_driver_leave(&scope);
	}
	return r;
}

bool gp_backend_record_waits(void *unused)
{
	return !gp_real.cuCtxRecordEvent || !gp_real.cuCtxWaitEvent;
}

/*
 * A GPU wait makes later work wait for every record made in the context before it, not only for the record that it
 * names (measured). The pool's fence (pool/fence.c) tracks the records of device memory. Pinned memory is recorded in
 * every context, also for frees that do not wait for that context's work: `undue` is the last such record. The lock
 * keeps another thread from making one between the query and the GPU wait.
 */
static CUresult record_undue(struct gp_context *context, CUevent event)
{
	CUresult r;

	gp_mutex_lock(&context->undue_lock);
	r = gp_real.cuCtxRecordEvent(context->handle, event);
	if (!r)
		context->undue = event;
	gp_mutex_unlock(&context->undue_lock);
	return r;
}

CUresult gp_backend_gpu_wait(struct gp_context *context, CUevent event)
{
	CUresult r = CUDA_SUCCESS;

	gp_mutex_lock(&context->undue_lock);
	if (gp_unlikely(context->undue != NULL))
		r = gp_real.cuEventQuery(context->undue);
	if (!r) {
		context->undue = NULL;
		r = gp_real.cuCtxWaitEvent(context->handle, event);
	}
	gp_mutex_unlock(&context->undue_lock);
	return r;
}

int gp_backend_record(struct gp_context *context, CUevent event, bool is_due)
{
	struct gp_driver_scope scope;
	CUresult r;

	if (gp_likely(gp_real.cuCtxRecordEvent && gp_real.cuCtxWaitEvent))
		return is_due ? gp_real.cuCtxRecordEvent(context->handle, event) : record_undue(context, event);
	r = gp_driver_enter(&scope, context->handle);
	if (!r) {
		r = gp_real.cuCtxSynchronize();
		gp_driver_leave(&scope);
	}
	return r;
}
