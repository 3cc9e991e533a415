/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A program that needs 1.25 times the memory that a ballast leaves. It checks its results and measures its steps:
 * without the ballast, with a part in host memory, and after that part has come back.
 *
 *     cc -O2 -iquote . tests/gpu/spill_probe.c -o spill_probe -lcuda
 *     GPUPOOL_POOL=vmm GPUPOOL_SPILL=32GiB LD_PRELOAD=.../libgpupool.so ./spill_probe [MIB [WORD...]]
 *
 *     MIB      what the ballast leaves: 8192
 *     lengths  measure light steps of several lengths
 *     only     allocate beside the ballast at once, and measure nothing: without GPUPOOL_SPILL it fails
 *     contexts with only: every second block belongs to a second context, and each context uses its own
 *     managed  with GPUPOOL_BACKEND=managed instead of GPUPOOL_SPILL: the ballast leaves room for twice what the program
 *              needs, and the program advises the driver to keep as much in host memory as would be spilled
 *
 * The ballast is another process without the library, which the program starts. It also prints what the driver itself
 * says of memory of the host that is mapped at addresses of the device, and how fast kernels read and write it. The
 * program exits with 1 if anything was wrong, and with 77 if the device has too little memory. On the simulated GPU,
 * with SIMGPU_SHARED=FILE, it checks, but measures nothing.
 *
 * Lines of results are a word and values, such as "light where=spilled passes=24 ms=144.87".
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
 * can be cold. In a light step the GPU reads and writes the other blocks `passes` times, and a tenth of the cold ones
 * once. N_LIGHT light steps touch each cold block once.
 */
enum { N_BLOCKS = 80, N_COLD = 20, N_BEYOND = 16, N_TOUCHED = 2, N_LIGHT = N_COLD / N_TOUCHED };
enum { N_FULL = 5, THREADS = 64 * 128, SKIPPED = 77 };

static const int lengths[] = {24, 12, 6, 3, 1};

/* Advice of managed memory, and the number by which the driver knows the host. */
enum { PREFERRED_LOCATION = 3, ACCESSED_BY = 5, HOST = -1, HOST_NUMA_ID = 134 };

#define LINK_BYTES (256 * MIB)

extern char **environ;

static CUfunction step, sum, atomics, atomic128;
static CUdeviceptr blocks[N_BLOCKS];
static uint32_t values[N_BLOCKS];
static size_t block_bytes;
static bool is_simulated, is_managed, has_lengths, is_only, has_contexts;
static int host_node;
static double link_read; /* GiB/s */

static struct side {
	CUcontext ctx;
	CUfunction fill, count_wrong;
	CUdeviceptr counter;
} sides[2]; /* with two contexts */

/* Makes the context of a block current. */
static void use_side_of(int block)
{
	const struct side *side = &sides[block % 2];

	if (!has_contexts)
		return;
	MUST(cuCtxSetCurrent(side->ctx));
	fill = side->fill;
	count_wrong = side->count_wrong;
	counter = side->counter;
}

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
	if (cuDeviceGetAttribute(&host_node, HOST_NUMA_ID, 0) || host_node < 0)
		host_node = 0;
	if (is_simulated)
		return;
	MUST(cuModuleLoadData(&module, spill_ptx));
	MUST(cuModuleGetFunction(&step, module, "step"));
	MUST(cuModuleGetFunction(&sum, module, "sum"));
	MUST(cuModuleGetFunction(&atomics, module, "atomics"));
	if (!cuModuleLoadData(&module, spill_wide_ptx))
		MUST(cuModuleGetFunction(&atomic128, module, "atomic128"));
}

static void make_sides(void)
{
	CUmodule module;

	MUST(cuCtxGetCurrent(&sides[0].ctx));
	sides[0] = (struct side){sides[0].ctx, fill, count_wrong, counter};
	MUST(cuCtxCreate_v2(&sides[1].ctx, 0, 0));
	MUST(cuModuleLoadData(&module, kernels_ptx));
	MUST(cuModuleGetFunction(&sides[1].fill, module, "fill"));
	MUST(cuModuleGetFunction(&sides[1].count_wrong, module, "count_wrong"));
	MUST(cuMemAlloc_v2(&sides[1].counter, 512));
	use_side_of(0);
}

