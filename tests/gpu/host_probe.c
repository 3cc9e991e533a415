/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Asks the driver about pinned memory that it has allocated, and about memory that it has registered, and prints its
 * answers: those on which shim/backend/registered.c depends. Run it without gpupool.
 */

#include <ctype.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shim/driver/cuda_abi.h"

/* One row per function that is called: its name and its parameters. Built without the toolkit. */
#define FUNCTIONS(FUNCTION)                                                                       \
	FUNCTION(cuInit, (unsigned flags))                                                        \
	FUNCTION(cuCtxCreate_v2, (CUcontext * ctx, unsigned flags, CUdevice device))              \
	FUNCTION(cuCtxDestroy_v2, (CUcontext ctx))                                                \
	FUNCTION(cuCtxSetCurrent, (CUcontext ctx))                                                \
	FUNCTION(cuCtxSynchronize, (void))                                                        \
	FUNCTION(cuDeviceGetAttribute, (int *value, int attribute, CUdevice device))              \
	FUNCTION(cuDevicePrimaryCtxRetain, (CUcontext * ctx, CUdevice device))                    \
	FUNCTION(cuLaunchHostFunc, (CUstream stream, CUhostFn fn, void *user_data))               \
	FUNCTION(cuMemAlloc_v2, (CUdeviceptr * ptr, size_t bytes))                                \
	FUNCTION(cuMemFree_v2, (CUdeviceptr ptr))                                                 \
	FUNCTION(cuMemFreeHost, (void *ptr))                                                      \
	FUNCTION(cuMemGetAddressRange_v2, (CUdeviceptr * base, size_t * bytes, CUdeviceptr ptr))  \
	FUNCTION(cuMemHostAlloc, (void **ptr, size_t bytes, unsigned flags))                      \
	FUNCTION(cuMemHostGetDevicePointer_v2, (CUdeviceptr * device, void *ptr, unsigned flags)) \
	FUNCTION(cuMemHostGetFlags, (unsigned *flags, void *ptr))                                 \
	FUNCTION(cuMemHostRegister_v2, (void *ptr, size_t bytes, unsigned flags))                 \
	FUNCTION(cuMemHostUnregister, (void *ptr))                                                \
	FUNCTION(cuMemcpyHtoD_v2, (CUdeviceptr dst, const void *src, size_t bytes))               \
	FUNCTION(cuMemsetD32_v2, (CUdeviceptr ptr, unsigned value, size_t n))                     \
	FUNCTION(cuPointerGetAttribute, (void *data, int attribute, CUdeviceptr ptr))             \
	FUNCTION(cuStreamCreate, (CUstream * stream, unsigned flags))                             \
	FUNCTION(cuStreamSynchronize, (CUstream stream))

#define DECLARE(name, parameters) static CUresult(*name) parameters;
FUNCTIONS(DECLARE)

#define MIB         ((size_t)1 << 20)
#define BYTES       (32 * MIB)
#define CHECK(call) check(call, #call)

enum {
	ATTRIBUTES_END = 24, /* values of CUpointer_attribute */
	MEMORY_BLOCK_ID = 20,
	COLLAPSE = 25, /* MADV_COLLAPSE */
	POPULATE_WRITE = 23,
};

static CUcontext primary;

static void check(int r, const char *what)
{
	if (!r)
		return;
	printf("host.failed: %s: %d\n", what, r);
	exit(EXIT_FAILURE);
}

static void find_driver(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);

