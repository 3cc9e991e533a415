/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "work_context.h"

#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "tests/apps/kernels.h"
#include "tests/sim/abi.h"

const char *context_question = "outcome";

static atomic_flag is_end_printed = ATOMIC_FLAG_INIT;

static void end_hanging(int unused)
{
	char line[256];
	ssize_t n = snprintf(line, sizeof(line), "%s: hangs\n", context_question);

	_exit(atomic_flag_test_and_set(&is_end_printed) || write(STDOUT_FILENO, line, (size_t)n) == n ? 0 : 1);
}

/* Prints that the process hangs before the runner, which does not know where, ends it after APP_LIMIT_S. */
void context_watch(void)
{
	const char *limit = getenv("APP_LIMIT_S");

	signal(SIGALRM, end_hanging);
	alarm(limit ? (unsigned)strtoul(limit, NULL, 10) * 3 / 5 : 15);
}

int context_start(void)
{
	int n = 0;

	/* The simulated GPU reports a hang after this time without progress. */
	setenv("SIMGPU_DEADLOCK_MS", "500", 0);
	setvbuf(stdout, NULL, _IOLBF, 0); /* the process may end at any point */
	context_watch();
	CONTEXT_MUST(cuInit(0));
	CONTEXT_MUST(cuDeviceGetCount(&n));
	return n;
}

/*
 * Returns true for the errors of a kernel that has spun too long: the simulated GPU returns them after its time limit,
 * a real one after the trap in wait_flag.
 */
static bool is_hang(int result)
{
	return result == CUDA_ERROR_LAUNCH_TIMEOUT ||
	       (result >= CUDA_ERROR_HARDWARE_STACK_ERROR && result <= CUDA_ERROR_LAUNCH_FAILED);
}

void context_must(int result, const char *call)
{
	if (!result)
		return;
	while (atomic_flag_test_and_set(&is_end_printed))
		pause(); /* another thread has printed the answer, and ends the process */
	if (is_hang(result))
		printf("%s: hangs\n", context_question);
	else
		printf("%s: %d\n", call, result);
	fflush(stdout);
	_exit(0); /* clean-up is impossible now, and exit handlers must not report that */
}

static CUfunction kernel(CUmodule module, const char *name)
{
	CUfunction function = NULL;

	CONTEXT_MUST(cuModuleGetFunction(&function, module, name));
	return function;
}

static void run_each_once(const struct work_context *context)
{
	CUdeviceptr scratch = context_alloc(context, 64);
	uint64_t words = 4, ns = 1, result = scratch + 32;
	uint32_t value = 1;

	context_fill(context, NULL, scratch, words * 4, value);
	context_spin(context, NULL, ns);
	context_spin_fill(context, NULL, scratch, words * 4, value, ns);
	CONTEXT_MUST(cuLaunchKernel(
		context->count_wrong, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&scratch, &words, &value, &result}, NULL));
	context_set_flag(context, NULL, scratch, value);
	context_wait_flag(context, NULL, scratch, value);
	CONTEXT_MUST(cuCtxSynchronize());
	CONTEXT_MUST(cuMemFree_v2(scratch));
}

static void load(struct work_context *context)
{
	CUmodule module;

	CONTEXT_MUST(cuModuleLoadData(&module, kernels_ptx));
	context->fill = kernel(module, "fill");
	context->spin = kernel(module, "spin");
	context->spin_fill = kernel(module, "spin_fill");
	context->count_wrong = kernel(module, "count_wrong");
	context->set_flag = kernel(module, "set_flag");
	context->wait_flag = kernel(module, "wait_flag");
	run_each_once(context);
}

void context_open(struct work_context *context, CUdevice device)
{
	context->device = device;
	CONTEXT_MUST(cuDevicePrimaryCtxRetain(&context->ctx, device));
	context_enter(context);
	load(context);
}

void context_create(struct work_context *context, CUdevice device)
{
	context->device = device;
	CONTEXT_MUST(cuCtxCreate_v2(&context->ctx, 0, device));
	load(context);
}

void context_enter(const struct work_context *context)
{
	CONTEXT_MUST(cuCtxSetCurrent(context->ctx));
}

CUstream context_stream(const struct work_context *context)
{
	CUstream stream = NULL;

	context_enter(context);
	CONTEXT_MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

static void launch(const struct work_context *context, CUfunction function, CUstream stream, void **params)
{
	context_enter(context);
	CONTEXT_MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

void context_fill(const struct work_context *context, CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value)
{
	uint64_t words = bytes / 4;

	launch(context, context->fill, stream, (void *[]){&ptr, &words, &value});
}

void context_spin(const struct work_context *context, CUstream stream, uint64_t ns)
{
	launch(context, context->spin, stream, (void *[]){&ns});
}

void context_spin_fill(
	const struct work_context *context, CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value, uint64_t ns)
{
	uint64_t words = bytes / 4;

	launch(context, context->spin_fill, stream, (void *[]){&ptr, &words, &value, &ns});
}

void context_wait_flag(const struct work_context *context, CUstream stream, CUdeviceptr flag, uint32_t value)
{
	launch(context, context->wait_flag, stream, (void *[]){&flag, &value});
}

void context_set_flag(const struct work_context *context, CUstream stream, CUdeviceptr flag, uint32_t value)
{
	launch(context, context->set_flag, stream, (void *[]){&flag, &value});
}

CUdeviceptr context_alloc(const struct work_context *context, size_t bytes)
{
	CUdeviceptr ptr = 0;

	context_enter(context);
	CONTEXT_MUST(cuMemAlloc_v2(&ptr, bytes));
	return ptr;
}

size_t context_count_wrong(const struct work_context *context, CUdeviceptr ptr, size_t bytes, uint32_t value)
{
	uint32_t *words = malloc(bytes);
	size_t wrong = 0;

	if (!words)
		exit(71);
	context_enter(context);
	CONTEXT_MUST(cuCtxSynchronize());
	CONTEXT_MUST(cuMemcpyDtoH_v2(words, ptr, bytes));
	for (size_t i = 0; i < bytes / 4; i++)
		wrong += words[i] != value;
	free(words);
	return wrong;
}
