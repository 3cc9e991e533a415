/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A program that is put to sleep, by itself or by the test at a pause. Without the library nothing sleeps, and the
 * output is the same.
 */

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app_sleep.h"
#include "tests/apps/kernels.h"
#include "tests/sim/abi.h"

const size_t sizes[N_BLOCKS] = {512, 64 * KIB, MIB, 5 * MIB, 16 * MIB, 3 * MIB + 512};
CUdeviceptr blocks[N_BLOCKS];

void make_blocks(void)
{
	app_make_blocks(blocks, sizes, N_BLOCKS);
	APP_MUST(cuCtxSynchronize());
}

size_t count_wrong(void)
{
	return app_count_wrong_blocks(blocks, sizes, N_BLOCKS);
}

void report(const char *name, int64_t result)
{
	char fact[64];

	snprintf(fact, sizeof(fact), "%s%s", name, result < 0 ? " error" : "");
	app_fact(fact, (uint64_t)(result < 0 ? -result : result));
}

void sleep_now(void)
{
	report("slept", gpupool_sleep(TIMEOUT_MS));
}

/* Asleep, the process holds no more than its context. Its content is the same afterwards, three times. */
static void content(void)
{
	size_t wrong = 0;

	app_start();
	app_fact("before", app_device_bytes(0));
	make_blocks();
	app_fact("awake", app_device_bytes(0));
	for (int i = 0; i < 3; i++) {
		sleep_now();
		app_fact("asleep", app_device_bytes(0));
		wrong += count_wrong();
		app_fact("woken", app_device_bytes(0));
	}
	app_say("wrong words", "%zu", wrong);
	report("slept", gpupool_sleep(TIMEOUT_MS));
	report("slept again", gpupool_sleep(TIMEOUT_MS));
	report("woke", gpupool_wake(TIMEOUT_MS));
	report("woke again", gpupool_wake(TIMEOUT_MS));
	app_say("wrong words", "%zu", count_wrong());
	app_report_driver();
}

/* Blocks of chunks that have slept once, twice or never are freed, and their chunks go back. */
static void recorded(void)
{
	CUdeviceptr more[2];
	size_t wrong;

	app_start();
	make_blocks();
	for (int i = 0; i < 2; i++) {
		sleep_now();
		wrong = count_wrong();
		more[i] = app_alloc(sizes[4] + (size_t)i * 4 * MIB);
		APP_MUST(cuMemFree_v2(blocks[4]));
		blocks[4] = app_alloc(sizes[4]);
		app_fill(NULL, blocks[4], sizes[4], 104);
		APP_MUST(cuCtxSynchronize());
		app_say("wrong words", "%zu", wrong);
	}
	sleep_now();
	APP_MUST(cuMemFree_v2(more[0]));
	APP_MUST(cuMemsetD32_v2(blocks[4], 1, 1));
	/* Awake, the chunks that become free go back. */
	APP_MUST(cuMemFree_v2(blocks[3]));
	APP_MUST(cuMemFree_v2(more[1]));
	APP_MUST(cuCtxSynchronize());
	(void)gpupool_reclaim(GPUPOOL_ALL_DEVICES);
	blocks[3] = app_alloc(sizes[3]);
	app_pause("end");
}

/* The test puts the process to sleep at the first pause, and wakes it or not at the second. */
static void asked(void)
{
	app_start();
	make_blocks();
	app_pause("awake");
	app_fact("asleep", app_device_bytes(0));
	app_pause("asleep");
	app_fact("asked", app_device_bytes(0));
	app_say("wrong words", "%zu", count_wrong());
	app_pause("woken");
	app_report_driver();
}

/* With GPUPOOL_SLEEP=idle. The test waits at each pause until the process sleeps by itself, or says why it cannot. */
static void idles(void)
{
	size_t wrong = 0;
	uint32_t *flag;

	app_start();
	make_blocks();
	APP_MUST(cuMemHostAlloc((void **)&flag, 4096, 0));
	*flag = 0;
	for (int i = 0; i < 3; i++) {
		app_pause("idle");
		wrong += count_wrong();
	}
	app_spin_until(app_stream(), flag, 1);
	app_pause("busy");
	*(volatile uint32_t *)flag = 1;
	APP_MUST(cuCtxSynchronize());
	app_say("wrong words", "%zu", wrong + count_wrong());
	app_report_driver();
}

