/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Memory that two processes share. If both processes have a pool, its kind does not decide which handles open and
 * which are refused. Scenarios that export whole allocations do not depend on the library at all.
 */

#include <pthread.h>

#include "app_peer.h"
#include "tests/sim/abi.h"

/* Counts and fill values, used by both processes. Each block has a different fill value. */
enum { MANY = 24, BEFORE = 1000, AFTER = 2000, CANARY = 3000, LARGE = 64 };

static const size_t sizes[] = {512, 4096, 1000 * 4, 64 * KIB, MIB, MIB + 512, 3 * MIB};

static size_t size_of(unsigned nth)
{
	return sizes[nth % LENGTH(sizes)];
}

/* The block is so large that every pool makes a separate allocation for it. */
static void whole_exporter(void)
{
	CUdeviceptr ptr = app_alloc(LARGE * MIB);

	app_fill_now(ptr, LARGE * MIB, BEFORE);
	app_put_handle(ptr);
	app_await();
	app_put_number((uint64_t)app_wrong(ptr, LARGE * MIB, AFTER));
	app_put_number(cuMemFree_v2(ptr));
}

static void whole_importer(void)
{
	CUdeviceptr ptr = app_open(app_take_handle());

	app_result("wrong words", app_wrong(ptr, LARGE * MIB, BEFORE));
	app_fill_now(ptr, LARGE * MIB, AFTER);
	app_result("close", cuIpcCloseMemHandle(ptr));
	app_result("close again", cuIpcCloseMemHandle(ptr));
	app_go();
	app_result("wrong words at the exporter's", (int)app_take_number());
	app_result("the exporter's free", (int)app_take_number());
}

/* Exported blocks lie between blocks that are not exported, which no other process may touch. */
static void many_exporter(void)
{
	CUdeviceptr ptr[MANY], canary[MANY];
	int damaged = 0, unseen = 0;

	for (unsigned i = 0; i < MANY; i++) {
		ptr[i] = app_alloc(size_of(i));
		canary[i] = app_alloc(size_of(i));
		app_fill_now(ptr[i], size_of(i), BEFORE + i);
		app_fill_now(canary[i], size_of(i), CANARY + i);
	}
	for (unsigned i = 0; i < MANY; i++)
		app_put_handle(ptr[i]);
	app_await();
	for (unsigned i = 0; i < MANY; i++) {
		unseen += app_wrong(ptr[i], size_of(i), AFTER + i);
		damaged += app_wrong(canary[i], size_of(i), CANARY + i);
	}
	app_put_number((uint64_t)unseen);
	app_put_number((uint64_t)damaged);
}

static void many_importer(void)
{
	CUdeviceptr ptr[MANY];

	for (unsigned i = 0; i < MANY; i++) {
		ptr[i] = app_open(app_take_handle());
		app_result("wrong words", app_wrong(ptr[i], size_of(i), BEFORE + i));
	}
	for (unsigned i = 0; i < MANY; i++)
		app_fill_now(ptr[i], size_of(i), AFTER + i);
	/* Close in another order than they were opened, while the rest stays open. */
	for (unsigned i = 0; i < MANY; i++) {
		unsigned nth = i * 7 % MANY;

		app_result("wrong words before the close", app_wrong(ptr[nth], size_of(nth), AFTER + nth));
		app_result("close", cuIpcCloseMemHandle(ptr[nth]));
	}
	for (unsigned i = 0; i < MANY; i++)
		app_result("readable", app_is_readable(ptr[i]));
	app_go();
	app_result("wrong words at the exporter's", (int)app_take_number());
	app_result("damaged words at the exporter's", (int)app_take_number());
}

/* Exports two blocks that may share a segment. */
static void pair_exporter(void)
{
	CUdeviceptr ptr[2] = {app_alloc(MIB), app_alloc(MIB)};

	for (unsigned i = 0; i < 2; i++) {
		app_fill_now(ptr[i], MIB, BEFORE + i);
		app_put_handle(ptr[i]);
	}
	app_await();
}

