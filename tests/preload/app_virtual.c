/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Maps memory by the virtual-memory functions, for each array as XLA does, and in other ways. */

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/gpupool.h"
#include "app_virtual.h"

/* A step: an array is written, read, and destroyed. Returns the number of wrong words. */
static size_t step_of_xla(uint32_t value)
{
	struct array a;
	size_t wrong;

	array_make(&a, BYTES);
	app_fill(NULL, a.ptr, WORDS, value);
	wrong = app_count_wrong(NULL, a.ptr, WORDS, value);
	array_destroy(&a);
	return wrong;
}

static size_t step_released_early(uint32_t value)
{
	struct array a;
	size_t wrong;

	APP_MUST(cuMemAddressReserve(&a.ptr, BYTES, 0, 0, 0));
	APP_MUST(cuMemCreate(&a.handle, BYTES, &array_properties, 0));
	APP_MUST(cuMemMap(a.ptr, BYTES, 0, a.handle, 0));
	APP_MUST(cuMemRelease(a.handle));
	APP_MUST(cuMemSetAccess(a.ptr, BYTES, &array_access, 1));
	app_fill(NULL, a.ptr, WORDS, value);
	wrong = app_count_wrong(NULL, a.ptr, WORDS, value);
	APP_MUST(cuCtxSynchronize());
	APP_MUST(cuMemUnmap(a.ptr, BYTES));
	APP_MUST(cuMemAddressFree(a.ptr, BYTES));
	return wrong;
}

/* The addresses stay reserved; only the memory is new each time. */
static size_t step_at_same_addresses(uint32_t value)
{
	static struct array a;
	size_t wrong;

	if (!a.ptr)
		APP_MUST(cuMemAddressReserve(&a.ptr, BYTES, 0, 0, 0));
	APP_MUST(cuMemCreate(&a.handle, BYTES, &array_properties, 0));
	APP_MUST(cuMemMap(a.ptr, BYTES, 0, a.handle, 0));
	array_access.location.id = 0;
	APP_MUST(cuMemSetAccess(a.ptr, BYTES, &array_access, 1));
	app_fill(NULL, a.ptr, WORDS, value);
	wrong = app_count_wrong(NULL, a.ptr, WORDS, value);
	APP_MUST(cuCtxSynchronize());
	APP_MUST(cuMemUnmap(a.ptr, BYTES));
	APP_MUST(cuMemRelease(a.handle));
	return wrong;
}

static const char *const functions[] = {"cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess",
	"cuMemUnmap", "cuMemRelease", "cuMemAddressFree", "cuMemRetainAllocationHandle"};

static uint64_t n_calls(void)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < LENGTH(functions); i++)
		n += app_calls(functions[i]);
	return n;
}

static void steady_of(size_t (*step)(uint32_t value))
{
	uint64_t before;
	size_t wrong = 0;

	app_start();
	for (uint32_t i = 0; i < 5; i++)
		wrong += step(i);
	before = n_calls();
	for (uint32_t i = 0; i < 100; i++)
		wrong += step(i);
	app_fact("calls in the steady state", n_calls() - before);
	app_say("wrong words", "%zu", wrong);
	app_report_driver();
}

static void steady(void)
{
	steady_of(step_of_xla);
}

static void released_early(void)
{
	steady_of(step_released_early);
}

static void same_addresses(void)
{
	steady_of(step_at_same_addresses);
}

/* Properties that programs request without ever exporting the memory. */
static void properties_of_xla(void)
{
	array_properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	array_properties.allocFlags.gpuDirectRDMACapable = 1;
	steady_of(step_of_xla);
}

static void compressible(void)
{
	array_properties.allocFlags.compressionType = 1;
	steady_of(step_of_xla);
}

