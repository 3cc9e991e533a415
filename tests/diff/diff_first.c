/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Two GPUs: the first access to a reused block is a copy or a kernel of the other GPU, with peer access off and on
 * (T1.3). The other GPU may also come into use while work is under way and reused blocks are handed out.
 */

#include "first.h"
#include "tests/sim/abi.h"

enum { ROUNDS = 8 };

static const size_t sizes[] = {4 * MIB, 64 * MIB, 320 * MIB};

static struct work_context home, away;
static struct first first;
static CUstream away_stream;
static CUdeviceptr source; /* source of copies, on the other device */

static void start(void)
{
	if (context_start() < 2) {
		printf("needs two devices\n");
		exit(0);
	}
	context_open(&home, 0);
	first_init(&first, &home);
}

static void open_away(void)
{
	context_open(&away, 1);
	away_stream = context_stream(&away);
	source = context_alloc(&away, FIRST_TOUCHED);
}

static void copy_to(CUdeviceptr ptr, uint32_t value)
{
	context_fill(&away, away_stream, source, FIRST_TOUCHED, value);
	CONTEXT_MUST(cuMemcpyPeerAsync(ptr, home.ctx, source, away.ctx, FIRST_TOUCHED, away_stream));
}

static void fill(CUdeviceptr ptr, uint32_t value)
{
	context_fill(&away, away_stream, ptr, FIRST_TOUCHED, value);
}

/* Lets the other device fill a block by copy or kernel, and frees the block. Returns the number of wrong words. */
static size_t touch(CUdeviceptr ptr, uint32_t value, void (*touch_from_away)(CUdeviceptr, uint32_t))
{
	size_t wrong;

	touch_from_away(ptr, value);
	CONTEXT_MUST(cuStreamSynchronize(away_stream));
	wrong = context_count_wrong(&home, ptr, FIRST_TOUCHED, value);
	CONTEXT_MUST(cuMemFree_v2(ptr));
	return wrong;
}

static void play(bool has_access, void (*touch_from_away)(CUdeviceptr, uint32_t))
{
	size_t wrong = 0;

	start();
	open_away();
	if (has_access)
		CONTEXT_MUST(cuCtxEnablePeerAccess(home.ctx, 0));
	for (unsigned i = 0; i < ROUNDS * LENGTH(sizes); i++)
		wrong += touch(first_reuse_block(&first, sizes[i % LENGTH(sizes)], FIRST_QUICK_NS), i, touch_from_away);
	first_print(&first, wrong);
}

static void copied(void)
{
	play(false, copy_to);
}

static void copied_with_access(void)
{
	play(true, copy_to);
}

static void filled(void)
{
	play(true, fill);
}

/* A block was handed out before the program used the second device. */
static void late(bool has_access, void (*touch_from_away)(CUdeviceptr, uint32_t))
{
	CUdeviceptr ptr;

	first_expect_long();
	start();
	ptr = first_reuse_block(&first, 320 * MIB, FIRST_LONG_NS);
	first.n_early = 0; /* the block was handed out correctly: the second device is used only from here on */
	open_away();
	if (has_access)
		CONTEXT_MUST(cuCtxEnablePeerAccess(home.ctx, 0));
	first_print(&first, touch(ptr, 1, touch_from_away));
}

static void copied_late(void)
{
	late(false, copy_to);
}

static void filled_late(void)
{
	late(true, fill);
}

/* The first device copies to memory of the second, and each block is freed while the other device is current (T8.6). */
static void both_ways(void)
{
	struct first other;
	size_t wrong = 0;

	start();
	open_away();
	first_init(&other, &away);
	for (unsigned i = 0; i < ROUNDS * LENGTH(sizes); i++) {
		CUdeviceptr ptr = first_reuse_block(&other, sizes[i % LENGTH(sizes)], FIRST_QUICK_NS), home_block;

		home_block = first_reuse_block(&first, sizes[i % LENGTH(sizes)], FIRST_QUICK_NS);
		context_fill(&home, NULL, home_block, FIRST_TOUCHED, i);
		CONTEXT_MUST(cuMemcpyPeerAsync(ptr, away.ctx, home_block, home.ctx, FIRST_TOUCHED, NULL));
		CONTEXT_MUST(cuCtxSynchronize());
		wrong += context_count_wrong(&away, ptr, FIRST_TOUCHED, i);
		context_enter(&home);
		CONTEXT_MUST(cuMemFree_v2(ptr));
		context_enter(&away);
		CONTEXT_MUST(cuMemFree_v2(home_block));
	}
	first.n_early += other.n_early;
	first_print(&first, wrong);
}

/*
 * When the block is freed, the other device is about to copy to it, and a stream of this device waits for that copy: so
 * the driver's free waits for it, too. Another block is freed just before the stream begins to wait. The other device
 * copies, because a kernel that writes by peer access made the free fail with ILLEGAL_ADDRESS on a real device without
 * gpupool (driver 580.159.04).
 */
static void awaited(void)
{
	CUstream home_stream, quick;
	size_t wrong = 0;
	CUevent done;

	start();
	home_stream = context_stream(&home);
	quick = context_stream(&home);
	open_away();
	CONTEXT_MUST(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
	context_fill(&away, away_stream, source, FIRST_TOUCHED, 0xdead);
	for (unsigned i = 0; i < ROUNDS * LENGTH(sizes); i++) {
		size_t bytes = sizes[i % LENGTH(sizes)];
		CUdeviceptr old = context_alloc(&home, bytes), other = context_alloc(&home, bytes), new[2];

		context_spin(&away, away_stream, FIRST_QUICK_NS);
		CONTEXT_MUST(cuMemcpyPeerAsync(old, home.ctx, source, away.ctx, FIRST_TOUCHED, away_stream));
		CONTEXT_MUST(cuEventRecord(done, away_stream));
		context_enter(&home);
		CONTEXT_MUST(cuMemFree_v2(other));
		CONTEXT_MUST(cuStreamWaitEvent(home_stream, done, 0));
		CONTEXT_MUST(cuMemFree_v2(old));
		for (unsigned k = 0; k < LENGTH(new); k++) {
			new[k] = context_alloc(&home, bytes);
			context_fill(&home, quick, new[k], FIRST_TOUCHED, i);
		}
		for (unsigned k = 0; k < LENGTH(new); k++) {
			wrong += context_count_wrong(&home, new[k], FIRST_TOUCHED, i);
			CONTEXT_MUST(cuMemFree_v2(new[k]));
		}
	}
	first_print(&first, wrong);
}

const struct app_scenario app_scenarios[] = {
	{"copied", copied, 0},
	{"copied_with_access", copied_with_access, 0},
	{"filled", filled, 0},
	{"copied_late", copied_late, 0},
	{"filled_late", filled_late, 0},
	{"both_ways", both_ways, 0},
	{"awaited", awaited, 0},
	{0},
};
