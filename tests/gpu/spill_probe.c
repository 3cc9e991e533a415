/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A program that needs 1.25 times the memory that a ballast leaves. It checks its results and measures its steps:
 * without the ballast, with a part in host memory, and after that part has come back.
 *
 *     cc -O2 -iquote . tests/gpu/spill_probe.c -o spill_probe -lcuda
 *     GPUPOOL_POOL=vmm GPUPOOL_SPILL=32GiB LD_PRELOAD=.../libgpupool.so ./spill_probe [MiB that the ballast leaves]
 *
 * The ballast is another process without the library, which the program starts. It also prints what the driver itself
 * says of memory of the host that is mapped at addresses of the device. The program exits with 1 if anything was wrong.
 * On the simulated GPU, with SIMGPU_SHARED=FILE, it checks, but measures nothing.
 */

#include <dlfcn.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "api/gpupool.h"
#include "spill_kernels.h"
#include "tests/gpu/probe.h"

/*
 * The memory consists of that many blocks. The last fifth would not fit; a quarter is cold, so that all of what goes
 * can be cold. In a light step the GPU reads and writes the other blocks PASSES times, and a tenth of the cold ones
 * once.
 */
enum { N_BLOCKS = 80, N_COLD = 20, N_TOUCHED = 2, PASSES = 24, N_STEPS = 5, THREADS = 64 * 128 };

/* The link's limits, as measured with kernels that only read, or only write. */
#define READ_GIB_S  46.3
#define WRITE_GIB_S 48.8

extern char **environ;

static CUfunction step, sum, atomics, atomic128;
static CUdeviceptr blocks[N_BLOCKS];
static uint32_t values[N_BLOCKS];
static size_t block_bytes;
static bool is_simulated;

static double gib(size_t bytes)
{
	return (double)bytes / (double)GIB;
}

static size_t free_bytes(void)
{
	size_t free = 0, total;

	MUST(cuMemGetInfo_v2(&free, &total));
	return free;
}

static void start(void)
{
	CUmodule module;

	is_simulated = dlsym(RTLD_DEFAULT, "simgpu_now_ns") != NULL;
	(void)start_driver();
	if (is_simulated)
		return;
	MUST(cuModuleLoadData(&module, spill_ptx));
	MUST(cuModuleGetFunction(&step, module, "step"));
	MUST(cuModuleGetFunction(&sum, module, "sum"));
	MUST(cuModuleGetFunction(&atomics, module, "atomics"));
	if (!cuModuleLoadData(&module, spill_wide_ptx))
		MUST(cuModuleGetFunction(&atomic128, module, "atomic128"));
}

static uint64_t all_wrong(void)
{
	uint64_t n = 0;

	for (int i = 0; i < N_BLOCKS; i++)
		n += wrong_words(blocks[i], block_bytes, values[i]);
	return n;
}

/* Reads and writes a block: each word becomes 3 times the word plus 1. */
static void touch(int i)
{
	uint64_t quads = block_bytes / 16;

	values[i] = values[i] * 3 + 1;
	if (is_simulated)
		fill_words(NULL, blocks[i], block_bytes, values[i]);
	else
		launch(step, NULL, (void *[]){&blocks[i], &quads});
}

static void full_step(int n)
{
	for (int i = 0; i < N_BLOCKS; i++)
		touch(i);
}

/* A tenth of the cold blocks, another one in each step. */
static void light_step(int n)
{
	for (int pass = 0; pass < (is_simulated ? 1 : PASSES); pass++)
		for (int i = N_COLD; i < N_BLOCKS; i++)
			touch(i);
	for (int i = 0; i < N_TOUCHED; i++)
		touch((n * N_TOUCHED + i) % N_COLD);
}

/* Returns the seconds of a step, at best. */
static double time_of(void (*fn)(int n))
{
	double best = 1e9;

	for (int n = 0; n < N_STEPS; n++) {
		double t;

		MUST(cuCtxSynchronize());
		t = now();
		fn(n);
		MUST(cuCtxSynchronize());
		t = now() - t;
		best = t < best ? t : best;
	}
	return best;
}

static double read_time(CUdeviceptr ptr, size_t bytes)
{
	uint64_t quads = bytes / 16;
	double t;

	if (is_simulated)
		return 1;
	MUST(cuCtxSynchronize());
	t = now();
	launch(sum, NULL, (void *[]){&ptr, &quads, &counter});
	MUST(cuCtxSynchronize());
	return now() - t;
}

