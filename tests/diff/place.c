/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "place.h"

#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "tests/apps/kernels.h"
#include "tests/sim/abi.h"

const char *place_what = "outcome";

static atomic_flag is_end_said = ATOMIC_FLAG_INIT;

static void end_hanging(int unused)
{
	char line[256];
	ssize_t n = snprintf(line, sizeof(line), "%s: hangs\n", place_what);

	_exit(atomic_flag_test_and_set(&is_end_said) || write(STDOUT_FILENO, line, (size_t)n) == n ? 0 : 1);
}

/* The process answers before the runner, which ends it after APP_LIMIT_S, would do so for it. */
void place_watch(void)
{
	const char *limit = getenv("APP_LIMIT_S");

	signal(SIGALRM, end_hanging);
	alarm(limit ? (unsigned)strtoul(limit, NULL, 10) * 3 / 5 : 15);
}

int place_start(void)
{
	int n = 0;

	/* The simulated GPU reports a hang after this time without progress. */
	setenv("SIMGPU_DEADLOCK_MS", "500", 0);
	setvbuf(stdout, NULL, _IOLBF, 0); /* the process may end at any point */
	place_watch();
	PLACE_MUST(cuInit(0));
	PLACE_MUST(cuDeviceGetCount(&n));
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

void place_must(int result, const char *call)
{
	if (!result)
		return;
	while (atomic_flag_test_and_set(&is_end_said))
		pause(); /* another thread has printed the answer, and ends the process */
	if (is_hang(result))
		printf("%s: hangs\n", place_what);
	else
		printf("%s: %d\n", call, result);
	fflush(stdout);
	_exit(0); /* clean-up is impossible now, and exit handlers must not report that */
}

static CUfunction kernel(CUmodule module, const char *name)
{
	CUfunction function = NULL;

	PLACE_MUST(cuModuleGetFunction(&function, module, name));
	return function;
}

static void run_each_once(const struct place *place)
{
	CUdeviceptr scratch = place_alloc(place, 64);
	uint64_t words = 4, ns = 1, result = scratch + 32;
	uint32_t value = 1;

	place_fill(place, NULL, scratch, words * 4, value);
	place_spin(place, NULL, ns);
	place_spin_fill(place, NULL, scratch, words * 4, value, ns);
	PLACE_MUST(cuLaunchKernel(
		place->count_wrong, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&scratch, &words, &value, &result}, NULL));
	place_set_flag(place, NULL, scratch, value);
	place_wait_flag(place, NULL, scratch, value);
	PLACE_MUST(cuCtxSynchronize());
	PLACE_MUST(cuMemFree_v2(scratch));
}

static void load(struct place *place)
{
	CUmodule module;

	PLACE_MUST(cuModuleLoadData(&module, kernels_ptx));
	place->fill = kernel(module, "fill");
	place->spin = kernel(module, "spin");
	place->spin_fill = kernel(module, "spin_fill");
	place->count_wrong = kernel(module, "count_wrong");
	place->set_flag = kernel(module, "set_flag");
	place->wait_flag = kernel(module, "wait_flag");
	run_each_once(place);
}

void place_open(struct place *place, CUdevice device)
{
	place->device = device;
	PLACE_MUST(cuDevicePrimaryCtxRetain(&place->ctx, device));
	place_enter(place);
	load(place);
}

void place_create(struct place *place, CUdevice device)
{
	place->device = device;
	PLACE_MUST(cuCtxCreate_v2(&place->ctx, 0, device));
	load(place);
}

void place_enter(const struct place *place)
{
	PLACE_MUST(cuCtxSetCurrent(place->ctx));
}

CUstream place_stream(const struct place *place)
{
	CUstream stream = NULL;

	place_enter(place);
	PLACE_MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

static void launch(const struct place *place, CUfunction function, CUstream stream, void **params)
{
	place_enter(place);
	PLACE_MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

void place_fill(const struct place *place, CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value)
{
	uint64_t words = bytes / 4;

	launch(place, place->fill, stream, (void *[]){&ptr, &words, &value});
}

void place_spin(const struct place *place, CUstream stream, uint64_t ns)
{
	launch(place, place->spin, stream, (void *[]){&ns});
}

void place_spin_fill(
	const struct place *place, CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value, uint64_t ns)
{
	uint64_t words = bytes / 4;

	launch(place, place->spin_fill, stream, (void *[]){&ptr, &words, &value, &ns});
}

void place_wait_flag(const struct place *place, CUstream stream, CUdeviceptr flag, uint32_t value)
{
	launch(place, place->wait_flag, stream, (void *[]){&flag, &value});
}

void place_set_flag(const struct place *place, CUstream stream, CUdeviceptr flag, uint32_t value)
{
	launch(place, place->set_flag, stream, (void *[]){&flag, &value});
}

CUdeviceptr place_alloc(const struct place *place, size_t bytes)
{
	CUdeviceptr ptr = 0;

	place_enter(place);
	PLACE_MUST(cuMemAlloc_v2(&ptr, bytes));
	return ptr;
}

size_t place_count_wrong(const struct place *place, CUdeviceptr ptr, size_t bytes, uint32_t value)
{
	uint32_t *words = malloc(bytes);
	size_t wrong = 0;

	if (!words)
		exit(71);
	place_enter(place);
	PLACE_MUST(cuCtxSynchronize());
	PLACE_MUST(cuMemcpyDtoH_v2(words, ptr, bytes));
	for (size_t i = 0; i < bytes / 4; i++)
		wrong += words[i] != value;
	free(words);
	return wrong;
}
