/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Green contexts: families of streams in the primary context, each with a share of the processors.
 * Green contexts keep the primary context alive, and all memory belongs to it. Kernels do not compete in the
 * simulator, so a share is only a number.
 */

#include <string.h>

#include "capture.h"

enum { SMS = 132, SM_UNIT = 8 };

/* The simulator's data in the padding of CUdevResource. */
struct share {
	unsigned magic;
	int device;
};

struct resources {
	struct sim_object object;
	int device;
	unsigned sms;
};

static struct share share_of(const CUdevResource *resource)
{
	struct share share;

	memcpy(&share, resource->padding, sizeof(share));
	return share;
}

static CUdevResource resource_of(int device, unsigned sms)
{
	CUdevResource resource = {.type = sms ? CU_DEV_RESOURCE_TYPE_SM : CU_DEV_RESOURCE_TYPE_INVALID};
	struct share share = {SIM_RESOURCES, device};

	memcpy(resource.padding, &share, sizeof(share));
	resource.sm.smCount = sms;
	resource.sm.minSmPartitionSize = resource.sm.smCoscheduledAlignment = SM_UNIT;
	return resource;
}

static bool is_resource(const CUdevResource *resource)
{
	return resource && resource->type == CU_DEV_RESOURCE_TYPE_SM && share_of(resource).magic == SIM_RESOURCES;
}

static CUresult get_resource(CUdevResource *resource, int type, int device, unsigned sms)
{
	if (!resource)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	*resource = resource_of(device, sms);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetDevResource(CUdevice ordinal, CUdevResource *resource, int type)
{
	struct sim_device *device;

	SIM_BEGIN(cuDeviceGetDevResource);
	SIM_TRY(sim_device_of(ordinal, &device));
	return get_resource(resource, type, ordinal, SMS);
}

CUresult cuCtxGetDevResource(CUcontext handle, CUdevResource *resource, int type)
{
	struct sim_family *family;

	SIM_BEGIN(cuCtxGetDevResource);
	SIM_TRY(sim_family_of(handle, &family));
	return get_resource(resource, type, family->ctx->device->ordinal, family->green ? family->green->sms : SMS);
}

CUresult cuDevSmResourceSplitByCount(CUdevResource *groups, unsigned *n, const CUdevResource *input,
	CUdevResource *rest, unsigned flags, unsigned sms)
{
	unsigned each = (sms + SM_UNIT - 1) / SM_UNIT * SM_UNIT, most;

	SIM_BEGIN(cuDevSmResourceSplitByCount);
	if (!n || !is_resource(input) || sms > input->sm.smCount)
		return CUDA_ERROR_INVALID_VALUE;
	each = each ? each : SM_UNIT;
	most = input->sm.smCount / each;
	if (!groups || *n > most)
		*n = most;
	for (unsigned i = 0; groups && i < *n; i++)
		groups[i] = resource_of(share_of(input).device, each);
	if (rest)
		*rest = resource_of(share_of(input).device, input->sm.smCount - *n * each);
	return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *desc, CUdevResource *list, unsigned n)
{
	struct resources *resources;
	unsigned sms = 0;

	SIM_BEGIN(cuDevResourceGenerateDesc);
	if (!desc || !list || !n)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < n; i++) {
		if (!is_resource(&list[i]))
			return CUDA_ERROR_INVALID_RESOURCE_TYPE;
		if (share_of(&list[i]).device != share_of(&list[0]).device)
			return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
		sms += list[i].sm.smCount;
	}
	resources = sim_object_new(SIM_RESOURCES, sizeof(*resources));
	resources->device = share_of(&list[0]).device;
	resources->sms = sms;
	*desc = (CUdevResourceDesc)resources;
	return CUDA_SUCCESS;
}

