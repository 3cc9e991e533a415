/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Shared by programs that ask a GPU about contexts: the driver's functions, contexts with a stream each, kernels
 * that spin on flags, calls that may wait, and groups of questions. Needs no toolkit.
 */

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/apps/green_abi.h"
#include "tests/apps/kernels.h"

enum { WAIT_LIMIT_MS = 250, GROUP_LIMIT_S = 90, N_FLAGS = 512, SMS = 16 };

typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;

/* One row per function that is called: its name and its parameters. */
#define FUNCTIONS(FUNCTION)                                                                                            \
	FUNCTION(cuInit, (unsigned flags))                                                                             \
	FUNCTION(cuDriverGetVersion, (int *version))                                                                   \
	FUNCTION(cuDevicePrimaryCtxRetain, (CUcontext * ctx, CUdevice device))                                         \
	FUNCTION(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                                      \
	FUNCTION(cuDevicePrimaryCtxReset_v2, (CUdevice device))                                                        \
	FUNCTION(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned *flags, int *active))                          \
	FUNCTION(cuCtxCreate_v2, (CUcontext * ctx, unsigned flags, CUdevice device))                                   \
	FUNCTION(cuCtxDestroy_v2, (CUcontext ctx))                                                                     \
	FUNCTION(cuCtxAttach, (CUcontext * ctx, unsigned flags))                                                       \
	FUNCTION(cuCtxDetach, (CUcontext ctx))                                                                         \
	FUNCTION(cuCtxSetCurrent, (CUcontext ctx))                                                                     \
	FUNCTION(cuCtxGetCurrent, (CUcontext * ctx))                                                                   \
	FUNCTION(cuCtxGetDevice, (CUdevice * device))                                                                  \
	FUNCTION(cuCtxGetId, (CUcontext ctx, unsigned long long *id))                                                  \
	FUNCTION(cuCtxSynchronize, (void))                                                                             \
	FUNCTION(cuCtxRecordEvent, (CUcontext ctx, CUevent event))                                                     \
	FUNCTION(cuCtxWaitEvent, (CUcontext ctx, CUevent event))                                                       \
	FUNCTION(cuEventCreate, (CUevent * event, unsigned flags))                                                     \
	FUNCTION(cuEventQuery, (CUevent event))                                                                        \
	FUNCTION(cuMemAlloc_v2, (CUdeviceptr * ptr, size_t bytes))                                                     \
	FUNCTION(cuMemFree_v2, (CUdeviceptr ptr))                                                                      \
	FUNCTION(cuMemFreeAsync, (CUdeviceptr ptr, CUstream stream))                                                   \
	FUNCTION(cuMemHostAlloc, (void **ptr, size_t bytes, unsigned flags))                                           \
	FUNCTION(cuMemFreeHost, (void *ptr))                                                                           \
	FUNCTION(cuMemGetInfo_v2, (size_t * available, size_t * total))                                                \
	FUNCTION(cuMemsetD32_v2, (CUdeviceptr ptr, unsigned value, size_t n))                                          \
	FUNCTION(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes))                                          \
	FUNCTION(cuPointerGetAttribute, (void *data, int attribute, CUdeviceptr ptr))                                  \
	FUNCTION(cuStreamCreate, (CUstream * stream, unsigned flags))                                                  \
	FUNCTION(cuStreamDestroy_v2, (CUstream stream))                                                                \
	FUNCTION(cuStreamSynchronize, (CUstream stream))                                                               \
	FUNCTION(cuStreamGetCtx, (CUstream stream, CUcontext * ctx))                                                   \
	FUNCTION(cuStreamBeginCapture_v2, (CUstream stream, int mode))                                                 \
	FUNCTION(cuStreamEndCapture, (CUstream stream, CUgraph * graph))                                               \
	FUNCTION(cuModuleLoadData, (CUmodule * module, const void *image))                                             \
	FUNCTION(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name))                      \
	FUNCTION(                                                                                                      \
		cuLaunchKernel, (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, \
					unsigned bz, unsigned shared, CUstream stream, void **params, void **extra))   \
	FUNCTION(cuDeviceGetDevResource, (CUdevice device, CUdevResource * resource, int type))                        \
	FUNCTION(cuDevSmResourceSplitByCount, (CUdevResource * result, unsigned *n, const CUdevResource *input,        \
						      CUdevResource *rest, unsigned flags, unsigned sms))              \
	FUNCTION(cuDevResourceGenerateDesc, (CUdevResourceDesc * desc, CUdevResource * resources, unsigned n))         \
	FUNCTION(cuGreenCtxCreate, (CUgreenCtx * green, CUdevResourceDesc desc, CUdevice device, unsigned flags))      \
	FUNCTION(cuGreenCtxDestroy, (CUgreenCtx green))                                                                \
	FUNCTION(cuCtxFromGreenCtx, (CUcontext * ctx, CUgreenCtx green))                                               \
	FUNCTION(cuGreenCtxStreamCreate, (CUstream * stream, CUgreenCtx green, unsigned flags, int priority))          \
	FUNCTION(cuGreenCtxRecordEvent, (CUgreenCtx green, CUevent event))                                             \
	FUNCTION(cuGreenCtxWaitEvent, (CUgreenCtx green, CUevent event))                                               \
	FUNCTION(cuStreamGetGreenCtx, (CUstream stream, CUgreenCtx * green))

