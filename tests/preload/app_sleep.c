/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A program that is put to sleep, by itself or by the test at a pause. Without the library nothing sleeps, and the
 * output is the same.
 */

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/gpupool.h"
#include "app_driver.h"
#include "tests/sim/abi.h"

enum { TIMEOUT_MS = 2000, N_BLOCKS = 6 };

static const size_t sizes[N_BLOCKS] = {512, 64 * KIB, MIB, 5 * MIB, 16 * MIB, 3 * MIB + 512};
static CUdeviceptr blocks[N_BLOCKS];

/* Bytes that the process holds on the device; 0 on a real driver. */
static uint64_t device_bytes(void)
{
	size_t (*allocated)(int device) = (size_t(*)(int))dlsym(RTLD_DEFAULT, "simgpu_allocated_bytes");

	return allocated ? allocated(0) : 0;
}

/* Makes the nth call from now fail: "FUNCTION N ERROR". NULL: no call fails any more. */
static void fault(const char *text)
{
	bool (*inject)(const char *spec) = (bool (*)(const char *))dlsym(RTLD_DEFAULT, "simgpu_fault");
	char function[64], spec[128];
	unsigned nth;
	int error;

	if (inject && text && sscanf(text, "%63s %u %d", function, &nth, &error) == 3) {
		snprintf(spec, sizeof(spec), "%s:%u=%d", function, (unsigned)app_calls(function) + nth, error);
		(void)inject(spec);
	} else if (inject && !text) {
		(void)inject(NULL);
	}
}

static void make_blocks(void)
{
	for (int i = 0; i < N_BLOCKS; i++) {
		blocks[i] = app_alloc(sizes[i]);
		app_fill(NULL, blocks[i], sizes[i], 100u + (uint32_t)i);
	}
	APP_MUST(cuCtxSynchronize());
}

static size_t count_wrong(void)
{
	size_t n = 0;

	for (int i = 0; i < N_BLOCKS; i++)
		n += app_count_wrong(NULL, blocks[i], sizes[i], 100u + (uint32_t)i);
	return n;
}

/* Reports a result of gpupool_sleep or gpupool_wake. */
static void report(const char *name, int64_t result)
{
	char fact[64];

	snprintf(fact, sizeof(fact), "%s%s", name, result < 0 ? " error" : "");
	app_fact(fact, (uint64_t)(result < 0 ? -result : result));
}

static void sleep_now(void)
{
	report("slept", gpupool_sleep(TIMEOUT_MS));
}

/* Asleep, the process holds no more than its context. Its content is the same afterwards, three times. */
static void content(void)
{
	size_t wrong = 0;

	app_start();
	app_fact("before", device_bytes());
	make_blocks();
	app_fact("awake", device_bytes());
	for (int i = 0; i < 3; i++) {
		sleep_now();
		app_fact("asleep", device_bytes());
		wrong += count_wrong();
		app_fact("woken", device_bytes());
	}
	app_say("wrong words", "%zu", wrong);
	report("slept", gpupool_sleep(TIMEOUT_MS));
	report("slept again", gpupool_sleep(TIMEOUT_MS));
	report("woke", gpupool_wake(TIMEOUT_MS));
	report("woke again", gpupool_wake(TIMEOUT_MS));
	app_say("wrong words", "%zu", count_wrong());
	app_report_driver();
}

/* The test puts the process to sleep at the first pause, and wakes it or not at the second. */
static void asked(void)
{
	app_start();
	make_blocks();
	app_pause("awake");
	app_fact("asleep", device_bytes());
	app_pause("asleep");
	app_fact("asked", device_bytes());
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
	app_fact("before", device_bytes());
	report("during a kernel", gpupool_sleep(0));
	app_fact("after", device_bytes());
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
	app_fact("instantiated", device_bytes());
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

/* Memory is freed, allocated and asked about while the process is asleep. */
static void changes(void)
{
	CUdeviceptr base = 0, more;
	size_t size = 0, before = 0, asleep = 0, total;
	int type = 0;

	app_start();
	make_blocks();
	APP_MUST(cuMemGetInfo_v2(&before, &total));
	sleep_now();
	APP_MUST(cuMemGetInfo_v2(&asleep, &total));
	app_say("free memory asleep is that awake", "%d", asleep == before);
	app_fact("asleep after a question of memory", device_bytes());
	APP_MUST(cuMemFree_v2(blocks[4]));
	APP_MUST(cuMemFree_v2(blocks[0]));
	app_fact("asleep after frees", device_bytes());
	report("reclaimed", gpupool_reclaim(GPUPOOL_ALL_DEVICES));
	app_pause("freed");
	more = app_alloc(40 * MIB);
	app_fact("awake after an allocation", device_bytes());
	app_fill(NULL, more, 40 * MIB, 5);
	app_say("wrong words", "%zu", app_count_wrong(NULL, more, 40 * MIB, 5));
	blocks[4] = app_alloc(sizes[4]);
	blocks[0] = app_alloc(sizes[0]);
	app_fill(NULL, blocks[4], sizes[4], 104);
	app_fill(NULL, blocks[0], sizes[0], 100);
	APP_MUST(cuCtxSynchronize());
	sleep_now();
	APP_MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, blocks[3]));
	app_say("memory type", "%d", type);
	APP_MUST(cuCtxSynchronize());
	sleep_now();
	APP_MUST(cuMemGetAddressRange_v2(&base, &size, blocks[3] + 512));
	app_say("range", "%d %zu", base == blocks[3], size);
	app_say("wrong words", "%zu", count_wrong());
	app_report_driver();
}

