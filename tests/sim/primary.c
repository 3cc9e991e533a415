/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Primary contexts, contexts that the program creates, and the current context of a thread. */

#include "capture.h"

static bool is_closing(const void *ctx)
{
	return ((const struct sim_ctx *)ctx)->closing;
}

/* A thread that retains the context while another thread closes it waits, and opens it again. */
CUresult sim_primary_retain(struct sim_ctx *ctx)
{
	SIM_TRY(sim_wait_while(is_closing, ctx));
	SIM_TRY(sim_ctx_open(ctx));
	ctx->refs++;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice ordinal)
{
	struct sim_device *device;

	SIM_BEGIN(cuDevicePrimaryCtxRetain);
	if (!ctx)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_device_of(ordinal, &device));
	SIM_TRY(sim_primary_retain(device->primary));
	*ctx = (CUcontext)device->primary;
	return CUDA_SUCCESS;
}

/* Closes a context after its work has finished. */
static void close_after_work(struct sim_ctx *ctx)
{
	uint64_t id = ctx->id;

	ctx->closing = true;
	if (ctx->alive && !ctx->sticky)
		sim_ctx_synchronize(ctx);
	ctx->closing = false;
	if (ctx->id == id)
		sim_ctx_close(ctx);
	sim_timeline_progress();
}

CUresult sim_primary_release(struct sim_ctx *ctx)
{
	if (!ctx->refs && ctx->refs_before_reset) {
		ctx->refs_before_reset--; /* balances a retain that was made before a reset */
		return CUDA_SUCCESS;
	}
	if (!ctx->refs)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!--ctx->refs)
		close_after_work(ctx);
	return CUDA_SUCCESS;
}

static CUresult primary_release(CUdevice ordinal)
{
	struct sim_device *device;

	SIM_TRY(sim_device_of(ordinal, &device));
	return sim_primary_release(device->primary);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
	SIM_BEGIN(cuDevicePrimaryCtxRelease);
	return primary_release(device);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	SIM_BEGIN(cuDevicePrimaryCtxRelease_v2);
	return primary_release(device);
}

static CUresult primary_reset(CUdevice ordinal)
{
	struct sim_device *device;
	struct sim_ctx *ctx;

	SIM_TRY(sim_device_of(ordinal, &device));
	ctx = device->primary;
	if (sim_greens_live(ctx))
		return CUDA_ERROR_NOT_PERMITTED;
	close_after_work(ctx);
	ctx->refs_before_reset += ctx->refs;
	ctx->refs = 0;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
	SIM_BEGIN(cuDevicePrimaryCtxReset);
	return primary_reset(device);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	SIM_BEGIN(cuDevicePrimaryCtxReset_v2);
	return primary_reset(device);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned *flags, int *active)
{
	struct sim_device *device;

	SIM_BEGIN(cuDevicePrimaryCtxGetState);
	if (!flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_device_of(ordinal, &device));
	*flags = device->primary->flags;
	*active = device->primary->alive;
	return CUDA_SUCCESS;
}

static CUresult primary_set_flags(CUdevice ordinal, unsigned flags)
{
	struct sim_device *device;

	SIM_TRY(sim_device_of(ordinal, &device));
	device->primary->flags = flags;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags)
{
	SIM_BEGIN(cuDevicePrimaryCtxSetFlags);
	return primary_set_flags(device, flags);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags)
{
	SIM_BEGIN(cuDevicePrimaryCtxSetFlags_v2);
	return primary_set_flags(device, flags);
}

static void push(struct sim_family *family)
{
	struct sim_thread *self = sim_thread_self();

	sim_grow(&self->stack, &self->capacity, self->depth + 1, sizeof(*self->stack));
	self->stack[self->depth++] = family;
}

static CUresult create(CUcontext *handle, unsigned flags, CUdevice ordinal)
{
	struct sim_device *device;
	struct sim_ctx *ctx;
	CUresult result;

	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_device_of(ordinal, &device));
	ctx = sim_ctx_new(device, false, flags);
	result = sim_ctx_open(ctx);
	if (result)
		return result;
	push(&ctx->own);
	*handle = (CUcontext)ctx;
	return CUDA_SUCCESS;
}

CUresult cuCtxCreate(CUcontext *ctx, unsigned flags, CUdevice device)
{
	SIM_BEGIN(cuCtxCreate);
	return create(ctx, flags, device);
}

CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned flags, CUdevice device)
{
	SIM_BEGIN(cuCtxCreate_v2);
	return create(ctx, flags, device);
}