static uint64_t all_wrong(void)
{
	uint64_t n = 0;

	for (int i = 0; i < N_BLOCKS; i++) {
		use_side_of(i);
		n += wrong_words(blocks[i], block_bytes, values[i]);
	}
	use_side_of(0);
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

static void full_step(int unused, int passes)
{
	for (int i = 0; i < N_BLOCKS; i++)
		touch(i);
}

/* A tenth of the cold blocks, another one in each step. */
static void light_step(int n, int passes)
{
	for (int pass = 0; pass < (is_simulated ? 1 : passes); pass++)
		for (int i = N_COLD; i < N_BLOCKS; i++)
			touch(i);
	for (int i = 0; i < N_TOUCHED; i++)
		touch((n * N_TOUCHED + i) % N_COLD);
}

static double time_of_one(void (*fn)(int n, int passes), int n, int passes)
{
	double t;

	MUST(cuCtxSynchronize());
	t = now();
	fn(n, passes);
	MUST(cuCtxSynchronize());
	return now() - t;
}

/* Returns the milliseconds of a step that touches everything, at best. */
static double full_ms(void)
{
	double best = 1e9;

	for (int n = 0; n < N_FULL; n++) {
		double t = time_of_one(full_step, n, 1);

		best = t < best ? t : best;
	}
	return best * 1e3;
}

/* Returns those of a light step on average, since not every cold block need be in the host. */
static double light_ms(int passes)
{
	double sum_of_times = 0;

	for (int n = 0; n < N_LIGHT; n++)
		sum_of_times += time_of_one(light_step, n, passes);
	return sum_of_times * 1e3 / N_LIGHT;
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
		CUresult r;

		use_side_of(i);
		r = cuMemAlloc_v2(&blocks[i], block_bytes);
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
	use_side_of(0);
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
	unsigned type = 0, of_managed = 9;
	int ordinal = -1;
	void *host;

	MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr));
	MUST(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr));
	MUST(cuPointerGetAttribute(&of_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr));
	check(type == 2 && ordinal == 0 && !of_managed &&
			cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, ptr) ==
				CUDA_ERROR_INVALID_VALUE,
		"a pointer into host memory is one of the device to the program");
}

/* Maps memory of the host at addresses of the device, as GPUPOOL_SPILL does. */
static CUdeviceptr map_host(size_t bytes)
{
	const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = host_node}};
	const CUmemAccessDesc access = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr ptr;

	MUST(cuMemCreate(&handle, bytes, &properties, 0));
	MUST(cuMemAddressReserve(&ptr, bytes, 0, 0, 0));
	MUST(cuMemMap(ptr, bytes, 0, handle, 0));
	MUST(cuMemSetAccess(ptr, bytes, &access, 1));
	MUST(cuMemRelease(handle));
	return ptr;
}

static void unmap_host(CUdeviceptr ptr, size_t bytes)
{
	MUST(cuMemUnmap(ptr, bytes));
	MUST(cuMemAddressFree(ptr, bytes));
}

/* Prints what the driver says of such memory. */
static void ask_driver(void)
{
	CUdeviceptr ptr = map_host(2 * MIB);

	printf("the driver on host memory mapped for the device: attribute error:value");
	for (int i = 1; i <= 20; i++) {
		uint64_t value[2] = {0};
		CUresult r = cuPointerGetAttribute(value, i, ptr);

		printf(" %d %d:%llx", i, (int)r, (unsigned long long)value[0]);
	}
	printf(" at %llx\n", (unsigned long long)ptr);
	unmap_host(ptr, 2 * MIB);
}

static double step_time(CUdeviceptr ptr, size_t bytes)
{
	uint64_t quads = bytes / 16;
	double t;

	if (is_simulated)
		return 1;
	MUST(cuCtxSynchronize());
	t = now();
	launch(step, NULL, (void *[]){&ptr, &quads});
	MUST(cuCtxSynchronize());
	return now() - t;
}