/* With GPUPOOL_SLEEP=idle and without a server. */
static void idles_alone(void)
{
	int64_t woke = 0;

	app_start();
	make_blocks();
	for (int i = 0; i < 3000 && woke <= 0; i++) {
		usleep(10000);
		woke = gpupool_wake(0);
	}
	report("woke", woke);
	app_say("wrong words", "%zu", count_wrong());
}

/* A kernel that does not end keeps the process awake. */
static void busy(void)
{
	app_start();
	make_blocks();
	app_spin(app_stream(), 1000 * MS);
	app_fact("before", app_device_bytes(0));
	report("during a kernel", gpupool_sleep(0));
	app_fact("after", app_device_bytes(0));
	APP_MUST(cuCtxSynchronize());
	sleep_now();
	app_say("wrong words", "%zu", count_wrong());
	app_report_driver();
}

/* No sleep begins during a capture. A graph is right after its memory has been asleep. */
static void graph(void)
{
	CUstream stream;
	CUgraph captured;
	CUgraphExec exec;
	size_t wrong = 0;

	app_start();
	make_blocks();
	stream = app_stream();
	APP_MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	report("capturing", gpupool_sleep(TIMEOUT_MS));
	APP_MUST(cuMemsetD32Async(blocks[4], 7, sizes[4] / 4, stream));
	app_fill(stream, blocks[3], sizes[3], 8);
	APP_MUST(cuMemcpyDtoDAsync_v2(blocks[5], blocks[3], 3 * MIB, stream));
	APP_MUST(cuStreamEndCapture(stream, &captured));
	sleep_now();
	APP_MUST(cuGraphInstantiateWithFlags(&exec, captured, 0));
	app_fact("instantiated", app_device_bytes(0));
	for (int i = 0; i < 4; i++) {
		APP_MUST(cuMemsetD32_v2(blocks[4], 1, sizes[4] / 4));
		APP_MUST(cuMemsetD32_v2(blocks[3], 1, sizes[3] / 4));
		APP_MUST(cuCtxSynchronize());
		sleep_now();
		APP_MUST(cuGraphLaunch(exec, stream));
		APP_MUST(cuStreamSynchronize(stream));
		wrong += app_count_wrong(stream, blocks[4], sizes[4], 7);
		wrong += app_count_wrong(stream, blocks[3], sizes[3], 8);
		wrong += app_count_wrong(stream, blocks[5], 3 * MIB, 8);
	}
	app_say("wrong words", "%zu", wrong);
	APP_MUST(cuGraphExecDestroy(exec));
	APP_MUST(cuGraphDestroy(captured));
	app_report_driver();
}

static void sleep_and_wake(const char *name)
{
	APP_MUST(cuCtxSynchronize());
	sleep_now();
	report("woke", gpupool_wake(TIMEOUT_MS));
	app_fact(name, app_calls("cuMemHostRegister_v2"));
	app_pause(name);
}

/* With GPUPOOL_SLEEP_KEEP=on. The test asks at each pause how much host memory is kept. */
static void kept(void)
{
	app_start();
	make_blocks();
	sleep_and_wake("first");
	sleep_and_wake("second");
	for (int i = 1; i < N_BLOCKS; i++)
		APP_MUST(cuMemFree_v2(blocks[i]));
	sleep_and_wake("smaller");
	APP_MUST(cuDevicePrimaryCtxReset_v2(0));
	app_pause("reset");
}

/* With GPUPOOL_SLEEP_PINNED=0. The memory is unpinned behind the sleep. */
static void unpinned(void)
{
	uint64_t n_pinned;

	app_start();
	make_blocks();
	sleep_now();
	n_pinned = app_calls("cuMemHostRegister_v2");
	while (app_calls("cuMemHostUnregister") < n_pinned)
		usleep(1000);
	app_pause("unpinned");
	report("woke", gpupool_wake(TIMEOUT_MS));
	app_fact("again", app_calls("cuMemHostRegister_v2") - n_pinned);
	app_fact("first", n_pinned);
	app_say("wrong words", "%zu", count_wrong());
	app_fact("unpinned", app_calls("cuMemHostUnregister"));
}