static double write_time(CUdeviceptr ptr, size_t bytes, uint32_t value)
{
	double t;

	MUST(cuCtxSynchronize());
	t = now();
	fill_words(NULL, ptr, bytes, value);
	MUST(cuCtxSynchronize());
	return now() - t;
}

/* Allocates and fills all blocks. Returns false if the driver refused one. */
static bool allocate(double *ret_longest)
{
	*ret_longest = 0;
	for (int i = 0; i < N_BLOCKS; i++) {
		double t = now();
		CUresult r = cuMemAlloc_v2(&blocks[i], block_bytes);

		t = now() - t;
		*ret_longest = t > *ret_longest ? t : *ret_longest;
		if (r) {
			printf("block %d of %d: error %d\n", i, N_BLOCKS, (int)r);
			return false;
		}
		if (i < N_COLD)
			(void)gpupool_cold((void *)(uintptr_t)blocks[i], 0);
		values[i] = 1000u + (uint32_t)i;
		fill_words(NULL, blocks[i], block_bytes, values[i]);
		MUST(cuCtxSynchronize());
	}
	return true;
}

static void release(void)
{
	for (int i = 0; i < N_BLOCKS; i++)
		if (blocks[i])
			MUST(cuMemFree_v2(blocks[i]));
	memset(blocks, 0, sizeof(blocks));
	(void)gpupool_free_now(GPUPOOL_ALL_DEVICES);
}

/* Returns by how much this process holds less on the device than in all. */
static size_t spilled_bytes(size_t free_at_start)
{
	struct gpupool_status status;
	size_t on_device = free_at_start - free_bytes();

	if (gpupool_get_status(0, &status))
		return 0;
	/* cudaMemGetInfo counts cached memory as free. */
	return status.used_bytes > on_device ? status.used_bytes - on_device : 0;
}

/* Another process takes all but `left` bytes, and keeps them until its input ends. */
static int be_ballast(size_t left)
{
	size_t part = 512 * MIB;
	CUdeviceptr ptr;
	char unused;

	start();
	while (part >= 2 * MIB) {
		size_t free = free_bytes();

		if (free < left + part || cuMemAlloc_v2(&ptr, part))
			part /= 2;
	}
	if (write(STDOUT_FILENO, "!", 1) != 1)
		return 1;
	while (read(STDIN_FILENO, &unused, 1) > 0)
		;
	return 0;
}

static pid_t start_ballast(size_t left, int *ret_input)
{
	char words[32], path[4096] = {0}, answer = 0;
	char *argv[] = {path, (char *)"ballast", words, NULL};
	int input[2], output[2];
	posix_spawn_file_actions_t actions;
	pid_t pid;

	if (readlink("/proc/self/exe", path, sizeof(path) - 1) < 0 || pipe(input) || pipe(output))
		exit(1);
	snprintf(words, sizeof(words), "%zu", left);
	unsetenv("LD_PRELOAD");
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
	posix_spawn_file_actions_addclose(&actions, input[1]);
	if (posix_spawn(&pid, path, &actions, NULL, argv, environ))
		exit(1);
	close(output[1]);
	close(input[0]);
	if (read(output[0], &answer, 1) != 1)
		exit(1);
	*ret_input = input[1];
	return pid;
}

static void end_ballast(pid_t pid, int input)
{
	close(input);
	(void)waitpid(pid, NULL, 0);
}

/* Every kind of atomic access, by many threads, on memory that is in the host. */
static void try_atomics(CUdeviceptr ptr)
{
	uint32_t words[32] = {0};
	uint64_t wide[2] = {0};
	double real = 0;
	float single = 0;

	if (is_simulated)
		return;
	words[15] = 0x7fffffff;
	words[19] = 0xffffffff;
	MUST(cuMemcpyHtoD_v2(ptr, words, sizeof(words)));
	MUST(cuLaunchKernel(atomics, THREADS / 128, 1, 1, 128, 1, 1, 0, NULL, (void *[]){&ptr}, NULL));
	MUST(cuMemcpyDtoH_v2(words, ptr, sizeof(words)));
	memcpy(wide, &words[2], 8);
	check(words[0] == THREADS && wide[0] == THREADS, "atomic add of 32 and 64 bits");
	memcpy(&single, &words[4], sizeof(single));
	memcpy(&real, &words[6], sizeof(real));
	check(single == THREADS && real == THREADS, "atomic add of float and double");
	memcpy(wide, &words[10], 8);
	check(words[8] == THREADS && wide[0] == THREADS && (words[12] & 0xffff) == THREADS,
		"atomic compare and swap of 16, 32 and 64 bits");
	check(words[14] == THREADS - 1 && words[15] == 0, "atomic max and min");
	check(words[16] == 0xffffffff && words[17] == 0 && words[18] == THREADS && words[19] == 0 &&
			words[20] == 0xffffffff,
		"atomic or, xor, inc, and, exchange");
	if (!atomic128) {
		printf("no 128-bit atomics on this device\n");
		return;
	}
	wide[0] = UINT64_MAX - 100;
	wide[1] = 7;
	MUST(cuMemcpyHtoD_v2(ptr, wide, sizeof(wide)));
	MUST(cuLaunchKernel(atomic128, THREADS / 128, 1, 1, 128, 1, 1, 0, NULL, (void *[]){&ptr}, NULL));
	MUST(cuMemcpyDtoH_v2(wide, ptr, sizeof(wide)));
	check(wide[0] == THREADS - 101 && wide[1] == 8, "atomic compare and swap of 128 bits");
}

