/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Scenarios for all backends, and some for managed memory alone. */

#include <unistd.h>

#include "api/gpupool.h"
#include "app_driver.h"
#include "tests/sim/abi.h"

enum { N_BLOCKS = 30, ROUNDS = 3, LOOPS = 200 };

#define EDGE (4 * KIB)

struct block {
	CUdeviceptr ptr;
	size_t bytes;
};

static size_t bytes_of(unsigned i, unsigned round)
{
	static const size_t sizes[] = {EDGE, 64 * KIB, MIB, 3 * MIB, 20 * MIB};

	return sizes[(i + round) % LENGTH(sizes)] + (i % 3) * 512;
}

/* Allocates a block and writes the value to both of its ends. */
static void put(CUstream stream, struct block *block, size_t bytes, uint32_t value)
{
	*block = (struct block){app_alloc(bytes), bytes};
	app_fill(stream, block->ptr, EDGE, value);
	app_fill(stream, block->ptr + bytes - EDGE, EDGE, value);
}

static size_t take(CUstream stream, struct block *block, uint32_t value)
{
	size_t wrong = app_count_wrong(stream, block->ptr, EDGE, value);

	wrong += app_count_wrong(stream, block->ptr + block->bytes - EDGE, EDGE, value);
	APP_MUST(cuMemFree_v2(block->ptr));
	return wrong;
}

/* Uses blocks of many sizes on two streams. Every other block is freed while its work runs. */
static void words(void)
{
	struct block blocks[N_BLOCKS];
	CUstream streams[2];
	size_t wrong = 0;

	app_start();
	streams[0] = app_stream();
	streams[1] = app_stream();
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < N_BLOCKS; i++)
			put(streams[i % 2], &blocks[i], bytes_of(i, round), round * N_BLOCKS + i);
		for (unsigned i = 0; i < N_BLOCKS; i += 2) {
			app_spin_fill(streams[0], blocks[i].ptr, EDGE, 1, MS / 20);
			APP_MUST(cuMemFree_v2(blocks[i].ptr));
		}
		for (unsigned i = 1; i < N_BLOCKS; i += 2)
			wrong += take(streams[1], &blocks[i], round * N_BLOCKS + i);
	}
	app_say("wrong words", "%zu", wrong);
	app_pause("words");
	app_report_driver();
}

/* A loop on one stream obtains its memory from the driver once. */
static void reuse(void)
{
	struct gpupool_status status;
	CUstream stream;

	app_start();
	stream = app_stream();
	for (unsigned i = 0; i < LOOPS; i++) {
		CUdeviceptr ptr = app_alloc(16 * MIB);

		app_fill(stream, ptr, EDGE, i);
		APP_MUST(cuMemFree_v2(ptr));
		APP_MUST(cuStreamSynchronize(stream));
	}
	app_result("loops", LOOPS);
	if (!gpupool_get_status(0, &status))
		app_fact("misses", status.misses);
	app_fact_calls("cuMemAlloc_v2");
	app_fact_calls("cuMemAllocManaged");
	app_fact_calls("cuMemAllocFromPoolAsync");
	app_pause("reuse");
}

/* Counts driver calls of an allocation that needs a new segment. */
static void miss(void)
{
	uint64_t n_modes, n_questions;

	app_start();
	(void)app_alloc(64 * MIB);
	n_modes = app_calls("cuThreadExchangeStreamCaptureMode");
	n_questions = app_calls("cuMemGetInfo_v2");
	(void)app_alloc(64 * MIB);
	app_fact("modes", app_calls("cuThreadExchangeStreamCaptureMode") - n_modes);
	app_fact("questions", app_calls("cuMemGetInfo_v2") - n_questions);
}

/* Exports a block twice and prints both answers. */
static void export(void)
{
	CUdeviceptr ptr;
	CUipcMemHandle handle;

	app_start();
	ptr = app_alloc(16 * MIB);
	app_result("legacy handle", cuIpcGetMemHandle(&handle, ptr));
	app_result("handle once more", cuIpcGetMemHandle(&handle, ptr));
	app_result("free", cuMemFree_v2(ptr));
}

/*
 * Allocates and frees beside work that takes long, and prints if that work still runs: no call may have waited for
 * it.
 */
static void spinning(void)
{
	CUstream stream;
	CUdeviceptr ptr;

	app_start();
	stream = app_stream();
	ptr = app_alloc(16 * MIB);
	app_spin_fill(stream, ptr, EDGE, 1, 1000 * MS);
	APP_MUST(cuMemFree_v2(ptr));
	for (unsigned i = 0; i < 4; i++)
		APP_MUST(cuMemFree_v2(app_alloc((i + 1) * 24 * MIB)));
	app_result("still running", cuStreamQuery(stream));
	APP_MUST(cuStreamSynchronize(stream));
}

