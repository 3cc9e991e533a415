/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A program that is put to sleep, by itself or by the test at a pause. Without the library nothing sleeps, and the
 * output is the same.
 */

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/gpupool.h"
#include "app_driver.h"
#include "tests/apps/kernels.h"
#include "tests/sim/abi.h"

enum { TIMEOUT_MS = 2000, N_BLOCKS = 6 };

static const size_t sizes[N_BLOCKS] = {512, 64 * KIB, MIB, 5 * MIB, 16 * MIB, 3 * MIB + 512};
static CUdeviceptr blocks[N_BLOCKS];

/* Bytes that the process holds on a device; 0 on a real driver. */
static uint64_t device_bytes(int device)
{
	size_t (*allocated)(int device) = (size_t(*)(int))dlsym(RTLD_DEFAULT, "simgpu_allocated_bytes");

	return allocated ? allocated(device) : 0;
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

/* Bytes of shared memory without a file that are mapped: the host memory of a sleep. */
static uint64_t mapped_bytes(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	uint64_t bytes = 0, from, to;
	char line[512];

	while (maps && fgets(line, sizeof(line), maps))
		if (strstr(line, "rw-s ") && strstr(line, "/dev/zero") &&
			sscanf(line, "%" SCNx64 "-%" SCNx64, &from, &to) == 2)
			bytes += to - from;
	if (maps)
		(void)fclose(maps);
	return bytes;
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
	app_fact("before", device_bytes(0));
	make_blocks();
	app_fact("awake", device_bytes(0));
	for (int i = 0; i < 3; i++) {
		sleep_now();
		app_fact("asleep", device_bytes(0));
		wrong += count_wrong();
		app_fact("woken", device_bytes(0));
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
	app_fact("asleep", device_bytes(0));
	app_pause("asleep");
	app_fact("asked", device_bytes(0));
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
	app_fact("before", device_bytes(0));
	report("during a kernel", gpupool_sleep(0));
	app_fact("after", device_bytes(0));
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
	app_fact("instantiated", device_bytes(0));
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
	app_fact("asleep after a question of memory", device_bytes(0));
	APP_MUST(cuMemFree_v2(blocks[4]));
	APP_MUST(cuMemFree_v2(blocks[0]));
	app_fact("asleep after frees", device_bytes(0));
	report("reclaimed", gpupool_reclaim(GPUPOOL_ALL_DEVICES));
	app_pause("freed");
	more = app_alloc(40 * MIB);
	app_fact("awake after an allocation", device_bytes(0));
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

static const int attributes[] = {
	CU_POINTER_ATTRIBUTE_CONTEXT,
	CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
	CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
	CU_POINTER_ATTRIBUTE_BUFFER_ID,
	CU_POINTER_ATTRIBUTE_IS_MANAGED,
	CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
	CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
	CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
	CU_POINTER_ATTRIBUTE_RANGE_SIZE,
	CU_POINTER_ATTRIBUTE_MAPPED,
	CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
	CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
	CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
};

enum { N_ATTRIBUTES = LENGTH(attributes) };

/* The answers to all queries about a pointer. The driver does not write all bytes of each. */
struct answers {
	uint64_t alone[N_ATTRIBUTES], of_list[N_ATTRIBUTES], host;
	CUdeviceptr base;
	size_t bytes;
	CUresult results[N_ATTRIBUTES + 2];
};

static void query(CUdeviceptr ptr, struct answers *answers)
{
	int list[N_ATTRIBUTES + 1];
	void *data[N_ATTRIBUTES + 1];

	memset(answers, 0x77, sizeof(*answers));
	memcpy(list, attributes, sizeof(attributes));
	list[N_ATTRIBUTES] = CU_POINTER_ATTRIBUTE_HOST_POINTER;
	data[N_ATTRIBUTES] = &answers->host;
	for (unsigned i = 0; i < N_ATTRIBUTES; i++) {
		data[i] = &answers->of_list[i];
		answers->results[i] = cuPointerGetAttribute(&answers->alone[i], attributes[i], ptr);
	}
	answers->results[N_ATTRIBUTES] = cuPointerGetAttributes(N_ATTRIBUTES + 1, list, data, ptr);
	answers->results[N_ATTRIBUTES + 1] = cuMemGetAddressRange_v2(&answers->base, &answers->bytes, ptr);
}

/* Queries about pointers have the same answers asleep as awake, and leave the process asleep. */
static void queries(void)
{
	struct answers awake, pinned_awake, asleep, pinned_asleep;
	uint64_t *pinned;
	int type = 0;

	app_start();
	make_blocks();
	APP_MUST(cuMemHostAlloc((void **)&pinned, 4096, 0));
	query(blocks[3] + 512, &awake);
	query((CUdeviceptr)(uintptr_t)pinned, &pinned_awake);
	sleep_now();
	query(blocks[3] + 512, &asleep);
	query((CUdeviceptr)(uintptr_t)pinned, &pinned_asleep);
	app_say("answers differ", "%d", memcmp(&awake, &asleep, sizeof(awake)) != 0);
	app_say("answers of pinned memory differ", "%d", memcmp(&pinned_awake, &pinned_asleep, sizeof(awake)) != 0);
	app_fact("asleep after queries", device_bytes(0));
	/* Only the driver knows these. */
	app_say("flags", "%d", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, blocks[3]));
	app_fact("awake after a query", device_bytes(0));
	APP_MUST(cuCtxSynchronize());
	sleep_now();
	APP_MUST(cuMemFree_v2(blocks[3]));
	(void)cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, blocks[3]);
	app_fact("awake after a query of freed memory", device_bytes(0));
	blocks[3] = app_alloc(sizes[3]);
	app_fill(NULL, blocks[3], sizes[3], 103);
	app_say("wrong words", "%zu", count_wrong());
	app_report_driver();
}

/* Calls in which the driver examines memory, by name. */
static void call_retain(void)
{
	CUmemGenericAllocationHandle handle;

	(void)cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)blocks[3]);
}