static void twice_importer(void)
{
	CUipcMemHandle handle = app_take_handle();
	CUdeviceptr ptr = app_open(handle), again = 0;

	app_take_handle();
	app_result("the same address", app_open(handle) == ptr);
	app_result("open by the older function", cuIpcOpenMemHandle(&again, handle, LAZY));
	app_result("the same address", again == ptr);
	for (unsigned i = 0; i < 4; i++) {
		app_result("readable", app_is_readable(ptr));
		app_result("close", cuIpcCloseMemHandle(ptr));
	}
	ptr = app_open(handle);
	app_result("wrong words when opened once more", app_wrong(ptr, MIB, BEFORE));
	app_result("close in the middle", cuIpcCloseMemHandle(ptr + 512));
	app_result("free", cuMemFree_v2(ptr));
	app_result("free in a stream", cuMemFreeAsync(ptr, NULL));
	app_result("export of an opened block", cuIpcGetMemHandle(&handle, ptr));
	app_result("still readable", app_is_readable(ptr));
	app_go();
}

static void neighbours_importer(void)
{
	CUipcMemHandle handle[2] = {app_take_handle(), app_take_handle()};
	CUdeviceptr ptr[2] = {app_open(handle[0]), app_open(handle[1])};

	app_result("close of the first", cuIpcCloseMemHandle(ptr[0]));
	app_result("close of the first again", cuIpcCloseMemHandle(ptr[0]));
	app_result("wrong words in the second", app_wrong(ptr[1], MIB, BEFORE + 1));
	ptr[0] = app_open(handle[0]);
	app_result("close of the second", cuIpcCloseMemHandle(ptr[1]));
	app_result("wrong words in the first", app_wrong(ptr[0], MIB, BEFORE));
	app_result("close of the first", cuIpcCloseMemHandle(ptr[0]));
	app_result("close of the second again", cuIpcCloseMemHandle(ptr[1]));
	app_result("readable", app_is_readable(ptr[0]));
	app_result("close of an own block", cuIpcCloseMemHandle(app_alloc(MIB)));
	app_go();
}

static void report_attributes(CUdeviceptr ptr, size_t bytes)
{
	CUdeviceptr base = 0, start = 0;
	size_t size = 0, range = 0;
	int device = -1, type = 0;
	CUcontext ctx = NULL;

	APP_MUST(cuMemGetAddressRange_v2(&base, &size, ptr + bytes - 1));
	APP_MUST(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, ptr + 8));
	APP_MUST(cuPointerGetAttribute(&range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, ptr + 8));
	APP_MUST(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr));
	APP_MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr));
	APP_MUST(cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, ptr));
	app_say("attributes", "base %d, holds %d, range %d %d, device %d, type %d, context %d", base == ptr,
		size >= bytes, start == ptr, range == size, device, type, ctx == app_ctx);
}

static void about_importer(void)
{
	CUdeviceptr ptr[2] = {app_open(app_take_handle()), app_open(app_take_handle())};

	report_attributes(ptr[0], MIB);
	report_attributes(ptr[1], MIB);
	app_result("neighbours have different ids", app_id_of(ptr[0]) != app_id_of(ptr[1]));
	app_result("both ends have one id", app_id_of(ptr[0]) == app_id_of(ptr[0] + 4096));
	app_result("differs from the id of an own block", app_id_of(app_alloc(MIB)) != app_id_of(ptr[0]));
	APP_MUST(cuIpcCloseMemHandle(ptr[0]));
	report_attributes(ptr[1], MIB);
	APP_MUST(cuIpcCloseMemHandle(ptr[1]));
	app_result("range after the close", cuMemGetAddressRange_v2(NULL, NULL, ptr[1]));
	app_go();
}

static void contexts_importer(void)
{
	CUipcMemHandle handle = app_take_handle(), neighbour = app_take_handle();
	CUdeviceptr ptr;
	CUcontext other;

	APP_MUST(cuCtxCreate_v2(&other, 0, 0));
	ptr = app_open(handle);
	APP_MUST(cuCtxSetCurrent(app_ctx));
	app_result("open in a second context", app_try_open(handle));
	APP_MUST(cuCtxDestroy_v2(other));
	app_result("close after the end of its context", cuIpcCloseMemHandle(ptr));
	ptr = app_open(handle);
	app_result("wrong words in the first context", app_wrong(ptr, MIB, BEFORE));
	APP_MUST(cuDevicePrimaryCtxReset_v2(0));
	app_result("close after a reset", cuIpcCloseMemHandle(ptr));
	app_start();
	ptr = app_open(neighbour);
	app_result("wrong words after a reset", app_wrong(ptr, MIB, BEFORE + 1));
	app_result("close", cuIpcCloseMemHandle(ptr));
	app_result("open the block that was open at the reset, by the older function",
		cuIpcOpenMemHandle(&ptr, handle, LAZY));
	app_result("wrong words in that block", app_wrong(ptr, MIB, BEFORE));
	app_result("close that block", cuIpcCloseMemHandle(ptr));
	app_go();
}

