/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* All the ways in which a process ends, with memory in use, cached, and being used. */

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "guest.h"

static CUdeviceptr kept;

static void start(void)
{
	struct rlimit no_core = {0, 0};

	setrlimit(RLIMIT_CORE, &no_core);
	app_start();
	guest_use("until the end");
	kept = app_alloc(MIB);
}

static void say(const char *what)
{
	printf("%s\n", what);
	fflush(stdout);
}

static void free_kept(void)
{
	app_result("free", cuMemFree_v2(kept));
	app_result("alloc", cuMemAlloc_v2(&kept, MIB));
	fflush(stdout);
}

static void at_quick_end(void)
{
	start();
	at_quick_exit(free_kept);
	atexit(abort);
	say("quick");
	quick_exit(7);
}

static void at_once(void)
{
	start();
	atexit(abort);
	say("at once");
	_exit(8);
}

static void aborted(void)
{
	start();
	say("aborts");
	abort();
}

static void killed(void)
{
	start();
	say("is killed");
	raise(SIGKILL);
}

static void *exit_here(void *unused)
{
	guest_join();
	free_kept();
	exit(9);
}

static void from_thread(void)
{
	pthread_t thread;

	start();
	atexit(free_kept);
	pthread_create(&thread, NULL, exit_here, NULL);
	pthread_join(thread, NULL);
}

static pthread_barrier_t barrier;

/* Until the process is gone, with or without success. */
static void *use_for_ever(void *unused)
{
	guest_join();
	pthread_barrier_wait(&barrier);
	for (unsigned i = 0;; i++) {
		CUdeviceptr ptr = 0;

		if (!cuMemAlloc_v2(&ptr, (size_t)512 << i % 12))
			(void)cuMemFree_v2(ptr);
	}
	return NULL;
}

static void start_busy(void)
{
	enum { N_BUSY = 3 };

	start();
	pthread_barrier_init(&barrier, NULL, N_BUSY + 1);
	for (unsigned i = 0; i < N_BUSY; i++) {
		pthread_t thread;

		pthread_create(&thread, NULL, use_for_ever, NULL);
	}
	pthread_barrier_wait(&barrier);
	say("busy");
}

static void busy_exit(void)
{
	start_busy();
	atexit(free_kept);
	exit(10);
}

static void busy_quick(void)
{
	start_busy();
	quick_exit(11);
}

/* Somebody's last words come from a thread that starts when the process already ends. */
static void *speak(void *unused)
{
	guest_join();
	free_kept();
	return NULL;
}

static void speak_last(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, speak, NULL);
	pthread_join(thread, NULL);
}

static void in_late_thread(void)
{
	start();
	atexit(speak_last);
}

static void late_fork(void)
{
	int child;

	fflush(stdout);
	child = fork();
	if (child == 0)
		_exit(cuMemFree_v2(kept) ? 12 : 0);
	guest_wait("a child at the end", child);
}

static void fork_at_end(void)
{
	start();
	atexit(late_fork);
}

const struct app_scenario app_scenarios[] = {
	{"quick", at_quick_end},
	{"at-once", at_once},
	{"aborted", aborted},
	{"killed", killed},
	{"from-thread", from_thread},
	{"busy-exit", busy_exit},
	{"busy-quick", busy_quick},
	{"in-late-thread", in_late_thread},
	{"fork-at-end", fork_at_end},
	{0},
};
