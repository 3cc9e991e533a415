/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Asks a GPU about attached contexts, and about contexts that have ended. Each answer is a line.
 *
 *   cc -std=gnu11 -O2 -I. -o context_probe tests/gpu/context_probe.c -ldl -lpthread && ./context_probe
 */

#include "contexts.h"

/* Contexts with a usage count. */
static CUcontext attach_begin(void)
{
	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&places[PRIMARY].ctx, 0));
	CHECK(cuCtxCreate_v2(&places[GREEN_A].ctx, 0, 0));
	return places[GREEN_A].ctx;
}

static void tell_current(CUcontext ctx)
{
	CUcontext now = NULL;
	CUresult r = cuCtxGetCurrent(&now);

	say("current: %d, the same: %d, none: %d", r, now == ctx, !now);
}

static void attached(void)
{
	CUcontext ctx = attach_begin(), same = NULL;
	CUdeviceptr ptr = 0;
	CUresult r;

	CHECK(cuMemAlloc_v2(&ptr, 4 << 20));
	r = cuCtxAttach(&same, 0);
	say("attach: %d, same: %d", r, same == ctx);
	say("attach with flags: %d", cuCtxAttach(&same, 1));
	CHECK(cuCtxSetCurrent(NULL));
	say("attach with none current: %d", cuCtxAttach(&same, 0));
	say("detach with none current: %d", cuCtxDetach(ctx));
	say("set current: %d", cuCtxSetCurrent(ctx));
	say("detach, the first: %d", cuCtxDetach(ctx));
	tell_current(ctx);
	say("free: %d", cuMemFree_v2(ptr));
	say("alloc: %d", cuMemAlloc_v2(&ptr, 4 << 20));
	say("detach, the second: %d", cuCtxDetach(ctx));
	tell_current(ctx);
	say("alloc: %d", cuMemAlloc_v2(&ptr, 4 << 20));
	say("set current: %d", cuCtxSetCurrent(ctx));
	say("detach, the third: %d", cuCtxDetach(ctx));
}

static void attached_primary(void)
{
	CUcontext ctx = attach_begin(), same = NULL;

	CHECK(cuCtxSetCurrent(places[PRIMARY].ctx));
	say_end("attach of the primary", cuCtxAttach(&same, 0));
	say_end("detach of the primary", cuCtxDetach(places[PRIMARY].ctx));
	say_end("detach again", cuCtxDetach(places[PRIMARY].ctx));
	CHECK(cuCtxSetCurrent(ctx));
	say("attach: %d", cuCtxAttach(&same, 0));
	say("destroy of what is attached twice: %d", cuCtxDestroy_v2(ctx));
	tell_current(ctx);
	say("detach of NULL: %d", cuCtxDetach(NULL));
	say("set current: %d", cuCtxSetCurrent(ctx));
	say("detach: %d", cuCtxDetach(ctx));
}

/* Prints what still works in a context that has ended. kept is memory of another context, which is alive. */
static void tell_gone(CUcontext ctx, CUdeviceptr kept)
{
	unsigned long long id = 0;
	size_t available, total;
	CUdeviceptr ptr = 0;
	CUcontext now = NULL;
	CUevent event;
	CUstream stream;
	void *host;
	CUresult r;

	r = cuCtxGetCurrent(&now);
	say("current: %d, still: %d", r, now == ctx);
	r = cuCtxGetId(ctx, &id);
	say("id: %d, %llu", r, id);
	r = cuCtxGetId(NULL, &id);
	say("id of the current: %d, %llu", r, id);
	say("device: %d", cuCtxGetDevice(&(CUdevice){0}));
	say("alloc: %d", cuMemAlloc_v2(&ptr, 4 << 20));
	say("alloc of nothing: %d", cuMemAlloc_v2(&ptr, 0));
	say("pinned alloc: %d", cuMemHostAlloc(&host, 4096, 0));
	say("memory info: %d", cuMemGetInfo_v2(&available, &total));
	say("synchronise: %d", cuCtxSynchronize());
	say("stream: %d", cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	say("event: %d", cuEventCreate(&event, 0));
	say("attribute of another's memory: %d", cuPointerGetAttribute(&now, CU_POINTER_ATTRIBUTE_CONTEXT, kept));
	say("free of NULL: %d", cuMemFree_v2(0));
	say("free of another's memory: %d", cuMemFree_v2(kept));
	say("pinned free of NULL: %d", cuMemFreeHost(NULL));
	say("set current to the same: %d", cuCtxSetCurrent(ctx));
}

static CUdeviceptr kept_ptr;

/* A context that ends while another thread works in it. */
static CUresult call_work(uint64_t unused)
{
	CUdeviceptr ptr = 0;
	CUresult r = cuMemAlloc_v2(&ptr, 4 << 20);

	say("a thread in it: alloc: %d", r);
	raise_flag(0);
	while (!flag_value(1))
		usleep(1000);
	say("its context is gone: free: %d", cuMemFree_v2(ptr));
	tell_gone(places[GREEN_A].ctx, kept_ptr);
	say("set current to the primary: %d", cuCtxSetCurrent(places[PRIMARY].ctx));
	say("free of its memory: %d", cuMemFree_v2(kept_ptr));
	return CUDA_SUCCESS;
}

static void ended_elsewhere(void)
{
	static uint32_t two[2];
	struct attempt a = {.call = call_work};

	flags = two;
	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&places[PRIMARY].ctx, 0));
	kept_ptr = take(PRIMARY, 4 << 20);
	CHECK(cuCtxCreate_v2(&a.ctx, 0, 0));
	places[GREEN_A].ctx = a.ctx;
	attempt_begin(&a);
	while (!flag_value(0))
		usleep(1000);
	say("destroy: %d", cuCtxDestroy_v2(a.ctx));
	raise_flag(1);
	pthread_join(a.thread, NULL);
}

static void primary_gone(void)
{
	CUdeviceptr ptr, beside;
	CUcontext second = attach_begin();

	beside = take(GREEN_A, 4 << 20);
	ptr = take(PRIMARY, 4 << 20);
	say_end("release", cuDevicePrimaryCtxRelease_v2(0));
	tell_gone(places[PRIMARY].ctx, beside);
	say("free of its own: %d", cuMemFree_v2(ptr));
	say("in the second: %d", cuCtxSetCurrent(second));
	say("free of its own: %d", cuMemFree_v2(ptr));
	say_end("release too many", cuDevicePrimaryCtxRelease_v2(0));
	CHECK(cuDevicePrimaryCtxRetain(&places[PRIMARY].ctx, 0));
	say_end("reset", cuDevicePrimaryCtxReset_v2(0));
	say_end("reset of what is not active", cuDevicePrimaryCtxReset_v2(0));
	say_end("release after the reset", cuDevicePrimaryCtxRelease_v2(0));
	say("id: %d", cuCtxGetId(places[PRIMARY].ctx, &(unsigned long long){0}));
}

static const struct group groups[] = {
	{"attached", attached},
	{"attached primary", attached_primary},
	{"ended elsewhere", ended_elsewhere},
	{"primary gone", primary_gone},
};

int main(int argc, char **argv)
{
	run_groups(groups, sizeof(groups) / sizeof(groups[0]), NULL, argc > 1 ? argv[1] : NULL);
	return 0;
}
