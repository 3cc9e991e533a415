/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Pinned memory so large that gpupool maps, touches and registers it itself. */

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app_driver.h"
#include "tests/sim/abi.h"

#define LARGE (16 * MIB)

static CUdeviceptr address(const void *ptr)
{
	return (CUdeviceptr)(uintptr_t)ptr;
}

static char *alloc(size_t bytes, unsigned flags)
{
	void *host = NULL;

	APP_MUST(cuMemHostAlloc(&host, bytes, flags));
	return host;
}

static void report_calls(void)
{
	app_fact_calls("cuMemHostRegister_v2");
	app_fact_calls("cuMemHostUnregister");
	app_fact_calls("cuMemHostAlloc");
	app_fact_calls("cuMemFreeHost");
}

static void attributes(CUdeviceptr ptr)
{
	static const int known[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
		CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
		CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, CU_POINTER_ATTRIBUTE_MAPPED,
		CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
		CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
	uint64_t value;

	for (size_t i = 0; i < LENGTH(known); i++) {
		value = 0;
		app_say("attribute", "%d: %d %u", known[i], cuPointerGetAttribute(&value, known[i], ptr),
			(unsigned)value);
	}
	APP_MUST(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_HOST_POINTER, ptr));
	app_result("the host pointer is the address", value == ptr);
	APP_MUST(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, ptr));
	app_result("the device pointer is the address", value == ptr);
	APP_MUST(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_CONTEXT, ptr));
	app_result("the context is the current one", value == (uint64_t)(uintptr_t)app_ctx);
}

/* Every question whose answer tells allocated from registered memory. */
static void ask(char *host, size_t bytes)
{
	CUdeviceptr device = 0;
	unsigned flags = 99;

	app_result("flags", cuMemHostGetFlags(&flags, host));
	app_result("are", (int)flags);
	app_result("flags inside", cuMemHostGetFlags(&flags, host + bytes / 2));
	app_result("are", (int)flags);
	app_result("flags without an output", cuMemHostGetFlags(NULL, host));
	app_result("device pointer", cuMemHostGetDevicePointer_v2(&device, host + 4096, 0));
	app_result("is the address", device == address(host + 4096));
	app_result("unregister", cuMemHostUnregister(host));
	app_result("unregister inside", cuMemHostUnregister(host + 4096));
	app_result("register", cuMemHostRegister_v2(host, bytes, 0));
	app_result("register a part", cuMemHostRegister_v2(host + 4096, 4096, 0));
	app_result("free inside", cuMemFreeHost(host + 4096));
	app_result("free as device memory", cuMemFree_v2(address(host)));
	attributes(address(host));
	attributes(address(host + bytes - 1));
}

/* The GPU and copies reach both ends of the memory. */
static void use_part(char *host, size_t bytes, unsigned value)
{
	CUdeviceptr device = app_alloc(bytes);

	app_fill(NULL, address(host), bytes, value);
	APP_MUST(cuMemcpyHtoD_v2(device, host, bytes));
	app_result("wrong words on the device", (int)app_count_wrong(NULL, device, bytes, value));
	APP_MUST(cuMemsetD32_v2(device, value + 1, bytes / 4));
	APP_MUST(cuMemcpyDtoH_v2(host, device, bytes));
	app_result("wrong words on the host", (int)app_count_wrong(NULL, address(host), bytes, value + 1));
	APP_MUST(cuMemFree_v2(device));
}

static void use(char *host, size_t bytes, unsigned value)
{
	use_part(host, 64 * KIB, value);
	use_part(host + bytes - 64 * KIB, 64 * KIB, value);
}

/* Twice with each set of flags: the first block is new, the second one is reused. */
static void answers(void)
{
	void *host;

	app_start();
	for (unsigned i = 0; i < 16; i++) {
		host = alloc(LARGE, i % 8);
		app_result("set of flags", (int)(i % 8));
		ask(host, LARGE);
		use(host, LARGE, i);
		app_result("free", cuMemFreeHost(host));
	}
	APP_MUST(cuMemAllocHost_v2(&host, LARGE));
	ask(host, LARGE);
	APP_MUST(cuMemFreeHost(host));
	app_result("unregister after the free", cuMemHostUnregister(host) != CUDA_SUCCESS);
	report_calls();
}

static void sizes(void)
{
	static const size_t all[] = {12 * MIB, LARGE, LARGE + 1, 40 * MIB + 12345};
	char *hosts[LENGTH(all)];

	app_start();
	errno = 77;
	for (size_t i = 0; i < LENGTH(all); i++)
		hosts[i] = alloc(all[i], 0);
	app_result("errno", errno);
	for (size_t i = 0; i < LENGTH(all); i++)
		use(hosts[i], all[i] / 4096 * 4096, (unsigned)i);
	app_pause("sizes");
	for (size_t i = 0; i < LENGTH(all); i++)
		APP_MUST(cuMemFreeHost(hosts[i]));
	report_calls();
}