/*
 * After the first export every block has a handle of the driver, which importers with and without the library can
 * open.
 */
static void later_exporter(void)
{
	CUdeviceptr early = app_alloc(MIB), first = app_alloc(LARGE * MIB), ptr[MANY];

	app_put_handle(first);
	for (unsigned i = 0; i < MANY; i++) {
		ptr[i] = app_alloc(size_of(i));
		app_fill_now(ptr[i], size_of(i), BEFORE + i);
		app_put_handle(ptr[i]);
	}
	app_put_handle(early);
	app_await();
	for (unsigned i = 0; i < MANY; i++)
		APP_MUST(cuMemFree_v2(ptr[i]));
}

static void later_importer(void)
{
	CUdeviceptr ptr;

	app_result("open of the first exported block", app_try_open(app_take_handle()));
	for (unsigned i = 0; i < MANY; i++) {
		ptr = app_open(app_take_handle());
		app_result("wrong words", app_wrong(ptr, size_of(i), BEFORE + i));
		app_result("close", cuIpcCloseMemHandle(ptr));
	}
	app_result("open of a block from before the export", app_try_open(app_take_handle()));
	app_go();
}

static void own_exporter(void)
{
	CUdeviceptr small = app_alloc(4096), large = app_alloc(LARGE * MIB);

	app_put_number((uint64_t)app_try_open(app_handle_of(small)));
	app_put_number((uint64_t)app_try_open(app_handle_of(large)));
	app_put_handle(small);
	app_put_number((uint64_t)app_try_open(app_handle_of(small + 512)));
	app_await();
	app_put_number((uint64_t)app_try_open(app_handle_of(small)));
	app_put_number(cuIpcCloseMemHandle(small));
	APP_MUST(cuMemFree_v2(small));
}

static void own_importer(void)
{
	CUdeviceptr ptr;

	app_result("open of an own block", (int)app_take_number());
	app_result("open of an own large block", (int)app_take_number());
	ptr = app_open(app_take_handle());
	app_result("open by an address in its middle", (int)app_take_number());
	app_go();
	app_result("while the block is open elsewhere", (int)app_take_number());
	app_result("close of an own block", (int)app_take_number());
	APP_MUST(cuIpcCloseMemHandle(ptr));
}

/*
 * A kernel of the exporter still writes a block when the block is freed. The importer is the first to write to
 * the block that takes its place.
 */
static void first_exporter(void)
{
	enum { BLOCK = 160 };
	CUstream stream = app_stream();
	CUdeviceptr ptr = app_alloc(BLOCK * MIB);

	app_spin_fill(stream, ptr, MIB, BEFORE, 100 * MS);
	APP_MUST(cuMemFree_v2(ptr));
	ptr = app_alloc(BLOCK * MIB);
	app_put_handle(ptr);
	app_await();
	APP_MUST(cuCtxSynchronize());
	app_put_number((uint64_t)app_wrong(ptr, MIB, AFTER));
}

static void first_importer(void)
{
	CUdeviceptr ptr = app_open(app_take_handle());

	app_fill_now(ptr, MIB, AFTER);
	app_go();
	app_result("wrong words", (int)app_take_number());
}

/* Both processes export to each other at once, and each asks the other while it is being asked. */
static void exchange(int *misread, int *unseen)
{
	CUdeviceptr own[MANY], imported[MANY];

	*misread = *unseen = 0;
	for (unsigned i = 0; i < MANY; i++) {
		own[i] = app_alloc(size_of(i));
		app_fill_now(own[i], size_of(i), BEFORE + i);
	}
	for (unsigned i = 0; i < MANY; i++)
		app_put_handle(own[i]);
	for (unsigned i = 0; i < MANY; i++) {
		imported[i] = app_open(app_take_handle());
		*misread += app_wrong(imported[i], size_of(i), BEFORE + i);
	}
	app_go();
	app_await();
	for (unsigned i = 0; i < MANY; i++) {
		app_fill_now(imported[i], size_of(i), AFTER + i);
		APP_MUST(cuIpcCloseMemHandle(imported[i]));
	}
	app_go();
	app_await();
	for (unsigned i = 0; i < MANY; i++)
		*unseen += app_wrong(own[i], size_of(i), AFTER + i);
}