/* Each way in which a process or a context ends while it is asleep. */
static void ends(void)
{
	app_start();
	make_blocks();
	sleep_now();
	APP_MUST(cuDevicePrimaryCtxReset_v2(0));
	app_fact("after the reset", device_bytes());
	report("woke", gpupool_wake(TIMEOUT_MS));
	app_start();
	make_blocks();
	app_say("wrong words", "%zu", count_wrong());
	APP_MUST(cuCtxSynchronize());
	sleep_now();
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

static void check_at_exit(void)
{
	app_say("wrong words at exit", "%zu", count_wrong());
}

static void exits(void)
{
	app_start();
	make_blocks();
	atexit(check_at_exit);
	sleep_now();
}

/* A child of a process that is asleep gets the driver's errors, and the parent wakes as usual. */
static void forks(void)
{
	int status = 0;
	pid_t child;

	app_start();
	make_blocks();
	sleep_now();
	child = fork();
	if (!child)
		_exit(cuMemsetD32_v2(blocks[0], 1, 1) != CUDA_SUCCESS ? 7 : 8);
	(void)waitpid(child, &status, 0);
	app_say("the child fails", "%d", WEXITSTATUS(status) == 7);
	app_say("wrong words", "%zu", count_wrong());
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

static void contexts(void)
{
	CUcontext other;

	app_start();
	make_blocks();
	sleep_now();
	APP_MUST(cuCtxCreate_v2(&other, 0, 0));
	APP_MUST(cuMemsetD32_v2(blocks[0], 100, sizes[0] / 4));
	APP_MUST(cuCtxSynchronize());
	APP_MUST(cuCtxSetCurrent(app_ctx));
	report("two contexts", gpupool_sleep(TIMEOUT_MS));
	app_say("wrong words", "%zu", count_wrong());
}

/* The driver refuses a call of a sleep, or of a wake. */
static void faulty(void)
{
	const char *at_sleep = getenv("APP_FAULT_ASLEEP"), *at_wake = getenv("APP_FAULT_AWAKE");

	app_start();
	make_blocks();
	fault(at_sleep);
	sleep_now();
	fault(NULL);
	app_fact("bytes", device_bytes());
	app_say("wrong words", "%zu", count_wrong());
	APP_MUST(cuCtxSynchronize());
	sleep_now();
	fault(at_wake);
	report("woke", gpupool_wake(0));
	app_fact("bytes after the wake", device_bytes());
	/* The first calls still fail. The program waits for the memory, and does not run without it. */
	app_say("wrong words", "%zu", count_wrong());
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
		/* All threads rest at once now and then, so that the process can fall asleep. */
		if (i % 32 == 0) {
			(void)pthread_barrier_wait(&barrier);
			usleep(10000 + app_random(&state) % 20000);
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
		int64_t r = app_random(&state) % 4 ? gpupool_sleep(app_random(&state) % 50) : gpupool_wake(5);

		if (r > 0)
			atomic_fetch_add(&n_slept, 1);
		else if (r == -EBUSY)
			atomic_fetch_add(&n_busy, 1);
		else if (r < 0 && r != -ENOSYS)
			atomic_fetch_add(&n_failed, 1);
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

const struct app_scenario app_scenarios[] = {
	{"content", content, 0},
	{"asked", asked, 0},
	{"busy", busy, 0},
	{"idles", idles, 0},
	{"idles-alone", idles_alone, 0},
	{"graph", graph, 0},
	{"changes", changes, 0},
	{"ends", ends, 0},
	{"kept", kept, 0},
	{"exits", exits, 0},
	{"forks", forks, 0},
	{"exported", exported, 0},
	{"contexts", contexts, 0},
	{"faulty", faulty, 0},
	{"awaited", awaited, 0},
	{"threads", threads, 0},
	{0},
};