CUresult cuGreenCtxCreate(CUgreenCtx *handle, CUdevResourceDesc desc, CUdevice ordinal, unsigned flags)
{
	const struct resources *resources;
	struct sim_device *device;
	struct sim_green *green;

	SIM_BEGIN(cuGreenCtxCreate);
	resources = sim_object_of(desc, SIM_RESOURCES);
	if (!handle || !resources || flags != CU_GREEN_CTX_DEFAULT_STREAM || resources->device != ordinal)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_device_of(ordinal, &device));
	SIM_TRY(sim_primary_retain(device->primary));
	green = sim_object_new(SIM_GREEN, sizeof(*green));
	green->as_ctx.magic = SIM_GREEN_CTX;
	green->alive = true;
	green->id = sim_ctx_next_id();
	green->sms = resources->sms;
	sim_family_open(&green->family, device->primary, green);
	*handle = (CUgreenCtx)green;
	return CUDA_SUCCESS;
}

static CUresult green_of(CUgreenCtx handle, struct sim_green **green)
{
	*green = sim_object_of(handle, SIM_GREEN);
	return *green ? sim_family_check(&(*green)->family) : CUDA_ERROR_INVALID_CONTEXT;
}

/* Does not wait: unfinished work belongs to the primary context (measured). */
CUresult cuGreenCtxDestroy(CUgreenCtx handle)
{
	struct sim_green *green;

	SIM_BEGIN(cuGreenCtxDestroy);
	green = sim_object_of(handle, SIM_GREEN);
	if (!green)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!green->alive)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	green->alive = false;
	return sim_primary_release(green->family.ctx);
}

bool sim_greens_live(const struct sim_ctx *ctx)
{
	const struct sim_family *family = ctx->own.next;

	while (family && !family->green->alive)
		family = family->next;
	return family;
}

CUresult cuCtxFromGreenCtx(CUcontext *ctx, CUgreenCtx handle)
{
	struct sim_green *green;

	SIM_BEGIN(cuCtxFromGreenCtx);
	if (!ctx)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(green_of(handle, &green));
	*ctx = sim_family_handle(&green->family);
	return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx handle, CUdevResource *resource, int type)
{
	struct sim_green *green;

	SIM_BEGIN(cuGreenCtxGetDevResource);
	SIM_TRY(green_of(handle, &green));
	return get_resource(resource, type, green->family.ctx->device->ordinal, green->sms);
}

CUresult cuGreenCtxGetId(CUgreenCtx handle, unsigned long long *id)
{
	struct sim_family *family;
	struct sim_green *green;

	SIM_BEGIN(cuGreenCtxGetId);
	if (!id)
		return CUDA_ERROR_INVALID_VALUE;
	if (handle) {
		SIM_TRY(green_of(handle, &green));
		*id = green->id;
		return CUDA_SUCCESS;
	}
	SIM_TRY(sim_family_current(&family));
	if (!family->green)
		return CUDA_ERROR_INVALID_CONTEXT;
	*id = family->green->id;
	return CUDA_SUCCESS;
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx handle, CUevent event)
{
	struct sim_green *green;

	SIM_BEGIN(cuGreenCtxRecordEvent);
	SIM_TRY(green_of(handle, &green));
	return sim_family_record(&green->family, event);
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx handle, CUevent event)
{
	struct sim_green *green;

	SIM_BEGIN(cuGreenCtxWaitEvent);
	SIM_TRY(green_of(handle, &green));
	return sim_family_wait(&green->family, event);
}

CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx handle, unsigned flags, int priority)
{
	struct sim_green *green;

	SIM_BEGIN(cuGreenCtxStreamCreate);
	if (!stream || flags != CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(green_of(handle, &green));
	*stream = (CUstream)sim_stream_new(&green->family, true);
	return CUDA_SUCCESS;
}

CUresult cuStreamGetGreenCtx(CUstream handle, CUgreenCtx *green)
{
	struct sim_stream *stream;

	SIM_BEGIN(cuStreamGetGreenCtx);
	if (!green)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_stream_of(handle, false, &stream));
	*green = (CUgreenCtx)stream->family->green;
	return CUDA_SUCCESS;
}