static CUgraphExec captured;
static CUstream stream;

/* Copies from the last block to the first one and on, and fills. Nothing of it runs yet. */
static void capture(void)
{
	size_t part = block_bytes / 4;
	CUgraph graph;

	MUST(cuStreamCreate(&stream, 1));
	MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	MUST(cuMemcpyDtoDAsync_v2(blocks[0], blocks[N_BLOCKS - 1], part, stream));
	MUST(cuMemcpyDtoDAsync_v2(blocks[1], blocks[0], part, stream));
	MUST(cuMemsetD32Async(blocks[0] + part, 9, part / 4, stream));
	fill_words(stream, blocks[1] + part, part, 11);
	MUST(cuMemcpyDtoDAsync_v2(blocks[N_BLOCKS - 1] + part, blocks[1] + part, part, stream));
	MUST(cuStreamEndCapture(stream, &graph));
	MUST(cuGraphInstantiateWithFlags(&captured, graph, 0));
	MUST(cuGraphDestroy(graph));
}

static void replay(const char *what)
{
	size_t part = block_bytes / 4;
	int last = N_BLOCKS - 1;
	uint64_t wrong;

	fill_words(NULL, blocks[0], block_bytes, 1);
	fill_words(NULL, blocks[1], block_bytes, 2);
	fill_words(NULL, blocks[last], block_bytes, values[last]);
	MUST(cuCtxSynchronize());
	MUST(cuGraphLaunch(captured, stream));
	MUST(cuStreamSynchronize(stream));
	wrong = wrong_words(blocks[0], part, values[last]) + wrong_words(blocks[1], part, values[last]);
	wrong += wrong_words(blocks[0] + part, part, 9) + wrong_words(blocks[1] + part, part, 11);
	wrong += wrong_words(blocks[last] + part, part, 11);
	check(!wrong, what);
	for (int i = 0; i < N_BLOCKS; i += i == 0 ? 1 : i == 1 ? last - 1 : N_BLOCKS)
		fill_words(NULL, blocks[i], block_bytes, values[i]);
	MUST(cuCtxSynchronize());
}

static void check_pointer(CUdeviceptr ptr)
{
	unsigned type = 0, is_managed = 9;
	int ordinal = -1;
	void *host;

	MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr));
	MUST(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr));
	MUST(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr));
	check(type == 2 && ordinal == 0 && !is_managed &&
			cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, ptr) ==
				CUDA_ERROR_INVALID_VALUE,
		"a pointer into host memory is one of the device to the program");
}

/* Prints what the driver says of such memory, which the program maps itself. */
static void ask_driver(void)
{
	const CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}};
	const CUmemAccessDesc access = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr ptr;

	MUST(cuMemCreate(&handle, 2 * MIB, &properties, 0));
	MUST(cuMemAddressReserve(&ptr, 2 * MIB, 0, 0, 0));
	MUST(cuMemMap(ptr, 2 * MIB, 0, handle, 0));
	MUST(cuMemSetAccess(ptr, 2 * MIB, &access, 1));
	printf("the driver on host memory mapped for the device: attribute error:value");
	for (int i = 1; i <= 20; i++) {
		uint64_t value[2] = {0};
		CUresult r = cuPointerGetAttribute(value, i, ptr);

		printf(" %d %d:%llx", i, (int)r, (unsigned long long)value[0]);
	}
	printf(" at %llx\n", (unsigned long long)ptr);
	MUST(cuMemUnmap(ptr, 2 * MIB));
	MUST(cuMemRelease(handle));
	MUST(cuMemAddressFree(ptr, 2 * MIB));
}

