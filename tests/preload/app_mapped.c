/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Makes a pool move memory while other memory is in use. */

#include <pthread.h>

#include "app_driver.h"

enum { N_BLOCKS = 24, ROUNDS = 12 };

#define BYTES   (6 * MIB)
#define TOUCHED (4 * KIB) /* bytes at the end of a block that kernels write */

static CUdeviceptr blocks[N_BLOCKS];

static void fill_all(CUstream stream, unsigned from, unsigned step, uint32_t value)
{
	for (unsigned i = from; i < N_BLOCKS; i += step)
		app_fill(stream, blocks[i] + BYTES - TOUCHED, TOUCHED, value + i);
}

static size_t count_wrong(unsigned from, unsigned step, uint32_t value)
{
	size_t wrong = 0;

	for (unsigned i = from; i < N_BLOCKS; i += step)
		wrong += app_count_wrong(NULL, blocks[i] + BYTES - TOUCHED, TOUCHED, value + i);
	return wrong;
}

/* Frees every other block, with work pending or without, and allocates a block that is larger than any gap. */
static size_t run_round(CUstream stream, unsigned round)
{
	size_t wrong, large = (2 + round % 5) * 8 * MIB;
	CUdeviceptr ptr = 0;

	for (unsigned i = 0; i < N_BLOCKS; i++)
		APP_MUST(cuMemAlloc_v2(&blocks[i], BYTES));
	fill_all(stream, 0, 1, round);
	if (round % 2)
		APP_MUST(cuCtxSynchronize());
	for (unsigned i = 0; i < N_BLOCKS; i += 2)
		APP_MUST(cuMemFree_v2(blocks[i]));
	if (round % 3)
		APP_MUST(cuCtxSynchronize());
	APP_MUST(cuMemAlloc_v2(&ptr, large));
	app_fill(stream, ptr, TOUCHED, 7);
	app_fill(stream, ptr + large - TOUCHED, TOUCHED, 8);
	wrong = app_count_wrong(stream, ptr, TOUCHED, 7);
	wrong += app_count_wrong(stream, ptr + large - TOUCHED, TOUCHED, 8);
	APP_MUST(cuMemFree_v2(ptr));
	APP_MUST(cuCtxSynchronize());
	wrong += count_wrong(1, 2, round);
	for (unsigned i = 1; i < N_BLOCKS; i += 2)
		APP_MUST(cuMemFree_v2(blocks[i]));
	return wrong;
}

static void moves(void)
{
	CUstream stream;
	size_t wrong = 0;

	app_start();
	stream = app_stream();
	for (unsigned round = 0; round < ROUNDS; round++)
		wrong += run_round(stream, round);
	app_say("wrong words", "%zu", wrong);
	app_pause("moves");
	app_report_driver();
}

/* Mapped memory does not end with a context, so the pool has to release it. */
static void ends(void)
{
	size_t before, after, total;
	CUdeviceptr ptr;
	CUcontext ctx;

	app_start();
	APP_MUST(cuMemGetInfo_v2(&before, &total));
	for (unsigned i = 0; i < 8; i++) {
		APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
		APP_MUST(cuMemAlloc_v2(&ptr, 64 * MIB));
		APP_MUST(cuMemAlloc_v2(&ptr, 4 * KIB));
		APP_MUST(cuCtxDestroy_v2(ctx));
	}
	APP_MUST(cuMemGetInfo_v2(&after, &total));
	app_result("all is back", before == after);
	app_report_driver();
}

/* Every function of the simulated driver. */
static const char *const functions[] = {
#define SIM_FN(name, ...)                #name,
#define SIM_STREAM_FN(name, suffix, ...) #name, #name #suffix,
#include "tests/sim/functions.def"
};

/*
 * Tells in a line which driver calls the first allocation of the process makes. Left out are two calls that take some
 * nanoseconds each.
 */