static void call_access(void)
{
	CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
	unsigned long long flags;

	(void)cuMemGetAccess(&flags, &location, blocks[3]);
}

static void call_bind(void)
{
	(void)cuMulticastBindAddr(0, 0, blocks[3], 2 * MIB, 0);
}

static void call_set_attribute(void)
{
	unsigned value = 1;

	(void)cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, blocks[3]);
}

static void call_ipc(void)
{
	CUipcMemHandle handle;

	(void)cuIpcGetMemHandle(&handle, blocks[3]);
}

static void call_dma_buf(void)
{
	int fd = -1;

	(void)cuMemGetHandleForAddressRange(&fd, blocks[3], sizes[3], 1, 0);
}

static void call_enable_peer(void)
{
	(void)cuCtxEnablePeerAccess(app_ctx, 0);
}

static void call_disable_peer(void)
{
	(void)cuCtxDisablePeerAccess(app_ctx);
}

static void call_tokens(void)
{
	uint64_t tokens[2];

	(void)cuPointerGetAttribute(tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, blocks[3]);
}

static void call_capture(void)
{
	CUstream stream = app_stream();
	CUgraph graph;

	APP_MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	APP_MUST(cuStreamEndCapture(stream, &graph));
}

static void call_alloc(void)
{
	(void)app_alloc(64 * MIB);
}

static void call_dlopen(void)
{
	(void)dlopen("libm.so.6", RTLD_NOW);
}

static void call_nothing(void)
{
}

static const struct {
	const char *name;
	void (*call)(void);
} calls[] = {
	{"cuMemRetainAllocationHandle", call_retain},
	{"cuMemGetAccess", call_access},
	{"cuMulticastBindAddr", call_bind},
	{"cuPointerSetAttribute", call_set_attribute},
	{"cuIpcGetMemHandle", call_ipc},
	{"cuMemGetHandleForAddressRange", call_dma_buf},
	{"cuCtxEnablePeerAccess", call_enable_peer},
	{"cuCtxDisablePeerAccess", call_disable_peer},
	{"tokens", call_tokens},
	{"cuStreamBeginCapture", call_capture},
	{"cuMemAlloc", call_alloc},
	{"dlopen", call_dlopen},
	{"nothing", call_nothing},
};