/* Measures the link with memory of the program's own: kernels that only read, only write, and do both to each word. */
static void measure_link(void)
{
	CUdeviceptr ptr = map_host(LINK_BYTES);
	double best[3] = {1e9, 1e9, 1e9};

	for (int n = 0; n < N_FULL; n++) {
		double times[] = {
			read_time(ptr, LINK_BYTES), write_time(ptr, LINK_BYTES, 5), step_time(ptr, LINK_BYTES)};

		for (int i = 0; i < 3; i++)
			best[i] = times[i] < best[i] ? times[i] : best[i];
	}
	link_read = gib(LINK_BYTES) / best[0];
	printf("link read=%.2f write=%.2f both=%.2f\n", link_read, gib(LINK_BYTES) / best[1],
		gib(LINK_BYTES) / best[2]);
	unmap_host(ptr, LINK_BYTES);
}

static void measure(const char *where, bool has_all)
{
	printf("full where=%s ms=%.3f\n", where, full_ms());
	for (size_t i = 0; i < (has_all && has_lengths ? sizeof(lengths) / sizeof(*lengths) : 1); i++)
		printf("light where=%s passes=%d ms=%.3f\n", where, lengths[i], light_ms(lengths[i]));
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
		if (!is_simulated && gib(block_bytes) / slowest > 2 * link_read)
			return;
	}
}

/* Measures and checks without the ballast. Returns false if the memory is not there. */
static bool run_native(void)
{
	double longest;

	if (!allocate(&longest))
		return false;
	measure("native", true);
	check(!all_wrong(), "content without the ballast");
	release();
	return true;
}

/* A tenth of the speed of device memory is more than the link allows. */
static void check_place(CUdeviceptr ptr, const char *what)
{
	double read = read_time(ptr, block_bytes), write;
	uint64_t wrong = wrong_words(ptr, block_bytes, values[0]);

	write = write_time(ptr, block_bytes, values[0]);
	printf("block read=%.2f write=%.2f\n", gib(block_bytes) / read, gib(block_bytes) / write);
	check(is_simulated || (!wrong && gib(block_bytes) / read < 2 * link_read), what);
}

/* Measures and checks with a part in the host. Returns false if the memory is not there. */
static bool run_spilled(size_t left)
{
	size_t at_start = free_bytes(), spilled;
	double longest, t = now();

	printf("the ballast leaves %.2f GiB\n", gib(at_start));
	if (!allocate(&longest))
		return false;
	spilled = spilled_bytes(at_start);
	printf("allocated seconds=%.2f longest=%.3f\n", now() - t, longest);
	printf("spilled gib=%.3f touched=%.3f of=%.3f\n", gib(spilled), gib(spilled * N_TOUCHED / N_COLD),
		gib(N_BLOCKS * block_bytes));
	check(spilled >= (N_BLOCKS * block_bytes - left) / 2, "a part is in the host");
	check(!all_wrong(), "content, first");
	capture();
	replay("captured copies and fills over host memory");
	try_atomics(blocks[0]);
	fill_words(NULL, blocks[0], block_bytes, values[0]);
	check_pointer(blocks[0] + 4096);
	check_place(blocks[0], "the memory of the atomics and of the graph is in the host");
	if (!is_only)
		measure("spilled", true);
	check(!all_wrong(), "content after the steps");
	return true;
}

/* Both contexts write what is in the host, and find it there and when it is back. */
static bool run_contexts(size_t left)
{
	size_t at_start = free_bytes();
	double longest;

	if (!allocate(&longest))
		return false;
	check(spilled_bytes(at_start) >= (N_BLOCKS * block_bytes - left) / 2, "a part of two contexts is in the host");
	check(!all_wrong(), "content of two contexts, first");
	for (int i = 0; i < N_BLOCKS; i++) {
		use_side_of(i);
		fill_words(NULL, blocks[i], block_bytes, ++values[i]);
		MUST(cuCtxSynchronize());
	}
	check(!all_wrong(), "content of two contexts after writes");
	return true;
}

static void run_contexts_back(void)
{
	int64_t r = 0;

	/* Brings memory back at once, as far as there is room. */
	for (int n = 0; n < 20 && r >= 0; n++) {
		r = gpupool_reclaim(GPUPOOL_ALL_DEVICES);
		usleep(50000);
	}
	check(!all_wrong(), "content of two contexts after the return");
}