#define FUNCTION(name, parameters) static CUresult(*name) parameters;
FUNCTIONS(FUNCTION)
#undef FUNCTION

static inline void print_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline void print_line(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

static inline void check(CUresult r, const char *what)
{
	if (r == CUDA_SUCCESS)
		return;
	print_line("stopped: %s: error %d", what, r);
	_exit(1);
}

#define CHECK(call) check((call), #call)

static inline bool load(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	bool is_complete = driver;

#define FUNCTION(name, parameters)                              \
	*(void **)&name = driver ? dlsym(driver, #name) : NULL; \
	if (driver && !name)                                    \
		print_line("missing: %s", #name);               \
	is_complete = is_complete && name;
	FUNCTIONS(FUNCTION)
#undef FUNCTION
	return is_complete;
}

static inline long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The contexts to which work can be submitted: the primary context and two green contexts. */
enum { PRIMARY, GREEN_A, GREEN_B, N_CONTEXTS };
static const char *const context_names[N_CONTEXTS] = {"primary", "green A", "green B"};

static struct test_context {
	CUgreenCtx green; /* NULL for the primary context */
	CUcontext ctx;
	CUstream stream;
	CUfunction wait, set;
} contexts[N_CONTEXTS];

static uint32_t *flags; /* pinned flags that kernels wait for and set */
static unsigned n_flags;

static inline unsigned next_flag(void)
{
	if (n_flags == N_FLAGS)
		_exit(2);
	return n_flags++;
}

static uint32_t flag_value(unsigned flag)
{
	return __atomic_load_n(&flags[flag], __ATOMIC_ACQUIRE);
}

static inline void raise_flag(unsigned flag)
{
	__atomic_store_n(&flags[flag], 1, __ATOMIC_RELEASE);
}

static inline CUresult launch(CUfunction function, CUstream stream, unsigned flag)
{
	uint64_t ptr = (uint64_t)(uintptr_t)&flags[flag];
	uint32_t one = 1;
	void *params[] = {&ptr, &one};

	return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

/* Keeps the stream of a context busy until the flag is raised. */
static inline unsigned make_busy(int context)
{
	unsigned flag = next_flag();

	CHECK(launch(contexts[context].wait, contexts[context].stream, flag));
	return flag;
}

static inline bool is_set_soon(unsigned flag)
{
	long end = now_ms() + WAIT_LIMIT_MS;

	while (!flag_value(flag) && now_ms() < end) {
		/* A simulated GPU works while it is called. */
		for (int i = 0; i < 1000; i++)
			(void)cuCtxGetCurrent(&(CUcontext){NULL});
		usleep(1000);
	}
	return flag_value(flag);
}

static inline bool is_ready_soon(CUevent event)
{
	long end = now_ms() + WAIT_LIMIT_MS;

	while (cuEventQuery(event) == CUDA_ERROR_NOT_READY && now_ms() < end)
		usleep(1000);
	return cuEventQuery(event) == CUDA_SUCCESS;
}

static inline void load_kernels(struct test_context *context)
{
	CUmodule module;

	CHECK(cuCtxSetCurrent(context->ctx));
	CHECK(cuModuleLoadData(&module, kernels_ptx));
	CHECK(cuModuleGetFunction(&context->wait, module, "wait_flag"));
	CHECK(cuModuleGetFunction(&context->set, module, "set_flag"));
}

/* Launches everything once, since a first launch may load a module, and then waits. */
static inline void warm_up(struct test_context *context)
{
	unsigned flag = next_flag();

	CHECK(cuCtxSetCurrent(context->ctx));
	CHECK(launch(context->set, context->stream, flag));
	CHECK(launch(context->wait, context->stream, flag));
	CHECK(cuStreamSynchronize(context->stream));
}

static inline void make_green(int context)
{
	CUdevResource all, parts[2], rest;
	CUdevResourceDesc desc;
	unsigned n = 2;

	CHECK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	CHECK(cuDevSmResourceSplitByCount(parts, &n, &all, &rest, 0, SMS));
	CHECK(cuDevResourceGenerateDesc(&desc, &parts[context - GREEN_A], 1));
	CHECK(cuGreenCtxCreate(&contexts[context].green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	CHECK(cuCtxFromGreenCtx(&contexts[context].ctx, contexts[context].green));
	CHECK(cuGreenCtxStreamCreate(&contexts[context].stream, contexts[context].green, CU_STREAM_NON_BLOCKING, 0));
}

static inline void start(void)
{
	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&contexts[PRIMARY].ctx, 0));
	CHECK(cuCtxSetCurrent(contexts[PRIMARY].ctx));
	CHECK(cuStreamCreate(&contexts[PRIMARY].stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemHostAlloc((void **)&flags, N_FLAGS * sizeof(*flags), CU_MEMHOSTALLOC_PORTABLE));
	memset(flags, 0, N_FLAGS * sizeof(*flags));
	make_green(GREEN_A);
	make_green(GREEN_B);
	for (int i = 0; i < N_CONTEXTS; i++)
		load_kernels(&contexts[i]);
	for (int i = 0; i < N_CONTEXTS; i++)
		warm_up(&contexts[i]);
	CHECK(cuCtxSetCurrent(contexts[PRIMARY].ctx));
}

static inline const char *name_of_context(CUcontext ctx)
{
	for (int i = 0; i < N_CONTEXTS; i++)
		if (contexts[i].ctx == ctx)
			return context_names[i];
	return ctx ? "another" : "none";
}

static inline CUdeviceptr alloc_in(int context, size_t bytes)
{
	CUdeviceptr ptr = 0;

	CHECK(cuCtxSetCurrent(contexts[context].ctx));
	CHECK(cuMemAlloc_v2(&ptr, bytes));
	return ptr;
}

static inline CUevent event_of(int context)
{
	CUevent event = NULL;

	CHECK(cuCtxSetCurrent(contexts[context].ctx));
	CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	return event;
}

/* A call that may wait; it is made in a separate thread, with one of the contexts current. */
struct attempt {
	CUresult (*call)(uint64_t arg);
	uint64_t arg;
	CUcontext ctx;
	CUresult r;
	_Atomic bool has_returned;
	pthread_t thread;
};

static inline void *attempt_main(void *arg)
{
	struct attempt *a = arg;

	a->r = cuCtxSetCurrent(a->ctx);
	if (!a->r)
		a->r = a->call(a->arg);
	a->has_returned = true;
	return NULL;
}

static inline void attempt_begin(struct attempt *a)
{
	if (pthread_create(&a->thread, NULL, attempt_main, a))
		_exit(2);
}

static inline bool attempt_returns_soon(struct attempt *a)
{
	long end = now_ms() + WAIT_LIMIT_MS;

	while (!a->has_returned && now_ms() < end)
		usleep(1000);
	return a->has_returned;
}

static inline int state(void)
{
	unsigned state_flags;
	int active = -1;

	CHECK(cuDevicePrimaryCtxGetState(0, &state_flags, &active));
	return active;
}

/* Prints the result of a call that may end the primary context, and whether that is still active. */
static inline void print_end(const char *what, CUresult r)
{
	print_line("%s: %d, primary active: %d", what, r, state());
}

struct group {
	const char *name;
	void (*run)(void);
};

/* Runs a group in a new process with a time limit, after first() if that is not NULL. */
static inline void run_group(const struct group *group, void (*first)(void))
{
	int status = 0;
	pid_t child;

	print_line("== %s", group->name);
	child = fork();
	if (child == 0) {
		alarm(GROUP_LIMIT_S);
		setenv("CUDA_MODULE_LOADING", "EAGER", 1);
		if (!load())
			_exit(3);
		if (first)
			first();
		group->run();
		_exit(0);
	}
	waitpid(child, &status, 0);
	if (WIFSIGNALED(status))
		print_line("ended by signal %d", WTERMSIG(status));
	else if (WEXITSTATUS(status))
		print_line("ended with status %d", WEXITSTATUS(status));
}

/* Runs all groups, or only the named one. */
static inline void run_groups(const struct group *groups, size_t n, void (*first)(void), const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!name || strcmp(name, groups[i].name) == 0)
			run_group(&groups[i], first);
}
