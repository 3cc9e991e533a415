/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * T8.7: forks. CUDA does not survive a fork: in the child every call returns an error and none hangs, even if other
 * threads of the parent were inside calls. If the parent has not used CUDA yet, its child can use CUDA.
 */

#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/preload/app_driver.h"
#include "tests/sim/abi.h"

static bool is_simulated(void)
{
	return app_calls("cuGetProcAddress_v2") + app_calls("cuInit") > 0;
}

static void wait_for(pid_t child)
{
	int status = 0;

	if (waitpid(child, &status, 0) != child)
		exit(72);
	app_result("child", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static _Noreturn void exit_as(pid_t child)
{
	int status = 0;

	exit(waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 73);
}

static pid_t fork_quietly(void)
{
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child < 0)
		exit(71);
	return child;
}

static void use_memory(void)
{
	size_t wrong = 0;

	app_start();
	for (unsigned i = 0; i < 16; i++) {
		CUdeviceptr ptr = app_alloc(i % 2 ? MIB : 300);
		void *host;

		app_fill(NULL, ptr, 256, i);
		wrong += app_count_wrong(NULL, ptr, 256, i);
		APP_MUST(cuMemFree_v2(ptr));
		APP_MUST(cuMemHostAlloc(&host, 4096, 0));
		APP_MUST(cuMemFreeHost(host));
	}
	if (wrong)
		app_result("wrong words", (int)wrong);
}

/* Several children use CUDA at the same time, and a grandchild does, and then the parent. */
static void before(void)
{
	pid_t children[3];

	for (size_t i = 0; i < LENGTH(children); i++) {
		children[i] = fork_quietly();
		if (children[i])
			continue;
		if (i == 1) {
			pid_t grandchild = fork_quietly();

			if (grandchild)
				exit_as(grandchild);
		}
		use_memory();
		exit(0);
	}
	for (size_t i = 0; i < LENGTH(children); i++)
		wait_for(children[i]);
	use_memory();
}

static CUdeviceptr kept;
static void *kept_host;
static CUcontext second;
static CUstream kept_stream;

static bool is_verbose;

static unsigned n_succeeded;

/* In the child of a process that uses CUDA no call may succeed. Counts the calls that do. */
static void report(const char *what, CUresult r)
{
	if (is_verbose)
		app_result(what, r);
	n_succeeded += r == CUDA_SUCCESS;
}

#define REPORT(call) report(#call, call)

/* Makes every kind of call that the library hooks. */
static _Noreturn void call_everything_in_child(void)
{
	size_t available = 0, total = 0;
	CUdeviceptr ptr = 0x5a5a;
	CUcontext ctx = NULL;
	CUgraph graph = NULL;
	void *host = NULL;
	CUstream stream;

	REPORT(cuInit(0));
	REPORT(cuCtxSetCurrent(second));
	REPORT(cuMemAlloc_v2(&ptr, MIB));
	REPORT(cuMemAlloc_v2(&ptr, 300));
	REPORT(cuMemAllocAsync(&ptr, MIB, NULL));
	REPORT(cuMemAllocManaged(&ptr, MIB, 1));
	REPORT(cuMemFree_v2(kept));
	REPORT(cuMemFreeAsync(kept, NULL));
	REPORT(cuMemHostAlloc(&host, 4096, 0));
	REPORT(cuMemFreeHost(kept_host));
	REPORT(cuMemGetInfo_v2(&available, &total));
	REPORT(cuMemGetAddressRange_v2(&ptr, &total, kept));
	REPORT(cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, kept));
	REPORT(cuStreamCreate(&stream, 0));
	REPORT(cuStreamBeginCapture_v2(kept_stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	REPORT(cuStreamEndCapture(kept_stream, &graph));
	REPORT(cuDevicePrimaryCtxRetain(&ctx, 0));
	REPORT(cuDevicePrimaryCtxRelease_v2(0));
	REPORT(cuDevicePrimaryCtxReset_v2(0));
	REPORT(cuCtxCreate_v2(&ctx, 0, 0));
	REPORT(cuCtxDestroy_v2(second));
	n_succeeded += ptr != 0x5a5a;
	fflush(stdout);
	_exit((int)n_succeeded); /* app_process.c tests a child that calls exit() */
}

static void after(void)
{
	pid_t child;

	app_start();
	kept = app_alloc(MIB);
	APP_MUST(cuMemHostAlloc(&kept_host, 4096, 0));
	kept_stream = app_stream();
	APP_MUST(cuCtxCreate_v2(&second, 0, 0));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	is_verbose = true;
	child = fork_quietly();
	if (child == 0)
		call_everything_in_child();
	wait_for(child);
	app_result("free in the parent", cuMemFree_v2(kept));
	app_result("pinned free in the parent", cuMemFreeHost(kept_host));
	APP_MUST(cuCtxDestroy_v2(second));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	use_memory();
}

static _Atomic bool is_over;
static bool may_allocate;

static void *keep_locks_busy(void *unused)
{
	CUstream stream;
	CUgraph graph;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	APP_MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	while (!is_over) {
		CUcontext ctx;
		void *host;

		APP_MUST(cuCtxSetCurrent(second));
		APP_MUST(cuCtxSetCurrent(app_ctx));
		APP_MUST(cuDevicePrimaryCtxRetain(&ctx, 0));
		APP_MUST(cuDevicePrimaryCtxRelease_v2(0));
		APP_MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
		APP_MUST(cuStreamEndCapture(stream, &graph));
		APP_MUST(cuGraphDestroy(graph));
		if (!may_allocate)
			continue;
		APP_MUST(cuMemFree_v2(app_alloc(MIB)));
		APP_MUST(cuMemHostAlloc(&host, 4096, 0));
		APP_MUST(cuMemFreeHost(host));
		APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
		APP_MUST(cuMemFree_v2(app_alloc(300)));
		APP_MUST(cuCtxDestroy_v2(ctx));
	}
	return NULL;
}

/* Parent, child and GPU use pinned memory after a fork. Prints which words each of them sees. */
static void share(size_t bytes)
{
	volatile uint32_t *host;
	int go[2], status = 0;
	char byte = 0;
	pid_t child;

	APP_MUST(cuMemHostAlloc((void **)&host, bytes, 0));
	host[0] = host[1] = host[2] = 1;
	if (pipe(go))
		exit(70);
	child = fork_quietly();
	if (child == 0) {
		unsigned seen;

		close(go[1]);
		(void)!read(go[0], &byte, 1);
		seen = host[0] * 10 + host[1];
		host[2] = 4;
		_exit((int)seen);
	}
	close(go[0]);
	host[0] = 2;
	app_fill(NULL, (CUdeviceptr)(uintptr_t)&host[1], 4, 3);
	APP_MUST(cuCtxSynchronize());
	close(go[1]);
	if (waitpid(child, &status, 0) != child)
		exit(72);
	printf("%zu MiB, words that the child sees: %d\n", bytes / MIB,
		WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
	printf("%zu MiB, words that the parent sees: %u %u %u\n", bytes / MIB, host[0], host[1], host[2]);
	printf("%zu MiB, wrong words for the GPU: %zu\n", bytes / MIB,
		app_count_wrong(NULL, (CUdeviceptr)(uintptr_t)&host[0], 4, 2));
	APP_MUST(cuMemFreeHost((void *)host));
}

static void pinned(void)
{
	app_start();
	share(MIB);
	share(32 * MIB);
}

/* Other threads may hold any lock at the moment of the fork. A real driver's locks may be among them. */
static void busy(unsigned forks)
{
	pthread_t threads[3];
	unsigned n_bad = 0;

	app_start();
	if (!is_simulated()) {
		printf("skipped: only simulated\n");
		return;
	}
	if (may_allocate) {
		kept = app_alloc(MIB);
		APP_MUST(cuMemHostAlloc(&kept_host, 4096, 0));
	}
	kept_stream = NULL;
	APP_MUST(cuCtxCreate_v2(&second, 0, 0));
	for (size_t i = 0; i < LENGTH(threads); i++)
		pthread_create(&threads[i], NULL, keep_locks_busy, NULL);
	for (unsigned i = 0; i < forks; i++) {
		pid_t child = fork_quietly();
		int status = 1;

		if (child == 0)
			call_everything_in_child();
		n_bad += waitpid(child, &status, 0) != child || status;
	}
	app_result("bad children", (int)n_bad);
	is_over = true;
	for (size_t i = 0; i < LENGTH(threads); i++)
		pthread_join(threads[i], NULL);
	APP_MUST(cuCtxSetCurrent(app_ctx));
	use_memory();
}

/* Forks before the first allocation, at which the library prepares for forks. */
static void busy_at_first(void)
{
	busy(60);
}

static void busy_later(void)
{
	may_allocate = true;
	busy(60);
}

static void *look_up(void *unused)
{
	static const char *const functions[] = {"cuMemAlloc_v2", "cuMemFree_v2", "cuCtxDestroy_v2", "cuInit"};
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *found;

	while (!is_over) {
		for (size_t i = 0; i < LENGTH(functions); i++)
			if (!dlsym(driver, functions[i]) || !dlsym(RTLD_DEFAULT, functions[i]))
				exit(74);
		APP_MUST(cuGetProcAddress_v2("cuMemAlloc", &found, 12000, 0, NULL));
	}
	return NULL;
}

/* The parent has only looked up functions of CUDA, and its threads still do: its children can use CUDA. */
static void looking(void)
{
	pthread_t threads[3];
	unsigned n_bad = 0;

	APP_MUST(cuGetProcAddress_v2("", &(void *){NULL}, 0, 0, NULL));
	if (!is_simulated()) {
		printf("skipped: only simulated\n");
		return;
	}
	for (size_t i = 0; i < LENGTH(threads); i++)
		pthread_create(&threads[i], NULL, look_up, NULL);
	for (unsigned i = 0; i < 20; i++) {
		pid_t child = fork_quietly();
		int status = 1;

		if (child == 0) {
			use_memory();
			exit(0);
		}
		n_bad += waitpid(child, &status, 0) != child || status;
	}
	is_over = true;
	for (size_t i = 0; i < LENGTH(threads); i++)
		pthread_join(threads[i], NULL);
	app_result("bad children", (int)n_bad);
	use_memory();
}

const struct app_scenario app_scenarios[] = {
	{"before", before, 0},
	{"after", after, 0},
	{"pinned", pinned, 0},
	{"looking", looking, 0},
	{"busy-at-first", busy_at_first, 0},
	{"busy-later", busy_later, 0},
	{0},
};
