/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * One GPU, on which the first access to a reused block comes from outside the context: from another context, from
 * another process, from a device that ignores CUDA's stream order, or from the CPU.
 */

#include "first.h"
#include "tests/preload/app_peer.h"
#include "tests/sim/abi.h"

enum { ROUNDS = 8, ATTACH_GLOBAL = 1 };

static const size_t sizes[] = {4 * MIB, 64 * MIB, 320 * MIB};

static struct work_context home, away;
static struct first first;

static void start(void)
{
	context_start();
	context_open(&home, 0);
	first_init(&first, &home);
}

static size_t touch_from_away(CUdeviceptr ptr, CUdeviceptr source, CUstream away_stream, uint32_t value)
{
	size_t wrong;

	context_fill(&away, away_stream, source, FIRST_TOUCHED, value);
	CONTEXT_MUST(cuMemcpyPeerAsync(ptr, home.ctx, source, away.ctx, FIRST_TOUCHED, away_stream));
	CONTEXT_MUST(cuStreamSynchronize(away_stream));
	wrong = context_count_wrong(&home, ptr, FIRST_TOUCHED, value);
	CONTEXT_MUST(cuMemFree_v2(ptr));
	return wrong;
}

/* The first access is a copy by a second context of the device. */
static void context(void)
{
	CUdeviceptr source;
	CUstream away_stream;
	size_t wrong = 0;

	start();
	context_create(&away, 0);
	away_stream = context_stream(&away);
	source = context_alloc(&away, FIRST_TOUCHED);
	for (unsigned i = 0; i < ROUNDS * LENGTH(sizes); i++)
		wrong += touch_from_away(
			first_reuse_block(&first, sizes[i % LENGTH(sizes)], FIRST_QUICK_NS), source, away_stream, i);
	first_print(&first, wrong);
}

/* A second context is created after a block was handed out that relies on GPU waits alone. */
static void context_late(void)
{
	CUdeviceptr ptr;
	CUstream away_stream;

	first_expect_long();
	start();
	ptr = first_reuse_block(&first, 320 * MIB, FIRST_LONG_NS);
	first.n_early = 0; /* the block was handed out correctly: the second context exists only from here on */
	context_create(&away, 0);
	away_stream = context_stream(&away);
	first_print(&first, touch_from_away(ptr, context_alloc(&away, FIRST_TOUCHED), away_stream, 1));
}

/*
 * Memory is shared with a device that ignores CUDA's stream order. The driver may refuse to share the first block,
 * which can be part of a segment. Later blocks are separate allocations.
 */
static void after_sharing(CUresult (*share)(CUdeviceptr ptr))
{
	size_t wrong = 0;

	start();
	(void)share(context_alloc(&home, 4 * MIB));
	app_result("shared", share(context_alloc(&home, 4 * MIB)));
	for (unsigned i = 0; i < ROUNDS * LENGTH(sizes); i++) {
		CUdeviceptr ptr = first_reuse_block(&first, sizes[i % LENGTH(sizes)], FIRST_QUICK_NS);

		context_fill(&home, first.slow, ptr, FIRST_TOUCHED, i);
		wrong += context_count_wrong(&home, ptr, FIRST_TOUCHED, i);
		CONTEXT_MUST(cuMemFree_v2(ptr));
	}
	first_print(&first, wrong);
}

static CUresult set_sync_memops(CUdeviceptr ptr)
{
	int yes = 1;

	return cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr);
}

static CUresult get_dma_buf(CUdeviceptr ptr)
{
	int fd = -1;

	return cuMemGetHandleForAddressRange(&fd, ptr, 4 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
}

static CUresult get_tokens(CUdeviceptr ptr)
{
	uint64_t values[2];

	return cuPointerGetAttribute(values, CU_POINTER_ATTRIBUTE_P2P_TOKENS, ptr);
}

static void sync_memops(void)
{
	after_sharing(set_sync_memops);
}

static void dma_buf(void)
{
	after_sharing(get_dma_buf);
}

static void tokens(void)
{
	after_sharing(get_tokens);
}

/* The CPU writes to a reused pinned block while a copy to its old owner may still be under way (T1.2). */
static void pinned(void)
{
	CUdeviceptr source;
	size_t wrong = 0;

	start();
	source = context_alloc(&home, FIRST_TOUCHED);
	context_fill(&home, first.slow, source, FIRST_TOUCHED, 0xdead);
	for (unsigned i = 0; i < ROUNDS * LENGTH(sizes); i++) {
		size_t bytes = sizes[i % LENGTH(sizes)] / 16;
		uint32_t *old, *new;

		CONTEXT_MUST(cuMemHostAlloc((void **)&old, bytes, 0));
		context_spin(&home, first.slow, FIRST_QUICK_NS);
		CONTEXT_MUST(cuMemcpyDtoHAsync_v2(old, source, FIRST_TOUCHED, first.slow));
		CONTEXT_MUST(cuMemFreeHost(old));
		CONTEXT_MUST(cuMemHostAlloc((void **)&new, bytes, 0));
		first.n_reused += new == old;
		for (size_t k = 0; k < FIRST_TOUCHED / 4; k++)
			new[k] = i;
		CONTEXT_MUST(cuStreamSynchronize(first.slow));
		for (size_t k = 0; k < FIRST_TOUCHED / 4; k++)
			wrong += new[k] != i;
		CONTEXT_MUST(cuMemFreeHost(new));
	}
	first_print(&first, wrong);
}

/* Managed memory is not pooled: its free waits, and the first access to the new block comes from the CPU. */
static void managed(void)
{
	size_t wrong = 0;

	start();
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUdeviceptr old, new;
		uint32_t *words;

		CONTEXT_MUST(cuMemAllocManaged(&old, 4 * MIB, ATTACH_GLOBAL));
		context_spin_fill(&home, first.slow, old, FIRST_TOUCHED, 0xdead, FIRST_QUICK_NS);
		CONTEXT_MUST(cuMemFree_v2(old));
		CONTEXT_MUST(cuMemAllocManaged(&new, 4 * MIB, ATTACH_GLOBAL));
		words = (uint32_t *)(uintptr_t) new;
		for (size_t k = 0; k < FIRST_TOUCHED / 4; k++)
			words[k] = i;
		for (size_t k = 0; k < FIRST_TOUCHED / 4; k++)
			wrong += words[k] != i;
		CONTEXT_MUST(cuMemFree_v2(new));
	}
	first_print(&first, wrong);
}

/* Another process opens a block that has just been reused, and writes to it at once. */
static void imported_exporter(void)
{
	CUdeviceptr ptr;

	start();
	ptr = first_reuse_block(&first, 320 * MIB, FIRST_LONG_NS);
	app_put_handle(ptr);
	app_await();
	app_put_number(context_count_wrong(&home, ptr, FIRST_TOUCHED, 1));
}

static void imported_importer(void)
{
	CUdeviceptr ptr = app_open(app_take_handle());

	app_fill(NULL, ptr, FIRST_TOUCHED, 1);
	APP_MUST(cuCtxSynchronize());
	app_go();
	app_result("wrong words", (int)app_take_number());
	app_result("close", cuIpcCloseMemHandle(ptr));
}

static void imported(void)
{
	first_expect_long();
	app_pair("imported", imported_exporter, imported_importer);
}

const struct app_scenario app_scenarios[] = {
	{"context", context, 0},
	{"context_late", context_late, 0},
	{"sync_memops", sync_memops, 0},
	{"dma_buf", dma_buf, 0},
	{"tokens", tokens, 0},
	{"pinned", pinned, 0},
	{"managed", managed, 0},
	{"imported", imported, 0},
	{0},
};