/* The parent's GPU goes on using the parent's pages, which the child sees, too. */
static void forked(void)
{
	volatile unsigned *host;
	int go[2], status = 0;
	char byte = 0;
	pid_t child;

	app_start();
	host = (unsigned *)(void *)alloc(LARGE, 0);
	host[0] = host[1] = host[2] = 1;
	if (pipe(go))
		exit(70);
	fflush(stdout);
	child = fork();
	if (child == 0) {
		int seen;

		close(go[1]);
		(void)!read(go[0], &byte, 1);
		seen = host[0] == 2 && host[1] == 3;
		host[2] = 4;
		_exit(seen);
	}
	close(go[0]);
	host[0] = 2;
	app_fill(NULL, address((void *)&host[1]), 4, 3);
	APP_MUST(cuCtxSynchronize());
	app_result("the GPU's word", (int)host[1]);
	(void)!write(go[1], "", 1);
	if (waitpid(child, &status, 0) != child)
		exit(72);
	app_result("child sees the words of parent and GPU", WIFEXITED(status) ? WEXITSTATUS(status) : 128);
	app_result("parent sees the word of the child", (int)host[2]);
	app_result("wrong words of the child for the GPU", (int)app_count_wrong(NULL, address((void *)&host[2]), 4, 4));
	APP_MUST(cuMemFreeHost((void *)host));
	report_calls();
}

/* Memory ends with its context, whether it is in use or cached. */
static void ends(void)
{
	unsigned char seen;

	app_start();
	for (unsigned i = 0; i < 4; i++) {
		CUcontext ctx;
		char *host, *cached;

		APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
		host = alloc(LARGE, 0);
		cached = alloc(2 * LARGE, 0);
		memset(host, 1, LARGE);
		APP_MUST(cuMemFreeHost(cached));
		APP_MUST(cuCtxDestroy_v2(ctx));
		APP_MUST(cuCtxSetCurrent(app_ctx));
		app_result("is still mapped", mincore(host, 4096, &seen) == 0);
		app_result("flags after the end", cuMemHostGetFlags(&(unsigned){0}, host));
		app_result("free after the end", cuMemFreeHost(host));
	}
	report_calls();
}

/* The pool gives registered memory back to the driver when a limit makes it. */
static void limits(void)
{
	void *host = NULL;

	app_start();
	for (unsigned i = 1; i <= 3; i++) {
		host = alloc(i * LARGE, 0);
		memset(host, (int)i, i * LARGE);
		APP_MUST(cuMemFreeHost(host));
		APP_MUST(cuCtxSynchronize());
	}
	app_fact("beyond", (uint64_t)cuMemHostAlloc(&host, 8 * LARGE, 0));
	app_pause("limits");
	report_calls();
}

/* Each part of the way may fail; the driver's own way is left. */
static void faults(void)
{
	app_start();
	for (unsigned i = 0; i < 3; i++) {
		char *host = alloc((i + 1) * LARGE, 0);

		ask(host, (i + 1) * LARGE);
		use(host, (i + 1) * LARGE, i);
	}
	app_pause("faults");
	report_calls();
}

/* The driver refuses its own allocations during such a capture, and invalidates it. */
static void captured(void)
{
	CUstream stream = NULL;
	CUgraph graph = NULL;
	char *host;

	app_start();
	stream = app_stream();
	host = alloc(LARGE, 0);
	APP_MUST(cuMemFreeHost(host));
	APP_MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	host = alloc(2 * LARGE, 0);
	memset(host, 1, LARGE);
	APP_MUST(cuStreamEndCapture(stream, &graph));
	APP_MUST(cuMemFreeHost(host));
	report_calls();
}

static void *allocate_and_free(void *arg)
{
	unsigned value = (unsigned)(uintptr_t)arg;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	for (unsigned i = 0; i < 8; i++) {
		unsigned *host = (unsigned *)(void *)alloc(LARGE + (value + i) % 3 * MIB, 0);

		host[0] = host[LARGE / 4 - 1] = value;
		APP_MUST(cuMemHostGetFlags(&(unsigned){0}, host));
		if (host[0] != value || host[LARGE / 4 - 1] != value)
			exit(74);
		APP_MUST(cuMemFreeHost(host));
	}
	return NULL;
}

static void threads(void)
{
	pthread_t ids[4];

	app_start();
	for (size_t i = 0; i < LENGTH(ids); i++)
		if (pthread_create(&ids[i], NULL, allocate_and_free, (void *)i))
			exit(75);
	for (size_t i = 0; i < LENGTH(ids); i++)
		pthread_join(ids[i], NULL);
	printf("done\n");
}

static uint64_t resident_mib(void)
{
	unsigned long long size = 0, pages = 0;
	FILE *file = fopen("/proc/self/statm", "re");

	if (!file || fscanf(file, "%llu %llu", &size, &pages) != 2)
		exit(76);
	fclose(file);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE) / MIB;
}

/* Reports the resident memory that a large block adds, in MiB. */
static void resident(void)
{
	char *host;
	uint64_t before;

	app_start();
	before = resident_mib();
	host = alloc(4 * LARGE, 0);
	app_fact("resident", resident_mib() - before);
	APP_MUST(cuMemFreeHost(host));
}

const struct app_scenario app_scenarios[] = {
	{"answers", answers},
	{"sizes", sizes},
	{"fork", forked},
	{"ends", ends},
	{"limits", limits},
	{"faults", faults},
	{"captured", captured},
	{"threads", threads},
	{"resident", resident},
	{0},
};
