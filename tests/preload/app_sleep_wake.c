/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A process that is asleep: what the program may do without waking it, what wakes it, and how it ends. */

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app_sleep.h"
#include "tests/sim/abi.h"

/* Memory is freed, allocated and asked about while the process is asleep. */
void changes(void)
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
	app_fact("asleep after a question of memory", app_device_bytes(0));
	APP_MUST(cuMemFree_v2(blocks[4]));
	APP_MUST(cuMemFree_v2(blocks[0]));
	app_fact("asleep after frees", app_device_bytes(0));
	report("reclaimed", gpupool_reclaim(GPUPOOL_ALL_DEVICES));
	app_pause("freed");
	more = app_alloc(40 * MIB);
	app_fact("awake after an allocation", app_device_bytes(0));
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
void queries(void)
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
	app_fact("asleep after queries", app_device_bytes(0));
	/* Only the driver knows these. */
	app_say("flags", "%d", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, blocks[3]));
	app_fact("awake after a query", app_device_bytes(0));
	APP_MUST(cuCtxSynchronize());
	sleep_now();
	APP_MUST(cuMemFree_v2(blocks[3]));
	(void)cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, blocks[3]);
	app_fact("awake after a query of freed memory", app_device_bytes(0));
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
void one_call(void)
{
	const char *name = getenv("APP_CALL");

	app_start();
	make_blocks();
	sleep_now();
	for (size_t i = 0; i < LENGTH(calls); i++)
		if (name && strcmp(calls[i].name, name) == 0)
			calls[i].call();
	app_fact("afterwards", app_device_bytes(0));
	app_say("wrong words", "%zu", count_wrong());
	app_report_driver();
}

/* Each way in which a process or a context ends while it is asleep. */
void ends(void)
{
	app_start();
	make_blocks();
	sleep_now();
	APP_MUST(cuDevicePrimaryCtxReset_v2(0));
	app_fact("after the reset", app_device_bytes(0));
	report("woke", gpupool_wake(TIMEOUT_MS));
	app_start();
	make_blocks();
	app_say("wrong words", "%zu", count_wrong());
	APP_MUST(cuCtxSynchronize());
	sleep_now();
	app_report_driver();
}

static CUdeviceptr fall_asleep_in_order(void)
{
	CUstream stream;
	CUdeviceptr ptr;

	app_start_owner();
	stream = app_stream();
	APP_MUST(cuMemAllocAsync(&ptr, 4 * MIB, stream));
	APP_MUST(cuMemsetD32Async(ptr, 5, MIB, stream));
	APP_MUST(cuStreamSynchronize(stream));
	sleep_now();
	return ptr;
}

/* Memory in stream order outlives its context, although it was asleep at the end. */
void ends_in_order(void)
{
	CUdeviceptr ptr = fall_asleep_in_order();

	app_end_owner();
	app_say("wrong words", "%zu", app_count_wrong(app_stream(), ptr, 4 * MIB, 5));
	app_result("free", cuMemFree_v2(ptr));
	app_report_driver();
}

/* The driver has no memory for the wake. */
void ends_in_order_without_room(void)
{
	bool (*fault)(const char *spec) = (bool (*)(const char *))app_simulator("simgpu_fault");
	CUdeviceptr ptr = fall_asleep_in_order();
	char spec[64];

	snprintf(spec, sizeof(spec), "cuMemCreate:%u+=2", (unsigned)app_calls("cuMemCreate") + 1);
	(void)fault(spec);
	app_end_owner();
	(void)fault(NULL);
	app_result("free", cuMemFree_v2(ptr));
	app_report_driver();
}

static void check_at_exit(void)
{
	app_say("wrong words at exit", "%zu", count_wrong());
}

void exits(void)
{
	app_start();
	make_blocks();
	atexit(check_at_exit);
	sleep_now();
}

/* Bytes of memory that a fork does not copy: the host memory of a sleep. */
static uint64_t mapped_bytes(void)
{
	FILE *maps = fopen("/proc/self/smaps", "r");
	uint64_t bytes = 0, range = 0, from, to;
	char line[512];

	while (maps && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &from, &to) == 2)
			range = to - from;
		else if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " dc"))
			bytes += range;
	}
	if (maps)
		(void)fclose(maps);
	return bytes;
}

/* A child of a process that is asleep gets the driver's errors, and the parent wakes as usual. */
void forks(void)
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

static pthread_t main_thread;