/* Allocates three times the memory of the device. Writes both ends of each block and reads them twice. */
static void beyond(void)
{
	size_t available, total, wrong = 0;
	struct block blocks[12];

	app_start();
	APP_MUST(cuMemGetInfo_v2(&available, &total));
	for (unsigned i = 0; i < LENGTH(blocks); i++)
		put(NULL, &blocks[i], total / 4, i);
	for (unsigned i = 0; i < LENGTH(blocks); i++)
		wrong += app_count_wrong(NULL, blocks[i].ptr, EDGE, i);
	APP_MUST(cuMemGetInfo_v2(&available, &total));
	app_result("something is free", available != 0);
	for (unsigned i = 0; i < LENGTH(blocks); i++)
		wrong += take(NULL, &blocks[i], i);
	app_say("wrong words", "%zu", wrong);
	app_pause("beyond");
	app_report_driver();
}

/* Allocates until a request is refused. */
static void until_full(void)
{
	CUdeviceptr ptr;
	unsigned n = 0;
	CUresult r;

	app_start();
	while (!(r = cuMemAlloc_v2(&ptr, 16 * MIB)) && n < 4096)
		n++;
	app_result("refused with", r);
	app_fact("blocks", n);
	app_pause("full");
}

/* The program allocates managed memory itself, more than the machine has. */
static void own(void)
{
	size_t bytes = 2 * (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
	CUdeviceptr ptr;
	CUresult r;

	app_start();
	(void)app_alloc(MIB);
	r = cuMemAllocManaged(&ptr, bytes, CU_MEM_ATTACH_GLOBAL);
	app_result("managed", r);
	if (!r)
		app_result("free", cuMemFree_v2(ptr));
	app_pause("own");
}

/* The program sees the amounts that it would see if all memory were on the device. */
static void info(void)
{
	size_t before, between, after, total;
	CUdeviceptr ptr;

	app_start();
	APP_MUST(cuMemGetInfo_v2(&before, &total));
	ptr = app_alloc(64 * MIB);
	APP_MUST(cuMemGetInfo_v2(&between, &total));
	app_result("MiB less free", (int)((before - between) / MIB));
	app_fill(NULL, ptr, 64 * MIB, 1);
	APP_MUST(cuCtxSynchronize());
	APP_MUST(cuMemGetInfo_v2(&between, &total));
	app_result("MiB less free after a write", (int)((before - between) / MIB));
	APP_MUST(cuMemFree_v2(ptr));
	APP_MUST(cuMemGetInfo_v2(&after, &total));
	app_result("all is back", after == before);
	app_pause("info");
}

static size_t available_bytes(void)
{
	size_t available, total;

	APP_MUST(cuMemGetInfo_v2(&available, &total));
	return available;
}

static void report_missing(const char *what, size_t before)
{
	size_t after = available_bytes();

	app_fact(what, (before - (after < before ? after : before)) / MIB);
}

/* Leaves blocks in use and freed blocks in the current context, which then ends. */
static void fill_context(void)
{
	(void)app_alloc(64 * MIB);
	APP_MUST(cuMemFree_v2(app_alloc(48 * MIB)));
	(void)app_alloc(4 * KIB);
}

/* Releases the primary context until no reference is left. */
static void release_all(void)
{
	unsigned flags;
	int active = 1;

	while (active) {
		APP_MUST(cuDevicePrimaryCtxRelease_v2(0));
		APP_MUST(cuDevicePrimaryCtxGetState(0, &flags, &active));
	}
}

static void ends(void)
{
	size_t before = 0;
	CUcontext ctx;

	app_start();
	for (unsigned i = 0; i < 6; i++) {
		APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
		fill_context();
		APP_MUST(cuCtxDestroy_v2(ctx));
		APP_MUST(cuCtxSetCurrent(app_ctx));
		if (i == 1)
			before = available_bytes();
	}
	report_missing("MiB missing after contexts", before);
	for (unsigned i = 0; i < 4; i++) {
		fill_context();
		APP_MUST(cuDevicePrimaryCtxReset_v2(0));
		app_start();
	}
	report_missing("MiB missing after resets", before);
	fill_context();
	release_all();
	app_start();
	report_missing("MiB missing after a release", before);
	app_result("end", cuCtxSynchronize());
}

const struct app_scenario app_scenarios[] = {
	{"words", words},
	{"reuse", reuse},
	{"miss", miss},
	{"export", export},
	{"ends", ends},
	{"spinning", spinning},
	{"beyond", beyond},
	{"own", own, 0},
	{"until-full", until_full},
	{"info", info},
	{0},
};
