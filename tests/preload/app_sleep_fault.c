/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Sleeps and wakes in which something fails, or is interrupted. */

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

#include "app_sleep.h"

/* The driver refuses a call of a sleep, or of a wake. */
void faulty(void)
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
	app_fault(at_sleep);
	sleep_now();
	app_fault(NULL);
	app_fact("bytes", app_device_bytes(0));
	app_say("wrong words", "%zu", count_wrong() + app_count_wrong(NULL, other, sizes[4], 4));
	APP_MUST(cuCtxSynchronize());
	sleep_now();
	app_fault(at_wake);
	report("woke", gpupool_wake(0));
	app_fact("bytes after the wake", app_device_bytes(0));
	/* The first calls still fail. The program waits for the memory, and does not run without it. */
	app_say("wrong words", "%zu", count_wrong() + app_count_wrong(NULL, other, sizes[4], 4));
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
void signalled(void)
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

/* Reads the bytes that the process has mapped, and those of them that have memory. Zeros: the kernel does not tell. */
static void read_memory(uint64_t *ret_mapped, uint64_t *ret_resident)
{
	FILE *statm = fopen("/proc/self/statm", "r");
	unsigned long mapped = 0, resident = 0;

	if (statm && fscanf(statm, "%lu %lu", &mapped, &resident) != 2)
		mapped = resident = 0;
	if (statm)
		(void)fclose(statm);
	*ret_mapped = mapped * 4096;
	*ret_resident = resident * 4096;
}

/* The content takes two pieces of host memory. After a sleep that failed and after a wake none of it is left. */
void in_pieces(void)
{
	static const size_t size = 320 * MIB;
	uint64_t unused, before, after;
	CUdeviceptr block;

	app_start();
	block = app_alloc(size);
	app_fill(NULL, block, size, 7);
	APP_MUST(cuCtxSynchronize());
	read_memory(&unused, &before);
	app_fault(getenv("APP_FAULT_ASLEEP"));
	sleep_now();
	app_fault(NULL);
	app_say("wrong words", "%zu", app_count_wrong(NULL, block, size, 7));
	read_memory(&unused, &after);
	app_fact("MiB of host memory left behind", after > before ? (after - before) / MIB : 0);
	app_fact("pieces", app_calls("cuMemHostRegister_v2"));
	app_report_driver();
}

/* The kernel gives the process no more memory. */
void no_host(void)
{
	struct rlimit before, none = {0, RLIM_INFINITY};
	uint64_t mapped, unused;

	app_start();
	make_blocks();
	(void)getrlimit(RLIMIT_AS, &before);
	read_memory(&mapped, &unused);
	if (mapped)
		none = (struct rlimit){mapped + 2 * MIB, before.rlim_max};
	(void)setrlimit(RLIMIT_AS, &none);
	report("without host memory", gpupool_sleep(TIMEOUT_MS));
	app_fact("bytes", app_device_bytes(0));
	(void)setrlimit(RLIMIT_AS, &before);
	app_say("wrong words", "%zu", count_wrong());
	APP_MUST(cuCtxSynchronize());
	sleep_now();
	app_say("wrong words", "%zu", count_wrong());
	app_report_driver();
}

/*
 * The test asks for a sleep or a wake, and kills one of the two sides, or waits. The process stops within it, in a call
 * of the driver: APP_STOP=FUNCTION NTH start|end. APP_ASLEEP: it is asleep before.
 */
void stopped(void)
{
	const char *stop = getenv("APP_STOP");
	char function[64], point[8];
	unsigned nth;

	app_start();
	make_blocks();
	if (getenv("APP_ASLEEP"))
		sleep_now();
	if (stop && sscanf(stop, "%63s %u %7s", function, &nth, point) == 3)
		app_stop_nth_call(function, strcmp(point, "end") == 0, nth);
	else
		stop = NULL;
	app_pause("before");
	if (stop)
		app_await_stopped_call();
	app_pause("within");
	app_release_calls();
	app_pause("after");
	app_say("wrong words", "%zu", count_wrong());
	app_report_driver();
}

/* A process that needs nearly all of a device of 64 MiB. */
void neighbour(void)
{
	static const size_t size = 56 * MIB;
	CUdeviceptr block;

	app_start();
	APP_MUST(cuMemAlloc_v2(&block, size));
	app_fill(NULL, block, size, 7);
	app_pause("alive");
	app_say("wrong words", "%zu", app_count_wrong(NULL, block, size, 7));
}
