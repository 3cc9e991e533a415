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
	CHECK(cuDevicePrimaryCtxRetain(&contexts[PRIMARY].ctx, 0));
	CHECK(cuCtxCreate_v2(&contexts[GREEN_A].ctx, 0, 0));
	return contexts[GREEN_A].ctx;
}

static void print_current(CUcontext ctx)
{
	CUcontext now = NULL;
	CUresult r = cuCtxGetCurrent(&now);

	print_line("current: %d, the same: %d, none: %d", r, now == ctx, !now);
}

static void attached(void)
{
	CUcontext ctx = attach_begin(), same = NULL;
	CUdeviceptr ptr = 0;
	CUresult r;

	CHECK(cuMemAlloc_v2(&ptr, 4 << 20));
	r = cuCtxAttach(&same, 0);
	print_line("attach: %d, same: %d", r, same == ctx);
	print_line("attach with flags: %d", cuCtxAttach(&same, 1));
	CHECK(cuCtxSetCurrent(NULL));
	print_line("attach with none current: %d", cuCtxAttach(&same, 0));
	print_line("detach with none current: %d", cuCtxDetach(ctx));
	print_line("set current: %d", cuCtxSetCurrent(ctx));
	print_line("detach, the first: %d", cuCtxDetach(ctx));
	print_current(ctx);
	print_line("free: %d", cuMemFree_v2(ptr));
	print_line("alloc: %d", cuMemAlloc_v2(&ptr, 4 << 20));
	print_line("detach, the second: %d", cuCtxDetach(ctx));
	print_current(ctx);
	print_line("alloc: %d", cuMemAlloc_v2(&ptr, 4 << 20));
	print_line("set current: %d", cuCtxSetCurrent(ctx));
	print_line("detach, the third: %d", cuCtxDetach(ctx));
}

static void attached_primary(void)
{
	CUcontext ctx = attach_begin(), same = NULL;

	CHECK(cuCtxSetCurrent(contexts[PRIMARY].ctx));
	print_end("attach of the primary", cuCtxAttach(&same, 0));
	print_end("detach of the primary", cuCtxDetach(contexts[PRIMARY].ctx));
	print_end("detach again", cuCtxDetach(contexts[PRIMARY].ctx));
	CHECK(cuCtxSetCurrent(ctx));
	print_line("attach: %d", cuCtxAttach(&same, 0));
	print_line("destroy of what is attached twice: %d", cuCtxDestroy_v2(ctx));
	print_current(ctx);
	print_line("detach of NULL: %d", cuCtxDetach(NULL));
	print_line("set current: %d", cuCtxSetCurrent(ctx));
	print_line("detach: %d", cuCtxDetach(ctx));
}

/* Prints what still works in a context that has ended. kept is memory of another context, which is alive. */
static void print_ended(CUcontext ctx, CUdeviceptr kept)
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
	print_line("current: %d, still: %d", r, now == ctx);
	r = cuCtxGetId(ctx, &id);
	print_line("id: %d, %llu", r, id);
	r = cuCtxGetId(NULL, &id);
	print_line("id of the current: %d, %llu", r, id);
	print_line("device: %d", cuCtxGetDevice(&(CUdevice){0}));
	print_line("alloc: %d", cuMemAlloc_v2(&ptr, 4 << 20));
	print_line("alloc of nothing: %d", cuMemAlloc_v2(&ptr, 0));
	print_line("pinned alloc: %d", cuMemHostAlloc(&host, 4096, 0));
	print_line("memory info: %d", cuMemGetInfo_v2(&available, &total));
	print_line("synchronise: %d", cuCtxSynchronize());
	print_line("stream: %d", cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	print_line("event: %d", cuEventCreate(&event, 0));
	print_line(
		"attribute of another's memory: %d", cuPointerGetAttribute(&now, CU_POINTER_ATTRIBUTE_CONTEXT, kept));
	print_line("free of NULL: %d", cuMemFree_v2(0));
	print_line("free of another's memory: %d", cuMemFree_v2(kept));
	print_line("pinned free of NULL: %d", cuMemFreeHost(NULL));
	print_line("set current to the same: %d", cuCtxSetCurrent(ctx));
}

static CUdeviceptr kept_ptr;

/* A context that ends while another thread works in it. */
static CUresult call_work(uint64_t unused)
{
	CUdeviceptr ptr = 0;
	CUresult r = cuMemAlloc_v2(&ptr, 4 << 20);

	print_line("a thread in it: alloc: %d", r);
	raise_flag(0);
	while (!flag_value(1))
		usleep(1000);
	print_line("its context is gone: free: %d", cuMemFree_v2(ptr));
	print_ended(contexts[GREEN_A].ctx, kept_ptr);
	print_line("set current to the primary: %d", cuCtxSetCurrent(contexts[PRIMARY].ctx));
	print_line("free of its memory: %d", cuMemFree_v2(kept_ptr));
	return CUDA_SUCCESS;
}

static void ended_elsewhere(void)
{
	static uint32_t two[2];
	struct attempt a = {.call = call_work};

	flags = two;
	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&contexts[PRIMARY].ctx, 0));
	kept_ptr = alloc_in(PRIMARY, 4 << 20);
	CHECK(cuCtxCreate_v2(&a.ctx, 0, 0));
	contexts[GREEN_A].ctx = a.ctx;
	attempt_begin(&a);
	while (!flag_value(0))
		usleep(1000);
	print_line("destroy: %d", cuCtxDestroy_v2(a.ctx));
	raise_flag(1);
	pthread_join(a.thread, NULL);
}

static void primary_gone(void)
{
	CUdeviceptr ptr, beside;
	CUcontext second = attach_begin();

	beside = alloc_in(GREEN_A, 4 << 20);
	ptr = alloc_in(PRIMARY, 4 << 20);
	print_end("release", cuDevicePrimaryCtxRelease_v2(0));
	print_ended(contexts[PRIMARY].ctx, beside);
	print_line("free of its own: %d", cuMemFree_v2(ptr));
	print_line("in the second: %d", cuCtxSetCurrent(second));
	print_line("free of its own: %d", cuMemFree_v2(ptr));
	print_end("release too many", cuDevicePrimaryCtxRelease_v2(0));
	CHECK(cuDevicePrimaryCtxRetain(&contexts[PRIMARY].ctx, 0));
	print_end("reset", cuDevicePrimaryCtxReset_v2(0));
	print_end("reset of what is not active", cuDevicePrimaryCtxReset_v2(0));
	print_end("release after the reset", cuDevicePrimaryCtxRelease_v2(0));
	print_line("id: %d", cuCtxGetId(contexts[PRIMARY].ctx, &(unsigned long long){0}));
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
