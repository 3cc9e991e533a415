/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Two GPUs: the first to touch a block is a copy or a kernel of the other one, with peer access off and on (T1.3), and
 * where the other comes into use while work is under way and blocks are out.
 */

#include "first.h"
#include "tests/sim/abi.h"

enum { ROUNDS = 8 };

static const size_t sizes[] = {4 * MIB, 64 * MIB, 320 * MIB};

static struct place home, away;
static struct first first;
static CUstream there;
static CUdeviceptr source; /* of copies, on the other device */

static void start(void)
{
	if (place_start() < 2) {
		printf("needs two devices\n");
		exit(0);
	}
	place_open(&home, 0);
	first_init(&first, &home);
}

static void open_away(void)
{
	place_open(&away, 1);
	there = place_stream(&away);
	source = place_alloc(&away, FIRST_TOUCHED);
}

static void copy_to(CUdeviceptr ptr, uint32_t value)
{
	place_fill(&away, there, source, FIRST_TOUCHED, value);
	PLACE_MUST(cuMemcpyPeerAsync(ptr, home.ctx, source, away.ctx, FIRST_TOUCHED, there));
}

static void fill(CUdeviceptr ptr, uint32_t value)
{
	place_fill(&away, there, ptr, FIRST_TOUCHED, value);
}

/* The wrong words of a block that the other device fills in its own way. */
static size_t touch(CUdeviceptr ptr, uint32_t value, void (*touch_from_away)(CUdeviceptr, uint32_t))
{
	size_t wrong;

	touch_from_away(ptr, value);
	PLACE_MUST(cuStreamSynchronize(there));
	wrong = place_count_wrong(&home, ptr, FIRST_TOUCHED, value);
	PLACE_MUST(cuMemFree_v2(ptr));
	return wrong;
}

static void play(bool has_access, void (*touch_from_away)(CUdeviceptr, uint32_t))
{
	size_t wrong = 0;

	start();
	open_away();
	if (has_access)
		PLACE_MUST(cuCtxEnablePeerAccess(home.ctx, 0));
	for (unsigned i = 0; i < ROUNDS * LENGTH(sizes); i++)
		wrong += touch(first_take_over(&first, sizes[i % LENGTH(sizes)], FIRST_QUICK_NS), i, touch_from_away);
	first_say(&first, wrong);
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

/* What was handed out before there was a second device. */
static void late(bool has_access, void (*touch_from_away)(CUdeviceptr, uint32_t))
{
	CUdeviceptr ptr;

	first_expect_long();
	start();
	ptr = first_take_over(&first, 320 * MIB, FIRST_LONG_NS);
	first.n_early = 0; /* which was right at that time */
	open_away();
	if (has_access)
		PLACE_MUST(cuCtxEnablePeerAccess(home.ctx, 0));
	first_say(&first, touch(ptr, 1, touch_from_away));
}

static void copied_late(void)
{
	late(false, copy_to);
}

static void filled_late(void)
{
	late(true, fill);
}

/* Memory of the second device, for the first, which is not the one that frees it (T8.6). */
static void both_ways(void)
{
	struct first other;
	size_t wrong = 0;

	start();
	open_away();
	first_init(&other, &away);
	for (unsigned i = 0; i < ROUNDS * LENGTH(sizes); i++) {
		CUdeviceptr ptr = first_take_over(&other, sizes[i % LENGTH(sizes)], FIRST_QUICK_NS), mine;

		mine = first_take_over(&first, sizes[i % LENGTH(sizes)], FIRST_QUICK_NS);
		place_fill(&home, NULL, mine, FIRST_TOUCHED, i);
		PLACE_MUST(cuMemcpyPeerAsync(ptr, away.ctx, mine, home.ctx, FIRST_TOUCHED, NULL));
		PLACE_MUST(cuCtxSynchronize());
		wrong += place_count_wrong(&away, ptr, FIRST_TOUCHED, i);
		place_enter(&home);
		PLACE_MUST(cuMemFree_v2(ptr));
		place_enter(&away);
		PLACE_MUST(cuMemFree_v2(mine));
	}
	first.n_early += other.n_early;
	first_say(&first, wrong);
}

/*
 * The other device is about to copy to a block, and a stream of this one waits for that, when the block is freed: so
 * the free does, too. Just before that another was freed, which nobody waits for. A kernel that writes by peer access
 * would not do: on a real device that ended with ILLEGAL_ADDRESS in the free, without gpupool (driver 580.159.04).
 */
static void awaited(void)
{
	CUstream here, quick;
	size_t wrong = 0;
	CUevent done;

	start();
	here = place_stream(&home);
	quick = place_stream(&home);
	open_away();
	PLACE_MUST(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
	place_fill(&away, there, source, FIRST_TOUCHED, 0xdead);
	for (unsigned i = 0; i < ROUNDS * LENGTH(sizes); i++) {
		size_t bytes = sizes[i % LENGTH(sizes)];
		CUdeviceptr old = place_alloc(&home, bytes), other = place_alloc(&home, bytes), new[2];

		place_spin(&away, there, FIRST_QUICK_NS);
		PLACE_MUST(cuMemcpyPeerAsync(old, home.ctx, source, away.ctx, FIRST_TOUCHED, there));
		PLACE_MUST(cuEventRecord(done, there));
		place_enter(&home);
		PLACE_MUST(cuMemFree_v2(other));
		PLACE_MUST(cuStreamWaitEvent(here, done, 0));
		PLACE_MUST(cuMemFree_v2(old));
		for (unsigned k = 0; k < LENGTH(new); k++) {
			new[k] = place_alloc(&home, bytes);
			place_fill(&home, quick, new[k], FIRST_TOUCHED, i);
		}
		for (unsigned k = 0; k < LENGTH(new); k++) {
			wrong += place_count_wrong(&home, new[k], FIRST_TOUCHED, i);
			PLACE_MUST(cuMemFree_v2(new[k]));
		}
	}
	first_say(&first, wrong);
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