CUresult cuCtxCreate_v3(CUcontext *ctx, void *affinity, int n, unsigned flags, CUdevice device)
{
	SIM_BEGIN(cuCtxCreate_v3);
	return create(ctx, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext *ctx, void *params, unsigned flags, CUdevice device)
{
	SIM_BEGIN(cuCtxCreate_v4);
	return create(ctx, flags, device);
}

/* Contexts that share memory with graphics APIs. The simulator has no graphics, so they are ordinary ones. */

CUresult cuGLCtxCreate(CUcontext *ctx, unsigned flags, CUdevice device)
{
	SIM_BEGIN(cuGLCtxCreate);
	return create(ctx, flags, device);
}

CUresult cuGLCtxCreate_v2(CUcontext *ctx, unsigned flags, CUdevice device)
{
	SIM_BEGIN(cuGLCtxCreate_v2);
	return create(ctx, flags, device);
}

CUresult cuVDPAUCtxCreate(CUcontext *ctx, unsigned flags, CUdevice device, unsigned vdp_device, void *get_proc)
{
	SIM_BEGIN(cuVDPAUCtxCreate);
	return create(ctx, flags, device);
}

CUresult cuVDPAUCtxCreate_v2(CUcontext *ctx, unsigned flags, CUdevice device, unsigned vdp_device, void *get_proc)
{
	SIM_BEGIN(cuVDPAUCtxCreate_v2);
	return create(ctx, flags, device);
}

static bool is_on_top(const struct sim_ctx *ctx)
{
	const struct sim_thread *self = sim_thread_self();

	return self->depth && self->stack[self->depth - 1] == &ctx->own;
}

static CUresult destroy(CUcontext handle)
{
	struct sim_ctx *ctx = sim_object_of(handle, SIM_CTX);

	if (!ctx || ctx->primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!ctx->alive)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	close_after_work(ctx);
	if (is_on_top(ctx))
		sim_thread_self()->depth--;
	return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext ctx)
{
	SIM_BEGIN(cuCtxDestroy);
	return destroy(ctx);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	SIM_BEGIN(cuCtxDestroy_v2);
	return destroy(ctx);
}

CUresult cuCtxAttach(CUcontext *handle, unsigned flags)
{
	struct sim_ctx *ctx;

	SIM_BEGIN(cuCtxAttach);
	if (!handle || flags)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_current(&ctx));
	ctx->attached++;
	*handle = (CUcontext)ctx;
	return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext handle)
{
	struct sim_ctx *ctx;

	SIM_BEGIN(cuCtxDetach);
	ctx = sim_object_of(handle, SIM_CTX);
	if (!ctx || !is_on_top(ctx))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!ctx->primary && (!ctx->alive || !ctx->attached))
		return destroy(handle);
	if (ctx->attached)
		ctx->attached--;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *ctx)
{
	const struct sim_thread *self = sim_thread_self();

	SIM_BEGIN(cuCtxGetCurrent);
	if (!ctx)
		return CUDA_ERROR_INVALID_VALUE;
	*ctx = self->depth ? sim_family_handle(self->stack[self->depth - 1]) : NULL;
	return CUDA_SUCCESS;
}

/* A context that has ended can still be made current (measured). */
CUresult sim_set_current(CUcontext handle)
{
	struct sim_family *family = sim_family_named(handle);
	struct sim_thread *self = sim_thread_self();

	if (handle && !family)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (self->depth)
		self->depth--;
	if (family)
		push(family);
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext handle)
{
	SIM_BEGIN(cuCtxSetCurrent);
	return sim_set_current(handle);
}

static CUresult push_current(CUcontext handle)
{
	struct sim_family *family = sim_family_named(handle);

	if (!family)
		return CUDA_ERROR_INVALID_CONTEXT;
	push(family);
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext ctx)
{
	SIM_BEGIN(cuCtxPushCurrent);
	return push_current(ctx);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	SIM_BEGIN(cuCtxPushCurrent_v2);
	return push_current(ctx);
}

static CUresult pop_current(CUcontext *ctx)
{
	struct sim_thread *self = sim_thread_self();

	if (!self->depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	self->depth--;
	if (ctx)
		*ctx = sim_family_handle(self->stack[self->depth]);
	return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *ctx)
{
	SIM_BEGIN(cuCtxPopCurrent);
	return pop_current(ctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext *ctx)
{
	SIM_BEGIN(cuCtxPopCurrent_v2);
	return pop_current(ctx);
}

/* Also succeeds if the current context has ended (measured). */
CUresult cuCtxGetDevice(CUdevice *device)
{
	struct sim_family *family;
	CUresult result;

	SIM_BEGIN(cuCtxGetDevice);
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	result = sim_family_current(&family);
	if (result == CUDA_ERROR_INVALID_CONTEXT)
		return result;
	*device = family->ctx->device->ordinal;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext handle)
{
	struct sim_ctx *ctx;

	SIM_BEGIN(cuCtxGetDevice_v2);
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_of(handle, &ctx));
	*device = ctx->device->ordinal;
	return CUDA_SUCCESS;
}

/* An id never repeats: the same handle has another id after a reset. */
CUresult cuCtxGetId(CUcontext handle, unsigned long long *id)
{
	struct sim_family *family;

	SIM_BEGIN(cuCtxGetId);
	if (!id)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_family_of(handle, &family));
	*id = family->green ? family->green->id : family->ctx->id;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned *flags)
{
	struct sim_ctx *ctx;

	SIM_BEGIN(cuCtxGetFlags);
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_current(&ctx));
	*flags = ctx->flags;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned flags)
{
	struct sim_ctx *ctx;

	SIM_BEGIN(cuCtxSetFlags);
	SIM_TRY(sim_ctx_current(&ctx));
	ctx->flags = flags;
	return CUDA_SUCCESS;
}

static CUresult peer_of(CUcontext handle, struct sim_ctx **peer)
{
	struct sim_family *family = sim_family_named(handle);

	if (!family)
		return CUDA_ERROR_INVALID_CONTEXT;
	*peer = family->ctx;
	return (*peer)->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned flags)
{
	struct sim_ctx *ctx, *peer;

	SIM_BEGIN(cuCtxEnablePeerAccess);
	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(peer_of(handle, &peer));
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (peer->device == ctx->device)
		return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	if (ctx->peers & 1u << peer->device->ordinal)
		return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	ctx->peers |= 1u << peer->device->ordinal;
	return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext handle)
{
	struct sim_ctx *ctx, *peer;

	SIM_BEGIN(cuCtxDisablePeerAccess);
	SIM_TRY(sim_ctx_current(&ctx));
	SIM_TRY(peer_of(handle, &peer));
	if (!(ctx->peers & 1u << peer->device->ordinal))
		return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
	ctx->peers &= ~(1u << peer->device->ordinal);
	return CUDA_SUCCESS;
}
