/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A program that needs more memory than the device has. With GPUPOOL_SPILL it goes on; otherwise it runs out. */

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "api/gpupool.h"
#include "app_blocks.h"
#include "tests/apps/kernels.h"
#include "tests/sim/abi.h"

/* The device has 128 MiB, of which the context takes 4. */
enum { N_BLOCKS = 7, TIMEOUT_MS = 2000 };

static const size_t size = 16 * MIB, more_size = 24 * MIB;
static const size_t sizes[N_BLOCKS] = {16 * MIB, 16 * MIB, 16 * MIB, 16 * MIB, 16 * MIB, 16 * MIB, 16 * MIB};
static CUdeviceptr blocks[N_BLOCKS], more;

/* Returns the bytes of a block that are in host memory, as the driver sees it. */
static uint64_t host_bytes_of(CUdeviceptr ptr, size_t bytes)
{
	bool (*is_of_host)(uint64_t addr) = (bool (*)(uint64_t))dlsym(RTLD_DEFAULT, "simgpu_is_of_host");
	uint64_t n = 0;

	for (size_t at = 0; is_of_host && at < bytes; at += 2 * MIB)
		n += is_of_host(ptr + at) ? 2 * MIB : 0;
	return n;
}

static uint64_t host_bytes(void)
{
	uint64_t n = 0;

	for (int i = 0; i < N_BLOCKS; i++)
		n += host_bytes_of(blocks[i], size);
	return n;
}

/* Fills the device. */
static void make_blocks(void)
{
	app_start();
	app_make_blocks(blocks, sizes, N_BLOCKS);
}

static size_t count_wrong(void)
{
	return app_count_wrong_blocks(blocks, sizes, N_BLOCKS);
}

/* Allocates more than the device has left, and uses it. */
static CUresult ask_for_more(void)
{
	CUresult r = cuMemAlloc_v2(&more, more_size);

	app_result("more", r);
	if (!r)
		app_fill(NULL, more, more_size, 7);
	return r;
}

static void check(void)
{
	app_say("wrong words", "%zu", count_wrong());
	if (more)
		app_say("wrong words of more", "%zu", app_count_wrong(NULL, more, more_size, 7));
}

static void free_more(void)
{
	APP_MUST(cuMemFree_v2(more));
	more = 0;
	APP_MUST(cuCtxSynchronize());
	(void)gpupool_reclaim(GPUPOOL_ALL_DEVICES);
}

/* The content is right while a part is in host memory, and when it is back. */
static void content(void)
{
	make_blocks();
	app_pause("before");
	(void)ask_for_more();
	app_fact("host bytes", host_bytes());
	app_pause("spilled");
	check();
	free_more();
	app_fact("host bytes after the return", host_bytes());
	app_pause("back");
	check();
	app_report_driver();
}

static void await_return(void)
{
	APP_MUST(cuCtxSynchronize());
	for (int i = 0; i < 3000 && host_bytes(); i++)
		usleep(10000);
	app_fact("host bytes after the return", host_bytes());
	check();
	app_report_driver();
}

/* The same, but only the library's own thread sees that there is room again. */
static void watched(void)
{
	make_blocks();
	(void)ask_for_more();
	APP_MUST(cuMemFree_v2(more));
	more = 0;
	await_return();
}

/* The same, with memory that the program maps and unmaps itself. */
static void watched_mapped(void)
{
	CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr ptr;

	make_blocks();
	APP_MUST(cuMemCreate(&handle, more_size, &properties, 0));
	APP_MUST(cuMemAddressReserve(&ptr, more_size, 0, 0, 0));
	APP_MUST(cuMemMap(ptr, more_size, 0, handle, 0));
	app_fact("host bytes", host_bytes());
	APP_MUST(cuMemUnmap(ptr, more_size));
	APP_MUST(cuMemRelease(handle));
	APP_MUST(cuMemAddressFree(ptr, more_size));
	await_return();
}

/* Returns a block that is in host memory, or the first one. */
static CUdeviceptr spilled_block(void)
{
	for (int i = 0; i < N_BLOCKS; i++)
		if (host_bytes_of(blocks[i], size))
			return blocks[i];
	return blocks[0];
}