/* Several arrays at a time, on two devices, with access for both. */
static void two_devices(void)
{
	struct array all[6];
	uint64_t before = 0;
	size_t wrong = 0;
	CUcontext other;

	app_start();
	APP_MUST(cuDevicePrimaryCtxRetain(&other, 1));
	array_n_peers = 2;
	for (unsigned round = 0; round < 20; round++) {
		if (round == 5)
			before = n_calls();
		for (unsigned i = 0; i < LENGTH(all); i++) {
			array_properties.location.id = (int)i % 2;
			APP_MUST(cuCtxSetCurrent(i % 2 ? other : app_ctx));
			array_make(&all[i], BYTES);
		}
		APP_MUST(cuCtxSetCurrent(app_ctx));
		for (unsigned i = 0; i < LENGTH(all); i += 2) {
			app_fill(NULL, all[i].ptr, WORDS, round + i);
			wrong += app_count_wrong(NULL, all[i].ptr, WORDS, round + i);
		}
		for (unsigned i = 0; i < LENGTH(all); i++)
			array_destroy(&all[i]);
	}
	app_fact("calls in the steady state", n_calls() - before);
	app_say("wrong words", "%zu", wrong);
	app_report_driver();
}

/* Two arrays of different kinds at a time, which the program frees in reverse. It reserves addresses first. */
static void reversed_of(void (*make)(struct array *a, unsigned kind))
{
	uint64_t before = 0;
	struct array a[2];
	size_t wrong = 0;

	array_reserves_first = true;
	for (uint32_t round = 0; round < 25; round++) {
		if (round == 5)
			before = n_calls();
		for (unsigned i = 0; i < LENGTH(a); i++)
			make(&a[i], i);
		app_fill(NULL, a[0].ptr, WORDS, round);
		wrong += app_count_wrong(NULL, a[0].ptr, WORDS, round);
		for (unsigned i = LENGTH(a); i-- > 0;)
			array_destroy(&a[i]);
	}
	app_fact("calls in the steady state", n_calls() - before);
	app_say("wrong words", "%zu", wrong);
	app_report_driver();
}

static void make_with_property(struct array *a, unsigned kind)
{
	array_properties.requestedHandleTypes = kind ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0;
	array_make(a, BYTES);
}

static void reversed_properties(void)
{
	app_start();
	reversed_of(make_with_property);
}

static CUcontext other_ctx; /* on device 1 */

static void make_on_device(struct array *a, unsigned kind)
{
	array_properties.location.id = (int)kind;
	APP_MUST(cuCtxSetCurrent(kind ? other_ctx : app_ctx));
	array_make(a, BYTES);
	APP_MUST(cuCtxSetCurrent(app_ctx));
}

static void reversed_devices(void)
{
	app_start();
	APP_MUST(cuDevicePrimaryCtxRetain(&other_ctx, 1));
	array_n_peers = 2;
	reversed_of(make_on_device);
}

/*
 * After arrays that were freed in reverse, the program frees each one while its next work runs. The addresses come
 * first and the memory of all arrays after that, which gives the arrays the addresses of each other.
 */
static void reversed_under_work(void)
{
	struct array a[2];
	uint64_t before;
	CUstream stream;
	CUevent done;

	app_start();
	stream = app_stream();
	APP_MUST(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
	array_reserves_first = true;
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < LENGTH(a); i++)
			APP_MUST(cuMemAddressReserve(&a[i].ptr, BYTES, 0, 0, 0));
		for (unsigned i = 0; i < LENGTH(a); i++) {
			APP_MUST(cuMemCreate(&a[i].handle, BYTES, &array_properties, 0));
			APP_MUST(cuMemMap(a[i].ptr, BYTES, 0, a[i].handle, 0));
			APP_MUST(cuMemSetAccess(a[i].ptr, BYTES, &array_access, 1));
		}
		for (unsigned i = LENGTH(a); i-- > 0;)
			array_destroy(&a[i]);
	}
	before = n_calls();
	for (uint32_t i = 0; i < 100; i++) {
		array_make(&a[0], BYTES);
		app_fill(stream, a[0].ptr, WORDS, i);
		APP_MUST(cuEventRecord(done, stream));
		APP_MUST(cuEventSynchronize(done));
		app_spin(stream, 2 * MS);
		array_drop(&a[0]);
	}
	app_fact("calls in the steady state", n_calls() - before);
	app_report_driver();
}