static void exchange_exporter(void)
{
	int misread, unseen;

	exchange(&misread, &unseen);
	app_put_number((uint64_t)misread);
	app_put_number((uint64_t)unseen);
}

static void exchange_importer(void)
{
	int misread, unseen;

	exchange(&misread, &unseen);
	app_result("misread by the importer", misread);
	app_result("exporter's writes missing", unseen);
	app_result("misread by the exporter", (int)app_take_number());
	app_result("importer's writes missing", (int)app_take_number());
}

static CUipcMemHandle all_handles[MANY];
static _Atomic int all_wrong;

static void *open_and_close(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	for (unsigned round = 0; round < 40; round++) {
		unsigned nth = app_random(&seed) % MANY;
		CUdeviceptr ptr = app_open(all_handles[nth]);

		all_wrong += app_wrong(ptr, size_of(nth), BEFORE + nth);
		APP_MUST(cuIpcCloseMemHandle(ptr));
	}
	return NULL;
}

/* Many threads open blocks at the same time, each its own: more than the exporter serves at once. */
static pthread_barrier_t all_ready;

static void *open_in_crowd(void *arg)
{
	unsigned nth = (unsigned)(uintptr_t)arg;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	for (unsigned round = 0; round < 5; round++) {
		CUdeviceptr ptr = 0;

		pthread_barrier_wait(&all_ready);
		if (cuIpcOpenMemHandle_v2(&ptr, all_handles[nth], LAZY)) {
			all_wrong++;
			continue;
		}
		all_wrong += app_wrong(ptr, size_of(nth), BEFORE + nth);
		APP_MUST(cuIpcCloseMemHandle(ptr));
	}
	return NULL;
}

static void crowd_importer(void)
{
	pthread_t threads[MANY];

	for (unsigned i = 0; i < MANY; i++)
		all_handles[i] = app_take_handle();
	pthread_barrier_init(&all_ready, NULL, MANY);
	for (uintptr_t i = 0; i < MANY; i++)
		pthread_create(&threads[i], NULL, open_in_crowd, (void *)i);
	for (unsigned i = 0; i < MANY; i++)
		pthread_join(threads[i], NULL);
	app_result("wrong words or blocks that cannot be opened", all_wrong);
	for (unsigned i = 0; i < MANY; i++) {
		CUdeviceptr ptr = app_open(all_handles[i]);

		app_fill_now(ptr, size_of(i), AFTER + i);
		APP_MUST(cuIpcCloseMemHandle(ptr));
	}
	app_go();
	app_result("wrong words at the exporter's", (int)app_take_number());
	app_result("damaged words at the exporter's", (int)app_take_number());
}

/* Threads open and close the same block, so that each close may be the last one or not. */
static void *open_and_close_one(void *arg)
{
	const CUipcMemHandle *handle = arg;
	CUdeviceptr ptr[3];

	APP_MUST(cuCtxSetCurrent(app_ctx));
	for (unsigned round = 0; round < 60; round++) {
		unsigned n = 1 + round % LENGTH(ptr);

		for (unsigned i = 0; i < n; i++) {
			ptr[i] = app_open(*handle);
			all_wrong += ptr[i] != ptr[0];
		}
		all_wrong += app_wrong(ptr[0], MIB, BEFORE);
		for (unsigned i = 0; i < n; i++)
			APP_MUST(cuIpcCloseMemHandle(ptr[i]));
	}
	return NULL;
}

static void same_importer(void)
{
	CUipcMemHandle handle = app_take_handle();
	pthread_t threads[4];
	CUdeviceptr ptr;

	for (unsigned i = 0; i < LENGTH(threads); i++)
		pthread_create(&threads[i], NULL, open_and_close_one, &handle);
	for (unsigned i = 0; i < LENGTH(threads); i++)
		pthread_join(threads[i], NULL);
	app_result("wrong words or addresses", all_wrong);
	ptr = app_open(handle);
	app_result("close", cuIpcCloseMemHandle(ptr));
	app_result("close of a closed block", cuIpcCloseMemHandle(ptr));
	app_result("readable", app_is_readable(ptr));
	app_go();
}