static void queries(void)
{
	int type = 0, ordinal = -1,
	    attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_HOST_POINTER};
	unsigned is_managed = 9;
	void *host = NULL, *values[] = {&type, &host};
	size_t before = 0, now = 0, total = 0;
	CUdeviceptr ptr;

	make_blocks();
	APP_MUST(cuMemGetInfo_v2(&before, &total));
	(void)ask_for_more();
	APP_MUST(cuMemGetInfo_v2(&now, &total));
	app_say("total", "%zu MiB", total / MIB);
	app_fact("free before", before);
	app_fact("free", now);
	ptr = spilled_block() + 512;
	app_fact("host bytes", host_bytes());
	APP_MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr));
	app_say("type", "%d", type);
	APP_MUST(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr));
	app_say("ordinal", "%d", ordinal);
	APP_MUST(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr));
	app_say("managed", "%u", is_managed);
	app_result("host pointer", cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, ptr));
	type = 0;
	host = &host;
	APP_MUST(cuPointerGetAttributes(2, attributes, values, ptr));
	app_say("type", "%d, host %d", type, host != NULL);
}

/* A graph that was made before its memory moves is right while it is away and when it is back. */
static void graph(void)
{
	CUstream stream;
	CUgraph captured;
	CUgraphExec exec;
	size_t wrong = 0;

	make_blocks();
	stream = app_stream();
	APP_MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	for (int i = 0; i < N_BLOCKS; i++)
		APP_MUST(cuMemsetD32Async(blocks[i], 50u + (unsigned)i, MIB / 4, stream));
	app_fill(stream, blocks[1] + MIB, MIB, 8);
	APP_MUST(cuMemcpyDtoDAsync_v2(blocks[0] + MIB, blocks[1] + MIB, MIB, stream));
	APP_MUST(cuStreamEndCapture(stream, &captured));
	APP_MUST(cuGraphInstantiateWithFlags(&exec, captured, 0));
	for (int round = 0; round < 3; round++) {
		if (round == 1)
			(void)ask_for_more();
		if (round == 2)
			free_more();
		for (int i = 0; i < N_BLOCKS; i++)
			app_fill(NULL, blocks[i], size, 100u + (uint32_t)i);
		APP_MUST(cuCtxSynchronize());
		APP_MUST(cuGraphLaunch(exec, stream));
		APP_MUST(cuStreamSynchronize(stream));
		for (int i = 0; i < N_BLOCKS; i++)
			wrong += app_count_wrong(stream, blocks[i], MIB, 50u + (uint32_t)i);
		wrong += app_count_wrong(stream, blocks[0] + MIB, MIB, 8);
		app_fact(round == 1 ? "host bytes" : "others", host_bytes());
	}
	app_say("wrong words", "%zu", wrong);
	APP_MUST(cuGraphExecDestroy(exec));
	APP_MUST(cuGraphDestroy(captured));
	app_report_driver();
}

/* While a kernel does not end, or a stream captures, the allocation fails. */
static void busy(void)
{
	CUstream stream;
	CUgraph captured;
	uint32_t *flag;

	make_blocks();
	APP_MUST(cuCtxSynchronize());
	stream = app_stream();
	APP_MUST(cuMemHostAlloc((void **)&flag, 4096, 0));
	*flag = 0;
	app_spin_until(stream, flag, 1);
	(void)ask_for_more();
	app_fact("host bytes", host_bytes());
	*(volatile uint32_t *)flag = 1;
	APP_MUST(cuCtxSynchronize());
	APP_MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	(void)ask_for_more();
	APP_MUST(cuStreamEndCapture(stream, &captured));
	APP_MUST(cuGraphDestroy(captured));
	(void)ask_for_more();
	check();
	app_report_driver();
}

/* The driver refuses a call while memory moves to the host, or back. */
static void faulty(void)
{
	const char *out = getenv("APP_FAULT_OUT"), *back = getenv("APP_FAULT_BACK");
	CUresult r;

	make_blocks();
	APP_MUST(cuCtxSynchronize());
	app_fault(out);
	r = ask_for_more();
	app_fault(NULL);
	app_fact("host bytes", host_bytes());
	check();
	if (r)
		(void)ask_for_more();
	check();
	app_fault(back);
	free_more();
	app_fault(NULL);
	app_fact("host bytes after the return", host_bytes());
	check();
	(void)gpupool_reclaim(GPUPOOL_ALL_DEVICES);
	app_fact("host bytes at last", host_bytes());
	check();
	app_report_driver();
}