/* Memory is freed while work of another stream runs. The program knows that its own work on the memory is done. */
static void beside_work(void)
{
	CUstream stream, busy;
	struct array a, b, worked;

	app_start();
	stream = app_stream();
	busy = app_stream();
	array_make(&worked, BYTES);
	array_make(&a, BYTES);
	app_fill(stream, a.ptr, WORDS, 1);
	APP_MUST(cuStreamSynchronize(stream));
	app_spin_fill(busy, worked.ptr, WORDS, 2, 20 * MS);
	array_drop(&a);
	array_make(&b, BYTES);
	app_fact("handed out early", b.ptr == a.ptr);
	APP_MUST(cuCtxSynchronize());
	array_destroy(&b);
	array_make(&b, BYTES);
	app_fact("handed out afterwards", b.ptr == a.ptr);
	array_destroy(&b);
	array_destroy(&worked);
	app_report_driver();
}

/* The program takes memory away under work that uses it, which it must not. */
static void under_work(void)
{
	struct array a, b;

	app_start();
	array_make(&a, BYTES);
	app_spin_fill(app_stream(), a.ptr, WORDS, 1, 20 * MS);
	array_drop(&a);
	array_make(&b, BYTES);
	app_fact("handed out early", b.ptr == a.ptr);
	app_fill(NULL, b.ptr, WORDS, 2);
	app_say("wrong words", "%zu", app_count_wrong(NULL, b.ptr, WORDS, 2));
	array_destroy(&b);
	app_report_driver();
}

static void in_capture(void)
{
	CUgraph graph = NULL;
	CUstream stream;
	struct array a, b;

	app_start();
	stream = app_stream();
	array_make(&a, BYTES);
	array_make(&b, BYTES);
	app_result("begin", cuStreamBeginCapture_v2(stream, 0));
	app_fill(stream, b.ptr, WORDS, 3);
	array_drop(&a);
	array_make(&a, BYTES);
	array_drop(&a);
	app_result("end", cuStreamEndCapture(stream, &graph));
	app_say("graph", "%d", graph != NULL);
	for (unsigned i = 0; i < 3; i++) {
		array_make(&a, BYTES);
		app_fill(NULL, a.ptr, WORDS, i);
		app_say("wrong words", "%zu", app_count_wrong(NULL, a.ptr, WORDS, i));
		array_destroy(&a);
	}
	array_destroy(&b);
	app_report_driver();
}

static void *run_thread(void *arg)
{
	uint32_t value = (uint32_t)(uintptr_t)arg * 1000;
	size_t wrong = 0;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	for (unsigned i = 0; i < 50; i++) {
		wrong += step_of_xla(value + i);
		wrong += step_released_early(value + i);
	}
	return (void *)wrong;
}

static void threads(void)
{
	pthread_t all[4];
	void *wrong;

	app_start();
	for (uintptr_t i = 0; i < LENGTH(all); i++)
		pthread_create(&all[i], NULL, run_thread, (void *)(i + 1));
	for (unsigned i = 0; i < LENGTH(all); i++) {
		pthread_join(all[i], &wrong);
		app_say("wrong words", "%zu", (size_t)wrong);
	}
	app_report_driver();
}

/* One thread uses arrays; another gives back everything that is unused, over and over. */
static _Atomic bool is_over;

struct mapping {
	CUdeviceptr ptr;
	size_t bytes;
	CUmemGenericAllocationHandle handle;
};

static void *map_it(void *arg)
{
	const struct mapping *mapping = arg;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	APP_MUST(cuMemMap(mapping->ptr, mapping->bytes, 0, mapping->handle, 0));
	return NULL;
}

/* Both calls are in the driver at the same time. */
static void map_at_once(struct mapping mappings[2])
{
	uint64_t n_calls = app_calls("cuMemMap") + 2;
	pthread_t threads[2];

	app_stop_calls("cuMemMap", true);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, map_it, &mappings[i]);
	while (app_is_simulated() && app_calls("cuMemMap") < n_calls)
		sched_yield();
	app_release_calls();
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