/* The call of APP_CALL comes while the process is asleep. */
static void one_call(void)
{
	const char *name = getenv("APP_CALL");

	app_start();
	make_blocks();
	sleep_now();
	for (size_t i = 0; i < LENGTH(calls); i++)
		if (name && strcmp(calls[i].name, name) == 0)
			calls[i].call();
	app_fact("afterwards", device_bytes(0));
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
	app_fact("after the reset", device_bytes(0));
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
	app_fact("mapped", mapped_bytes());
	child = fork();
	if (!child)
		_exit(mapped_bytes() == 0 && cuMemsetD32_v2(blocks[0], 1, 1) != CUDA_SUCCESS ? 7 : 8);
	(void)waitpid(child, &status, 0);
	app_say("the child fails", "%d", WEXITSTATUS(status) == 7);
	app_say("wrong words", "%zu", count_wrong());
	app_fact("mapped awake", mapped_bytes());
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
		app_fact("asleep", device_bytes(0));
		app_fact("asleep there", device_bytes(1));
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
	app_fact("reset there", device_bytes(1));
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
	fault(refused);
	report("one", gpupool_sleep_as(&one));
	fault(NULL);
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

/* The driver refuses a call of a sleep, or of a wake. */
static void faulty(void)
{
	const char *at_sleep = getenv("APP_FAULT_ASLEEP"), *at_wake = getenv("APP_FAULT_AWAKE");
	CUdeviceptr other;

	app_start();
	make_blocks();
	/* A second pool, so that there are two pieces of host memory. */
	(void)gpupool_region_begin("other");
	other = app_alloc(sizes[4]);
	(void)gpupool_region_end();
	app_fill(NULL, other, sizes[4], 4);
	APP_MUST(cuCtxSynchronize());
	fault(at_sleep);
	sleep_now();
	fault(NULL);
	app_fact("bytes", device_bytes(0));
	app_say("wrong words", "%zu", count_wrong() + app_count_wrong(NULL, other, sizes[4], 4));
	APP_MUST(cuCtxSynchronize());
	sleep_now();
	fault(at_wake);
	report("woke", gpupool_wake(0));
	app_fact("bytes after the wake", device_bytes(0));
	/* The first calls still fail. The program waits for the memory, and does not run without it. */
	app_say("wrong words", "%zu", count_wrong() + app_count_wrong(NULL, other, sizes[4], 4));
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

static _Atomic int n_signals;
static pthread_t main_thread;

/* A handler that uses the memory, and one that ends the process. Faults end here, so that a wake can succeed. */
static void use_memory(int number)
{
	APP_MUST(cuMemsetD32_v2(blocks[0], 100, sizes[0] / 4));
	atomic_fetch_add(&n_signals, 1);
}

static void exit_now(int number)
{
	fault(NULL);
	exit(3);
}

/* Sends SIGTERM to the main thread while its sleep is inside the driver. */
static void *interrupt_sleep(void *unused)
{
	app_await_stopped_call();
	(void)pthread_kill(main_thread, SIGTERM);
	usleep(1000);
	app_fact("signals in the move", (uint64_t)atomic_load(&n_signals));
	app_release_calls();
	return NULL;
}

/* The handler runs after the memory has moved, not while the thread is at work on it. */
static void signalled(void)
{
	pthread_t other;

	app_start();
	make_blocks();
	(void)signal(SIGTERM, use_memory);
	main_thread = pthread_self();
	app_stop_calls("cuMemUnmap", false);
	(void)pthread_create(&other, NULL, interrupt_sleep, NULL);
	report("slept", gpupool_sleep(TIMEOUT_MS));
	app_release_calls();
	(void)pthread_join(other, NULL);
	app_fact("handled", (uint64_t)atomic_load(&n_signals));
	app_say("wrong words", "%zu", count_wrong());
	app_report_driver();
}

/* From now on the driver has no memory. */
static void make_short(void)
{
	bool (*inject)(const char *spec) = (bool (*)(const char *))dlsym(RTLD_DEFAULT, "simgpu_fault");

	if (inject)
		(void)inject("cuMemCreate:1+=2");
}

static void *end_shortage(void *how)
{
	uint64_t before = app_calls("cuMemCreate");

	/* The main thread makes attempts. */
	while (app_calls("cuMemCreate") < before + 3)
		usleep(1000);
	report("woke", gpupool_wake(0));
	app_fact("asleep", device_bytes(0));
	if (how)
		(void)pthread_kill(main_thread, SIGTERM);
	else
		fault(NULL);
	return NULL;
}

/*
 * Work finds no memory for the process that is asleep. APP_END: nothing: the memory comes back; kill: SIGTERM ends the
 * process meanwhile; exit: its handler calls exit().
 */
static void short_wake(void)
{
	const char *end = getenv("APP_END");
	pthread_t other;

	app_start();
	make_blocks();
	if (end && strcmp(end, "exit") == 0)
		(void)signal(SIGTERM, exit_now);
	(void)atexit(check_at_exit);
	if (gpupool_sleep(TIMEOUT_MS) < 0)
		return;
	main_thread = pthread_self();
	make_short();
	(void)pthread_create(&other, NULL, end_shortage, (void *)end);
	APP_MUST(cuMemsetD32_v2(blocks[0], 100, sizes[0] / 4));
	(void)pthread_join(other, NULL);
	app_report_driver();
}

static pthread_barrier_t both;

static void *use_cache(void *unused)
{
	CUdeviceptr more[64];

	APP_MUST(cuCtxSetCurrent(app_ctx));
	for (int i = 0; i < 64; i++)
		more[i] = app_alloc(64 * KIB);
	for (int i = 0; i < 64; i++)
		APP_MUST(cuMemFree_v2(more[i]));
	(void)pthread_barrier_wait(&both);
	(void)pthread_barrier_wait(&both); /* asleep */
	return NULL;
}

/* A thread ends, whose cache has memory that is asleep; and the test invalidates a region. */
static void ends_asleep(void)
{
	CUdeviceptr block;
	pthread_t thread;

	app_start();
	make_blocks();
	(void)gpupool_region_begin("kept");
	block = app_alloc(sizes[4]);
	(void)gpupool_region_end();
	app_fill(NULL, block, sizes[4], 4);
	(void)pthread_barrier_init(&both, NULL, 2);
	(void)pthread_create(&thread, NULL, use_cache, NULL);
	(void)pthread_barrier_wait(&both);
	APP_MUST(cuCtxSynchronize());
	sleep_now();
	(void)pthread_barrier_wait(&both);
	(void)pthread_join(thread, NULL);
	app_pause("asleep");
	app_fact("asleep", device_bytes(0));
	app_say("wrong words", "%zu", count_wrong() + app_count_wrong(NULL, block, sizes[4], 4));
	APP_MUST(cuMemFree_v2(block));
	APP_MUST(cuCtxSynchronize());
	app_pause("awake");
	app_report_driver();
}

/* The kernel gives the process no more memory. */
static void no_host(void)
{
	struct rlimit before, none = {0, RLIM_INFINITY};
	unsigned long pages = 0;
	FILE *statm;

	app_start();
	make_blocks();
	(void)getrlimit(RLIMIT_AS, &before);
	statm = fopen("/proc/self/statm", "r");
	if (statm && fscanf(statm, "%lu", &pages) == 1)
		none = (struct rlimit){pages * 4096 + 2 * MIB, before.rlim_max};
	if (statm)
		(void)fclose(statm);
	(void)setrlimit(RLIMIT_AS, &none);
	report("without host memory", gpupool_sleep(TIMEOUT_MS));
	app_fact("bytes", device_bytes(0));
	(void)setrlimit(RLIMIT_AS, &before);
	app_say("wrong words", "%zu", count_wrong());
	APP_MUST(cuCtxSynchronize());
	sleep_now();
	app_say("wrong words", "%zu", count_wrong());
	app_report_driver();
}

/* A client of the control socket sends a request and is gone before the answer. */
static void left_alone(void)
{
	app_start();
	make_blocks();
	app_pause("awake");
	app_fact("asleep", device_bytes(0));
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
	{"kept", kept, 0},
	{"exits", exits, 0},
	{"forks", forks, 0},
	{"exported", exported, 0},
	{"several", several, 0},
	{"dropped", dropped, 0},
	{"faulty", faulty, 0},
	{"awaited", awaited, 0},
	{"signalled", signalled, 0},
	{"short-wake", short_wake, 0},
	{"ends-asleep", ends_asleep, 0},
	{"no-host", no_host, 0},
	{"left-alone", left_alone, 0},
	{"threads", threads, 0},
	{0},
};
