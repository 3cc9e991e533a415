/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The contexts that all threads share, with their kernels and streams. */

#include "soak.h"

#include "tests/apps/kernels.h"

struct soak_context soak_contexts[SOAK_CONTEXTS_MAX];
unsigned soak_n_contexts;

static _Thread_local CUcontext current;

void soak_use_context(const struct soak_context *context)
{
	if (current == context->handle)
		return;
	SOAK_MUST(cuCtxSetCurrent(context->handle));
	current = context->handle;
}

bool soak_context_init(struct soak_context *context)
{
	CUmodule module;

	current = context->handle;
	SOAK_MUST(cuModuleLoadData(&module, kernels_ptx));
	SOAK_MUST(cuModuleGetFunction(&context->fill, module, "fill"));
	SOAK_MUST(cuModuleGetFunction(&context->spin_fill, module, "spin_fill"));
	SOAK_MUST(cuModuleGetFunction(&context->count_wrong, module, "count_wrong"));
	context->wrong = soak_alloc(sizeof(uint64_t));
	if (!context->wrong)
		return false;
	SOAK_MUST(cuMemsetD8_v2(context->wrong, 0, sizeof(uint64_t)));
	SOAK_MUST(cuCtxSynchronize());
	return true;
}

void soak_context_check(struct soak_context *context)
{
	uint64_t wrong = 0;

	SOAK_MUST(cuCtxSynchronize());
	SOAK_MUST(cuMemcpyDtoH_v2(&wrong, context->wrong, sizeof(wrong)));
	if (wrong)
		soak_wrong("words of blocks on the device", wrong);
}

static void open_streams(struct soak_context *context)
{
	for (unsigned i = 0; i < SOAK_STREAMS; i++) {
		struct soak_stream *stream = &context->streams[i];

		*stream = (struct soak_stream){.generation = 1};
		pthread_mutex_init(&stream->lock, NULL);
		if (i)
			SOAK_MUST(cuStreamCreate(&stream->handle, CU_STREAM_NON_BLOCKING));
	}
}

static void close_streams(struct soak_context *context)
{
	for (unsigned i = 0; i < SOAK_STREAMS; i++) {
		if (context->streams[i].handle)
			SOAK_MUST(cuStreamDestroy_v2(context->streams[i].handle));
		pthread_mutex_destroy(&context->streams[i].lock);
	}
}

void soak_contexts_open(void)
{
	struct soak_context *created;
	int n = 0;

	SOAK_MUST(cuDeviceGetCount(&n));
	soak_n_contexts = 0;
	for (int device = 0; device < n && device < SOAK_DEVICES_MAX; device++) {
		struct soak_context *context = &soak_contexts[soak_n_contexts++];

		context->device = device;
		SOAK_MUST(cuDevicePrimaryCtxRetain(&context->handle, device));
		SOAK_MUST(cuCtxSetCurrent(context->handle));
		SOAK_MUST(!soak_context_init(context));
		open_streams(context);
	}
	if (soak_is_in_stream_order)
		return;
	created = &soak_contexts[soak_n_contexts++];
	created->device = 0;
	SOAK_MUST(cuCtxCreate_v2(&created->handle, 0, 0));
	SOAK_MUST(!soak_context_init(created));
	open_streams(created);
}

void soak_contexts_close(void)
{
	for (unsigned i = 0; i < soak_n_contexts; i++) {
		struct soak_context *context = &soak_contexts[i];

		SOAK_MUST(cuCtxSetCurrent(context->handle));
		current = context->handle;
		soak_context_check(context);
		close_streams(context);
		if (i + 1 < soak_n_contexts || soak_is_in_stream_order) {
			SOAK_MUST(cuMemFree_v2(context->wrong));
			SOAK_MUST(cuDevicePrimaryCtxRelease_v2(context->device));
		} else {
			SOAK_MUST(cuCtxDestroy_v2(context->handle));
			soak_count(SOAK_ENDED);
		}
	}
	current = NULL;
}