/* Two threads map the same memory. It is in use until both mappings are gone. */
static void mapped_twice(void)
{
	struct mapping mappings[2];
	size_t wrong = 0;

	app_start();
	for (uint32_t i = 0; i < 20; i++) {
		/* Memory of this size was never unmapped, so that no call is served without the driver. */
		size_t bytes = BYTES + i * 2 * MIB;
		CUmemGenericAllocationHandle handle;
		struct array new;

		APP_MUST(cuMemCreate(&handle, bytes, &array_properties, 0));
		for (int k = 0; k < 2; k++) {
			mappings[k] = (struct mapping){.bytes = bytes, .handle = handle};
			APP_MUST(cuMemAddressReserve(&mappings[k].ptr, bytes, 2 * MIB, 0, 0));
		}
		map_at_once(mappings);
		APP_MUST(cuMemSetAccess(mappings[0].ptr, bytes, &array_access, 1));
		APP_MUST(cuMemSetAccess(mappings[1].ptr, bytes, &array_access, 1));
		app_fill(NULL, mappings[1].ptr, WORDS, i);
		APP_MUST(cuCtxSynchronize());
		APP_MUST(cuMemUnmap(mappings[0].ptr, bytes));
		APP_MUST(cuMemRelease(handle));
		APP_MUST(cuMemAddressFree(mappings[0].ptr, bytes));
		array_make(&new, bytes);
		app_fill(NULL, new.ptr, WORDS, ~i);
		wrong += app_count_wrong(NULL, mappings[1].ptr, WORDS, i);
		array_destroy(&new);
		APP_MUST(cuMemUnmap(mappings[1].ptr, bytes));
		APP_MUST(cuMemAddressFree(mappings[1].ptr, bytes));
	}
	app_result("wrong words", (int)wrong);
	app_report_driver();
}

static void *fill_memory(void *unused)
{
	struct array a;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	for (unsigned i = 0; !is_over; i++) {
		/* Nearly all memory: what is unused has to go back first. */
		if (!array_try(&a, 48 * MIB))
			array_destroy(&a);
	}
	return NULL;
}

static void under_pressure(void)
{
	pthread_t other;
	size_t wrong = 0;

	app_start();
	pthread_create(&other, NULL, fill_memory, NULL);
	for (uint32_t i = 0; i < 200; i++)
		wrong += step_of_xla(i);
	is_over = true;
	pthread_join(other, NULL);
	app_say("wrong words", "%zu", wrong);
	app_report_driver();
}

/* Fills the cache with memory of many sizes, under a limit or on a small device of 64 MiB. */
static void leave_many(void)
{
	struct array a;

	for (size_t bytes = 2 * MIB; bytes <= 20 * MIB; bytes += 2 * MIB) {
		array_make(&a, bytes);
		array_destroy(&a);
	}
}

static void shortage(void)
{
	CUdeviceptr ptr = 0;
	struct array a;

	app_start();
	leave_many();
	app_result("array", array_try(&a, 48 * MIB));
	array_destroy(&a);
	leave_many();
	app_result("cuMemAlloc", cuMemAlloc_v2(&ptr, 48 * MIB));
	APP_MUST(cuMemFree_v2(ptr));
	app_result("array", array_try(&a, 48 * MIB));
	app_result("too much", cuMemAlloc_v2(&ptr, 48 * MIB));
	app_result("too much", cuMemCreate(&a.handle, 48 * MIB, &array_properties, 0));
}

/* Stops with unused memory, which the test takes away, and goes on. */
static void unused(void)
{
	struct array a;

	app_start();
	array_make(&a, 8 * MIB);
	app_pause("in use");
	array_destroy(&a);
	app_pause("unused");
	array_make(&a, 8 * MIB);
	app_fill(NULL, a.ptr, WORDS, 5);
	app_say("wrong words", "%zu", app_count_wrong(NULL, a.ptr, WORDS, 5));
	array_destroy(&a);
	app_pause("end");
}

/* Leaves much memory unused, and then frees and allocates other memory. */
static void reserve(void)
{
	struct array a[3];
	CUdeviceptr ptr;
	uint64_t before = app_calls("cuMemAlloc_v2");

	app_start();
	for (unsigned i = 0; i < LENGTH(a); i++)
		array_make(&a[i], 200 * MIB);
	for (unsigned i = 0; i < LENGTH(a); i++)
		array_destroy(&a[i]);
	for (unsigned i = 0; i < 20; i++) {
		ptr = app_alloc(200 * MIB);
		APP_MUST(cuMemFree_v2(ptr));
		APP_MUST(cuCtxSynchronize());
	}
	app_fact("driver allocations", app_calls("cuMemAlloc_v2") - before);
	for (unsigned i = 0; i < 4; i++) {
		array_make(&a[0], (2 + i) * BYTES);
		array_destroy(&a[0]);
	}
	app_result("end", cuCtxSynchronize());
	app_pause("end");
}