static void count_first(size_t bytes)
{
	uint64_t before[LENGTH(functions)];
	CUdeviceptr ptr;
	unsigned total = 0;

	app_start();
	for (size_t i = 0; i < LENGTH(functions); i++)
		before[i] = app_calls(functions[i]);
	APP_MUST(cuMemAlloc_v2(&ptr, bytes));
	for (size_t i = 0; i < LENGTH(functions); i++) {
		unsigned n = (unsigned)(app_calls(functions[i]) - before[i]);

		if (!n || !strcmp(functions[i], "cuCtxGetCurrent") ||
			!strcmp(functions[i], "cuThreadExchangeStreamCaptureMode"))
			continue;
		printf("%s %u\n", functions[i], n);
		total += n;
	}
	printf("total %u\n", total);
	APP_MUST(cuMemFree_v2(ptr));
}

static void first(void)
{
	count_first(MIB);
}

/* Larger than a chunk, so that the first growth takes several. */
static void first_large(void)
{
	count_first(64 * MIB);
}

/*
 * Tells whether the first allocation of the process succeeds, how often the driver was called for it to create, map,
 * unmap and release memory, and how much of the device it takes.
 */
static void tell_first(CUresult r, size_t before)
{
	size_t (*allocated)(int) = (size_t(*)(int))app_simulator("simgpu_allocated_bytes");

	printf("result %d, creates %u, maps %u, unmaps %u, releases %u, takes %zu MiB\n", r,
		(unsigned)app_calls("cuMemCreate"), (unsigned)app_calls("cuMemMap"), (unsigned)app_calls("cuMemUnmap"),
		(unsigned)app_calls("cuMemRelease"), (allocated(0) - before) / MIB);
}

static void ahead_of(size_t bytes, bool is_pinned)
{
	size_t (*allocated)(int) = (size_t(*)(int))app_simulator("simgpu_allocated_bytes");
	CUdeviceptr ptr = 0;
	void *pinned = NULL;
	size_t before;
	CUresult r;

	app_start();
	before = allocated(0);
	r = is_pinned ? cuMemHostAlloc(&pinned, bytes, 0) : cuMemAlloc_v2(&ptr, bytes);
	tell_first(r, before);
}

static void ahead_small(void)
{
	ahead_of(4 * KIB, false);
}

static void ahead_large(void)
{
	ahead_of(64 * MIB, false);
}

static void ahead_pinned(void)
{
	ahead_of(4 * KIB, true);
}

/* Threads make the first allocations of the process at the same time. Each size has a first chunk of its own. */
static pthread_barrier_t all_there;

static void *allocate_first(void *arg)
{
	static const size_t sizes[] = {4 * KIB, 64 * MIB, 2 * MIB, 6 * MIB, MIB};
	uintptr_t nth = (uintptr_t)arg;
	size_t bytes = sizes[nth % LENGTH(sizes)], wrong = 0;
	CUdeviceptr ptr;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	pthread_barrier_wait(&all_there);
	ptr = app_alloc(bytes);
	app_fill(CU_STREAM_PER_THREAD, ptr, 4 * KIB, (uint32_t)nth);
	wrong = app_count_wrong(CU_STREAM_PER_THREAD, ptr, 4 * KIB, (uint32_t)nth);
	APP_MUST(cuMemFree_v2(ptr));
	return (void *)wrong;
}

static void first_threads(void)
{
	enum { THREADS = 5 };
	pthread_t threads[THREADS];
	size_t wrong = 0;
	void *result;

	app_start();
	pthread_barrier_init(&all_there, NULL, THREADS);
	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, allocate_first, (void *)i))
			exit(71);
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &result);
		wrong += (size_t)result;
	}
	app_say("wrong words", "%zu", wrong);
}

