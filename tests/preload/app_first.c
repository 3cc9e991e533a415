/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The first calls of a process do not wait. The program interposes functions of the C library. It counts those system
 * calls of the library that make the kernel wait. It also holds the library's threads at a gate, so that a call that
 * waits for such a thread never returns.
 */

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "api/gpupool.h"
#include "app_driver.h"

typedef int pthread_create_fn(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

static _Atomic bool is_gate_closed;
static _Thread_local bool is_main;
static _Atomic unsigned n_registered, n_registered_by_main, n_enlarged_by_main;
static int table_size; /* size of the table of descriptors */

struct gated {
	void *(*body)(void *);
	void *arg;
};

static void *run_gated(void *arg)
{
	struct gated gated = *(struct gated *)arg;

	free(arg);
	while (atomic_load(&is_gate_closed))
		sched_yield();
	return gated.body(gated.arg);
}

__attribute__((visibility("default"))) int pthread_create(
	pthread_t *thread, const pthread_attr_t *attr, void *(*body)(void *), void *arg)
{
	pthread_create_fn *real = (pthread_create_fn *)dlsym(RTLD_NEXT, "pthread_create");
	struct gated *gated = malloc(sizeof(*gated));

	if (!gated)
		return real(thread, attr, body, arg);
	*gated = (struct gated){body, arg};
	return real(thread, attr, run_gated, gated);
}

__attribute__((visibility("default"))) long syscall(long number, ...)
{
	long (*real)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	long words[6];
	va_list args;

	va_start(args, number);
	for (size_t i = 0; i < LENGTH(words); i++)
		words[i] = va_arg(args, long);
	va_end(args);
	if (number == SYS_membarrier && words[0] == MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) {
		atomic_fetch_add(&n_registered_by_main, is_main);
		atomic_fetch_add(&n_registered, 1);
	}
	return real(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

/* Interposed under both names that a caller may have been compiled to. */
int counted_fcntl(int fd, int command, long arg) __asm__("fcntl64") __attribute__((visibility("default")));
int counted_fcntl_32(int fd, int command, long arg) __asm__("fcntl") __attribute__((visibility("default")));

int counted_fcntl(int fd, int command, long arg)
{
	int (*real)(int, int, long) = (int (*)(int, int, long))dlsym(RTLD_NEXT, "fcntl");

	if (command == F_DUPFD_CLOEXEC && is_main && arg >= table_size)
		atomic_fetch_add(&n_enlarged_by_main, 1);
	return real(fd, command, arg);
}

int counted_fcntl_32(int fd, int command, long arg)
{
	return counted_fcntl(fd, command, arg);
}

/* A line of the log to stderr stays in this call while the pipe behind it is full. */
static _Atomic bool is_stderr_full;
static _Atomic unsigned n_writing;

__attribute__((visibility("default"))) ssize_t write(int fd, const void *data, size_t length)
{
	ssize_t (*real)(int, const void *, size_t) = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");

	if (fd == STDERR_FILENO) {
		atomic_fetch_add(&n_writing, 1);
		while (atomic_load(&is_stderr_full))
			sched_yield();
		atomic_fetch_sub(&n_writing, 1);
	}
	return real(fd, data, length);
}

static int read_table_size(void)
{
	FILE *file = fopen("/proc/self/status", "r");
	char line[256];
	int size = 0;

	while (file && fgets(line, sizeof(line), file))
		(void)sscanf(line, "FDSize: %d", &size);
	if (file)
		fclose(file);
	return size;
}

static void start_first(void)
{
	is_main = true;
	table_size = read_table_size();
	app_start();
	app_fact("table size", (uint64_t)table_size);
}

/* No thread of gpupool runs before the calls have returned. */
static void start_up(void)
{
	CUdeviceptr ptr;

	start_first();
	atomic_store(&is_gate_closed, true);
	ptr = app_alloc(MIB);
	APP_MUST(cuMemFree_v2(ptr));
	ptr = app_alloc(KIB);
	APP_MUST(cuMemFree_v2(ptr));
	app_fact("registered at first", atomic_load(&n_registered));
	atomic_store(&is_gate_closed, false);
	while (!atomic_load(&n_registered))
		sched_yield();
	app_fact("registered by the main thread", atomic_load(&n_registered_by_main));
	app_fact("table enlarged by the main thread", atomic_load(&n_enlarged_by_main));
	ptr = app_alloc(KIB);
	APP_MUST(cuMemFree_v2(ptr));
}

enum { RELEASED_BLOCKS = 16 };

/* Frees memory that does not stay in the pool: more blocks than the kind none queues, and a block without a cache. */
static void release(CUstream stream)
{
	CUdeviceptr ptrs[RELEASED_BLOCKS], uncached;

	for (int i = 0; i < RELEASED_BLOCKS; i++)
		ptrs[i] = app_alloc(MIB);
	(void)gpupool_no_cache_begin();
	uncached = app_alloc(48 * MIB);
	app_fill(stream, uncached, MIB, 1);
	if (!stream)
		APP_MUST(cuCtxSynchronize());
	APP_MUST(cuMemFree_v2(uncached));
	(void)gpupool_no_cache_end();
	for (int i = 0; i < RELEASED_BLOCKS; i++)
		APP_MUST(cuMemFree_v2(ptrs[i]));
	app_fact("own frees", app_calls("cuMemFree_v2"));
	app_fact("stream-ordered frees", app_calls("cuMemFreeAsync"));
}

static void release_idle(void)
{
	app_start();
	release(NULL);
}

static CUstream spinning;

static void *spin_in_thread(void *flag)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	app_spin_until(spinning, flag, 1);
	return NULL;
}

/* Another thread's kernel ends only after the frees have returned. */
static void release_busy(void)
{
	pthread_t thread;
	void *flag;

	app_start();
	APP_MUST(cuMemHostAlloc(&flag, sizeof(uint32_t), 0));
	*(volatile uint32_t *)flag = 0;
	spinning = app_stream();
	APP_MUST(pthread_create(&thread, NULL, spin_in_thread, flag));
	APP_MUST(pthread_join(thread, NULL));
	release(spinning);
	*(volatile uint32_t *)flag = 1;
	APP_MUST(cuCtxSynchronize());
}

static void *free_in_thread(void *ptr)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	APP_MUST(cuMemFree_v2((CUdeviceptr)(uintptr_t)ptr));
	return NULL;
}

/* The fence of a free fails, and the message about that cannot be written before another thread has freed a block. */
static void log_blocks(void)
{
	CUdeviceptr first, second;
	pthread_t thread;

	app_start();
	first = app_alloc(64 * MIB);
	second = app_alloc(64 * MIB);
	app_fill(NULL, first, MIB, 1);
	atomic_store(&is_stderr_full, true);
	APP_MUST(pthread_create(&thread, NULL, free_in_thread, (void *)(uintptr_t)first));
	while (!atomic_load(&n_writing))
		sched_yield();
	app_fill(NULL, second, MIB, 1);
	APP_MUST(cuMemFree_v2(second));
	atomic_store(&is_stderr_full, false);
	APP_MUST(pthread_join(thread, NULL));
}

const struct app_scenario app_scenarios[] = {
	{"start-up", start_up},
	{"log-blocks", log_blocks},
	{"release-idle", release_idle},
	{"release-busy", release_busy},
	{0},
};