/* Gives the memory of several arrays away and keeps their addresses, as a model that sleeps. */
static void sleeps(void)
{
	struct array a[4];
	size_t wrong = 0;

	app_start();
	for (unsigned i = 0; i < LENGTH(a); i++)
		array_make(&a[i], BYTES);
	APP_MUST(cuCtxSynchronize());
	for (unsigned i = 0; i < LENGTH(a); i++) {
		APP_MUST(cuMemUnmap(a[i].ptr, BYTES));
		APP_MUST(cuMemRelease(a[i].handle));
	}
	app_pause("asleep");
	for (uint32_t i = 0; i < LENGTH(a); i++) {
		APP_MUST(cuMemCreate(&a[i].handle, BYTES, &array_properties, 0));
		APP_MUST(cuMemMap(a[i].ptr, BYTES, 0, a[i].handle, 0));
		APP_MUST(cuMemSetAccess(a[i].ptr, BYTES, &array_access, 1));
		app_fill(NULL, a[i].ptr, WORDS, i);
	}
	for (uint32_t i = 0; i < LENGTH(a); i++) {
		wrong += app_count_wrong(NULL, a[i].ptr, WORDS, i);
		array_destroy(&a[i]);
	}
	app_say("wrong words", "%zu", wrong);
	app_pause("end");
}

/* As PyTorch's expandable segments: addresses for many handles. */
static void segments(void)
{
	CUmemGenericAllocationHandle handles[8];
	uint64_t before;
	CUdeviceptr base;
	size_t wrong = 0;

	app_start();
	APP_MUST(cuMemAddressReserve(&base, 64 * BYTES, 0, 0, 0));
	array_access.location.id = 0;
	before = n_calls();
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < LENGTH(handles); i++) {
			APP_MUST(cuMemCreate(&handles[i], BYTES, &array_properties, 0));
			APP_MUST(cuMemMap(base + i * BYTES, BYTES, 0, handles[i], 0));
		}
		APP_MUST(cuMemSetAccess(base, LENGTH(handles) * BYTES, &array_access, 1));
		app_fill(NULL, base + BYTES - WORDS, 2 * WORDS, round);
		wrong += app_count_wrong(NULL, base + BYTES - WORDS, 2 * WORDS, round);
		if (round == 1)
			app_pause("mapped");
		APP_MUST(cuCtxSynchronize());
		for (unsigned i = 0; i < LENGTH(handles); i++) {
			APP_MUST(cuMemUnmap(base + i * BYTES, BYTES));
			APP_MUST(cuMemRelease(handles[i]));
		}
	}
	app_fact("calls", n_calls() - before);
	APP_MUST(cuMemAddressFree(base, 64 * BYTES));
	app_say("wrong words", "%zu", wrong);
	app_pause("freed");
}

/* Calls that fail now and then. The program tries again. */
static void faults(void)
{
	struct array a;
	size_t wrong = 0;

	app_start();
	for (uint32_t i = 0; i < 12; i++) {
		size_t bytes = (1 + i % 3) * BYTES;

		if (array_try(&a, bytes) && array_try(&a, bytes) && array_try(&a, bytes))
			continue;
		app_fill(NULL, a.ptr, WORDS, i);
		wrong += app_count_wrong(NULL, a.ptr, WORDS, i);
		APP_MUST(cuCtxSynchronize());
		while (cuMemUnmap(a.ptr, bytes))
			;
		while (cuMemRelease(a.handle))
			;
		while (cuMemAddressFree(a.ptr, bytes))
			;
	}
	app_say("wrong words", "%zu", wrong);
	app_pause("end");
	app_report_driver();
}