/* The memory that the program names goes first. */
static void cold(void)
{
	make_blocks();
	app_say("cold", "%d", gpupool_cold((void *)(uintptr_t)blocks[3], size) == 0);
	app_say("none of gpupool's", "%d", gpupool_cold(&more, 1) != 0);
	app_say("past the end", "%d", gpupool_cold((void *)(uintptr_t)blocks[3], size + 1) != 0);
	(void)ask_for_more();
	app_fact("host bytes", host_bytes());
	app_fact("host bytes of the cold block", host_bytes_of(blocks[3], size));
	check();
}

/* The memory of a region that a rule names goes first. */
static void region(void)
{
	make_blocks();
	APP_MUST(cuMemFree_v2(blocks[5]));
	(void)gpupool_reclaim(GPUPOOL_ALL_DEVICES);
	app_say("entered", "%d", gpupool_region_begin("moments") == 0);
	blocks[5] = app_alloc(size);
	app_say("left", "%d", gpupool_region_end() == 0);
	app_fill(NULL, blocks[5], size, 105);
	(void)ask_for_more();
	app_fact("host bytes", host_bytes());
	app_fact("host bytes of the cold block", host_bytes_of(blocks[5], size));
	check();
}

/* Memory that is in host memory stays there while the process is asleep. */
static void sleeps(void)
{
	int64_t slept;

	make_blocks();
	(void)ask_for_more();
	APP_MUST(cuCtxSynchronize());
	app_fact("awake", app_device_bytes(0));
	app_fact("host bytes", host_bytes());
	slept = gpupool_sleep(TIMEOUT_MS);
	app_fact(slept > 0 ? "slept" : "slept error", (uint64_t)(slept < 0 ? -slept : slept));
	app_fact("asleep", app_device_bytes(0));
	app_fact("host bytes asleep", host_bytes());
	check();
	app_fact("woken", app_device_bytes(0));
	app_fact("host bytes woken", host_bytes());
	free_more();
	app_fact("host bytes after the return", host_bytes());
	check();
	app_report_driver();
}

enum { N_ASKING = 4, DEEP_US = 600000 };

static pthread_barrier_t asking;

static CUdeviceptr asked[N_ASKING];

static void *ask_at_once(void *which)
{
	CUdeviceptr *ptr = which;
	char name[16];

	snprintf(name, sizeof(name), "region%d", (int)(ptr - asked));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	(void)gpupool_region_begin(name);
	(void)pthread_barrier_wait(&asking);
	if (cuMemAlloc_v2(ptr, more_size))
		*ptr = 0;
	(void)gpupool_region_end();
	return NULL;
}

/* Several threads are short of memory at once, each in a pool of its own. */
static void at_once(void)
{
	pthread_t others[N_ASKING];
	unsigned n_served = 0;

	make_blocks();
	APP_MUST(cuCtxSynchronize());
	(void)pthread_barrier_init(&asking, NULL, N_ASKING);
	app_stop_calls("cuCtxRecordEvent", false);
	for (int i = 0; i < N_ASKING; i++)
		(void)pthread_create(&others[i], NULL, ask_at_once, &asked[i]);
	/* The first one has closed the gate, and the others have time to come as far as they can. */
	app_await_stopped_call();
	usleep(100000);
	app_release_calls();
	for (int i = 0; i < N_ASKING; i++) {
		(void)pthread_join(others[i], NULL);
		n_served += asked[i] != 0;
	}
	app_fact("served", n_served);
	app_fact("host bytes", host_bytes());
	check();
}

/* The process is deep asleep with memory in the host, for which a thread of the library looks for room otherwise. */
static void deep(void)
{
	uint64_t before;

	make_blocks();
	(void)ask_for_more();
	APP_MUST(cuCtxSynchronize());
	app_fact("host bytes", host_bytes());
	(void)gpupool_sleep(TIMEOUT_MS);
	app_pause("asleep");
	before = app_calls("cuMemGetInfo_v2");
	usleep(DEEP_US);
	app_fact("looks deep asleep", app_calls("cuMemGetInfo_v2") - before);
	app_pause("deep");
	check();
	app_report_driver();
}

static void forks(void)
{
	int status = 0;
	pid_t child;

	make_blocks();
	(void)ask_for_more();
	child = fork();
	if (!child)
		_exit(cuMemsetD32_v2(blocks[0], 1, 1) != CUDA_SUCCESS ? 7 : 8);
	(void)waitpid(child, &status, 0);
	app_say("the child fails", "%d", WEXITSTATUS(status) == 7);
	check();
	free_more();
	app_fact("host bytes after the return", host_bytes());
	check();
}