/* Memory that a sleep cannot move keeps the process awake, and in order. */
static void exported(void)
{
	CUipcMemHandle handle;

	app_start();
	make_blocks();
	APP_MUST(cuIpcGetMemHandle(&handle, blocks[3]));
	report("exported", gpupool_sleep(TIMEOUT_MS));
	app_say("wrong words", "%zu", count_wrong());
}

/* Makes the context current, and returns its kernel of that name. */
static CUfunction kernel_in(CUcontext ctx, const char *name)
{
	CUfunction function;
	CUmodule module;

	APP_MUST(cuCtxSetCurrent(ctx));
	APP_MUST(cuModuleLoadData(&module, kernels_ptx));
	APP_MUST(cuModuleGetFunction(&function, module, name));
	return function;
}

static void run(CUfunction function, void **params)
{
	APP_MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
}

/* There are more contexts than gpupool asks about at a time. One has ended, and the last one works. */
static void crowd(void)
{
	CUcontext ctxs[70];
	CUfunction spin;
	uint64_t ns = 1000 * MS;

	app_start();
	make_blocks();
	APP_MUST(cuCtxSynchronize());
	for (unsigned i = 0; i < LENGTH(ctxs); i++)
		APP_MUST(cuCtxCreate_v2(&ctxs[i], 0, 0));
	spin = kernel_in(ctxs[LENGTH(ctxs) - 1], "spin");
	run(spin, (void *[]){&ns});
	APP_MUST(cuCtxDestroy_v2(ctxs[0]));
	report("crowd", gpupool_sleep(0));
	app_report_driver();
}

/*
 * Three contexts on two devices. One has no memory of its own, and its kernel keeps the process awake. Another one
 * works on memory of the first device, before and after it was asleep. Two of them end asleep.
 */
static void several(void)
{
	uint64_t ns = 1000 * MS, words = sizes[3] / 4;
	size_t wrong = 0, far_bytes = 16 * MIB;
	CUfunction spin, fill;
	CUcontext empty, there;
	uint32_t value = 103;
	CUdeviceptr far;

	app_start();
	make_blocks();
	APP_MUST(cuDevicePrimaryCtxRetain(&there, 1));
	fill = kernel_in(there, "fill");
	far = app_alloc(far_bytes);
	APP_MUST(cuMemsetD32_v2(far, 7, far_bytes / 4));
	APP_MUST(cuCtxEnablePeerAccess(app_ctx, 0));
	APP_MUST(cuCtxSynchronize());
	APP_MUST(cuCtxCreate_v2(&empty, 0, 0));
	spin = kernel_in(empty, "spin");
	run(spin, (void *[]){&ns});
	report("busy elsewhere", gpupool_sleep(0));
	APP_MUST(cuCtxSynchronize());
	for (int i = 0; i < 3; i++) {
		APP_MUST(cuCtxSetCurrent(app_ctx));
		APP_MUST(cuMemsetD32_v2(blocks[3], 1, sizes[3] / 4));
		APP_MUST(cuCtxSynchronize());
		sleep_now();
		app_fact("asleep", app_device_bytes(0));
		app_fact("asleep there", app_device_bytes(1));
		APP_MUST(cuCtxSetCurrent(there));
		run(fill, (void *[]){&blocks[3], &words, &value});
		APP_MUST(cuCtxSynchronize());
		wrong += app_count_wrong(NULL, far, far_bytes, 7);
		APP_MUST(cuCtxSetCurrent(app_ctx));
		wrong += count_wrong();
	}
	app_say("wrong words", "%zu", wrong);
	sleep_now();
	APP_MUST(cuCtxDestroy_v2(empty));
	APP_MUST(cuDevicePrimaryCtxReset_v2(1));
	app_fact("reset there", app_device_bytes(1));
	app_say("wrong words", "%zu", count_wrong());
	app_report_driver();
}