static void forks(void)
{
	struct array a;
	int status;
	pid_t child;

	app_start();
	array_make(&a, BYTES);
	array_destroy(&a);
	fflush(stdout);
	child = fork();
	if (!child) {
		CUmemGenericAllocationHandle handle;

		_exit(cuMemCreate(&handle, BYTES, &array_properties, 0) ? 3 : 0);
	}
	waitpid(child, &status, 0);
	app_say("child", "%d", WEXITSTATUS(status));
	app_say("wrong words", "%zu", step_of_xla(4));
}

/* Calls that no memory would make right, for more than the limit allows. */
static void bad_creates(void)
{
	static const int devices[] = {-1, -2, -3, 7, 1000};
	CUmemAllocationProp bad = array_properties;
	CUmemGenericAllocationHandle handle = 0;

	app_start();
	app_result("without properties", cuMemCreate(&handle, BYTES, NULL, 0));
	app_result("without a result", cuMemCreate(NULL, BYTES, &array_properties, 0));
	app_result("with flags", cuMemCreate(&handle, BYTES, &array_properties, 1));
	app_result("of an odd size", cuMemCreate(&handle, BYTES + 1, &array_properties, 0));
	app_result("of no size", cuMemCreate(&handle, 0, &array_properties, 0));
	for (unsigned i = 0; i < LENGTH(devices); i++) {
		bad.location.id = devices[i];
		app_result("on no device", cuMemCreate(&handle, BYTES, &bad, 0));
	}
	bad = array_properties;
	bad.location.type = 99;
	app_result("at no location", cuMemCreate(&handle, BYTES, &bad, 0));
	bad = array_properties;
	bad.type = 0;
	app_result("of no type", cuMemCreate(&handle, BYTES, &bad, 0));
	app_say("handle", "%d", handle != 0);
}

/* Arrays in a no-cache scope, after others that left memory unused. */
static void uncached(void)
{
	uint64_t before;
	size_t wrong = 0;

	app_start();
	for (uint32_t i = 0; i < 3; i++)
		wrong += step_of_xla(i);
	(void)gpupool_no_cache_begin();
	before = n_calls();
	for (uint32_t i = 0; i < 100; i++)
		wrong += step_of_xla(i);
	app_fact("calls in the steady state", n_calls() - before);
	(void)gpupool_no_cache_end();
	app_say("wrong words", "%zu", wrong);
}

static struct array left;

static void in_handler(void)
{
	CUmemGenericAllocationHandle handle;

	app_result("access", cuMemSetAccess(left.ptr, BYTES, &array_access, 1));
	app_result("retain", cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)left.ptr));
	app_result("unmap", cuMemUnmap(left.ptr, BYTES));
	app_result("release", cuMemRelease(left.handle));
	app_result("free", cuMemAddressFree(left.ptr, BYTES));
	app_result("create", cuMemCreate(&handle, BYTES, &array_properties, 0));
	app_result("reserve", cuMemAddressReserve(&left.ptr, BYTES, 0, 0, 0));
}

/* The program goes on in an exit handler. */
static void exits(void)
{
	if (atexit(in_handler))
		exit(71);
	app_start();
	(void)step_of_xla(1);
	array_make(&left, BYTES);
	exit(0);
}

const struct app_scenario app_scenarios[] = {
	{"bad-creates", bad_creates},
	{"beside-compressible", beside_compressible},
	{"beside-work", beside_work},
	{"compressible", compressible},
	{"exits", exits},
	{"faults", faults},
	{"forks", forks},
	{"given-by-other", given_by_other},
	{"in-capture", in_capture},
	{"mapped-twice", mapped_twice},
	{"nearly-full", nearly_full},
	{"over-limit", over_limit},
	{"properties", properties_of_xla},
	{"released-early", released_early},
	{"reserve", reserve},
	{"reversed-devices", reversed_devices},
	{"reversed-properties", reversed_properties},
	{"reversed-under-work", reversed_under_work},
	{"same-addresses", same_addresses},
	{"segments", segments},
	{"shortage", shortage},
	{"sleeps", sleeps},
	{"steady", steady},
	{"threads", threads},
	{"two-at-once", two_at_once},
	{"two-devices", two_devices},
	{"under-pressure", under_pressure},
	{"under-work", under_work},
	{"uncached", uncached},
	{"unmapped-asleep", unmapped_asleep},
	{"unused", unused},
	{0},
};