static void run_back(void)
{
	double t = now();

	await_return();
	printf("back seconds=%.2f\n", now() - t);
	measure("back", false);
	check(!all_wrong(), "content after the return");
	replay("the same graph after the return");
	release();
}

/*
 * Moves a block of managed memory, and advises the driver to keep it there. The GPU uses what is in the host over the
 * link, without moving it. False: the driver lacks the functions, or refuses.
 */
static bool place(CUdeviceptr ptr, bool is_in_host)
{
	CUresult (*advise)(CUdeviceptr ptr, size_t bytes, int advice, int where) =
		(CUresult(*)(CUdeviceptr, size_t, int, int))dlsym(RTLD_DEFAULT, "cuMemAdvise");
	CUresult (*prefetch)(CUdeviceptr ptr, size_t bytes, int where, CUstream on) =
		(CUresult(*)(CUdeviceptr, size_t, int, CUstream))dlsym(RTLD_DEFAULT, "cuMemPrefetchAsync");
	int where = is_in_host ? HOST : 0;

	return advise && prefetch && !advise(ptr, block_bytes, PREFERRED_LOCATION, where) &&
	       !advise(ptr, block_bytes, ACCESSED_BY, 0) && !prefetch(ptr, block_bytes, where, NULL);
}

/* Measures managed memory: all of it on the device, and then with a part in the host by advice. */
static void run_managed(void)
{
	bool is_placed = true;
	double longest;

	printf("the ballast leaves %.2f GiB\n", gib(free_bytes()));
	if (!allocate(&longest))
		exit(1);
	for (int i = 0; i < N_BLOCKS; i++)
		is_placed &= place(blocks[i], false);
	measure("managed", false);
	check(!all_wrong(), "content of managed memory");
	for (int i = 0; i < N_BEYOND; i++)
		is_placed &= place(blocks[i], true);
	MUST(cuCtxSynchronize());
	check(is_simulated || is_placed, "the driver takes the advice");
	printf("advised gib=%.3f\n", gib(N_BEYOND * block_bytes));
	check_place(blocks[0], "a block is in the host by advice");
	measure("advised", true);
	/* It is still there: the driver has not moved it to the device. */
	check_place(blocks[0], "a block is in the host by advice after the steps");
	check(!all_wrong(), "content of managed memory after the steps");
	release();
}

static void skip_if_short(size_t bytes)
{
	if (free_bytes() >= bytes + GIB)
		return;
	printf("skipped: %zu MiB of the device are free, %zu MiB are needed\n", free_bytes() / MIB, bytes / MIB + 1024);
	exit(SKIPPED);
}

/* Returns what the ballast is to leave. */
static size_t read_words(int argc, char **argv)
{
	for (int i = 2; i < argc; i++) {
		is_managed |= strcmp(argv[i], "managed") == 0;
		has_lengths |= strcmp(argv[i], "lengths") == 0;
		has_contexts |= strcmp(argv[i], "contexts") == 0;
		is_only |= strcmp(argv[i], "only") == 0;
	}
	return (argc > 1 ? strtoul(argv[1], NULL, 0) : 8192) * MIB;
}

int main(int argc, char **argv)
{
	size_t left = read_words(argc, argv), needed;
	bool is_done = true;
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
	block_bytes = left / 64 / (2 * MIB) * (2 * MIB);
	needed = N_BLOCKS * block_bytes;
	printf("%zu MiB are left, %zu MiB are needed, in %d blocks\n", left / MIB, needed / MIB, N_BLOCKS);
	if (!is_simulated)
		skip_if_short(is_managed ? 2 * needed : needed);
	ask_driver();
	measure_link();
	if (has_contexts)
		make_sides();
	if (!is_managed && !is_only && !run_native())
		return 1;
	ballast = start_ballast(is_managed && !is_simulated ? 2 * needed : left, &input);
	if (is_managed)
		run_managed();
	else
		is_done = has_contexts ? run_contexts(left) : run_spilled(left);
	end_ballast(ballast, input);
	if (!is_done)
		return 1;
	if (has_contexts)
		run_contexts_back();
	else if (!is_managed && !is_only)
		run_back();
	printf("%d wrong\n", n_failed);
	return n_failed != 0;
}