static void threads_importer(void)
{
	pthread_t threads[4];

	for (unsigned i = 0; i < MANY; i++)
		all_handles[i] = app_take_handle();
	for (uintptr_t i = 0; i < LENGTH(threads); i++)
		pthread_create(&threads[i], NULL, open_and_close, (void *)(i + 1));
	for (unsigned i = 0; i < LENGTH(threads); i++)
		pthread_join(threads[i], NULL);
	app_result("wrong words", all_wrong);
	for (unsigned i = 0; i < MANY; i++) {
		CUdeviceptr ptr = app_open(all_handles[i]);

		app_fill_now(ptr, size_of(i), AFTER + i);
		APP_MUST(cuIpcCloseMemHandle(ptr));
	}
	app_go();
	app_result("wrong words at the exporter's", (int)app_take_number());
	app_result("damaged words at the exporter's", (int)app_take_number());
}

/*
 * Blocks are freed and allocated again, and the importer has each open for its whole life. The first are parts of
 * segments, the later ones whole allocations.
 */
enum { CHURN_ROUNDS = 120 };

static void churn_exporter(void)
{
	CUdeviceptr ptr[MANY];
	unsigned seed = 11;
	int unseen = 0;

	for (unsigned i = 0; i < MANY; i++)
		ptr[i] = app_alloc(size_of(i));
	for (unsigned i = 0; i < MANY; i++) {
		app_fill_now(ptr[i], size_of(i), BEFORE + i);
		app_put_handle(ptr[i]);
	}
	for (unsigned round = 0; round < CHURN_ROUNDS; round++) {
		unsigned nth = app_random(&seed) % MANY;

		app_await();
		unseen += app_wrong(ptr[nth], size_of(nth), AFTER + nth);
		APP_MUST(cuMemFree_v2(ptr[nth]));
		ptr[nth] = app_alloc(size_of(nth));
		app_fill_now(ptr[nth], size_of(nth), BEFORE + nth);
		app_put_handle(ptr[nth]);
	}
	app_await();
	app_put_number((uint64_t)unseen);
}

static void churn_importer(void)
{
	CUdeviceptr ptr[MANY];
	unsigned seed = 11;
	int damaged = 0;

	for (unsigned i = 0; i < MANY; i++)
		ptr[i] = app_open(app_take_handle());
	for (unsigned round = 0; round < CHURN_ROUNDS; round++) {
		unsigned nth = app_random(&seed) % MANY;

		damaged += app_wrong(ptr[nth], size_of(nth), BEFORE + nth);
		app_fill_now(ptr[nth], size_of(nth), AFTER + nth);
		APP_MUST(cuIpcCloseMemHandle(ptr[nth]));
		app_go();
		ptr[nth] = app_open(app_take_handle());
	}
	for (unsigned i = 0; i < MANY; i++)
		damaged += app_wrong(ptr[i], size_of(i), BEFORE + i);
	app_go();
	app_result("damaged words", damaged);
	app_result("importer's writes missing", (int)app_take_number());
}

APP_PAIR(whole, whole_exporter, whole_importer)
APP_PAIR(many, many_exporter, many_importer)
APP_PAIR(twice, pair_exporter, twice_importer)
APP_PAIR(neighbours, pair_exporter, neighbours_importer)
APP_PAIR(about, pair_exporter, about_importer)
APP_PAIR(contexts, pair_exporter, contexts_importer)
APP_PAIR(later, later_exporter, later_importer)
APP_PAIR(own, own_exporter, own_importer)
APP_PAIR(first, first_exporter, first_importer)
APP_PAIR(exchanged, exchange_exporter, exchange_importer)
APP_PAIR(crowd, many_exporter, crowd_importer)
APP_PAIR(same, pair_exporter, same_importer)
APP_PAIR(threads, many_exporter, threads_importer)
APP_PAIR(churn, churn_exporter, churn_importer)

const struct app_scenario app_scenarios[] = {
	{"whole", whole},
	{"many", many},
	{"twice", twice},
	{"neighbours", neighbours},
	{"about", about},
	{"contexts", contexts},
	{"later", later},
	{"own", own},
	{"first", first},
	{"exchanged", exchanged},
	{"crowd", crowd},
	{"same", same},
	{"threads", threads},
	{"churn", churn},
	{0},
};