/* Blocks on two devices, of which one may be unable to map memory. */
static void two_devices(void)
{
	CUcontext other;
	CUdeviceptr ptr[4];
	uint32_t word;

	app_start();
	APP_MUST(cuDevicePrimaryCtxRetain(&other, 1));
	for (unsigned i = 0; i < LENGTH(ptr); i++) {
		APP_MUST(cuCtxSetCurrent(i % 2 ? other : app_ctx));
		ptr[i] = app_alloc((4 + i) * MIB);
		APP_MUST(cuMemsetD32_v2(ptr[i], i, MIB));
	}
	app_pause("devices");
	for (unsigned i = 0; i < LENGTH(ptr); i++) {
		APP_MUST(cuCtxSetCurrent(i % 2 ? other : app_ctx));
		APP_MUST(cuMemcpyDtoH_v2(&word, ptr[i], sizeof(word)));
		app_say("word", "%u", word);
		APP_MUST(cuMemFree_v2(ptr[i]));
	}
}

/* Makes the nth call from now fail. */
static void refuse_access(unsigned nth)
{
	bool (*inject_fault)(const char *) = (bool (*)(const char *))app_simulator("simgpu_fault");
	char fault[64];

	snprintf(
		fault, sizeof(fault), "cuMemSetAccess:%llu=101", (unsigned long long)app_calls("cuMemSetAccess") + nth);
	if (inject_fault && !inject_fault(fault))
		app_must(-1, fault);
}

/* Allocates memory on the first device, and returns the calls that gave devices access to it. */
static uint64_t count_accesses_of_more(void)
{
	uint64_t n = app_calls("cuMemSetAccess");
	CUdeviceptr more;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	app_result("more", cuMemAlloc_v2(&more, 256 * MIB));
	return app_calls("cuMemSetAccess") - n;
}

/* Copies of the first device's memory on a stream of the second. */
static void copy_from_the_other(bool is_access_refused)
{
	CUcontext other;
	CUdeviceptr ptr;
	uint32_t word = 0;
	uint64_t n;

	app_start();
	ptr = app_alloc(16 * MIB);
	APP_MUST(cuMemsetD32_v2(ptr, 5, MIB));
	APP_MUST(cuCtxSynchronize());
	n = count_accesses_of_more();
	APP_MUST(cuDevicePrimaryCtxRetain(&other, 1));
	APP_MUST(cuCtxSetCurrent(other));
	if (is_access_refused)
		refuse_access(1);
	app_result("first copy", cuMemcpyDtoH_v2(&word, ptr, sizeof(word)));
	app_fact("more accesses than before", count_accesses_of_more() - n);
	APP_MUST(cuCtxSetCurrent(other));
	app_result("copy", cuMemcpyDtoH_v2(&word, ptr, sizeof(word)));
	app_say("word", "%u", word);
	n = app_calls("cuMemcpyDtoH_v2");
	app_result("wrong copy", cuMemcpyDtoH_v2(&word, 0, sizeof(word)));
	app_fact("calls for the wrong copy", app_calls("cuMemcpyDtoH_v2") - n);
}

static void copies(void)
{
	copy_from_the_other(false);
}

static void copies_refused_once(void)
{
	copy_from_the_other(true);
}

/* Memory of the first device, to which the second one is refused access. */
static void peer_refused(void)
{
	CUcontext other;

	app_start();
	APP_MUST(cuMemFree_v2(app_alloc(16 * MIB)));
	APP_MUST(cuDevicePrimaryCtxRetain(&other, 1));
	APP_MUST(cuCtxSetCurrent(other));
	APP_MUST(cuCtxEnablePeerAccess(app_ctx, 0));
	refuse_access(2); /* the first call is for the memory's own device */
	app_fact("accesses", count_accesses_of_more());
}

const struct app_scenario app_scenarios[] = {
	{"peer_refused", peer_refused},
	{"copies", copies},
	{"copies_refused_once", copies_refused_once},
	{"first_threads", first_threads},
	{"ahead_small", ahead_small},
	{"ahead_large", ahead_large},
	{"ahead_pinned", ahead_pinned},
	{"first", first},
	{"first_large", first_large},
	{"moves", moves},
	{"ends", ends},
	{"two-devices", two_devices},
	{0},
};