/* Counts the words of the block that are neither of two values. */
static void report_content(const char *name, CUdeviceptr block, uint32_t value)
{
	char fact[64];

	snprintf(fact, sizeof(fact), "%s zero", name);
	app_fact(fact, app_count_wrong(NULL, block, sizes[4], 0) == 0);
	snprintf(fact, sizeof(fact), "%s kept", name);
	app_fact(fact, app_count_wrong(NULL, block, sizes[4], value) == 0);
	app_fill(NULL, block, sizes[4], value);
	APP_MUST(cuCtxSynchronize());
}

/* Content of a region, or all content, is dropped: by calls, and by the test at a pause. */
static void dropped(void)
{
	static const char *const names[] = {"cache", "unknown"};
	const struct gpupool_sleep_options one = {.timeout_ms = TIMEOUT_MS, .drop = names, .n_drop = 1};
	const struct gpupool_sleep_options two = {.timeout_ms = TIMEOUT_MS, .drop = names, .n_drop = 2};
	const struct gpupool_sleep_options all = {.timeout_ms = TIMEOUT_MS, .is_dropping_all = 1};
	const char *refused = getenv("APP_FAULT_ASLEEP");
	CUdeviceptr block;

	app_start();
	make_blocks();
	(void)gpupool_region_begin("cache");
	block = app_alloc(sizes[4]);
	(void)gpupool_region_end();
	app_fill(NULL, block, sizes[4], 9);
	APP_MUST(cuCtxSynchronize());
	report("unknown", gpupool_sleep_as(&two));
	report_content("unknown", block, 9);
	app_fault(refused);
	report("one", gpupool_sleep_as(&one));
	app_fault(NULL);
	app_pause("asleep");
	report_content("one", block, 9);
	app_say("wrong words", "%zu", count_wrong());
	APP_MUST(cuCtxSynchronize());
	app_pause("asked");
	report_content("asked", block, 9);
	app_say("wrong words", "%zu", count_wrong());
	APP_MUST(cuCtxSynchronize());
	report("all", gpupool_sleep_as(&all));
	report_content("all", block, 9);
	app_fact("all others zero", app_count_wrong(NULL, blocks[4], sizes[4], 0) == 0);
	app_report_driver();
}

static _Atomic bool is_over;

static void *sleep_without_bound(void *unused)
{
	report("without a bound", gpupool_sleep(UINT64_MAX));
	atomic_store(&is_over, true);
	return NULL;
}

/* A kernel waits for the thread that waits at the gate. */
static void awaited(void)
{
	CUstream stream;
	uint32_t *flag;
	pthread_t sleeper;

	app_start();
	make_blocks();
	stream = app_stream();
	APP_MUST(cuMemHostAlloc((void **)&flag, 4096, 0));
	*flag = 0;
	app_spin_until(app_stream(), flag, 1);
	(void)pthread_create(&sleeper, NULL, sleep_without_bound, NULL);
	while (!atomic_load(&is_over))
		APP_MUST(cuMemsetD32Async(blocks[0], 100, 1, stream));
	*(volatile uint32_t *)flag = 1;
	(void)pthread_join(sleeper, NULL);
	APP_MUST(cuCtxSynchronize());
	app_say("wrong words", "%zu", count_wrong());
	app_report_driver();
}

enum { N_THREADS = 4, N_OWN = 5 };

static _Atomic unsigned n_wrong, n_slept, n_busy, n_failed;
static unsigned n_steps;
static pthread_barrier_t barrier;

static void count(int64_t result)
{
	if (result > 0)
		atomic_fetch_add(&n_slept, 1);
	else if (result == -EBUSY)
		atomic_fetch_add(&n_busy, 1);
	else if (result < 0 && result != -ENOSYS)
		atomic_fetch_add(&n_failed, 1);
}