/* A block in host memory comes back before it is exported, or the export fails. */
static void exports(void)
{
	CUipcMemHandle handle;
	CUdeviceptr ptr;

	make_blocks();
	(void)ask_for_more();
	ptr = spilled_block();
	app_fact("host bytes", host_bytes());
	app_result("export without room", cuIpcGetMemHandle(&handle, ptr));
	check();
	APP_MUST(cuMemFree_v2(more));
	more = 0;
	app_result("export", cuIpcGetMemHandle(&handle, ptr));
	app_fact("host bytes of the exported block", host_bytes_of(ptr, size));
	check();
	app_fact("host bytes", host_bytes());
	/* The library moves no memory of a process that has exported some. */
	(void)ask_for_more();
	app_result("far too much", cuMemAlloc_v2(&ptr, 2 * more_size));
	check();
}

/* Exports every block, of which several are in host memory. The device has room for all of them. */
static void exports_all(void)
{
	CUipcMemHandle handle;

	make_blocks();
	app_result("more", cuMemAlloc_v2(&more, 2 * more_size));
	app_fact("host bytes", host_bytes());
	APP_MUST(cuMemFree_v2(more));
	more = 0;
	for (int i = 0; i < N_BLOCKS; i++)
		app_result("export", cuIpcGetMemHandle(&handle, blocks[i]));
	app_fact("host bytes after the exports", host_bytes());
	check();
}

/* Memory that the pool does not serve is short. */
static void unpooled(void)
{
	const CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemGenericAllocationHandle handle;

	make_blocks();
	app_result("create", cuMemCreate(&handle, more_size, &properties, 0));
	app_fact("host bytes", host_bytes());
	check();
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

enum { N_SWINGS = 200 };

/* The need goes up and down around what the device has. The memory that is freed goes back to the driver. */
static void swings(void)
{
	double start;

	make_blocks();
	start = seconds();
	for (int i = 0; i < N_SWINGS; i++) {
		(void)gpupool_no_cache_begin();
		APP_MUST(cuMemAlloc_v2(&more, more_size));
		APP_MUST(cuMemsetD32_v2(more, 7, 1));
		APP_MUST(cuMemFree_v2(more));
		(void)gpupool_no_cache_end();
		APP_MUST(cuCtxSynchronize());
	}
	more = 0;
	app_fact("seconds", (uint64_t)(seconds() - start));
	app_pause("swung");
	check();
	for (int i = 0; i < 7000 && host_bytes(); i++)
		usleep(10000);
	app_fact("host bytes after the return", host_bytes());
	check();
	app_report_driver();
}

/* Another block for each context: the blocks of odd numbers belong to the second one. */
static void make_blocks_in(CUcontext second)
{
	for (int i = 0; i < N_BLOCKS; i++) {
		APP_MUST(cuCtxSetCurrent(i % 2 ? second : app_ctx));
		blocks[i] = app_alloc(size);
		APP_MUST(cuMemsetD32_v2(blocks[i], 100u + (unsigned)i, size / 4));
		APP_MUST(cuCtxSynchronize());
	}
	APP_MUST(cuCtxSetCurrent(app_ctx));
}

static void use_all_from(CUcontext ctx)
{
	APP_MUST(cuCtxSetCurrent(ctx));
	for (int i = 0; i < N_BLOCKS; i++)
		APP_MUST(cuMemsetD32_v2(blocks[i], 100u + (unsigned)i, size / 4));
	APP_MUST(cuCtxSynchronize());
	APP_MUST(cuCtxSetCurrent(app_ctx));
}

/*
 * Three contexts on one device, and one on another device. A kernel of the one that has no memory keeps all memory
 * where it is. An allocation of each context is served with memory of both, and memory of the other device stays.
 */
static void contexts(void)
{
	CUcontext second, empty, there;
	uint32_t *flag, value = 1;
	CUfunction wait;
	CUmodule module;
	CUdeviceptr far;

	app_start();
	APP_MUST(cuCtxCreate_v2(&second, 0, 0));
	APP_MUST(cuCtxCreate_v2(&empty, 0, 0));
	APP_MUST(cuModuleLoadData(&module, kernels_ptx));
	APP_MUST(cuModuleGetFunction(&wait, module, "wait_flag"));
	APP_MUST(cuMemHostAlloc((void **)&flag, 4096, 0));
	*flag = 0;
	APP_MUST(cuDevicePrimaryCtxRetain(&there, 1));
	APP_MUST(cuCtxSetCurrent(there));
	far = app_alloc(size);
	APP_MUST(cuMemsetD32_v2(far, 9, size / 4));
	APP_MUST(cuCtxSynchronize());
	make_blocks_in(second);
	APP_MUST(cuCtxSetCurrent(empty));
	APP_MUST(cuLaunchKernel(wait, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&flag, &value}, NULL));
	APP_MUST(cuCtxSetCurrent(second));
	(void)ask_for_more();
	*(volatile uint32_t *)flag = 1;
	APP_MUST(cuCtxSetCurrent(empty));
	APP_MUST(cuCtxSynchronize());
	for (int i = 0; i < 2; i++) {
		APP_MUST(cuCtxSetCurrent(i ? app_ctx : second));
		app_result("more", cuMemAlloc_v2(&more, more_size));
		APP_MUST(cuMemsetD32_v2(more, 7, more_size / 4));
		APP_MUST(cuCtxSynchronize());
		APP_MUST(cuCtxSetCurrent(app_ctx));
		app_fact(i ? "bytes at last" : "bytes at first", host_bytes());
		app_fact("there in the host", host_bytes_of(far, size));
		check();
		use_all_from(i ? second : empty);
		check();
		free_more();
		app_fact("host bytes after the return", host_bytes());
		check();
	}
	APP_MUST(cuCtxDestroy_v2(empty));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	(void)ask_for_more();
	APP_MUST(cuCtxDestroy_v2(second));
	for (int i = 0; i < N_BLOCKS; i += 2)
		app_say("wrong words", "%zu", app_count_wrong(NULL, blocks[i], size, 100u + (uint32_t)i));
	app_say("wrong words", "%zu", app_count_wrong(NULL, more, more_size, 7));
	app_report_driver();
}