static void measure(const char *name, size_t spilled, const double native[2])
{
	double full = time_of(full_step), light = time_of(light_step);
	double touched = gib(block_bytes) * N_TOUCHED, host = gib(spilled);
	double in_turn = native[0] + host / READ_GIB_S + host / WRITE_GIB_S;
	double at_once = native[0] + host / (READ_GIB_S < WRITE_GIB_S ? READ_GIB_S : WRITE_GIB_S);

	printf("%s: step over all %.2f ms (%.3f of native), light step %.2f ms (%.3f of native)\n", name, full * 1e3,
		native[0] / full, light * 1e3, native[1] / light);
	if (!spilled)
		return;
	printf("%s: of all %.2f GiB in the host: the link allows %.2f ms, one way after the other (reached: %.3f), or "
	       "%.2f ms, "
	       "both at once (reached: %.3f); a light step touches %.3f GiB of the cold memory\n",
		name, host, in_turn * 1e3, in_turn / full, at_once * 1e3, at_once / full, touched);
}

/* Waits until the GPU reads every cold block faster than the link allows. */
static void await_return(void)
{
	double slowest;

	for (int n = 0; n < (is_simulated ? 30 : 200); n++) {
		usleep(100000);
		slowest = 0;
		for (int i = 0; i < N_COLD && !is_simulated; i++) {
			double t = read_time(blocks[i], block_bytes);

			slowest = t > slowest ? t : slowest;
		}
		if (!is_simulated && gib(block_bytes) / slowest > 2 * READ_GIB_S)
			return;
	}
}

/* Measures and checks without the ballast. Returns false if the memory is not there. */
static bool run_native(double native[2])
{
	double longest;

	if (!allocate(&longest))
		return false;
	native[0] = time_of(full_step);
	native[1] = time_of(light_step);
	check(!all_wrong(), "content without the ballast");
	measure("native", 0, native);
	release();
	return true;
}

static void measure_block(CUdeviceptr ptr, uint32_t value)
{
	double read = read_time(ptr, block_bytes), write = write_time(ptr, block_bytes, value);

	printf("a block in the host: read at %.1f GiB/s, written at %.1f GiB/s\n", gib(block_bytes) / read,
		gib(block_bytes) / write);
}

/* Measures and checks with a part in the host. Returns false if the memory is not there. */
static bool run_spilled(size_t left, const double native[2])
{
	size_t at_start = free_bytes(), spilled;
	double longest, t = now();

	printf("the ballast leaves %.2f GiB\n", gib(at_start));
	if (!allocate(&longest))
		return false;
	spilled = spilled_bytes(at_start);
	printf("allocated and filled in %.2f s, longest call %.3f s; %.2f GiB are in the host\n", now() - t, longest,
		gib(spilled));
	check(spilled >= (N_BLOCKS * block_bytes - left) / 2, "a part is in the host");
	check(!all_wrong(), "content, first");
	capture();
	replay("captured copies and fills over host memory");
	try_atomics(blocks[0]);
	fill_words(NULL, blocks[0], block_bytes, values[0]);
	check_pointer(blocks[0] + 4096);
	measure_block(blocks[0], values[0]);
	measure("spilled", spilled, native);
	check(!all_wrong(), "content after the steps");
	return true;
}

static void run_back(const double native[2])
{
	double t = now();

	await_return();
	printf("the cold memory was back %.2f s after the ballast had ended\n", now() - t);
	measure("back", 0, native);
	check(!all_wrong(), "content after the return");
	replay("the same graph after the return");
	release();
}

int main(int argc, char **argv)
{
	size_t left = (argc > 1 ? strtoul(argv[1], NULL, 0) : 8192) * MIB;
	double native[2] = {1, 1};
	bool is_done;
	int input;
	pid_t ballast;

	if (argc > 2 && strcmp(argv[1], "ballast") == 0)
		return be_ballast(strtoul(argv[2], NULL, 0));
	if (!gpupool_version()) {
		fprintf(stderr, "spill_probe: run it with LD_PRELOAD=libgpupool.so\n");
		return 1;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	start();
	ask_driver();
	block_bytes = left / 64 / (2 * MIB) * (2 * MIB);
	printf("%zu MiB are left, %zu MiB are needed, in %d blocks\n", left / MIB, N_BLOCKS * block_bytes / MIB,
		N_BLOCKS);
	if (!run_native(native))
		return 1;
	ballast = start_ballast(left, &input);
	is_done = run_spilled(left, native);
	end_ballast(ballast, input);
	if (!is_done)
		return 1;
	run_back(native);
	printf("%d wrong\n", n_failed);
	return n_failed != 0;
}