/* Allocates, frees, fills and checks blocks, and rests now and then, so that the process can fall asleep. */
static void *work(void *arg)
{
	unsigned state = 17u * (unsigned)(uintptr_t)arg + 1;
	CUdeviceptr own[N_OWN] = {0};
	uint32_t values[N_OWN] = {0};
	size_t own_sizes[N_OWN] = {0};
	CUstream stream;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	stream = app_stream();
	for (unsigned i = 0; i < n_steps; i++) {
		unsigned which = app_random(&state) % N_OWN, action = app_random(&state) % 8;

		if (!own[which]) {
			own_sizes[which] = app_random(&state) % 2 ? 512 : 4096 * (1 + (size_t)app_random(&state) % 600);
			own[which] = app_alloc(own_sizes[which]);
			values[which] = app_random(&state);
			app_fill(stream, own[which], own_sizes[which], values[which]);
		} else if (action == 0) {
			APP_MUST(cuMemFree_v2(own[which]));
			own[which] = 0;
		} else if (action == 1) {
			values[which]++;
			app_fill(stream, own[which], own_sizes[which], values[which]);
		} else if (action < 4) {
			atomic_fetch_add(
				&n_wrong, app_count_wrong(stream, own[which], own_sizes[which], values[which]) != 0);
		} else {
			APP_MUST(cuStreamSynchronize(stream));
		}
		/* All threads rest at once now and then, and one of them puts the process to sleep meanwhile. */
		if (i % 32 == 0) {
			APP_MUST(cuStreamSynchronize(stream));
			(void)pthread_barrier_wait(&barrier);
			if (!arg)
				count(gpupool_sleep(TIMEOUT_MS));
			(void)pthread_barrier_wait(&barrier);
		}
	}
	for (unsigned i = 0; i < N_OWN; i++) {
		if (!own[i])
			continue;
		atomic_fetch_add(&n_wrong, app_count_wrong(stream, own[i], own_sizes[i], values[i]) != 0);
		APP_MUST(cuMemFree_v2(own[i]));
	}
	return NULL;
}

static void *put_to_sleep(void *arg)
{
	unsigned state = 5u + (unsigned)(uintptr_t)arg;

	while (!atomic_load(&is_over)) {
		count(app_random(&state) % 4 ? gpupool_sleep(app_random(&state) % 50) : gpupool_wake(5));
		usleep(app_random(&state) % 3000);
	}
	return NULL;
}

/* Threads work while two others put the process to sleep and wake it. APP_STEPS: the steps of each. */
static void threads(void)
{
	const char *steps = getenv("APP_STEPS");
	pthread_t workers[N_THREADS], sleepers[2];

	n_steps = steps ? (unsigned)atoi(steps) : 64;
	(void)pthread_barrier_init(&barrier, NULL, N_THREADS);
	app_start();
	APP_MUST(cuMemFree_v2(app_alloc(512))); /* a process without pooled memory cannot sleep */
	for (uintptr_t i = 0; i < N_THREADS; i++)
		(void)pthread_create(&workers[i], NULL, work, (void *)i);
	for (uintptr_t i = 0; i < 2; i++)
		(void)pthread_create(&sleepers[i], NULL, put_to_sleep, (void *)i);
	for (int i = 0; i < N_THREADS; i++)
		(void)pthread_join(workers[i], NULL);
	atomic_store(&is_over, true);
	for (int i = 0; i < 2; i++)
		(void)pthread_join(sleepers[i], NULL);
	app_say("wrong blocks", "%u", atomic_load(&n_wrong));
	app_fact("sleeps and wakes", atomic_load(&n_slept));
	app_fact("busy", atomic_load(&n_busy));
	app_fact("failed", atomic_load(&n_failed));
	app_report_driver();
}

static CUdeviceptr to_free;
static _Atomic unsigned n_returned;

static void deep_alloc(void)
{
	APP_MUST(cuMemFree_v2(app_alloc(MIB)));
}

static void deep_free(void)
{
	APP_MUST(cuMemFree_v2(to_free));
}

static void deep_fill(void)
{
	app_fill(NULL, blocks[0], sizes[0], 100);
}

static void deep_wait(void)
{
	APP_MUST(cuCtxSynchronize());
}

static void deep_wait_for_stream(void)
{
	APP_MUST(cuStreamSynchronize(NULL));
}