static void exit_now(int number)
{
	app_fault(NULL);
	exit(3);
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
	int64_t r;

	/* The main thread makes attempts. In the middle of one the process is busy. */
	while (app_calls("cuMemCreate") < before + 3)
		usleep(1000);
	while ((r = gpupool_wake(0)) == -EBUSY)
		usleep(100);
	report("woke", r);
	app_fact("asleep", app_device_bytes(0));
	if (how)
		(void)pthread_kill(main_thread, SIGTERM);
	else
		app_fault(NULL);
	return NULL;
}

/*
 * Work finds no memory for the process that is asleep. APP_END: nothing: the memory comes back; kill: SIGTERM ends the
 * process meanwhile; exit: its handler calls exit().
 */
void short_wake(void)
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

static const CUmemAllocationProp of_device = {
	.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

/* The device has no room for another block beside those that are asleep. */
void full(void)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr more = 0;

	app_start();
	make_blocks();
	if (gpupool_sleep(TIMEOUT_MS) < 0)
		return;
	app_result("more", cuMemAlloc_v2(&more, 40 * MIB));
	app_fact("bytes", app_device_bytes(0));
	APP_MUST(cuCtxSynchronize());
	sleep_now();
	app_result("more that is not pooled", cuMemCreate(&handle, 40 * MIB, &of_device, 0));
	app_say("wrong words", "%zu", count_wrong());
	app_report_driver();
}

static void *wake(void *unused)
{
	(void)gpupool_wake(TIMEOUT_MS);
	return NULL;
}

static size_t free_memory(void)
{
	size_t free_bytes = 0, total;

	APP_MUST(cuMemGetInfo_v2(&free_bytes, &total));
	return free_bytes;
}

/* The program asks for the free memory while its memory is taken back, and while content is copied. */
void asks_waking(void)
{
	static const char *const points[] = {"cuMemMap", "cuMemcpyHtoDAsync_v2"};
	pthread_t other;
	size_t awake;

	app_start();
	make_blocks();
	awake = free_memory();
	for (unsigned i = 0; i < LENGTH(points); i++) {
		if (gpupool_sleep(TIMEOUT_MS) < 0)
			return;
		app_stop_calls(points[i], false);
		(void)pthread_create(&other, NULL, wake, NULL);
		app_await_stopped_call();
		app_say("free memory as awake", "%d", free_memory() == awake);
		app_release_calls();
		(void)pthread_join(other, NULL);
	}
	app_say("wrong words", "%zu", count_wrong());
	app_report_driver();
}

enum { N_LOOKS = 50 };

/* Another process takes memory once it is told to, says so, and holds it until its socket is closed. */
static pid_t start_other(int *ret_end)
{
	int ends[2];
	pid_t child;
	char byte;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		exit(71);
	child = fork();
	if (child) {
		(void)close(ends[0]);
		*ret_end = ends[1];
		return child;
	}
	(void)close(ends[1]);
	app_start();
	if (read(ends[0], &byte, 1) == 1) {
		(void)app_alloc(36 * MIB);
		if (write(ends[0], "", 1) == 1)
			(void)!read(ends[0], &byte, 1);
	}
	_exit(0);
}

static void *end_other(void *end)
{
	uint64_t looks = app_calls("cuMemGetInfo_v2"), taken = app_calls("cuMemCreate");

	while (app_calls("cuMemGetInfo_v2") < looks + N_LOOKS)
		usleep(1000);
	app_fact("taken by a wait of 50 looks", app_calls("cuMemCreate") - taken);
	(void)close(*(int *)end);
	return NULL;
}

/* The device has 64 MiB, of which another process takes so much that this one cannot wake. */
void crowded_wake(void)
{
	pthread_t thread;
	pid_t other;
	char byte;
	int end;

	other = start_other(&end);
	app_start();
	make_blocks();
	if (gpupool_sleep(TIMEOUT_MS) < 0)
		return;
	if (write(end, "", 1) != 1 || read(end, &byte, 1) != 1)
		exit(71);
	(void)pthread_create(&thread, NULL, end_other, &end);
	app_say("wrong words", "%zu", count_wrong());
	(void)pthread_join(thread, NULL);
	(void)waitpid(other, NULL, 0);
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
void ends_asleep(void)
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
	app_fact("asleep", app_device_bytes(0));
	app_say("wrong words", "%zu", count_wrong() + app_count_wrong(NULL, block, sizes[4], 4));
	APP_MUST(cuMemFree_v2(block));
	APP_MUST(cuCtxSynchronize());
	app_pause("awake");
	app_report_driver();
}