#define FIND(name, parameters)                                  \
	*(void **)&name = driver ? dlsym(driver, #name) : NULL; \
	check(!name, #name);
	FUNCTIONS(FIND)
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static double ms_since(uint64_t start_ns)
{
	return (double)(now_ns() - start_ns) / 1e6;
}

static void print_file(const char *path)
{
	char line[256] = "not there\n";
	FILE *file = fopen(path, "re");

	if (file && !fgets(line, sizeof(line), file))
		snprintf(line, sizeof(line), "empty\n");
	if (file)
		fclose(file);
	printf("host.file.%s: %s", path, line);
}

static char *map_shared(size_t bytes)
{
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	check(memory == MAP_FAILED, "mmap");
	memset(memory, 0, bytes);
	return memory;
}

static char *allocate(unsigned flags)
{
	void *host = NULL;

	CHECK(cuMemHostAlloc(&host, BYTES, flags));
	return host;
}

static char *registered(unsigned flags)
{
	char *memory = map_shared(BYTES);

	CHECK(cuMemHostRegister_v2(memory, BYTES, flags));
	return memory;
}

static void print_address(uint64_t value, const char *host)
{
	uint64_t base = (uint64_t)(uintptr_t)host;

	if (value - base < BYTES)
		printf(" base+%" PRIu64 "\n", value - base);
	else if (value == (uint64_t)(uintptr_t)primary)
		printf(" context\n");
	else
		printf(" %" PRIu64 "\n", value);
}

static void answers(const char *name, char *host)
{
	CUdeviceptr ptr = (CUdeviceptr)(uintptr_t)host, base = 0;
	unsigned flags = 99;
	size_t size = 0;
	CUresult r;

	printf("host.%s.flags: %d", name, cuMemHostGetFlags(&flags, host));
	printf(" %u\n", flags);
	printf("host.%s.flags_inside: %d", name, cuMemHostGetFlags(&flags, host + BYTES / 2));
	printf(" %u\n", flags);
	printf("host.%s.device_pointer: %d", name, cuMemHostGetDevicePointer_v2(&base, host + 4096, 0));
	print_address(base, host);
	r = cuMemGetAddressRange_v2(&base, &size, ptr + 4096);
	printf("host.%s.address_range: %d size=%zu", name, r, size);
	print_address(base, host);
	for (int attribute = 1; attribute < ATTRIBUTES_END; attribute++) {
		uint64_t value[2] = {0};

		r = cuPointerGetAttribute(value, attribute, ptr + 4096);
		printf("host.%s.attribute.%d: %d", name, attribute, r);
		if (attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID || attribute == MEMORY_BLOCK_ID)
			printf(" %s\n", value[0] ? "some" : "none");
		else
			print_address(value[0], host);
	}
	for (unsigned more = 0; more < 2; more++)
		printf("host.%s.register_again.flags_%u: %d\n", name, more, cuMemHostRegister_v2(host, BYTES, more));
	printf("host.%s.register_part: %d\n", name, cuMemHostRegister_v2(host + 4096, 4096, 0));
	printf("host.%s.free_inside: %d\n", name, cuMemFreeHost(host + 4096));
	printf("host.%s.free_as_device_memory: %d\n", name, cuMemFree_v2(ptr));
	printf("host.%s.unregister_inside: %d\n", name, cuMemHostUnregister(host + 4096));
}

static void forks(const char *name, char *memory)
{
	volatile uint32_t *host = (uint32_t *)(void *)memory;
	int go[2], status = 0;
	char byte;
	pid_t child;

	host[0] = host[1] = host[2] = 1;
	check(pipe(go), "pipe");
	fflush(stdout);
	child = fork();
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
	CHECK(cuMemsetD32_v2((CUdeviceptr)(uintptr_t)&host[1], 3, 1));
	CHECK(cuCtxSynchronize());
	close(go[1]);
	check(waitpid(child, &status, 0) != child, "waitpid");
	/* 23: the child shares the pages; 11: it has a copy; -11: it has none. */
	printf("host.%s.fork.child_sees: %d\n", name, WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
	printf("host.%s.fork.parent_sees: %u %u %u\n", name, host[0], host[1], host[2]);
}

/* Prints what /proc/self/smaps says about the mapping: sh: shared, dc: not copied by a fork, dd: not in a core dump. */
static void print_mapping(const char *name, const char *memory)
{
	char line[512], start[32], end[32];
	bool is_in = false;
	FILE *file = fopen("/proc/self/smaps", "re");

	while (file && fgets(line, sizeof(line), file)) {
		unsigned long lo = 0, hi = 0;

		if (isxdigit((unsigned char)line[0]) && sscanf(line, "%31[0-9a-f]-%31[0-9a-f] ", start, end) == 2) {
			lo = strtoul(start, NULL, 16);
			hi = strtoul(end, NULL, 16);
			is_in = (uintptr_t)memory >= lo && (uintptr_t)memory < hi;
			if (is_in)
				printf("host.%s.mapping: %s", name, strchr(line, ' ') + 1);
		}
		if (is_in && (!strncmp(line, "VmFlags", 7) || !strncmp(line, "Rss", 3) ||
				     !strncmp(line, "ShmemPmdMapped", 14)))
			printf("host.%s.mapping.%s", name, line);
	}
	if (file)
		fclose(file);
}

static void ends(void)
{
	char *memory = map_shared(BYTES);
	CUcontext other;

	CHECK(cuCtxCreate_v2(&other, 0, 0));
	CHECK(cuMemHostRegister_v2(memory, BYTES, 3));
	CHECK(cuCtxDestroy_v2(other));
	CHECK(cuCtxSetCurrent(primary));
	printf("host.ends.unregister: %d\n", cuMemHostUnregister(memory));
	printf("host.ends.register_again: %d\n", cuMemHostRegister_v2(memory, BYTES, 3));
	printf("host.ends.unregister_again: %d\n", cuMemHostUnregister(memory));
	munmap(memory, BYTES);
}

static void copies(void)
{
	char *memory = map_shared(2 * BYTES);
	CUdeviceptr device;

	CHECK(cuMemAlloc_v2(&device, 2 * BYTES));
	CHECK(cuMemHostRegister_v2(memory, BYTES, 3));
	CHECK(cuMemHostRegister_v2(memory + BYTES, BYTES, 3));
	printf("host.copy.across_two_registrations: %d\n", cuMemcpyHtoD_v2(device, memory, 2 * BYTES));
	CHECK(cuMemHostUnregister(memory + BYTES));
	printf("host.copy.beyond_a_registration: %d\n", cuMemcpyHtoD_v2(device, memory, 2 * BYTES));
	CHECK(cuMemHostUnregister(memory));
	CHECK(cuMemFree_v2(device));
	munmap(memory, 2 * BYTES);
}

static volatile bool may_end;

static void wait_in_stream(void *unused)
{
	(void)unused;
	while (!may_end)
		usleep(1000);
}

static void *let_end(void *unused)
{
	(void)unused;
	usleep(400000);
	may_end = true;
	return NULL;
}

/* Allocates and registers memory while a host function blocks a stream for 0.4 s. */
static void busy(void)
{
	char *memory = map_shared(BYTES), *host;
	CUstream stream;
	pthread_t thread;
	uint64_t start_ns;

	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuLaunchHostFunc(stream, wait_in_stream, NULL));
	CHECK(pthread_create(&thread, NULL, let_end, NULL));
	start_ns = now_ns();
	host = allocate(0);
	printf("host.busy.allocate: ms=%.1f is_over=%d\n", ms_since(start_ns), may_end);
	start_ns = now_ns();
	CHECK(cuMemHostRegister_v2(memory, BYTES, 3));
	printf("host.busy.register: ms=%.1f is_over=%d\n", ms_since(start_ns), may_end);
	start_ns = now_ns();
	CHECK(cuMemHostUnregister(memory));
	printf("host.busy.unregister: ms=%.1f is_over=%d\n", ms_since(start_ns), may_end);
	pthread_join(thread, NULL);
	CHECK(cuStreamSynchronize(stream));
	CHECK(cuMemFreeHost(host));
	munmap(memory, BYTES);
}

enum kind { PRIVATE, SHARED, COLLAPSED, KINDS };
enum { THREADS_MAX = 16 };

struct slice {
	char *memory;
	size_t bytes;
	enum kind kind;
	int r_collapse, r_populate;
};

static void *touch_slice(void *arg)
{
	struct slice *slice = arg;

	if (slice->kind == COLLAPSED) {
		for (size_t i = 0; i < slice->bytes; i += 2 * MIB)
			slice->memory[i] = 0;
		slice->r_collapse = madvise(slice->memory, slice->bytes, COLLAPSE);
	}
	slice->r_populate = madvise(slice->memory, slice->bytes, POPULATE_WRITE);
	for (size_t i = 0; slice->r_populate && i < slice->bytes; i += 4096)
		((volatile char *)slice->memory)[i] = 0;
	return NULL;
}

static void touch(char *memory, size_t bytes, enum kind kind, unsigned n, struct slice *slices)
{
	pthread_t threads[THREADS_MAX];

	for (unsigned i = 0; i < n; i++) {
		slices[i] = (struct slice){.memory = memory + i * (bytes / n), .bytes = bytes / n, .kind = kind};
		check(pthread_create(&threads[i], NULL, touch_slice, &slices[i]), "pthread_create");
	}
	for (unsigned i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
}

/* Prints the time to touch and register 1 GiB of a kind of mapping, and what pages the kernel has used. */
static void times(enum kind kind, unsigned n)
{
	static const char *const names[KINDS] = {"private", "shared", "collapsed"};
	size_t bytes = 1024 * MIB;
	int flags = MAP_ANONYMOUS | (kind == PRIVATE ? MAP_PRIVATE : MAP_SHARED);
	char name[32], *memory = mmap(NULL, bytes + 2 * MIB, PROT_READ | PROT_WRITE, flags, -1, 0), *aligned;
	struct slice slices[THREADS_MAX];
	uint64_t start_ns = now_ns();
	double touched_ms;

	check(memory == MAP_FAILED, "mmap");
	aligned = memory + (-(uintptr_t)memory & (2 * MIB - 1));
	(void)madvise(aligned, bytes, MADV_HUGEPAGE);
	touch(aligned, bytes, kind, n, slices);
	touched_ms = ms_since(start_ns);
	start_ns = now_ns();
	CHECK(cuMemHostRegister_v2(aligned, bytes, 3));
	snprintf(name, sizeof(name), "time.%s.threads_%u", names[kind], n);
	printf("host.%s: touch ms=%.1f register ms=%.1f collapse=%d populate=%d\n", name, touched_ms,
		ms_since(start_ns), slices[0].r_collapse, slices[0].r_populate);
	print_mapping(name, aligned);
	start_ns = now_ns();
	CHECK(cuMemHostUnregister(aligned));
	munmap(memory, bytes + 2 * MIB);
	printf("host.%s.end: ms=%.1f\n", name, ms_since(start_ns));
}

static void time_of_driver(void)
{
	uint64_t start_ns = now_ns();
	void *host;

	CHECK(cuMemHostAlloc(&host, 1024 * MIB, 0));
	printf("host.time.driver: ms=%.1f\n", ms_since(start_ns));
	start_ns = now_ns();
	CHECK(cuMemFreeHost(host));
	printf("host.time.driver.end: ms=%.1f\n", ms_since(start_ns));
}

int main(void)
{
	static const int device_attributes[] = {19, 88, 89, 91, 99, 100, 134};
	struct utsname system;
	char *host, *again;
	int value;

	setvbuf(stdout, NULL, _IOLBF, 0);
	uname(&system);
	printf("host.kernel: %s\n", system.release);
	print_file("/sys/kernel/mm/transparent_hugepage/enabled");
	print_file("/sys/kernel/mm/transparent_hugepage/defrag");
	print_file("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
	find_driver();
	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&primary, 0));
	CHECK(cuCtxSetCurrent(primary));
	for (size_t i = 0; i < sizeof(device_attributes) / sizeof(*device_attributes); i++) {
		CUresult r = cuDeviceGetAttribute(&value, device_attributes[i], 0);

		printf("host.device_attribute.%d: %d %d\n", device_attributes[i], r, value);
	}
	for (unsigned flags = 0; flags < 4; flags++) {
		char name[32];

		snprintf(name, sizeof(name), "allocated_%u", flags);
		host = allocate(flags);
		answers(name, host);
		if (!flags) {
			print_mapping(name, host);
			forks(name, host);
		}
		printf("host.%s.unregister: %d\n", name, cuMemHostUnregister(host));
		printf("host.%s.free: %d\n", name, cuMemFreeHost(host));
		printf("host.%s.unregister_after_free: %d\n", name, cuMemHostUnregister(host));
		snprintf(name, sizeof(name), "registered_%u", flags);
		again = registered(flags);
		answers(name, again);
		if (flags == 3) {
			print_mapping(name, again);
			forks(name, again);
		}
		printf("host.%s.free: %d\n", name, cuMemFreeHost(again));
		printf("host.%s.unregister: %d\n", name, cuMemHostUnregister(again));
		munmap(again, BYTES);
	}
	printf("host.unregistered.unregister: %d\n", cuMemHostUnregister(&value));
	copies();
	ends();
	busy();
	time_of_driver();
	for (enum kind kind = PRIVATE; kind < KINDS; kind++)
		for (unsigned n = 1; n <= THREADS_MAX; n *= 4)
			times(kind, n);
	return EXIT_SUCCESS;
}