/* Memory of two devices goes to the host, and comes back to each of them. */
static void devices(void)
{
	CUcontext there;
	CUdeviceptr far[N_BLOCKS], far_more;
	uint64_t host = 0;

	make_blocks();
	APP_MUST(cuDevicePrimaryCtxRetain(&there, 1));
	APP_MUST(cuCtxSetCurrent(there));
	for (int i = 0; i < N_BLOCKS; i++) {
		far[i] = app_alloc(size);
		APP_MUST(cuMemsetD32_v2(far[i], 200u + (unsigned)i, size / 4));
	}
	APP_MUST(cuCtxSynchronize());
	APP_MUST(cuMemAlloc_v2(&far_more, more_size));
	for (int i = 0; i < N_BLOCKS; i++)
		host += host_bytes_of(far[i], size);
	app_fact("there in the host", host);
	app_fact("here in the host", host_bytes());
	APP_MUST(cuCtxSetCurrent(app_ctx));
	(void)ask_for_more();
	app_fact("host bytes", host_bytes());
	app_pause("spilled");
	check();
	APP_MUST(cuMemFree_v2(far_more));
	free_more();
	app_fact("host bytes after the return", host_bytes());
	host = 0;
	for (int i = 0; i < N_BLOCKS; i++) {
		host += host_bytes_of(far[i], size);
		app_say("wrong words", "%zu", app_count_wrong(NULL, far[i], size, 200u + (uint32_t)i));
	}
	app_fact("bytes there after the return", host);
	check();
	app_report_driver();
}

/* Memory that another device may use does not go, and memory that is in the host already comes back. */
static void peers(void)
{
	CUcontext there;

	make_blocks();
	(void)ask_for_more();
	app_fact("host bytes", host_bytes());
	APP_MUST(cuDevicePrimaryCtxRetain(&there, 1));
	APP_MUST(cuCtxSetCurrent(there));
	APP_MUST(cuCtxEnablePeerAccess(app_ctx, 0));
	use_all_from(there);
	check();
	free_more();
	app_fact("host bytes after the return", host_bytes());
	use_all_from(there);
	check();
	(void)ask_for_more();
	app_fact("with peers in the host", host_bytes());
	app_pause("refused");
	app_report_driver();
}