static void deep_ask(void)
{
	size_t free_bytes, total_bytes;

	APP_MUST(cuMemGetInfo_v2(&free_bytes, &total_bytes));
}

static void (*const deep_calls[])(void) = {deep_alloc, deep_free, deep_fill, deep_wait, deep_wait_for_stream, deep_ask};
enum { N_DEEP = sizeof(deep_calls) / sizeof(*deep_calls) };

static void *call_deep(void *call)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	(void)pthread_barrier_wait(&barrier);
	(*(void (*const *)(void))call)();
	atomic_fetch_add(&n_returned, 1);
	return NULL;
}

/*
 * The test has the driver take the process out of the device at the first pause. Meanwhile threads make calls, and one
 * ends. The test wakes the process at the second pause.
 */
static void deep(void)
{
	pthread_t threads[N_DEEP];

	app_start();
	make_blocks();
	to_free = app_alloc(64 * KIB);
	(void)pthread_barrier_init(&barrier, NULL, N_DEEP + 1);
	for (int i = 0; i < N_DEEP; i++)
		(void)pthread_create(&threads[i], NULL, call_deep, (void *)(uintptr_t)&deep_calls[i]);
	app_pause("awake");
	app_fact("wake", (uint64_t)-gpupool_wake(0));
	app_fact("sleep", (uint64_t)gpupool_sleep(0));
	(void)pthread_barrier_wait(&barrier);
	usleep(20000);
	app_fact("returned", atomic_load(&n_returned));
	app_pause("deep");
	for (int i = 0; i < N_DEEP; i++)
		(void)pthread_join(threads[i], NULL);
	app_say("wrong words", "%zu", count_wrong());
	app_report_driver();
}

/* The test kills the process, whose work waits. */
static void killed_deep(void)
{
	app_start();
	make_blocks();
	app_pause("awake");
	app_say("wrong words", "%zu", count_wrong());
}

/* The process ends, and a child of it, while the driver holds it. */
static void exits_deep(void)
{
	pid_t child;
	int status = -1;

	app_start();
	make_blocks();
	app_pause("awake");
	child = fork();
	if (child == 0)
		_exit(0);
	(void)waitpid(child, &status, 0);
	app_fact("child", (uint64_t)status);
}

static void managed(void)
{
	CUdeviceptr ptr;

	app_start();
	make_blocks();
	APP_MUST(cuMemAllocManaged(&ptr, MIB, 1));
	app_pause("managed");
	app_say("wrong words", "%zu", count_wrong());
	APP_MUST(cuMemFree_v2(ptr));
	app_report_driver();
}

const struct app_scenario app_scenarios[] = {
	{"content", content, 0},
	{"recorded", recorded, 0},
	{"asked", asked, 0},
	{"busy", busy, 0},
	{"idles", idles, 0},
	{"idles-alone", idles_alone, 0},
	{"graph", graph, 0},
	{"changes", changes, 0},
	{"queries", queries, 0},
	{"one-call", one_call, 0},
	{"ends", ends, 0},
	{"ends-in-order", ends_in_order, 0},
	{"ends-in-order-without-room", ends_in_order_without_room, 0},
	{"kept", kept, 0},
	{"unpinned", unpinned, 0},
	{"exits", exits, 0},
	{"forks", forks, 0},
	{"exported", exported, 0},
	{"several", several, 0},
	{"crowd", crowd, 0},
	{"dropped", dropped, 0},
	{"faulty", faulty, 0},
	{"in-pieces", in_pieces, 0},
	{"awaited", awaited, 0},
	{"signalled", signalled, 0},
	{"short-wake", short_wake, 0},
	{"crowded-wake", crowded_wake, 0},
	{"asks-waking", asks_waking, 0},
	{"full", full, 0},
	{"ends-asleep", ends_asleep, 0},
	{"no-host", no_host, 0},
	{"stopped", stopped, 0},
	{"neighbour", neighbour, 0},
	{"threads", threads, 0},
	{"deep", deep, 0},
	{"managed", managed, 0},
	{"exits-deep", exits_deep, 0},
	{"killed-deep", killed_deep, 0},
	{0},
};