static void ends(void)
{
	make_blocks();
	(void)ask_for_more();
	APP_MUST(cuDevicePrimaryCtxReset_v2(0));
	app_fact("after the reset", app_device_bytes(0));
	app_pause("reset");
	more = 0;
	make_blocks();
	(void)ask_for_more();
	check();
}

enum { N_THREADS = 3, N_OWN = 6 };

static _Atomic unsigned n_wrong, n_short;
static _Atomic bool is_over;
static pthread_barrier_t all_hold_memory;
static unsigned n_steps;

/* Allocates, frees, fills and checks blocks of more than the device has, in a context of its own if wanted. */
static void *work(void *arg)
{
	unsigned state = 17u * (unsigned)(uintptr_t)arg + 1;
	CUdeviceptr own[N_OWN] = {0};
	uint32_t values[N_OWN] = {0};
	size_t own_sizes[N_OWN] = {0};
	CUcontext ctx = app_ctx;
	CUstream stream;

	if (getenv("APP_CONTEXTS"))
		APP_MUST(cuCtxCreate_v2(&ctx, 0, (int)((uintptr_t)arg % 2)));
	APP_MUST(cuCtxSetCurrent(ctx));
	stream = app_stream();
	for (unsigned i = 0; i < n_steps + N_OWN; i++) {
		unsigned which = i < N_OWN ? i : app_random(&state) % N_OWN, action = app_random(&state) % 8;

		/* However the threads run, they need more than the device has at once. */
		if (i == N_OWN)
			(void)pthread_barrier_wait(&all_hold_memory);
		if (!own[which]) {
			own_sizes[which] = MIB * (1 + (size_t)app_random(&state) % 24);
			if (cuMemAlloc_v2(&own[which], own_sizes[which])) {
				own[which] = 0;
				atomic_fetch_add(&n_short, 1);
				continue;
			}
			values[which] = app_random(&state);
			APP_MUST(cuMemsetD32Async(own[which], values[which], own_sizes[which] / 4, stream));
		} else if (action < 2) {
			APP_MUST(cuMemFree_v2(own[which]));
			own[which] = 0;
		} else if (action == 2) {
			values[which]++;
			APP_MUST(cuMemsetD32Async(own[which], values[which], own_sizes[which] / 4, stream));
		} else if (action < 5) {
			atomic_fetch_add(
				&n_wrong, app_count_wrong(stream, own[which], own_sizes[which], values[which]) != 0);
		} else {
			APP_MUST(cuStreamSynchronize(stream));
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

static void *bring_back(void *unused)
{
	while (!atomic_load(&is_over)) {
		(void)gpupool_reclaim(GPUPOOL_ALL_DEVICES);
		usleep(2000);
	}
	return NULL;
}

static void threads(void)
{
	const char *steps = getenv("APP_STEPS");
	pthread_t workers[N_THREADS], other;

	n_steps = steps ? (unsigned)atoi(steps) : 64;
	app_start();
	APP_MUST(cuMemFree_v2(app_alloc(512)));
	(void)pthread_barrier_init(&all_hold_memory, NULL, N_THREADS);
	for (uintptr_t i = 0; i < N_THREADS; i++)
		(void)pthread_create(&workers[i], NULL, work, (void *)i);
	(void)pthread_create(&other, NULL, bring_back, NULL);
	for (int i = 0; i < N_THREADS; i++)
		(void)pthread_join(workers[i], NULL);
	atomic_store(&is_over, true);
	(void)pthread_join(other, NULL);
	app_say("wrong blocks", "%u", atomic_load(&n_wrong));
	app_fact("short", atomic_load(&n_short));
	app_pause("done");
	app_report_driver();
}

const struct app_scenario app_scenarios[] = {
	{"content", content, 0},
	{"watched", watched, 0},
	{"watched-mapped", watched_mapped, 0},
	{"queries", queries, 0},
	{"graph", graph, 0},
	{"busy", busy, 0},
	{"faulty", faulty, 0},
	{"cold", cold, 0},
	{"region", region, 0},
	{"sleeps", sleeps, 0},
	{"at-once", at_once, 0},
	{"deep", deep, 0},
	{"forks", forks, 0},
	{"exports", exports, 0},
	{"exports-all", exports_all, 0},
	{"unpooled", unpooled, 0},
	{"swings", swings, 0},
	{"contexts", contexts, 0},
	{"devices", devices, 0},
	{"peers", peers, 0},
	{"ends", ends, 0},
	{"threads", threads, 0},
	{0},
};
