/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The life of a process: forks, and its end. */

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app_driver.h"

static void wait_for(pid_t child)
{
	int status;

	if (waitpid(child, &status, 0) != child)
		exit(72);
	app_result("child", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static void use_memory(void)
{
	for (unsigned i = 0; i < 16; i++) {
		CUdeviceptr ptr = app_alloc(MIB);

		app_fill(NULL, ptr, 4096, i);
		app_result("wrong words", (int)app_count_wrong(NULL, ptr, 4096, i));
		APP_MUST(cuMemFree_v2(ptr));
	}
}

/* The usual order: the program forks its workers first, and each of them then uses CUDA. */
static void fork_before(void)
{
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child == 0) {
		app_start();
		use_memory();
		app_fact("child allocs", app_calls("cuMemAlloc_v2"));
		exit(3);
	}
	wait_for(child);
	app_start();
	use_memory();
	app_report_driver();
}

static _Atomic bool is_over;

static void *keep_locks_busy(void *unused)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	while (!is_over)
		APP_MUST(cuMemFree_v2(app_alloc(MIB)));
	return NULL;
}

static bool are_others_asleep(void)
{
	DIR *tasks = opendir("/proc/self/task");
	bool are_asleep = tasks != NULL;
	struct dirent *task;

	while (tasks && (task = readdir(tasks)))
		are_asleep &=
			*task->d_name == '.' || atoi(task->d_name) == getpid() || app_is_asleep(atoi(task->d_name));
	if (tasks)
		closedir(tasks);
	return are_asleep;
}

/*
 * The program has no thread but this one, so the child knows all memory of the parent. The library's threads sleep at
 * the fork: what a thread has locked in the allocator of a sanitizer stays locked in the child.
 */
static void fork_alone(void)
{
	CUdeviceptr kept;
	pid_t child;

	app_start();
	kept = app_alloc(MIB);
	fflush(stdout);
	while (!are_others_asleep())
		usleep(1000);
	child = fork();
	if (child == 0)
		exit(4);
	wait_for(child);
	app_result("cuMemFree in the parent", cuMemFree_v2(kept));
}

/*
 * CUDA does not survive a fork. Calls in the child return an error and never hang, even if threads of the
 * parent held locks at the fork.
 */
static void fork_after(void)
{
	CUdeviceptr kept;
	pthread_t thread;

	app_start();
	kept = app_alloc(MIB);
	pthread_create(&thread, NULL, keep_locks_busy, NULL);
	for (unsigned i = 0; i < 8; i++) {
		pid_t child;

		fflush(stdout);
		child = fork();
		if (child == 0) {
			CUdeviceptr ptr = 0x5a5a;
			void *host;

			app_result("cuMemAlloc in the child", cuMemAlloc_v2(&ptr, MIB));
			app_result("cuMemFree in the child", cuMemFree_v2(kept));
			app_result("cuMemHostAlloc in the child", cuMemHostAlloc(&host, MIB, 0));
			printf("left alone %d\n", ptr == 0x5a5a);
			exit(4);
		}
		wait_for(child);
	}
	is_over = true;
	pthread_join(thread, NULL);
	app_pause("forked");
	app_result("cuMemFree in the parent", cuMemFree_v2(kept));
	use_memory();
}

/*
 * Calls of the driver at the end of the scenario. Later ones are counted after all exit handlers and
 * destructors except the driver's.
 */
static uint64_t calls_at_exit;

static uint64_t all_calls(void)
{
	static const char *const names[] = {"cuMemAlloc_v2", "cuMemFree_v2", "cuMemFreeAsync", "cuMemFreeHost",
		"cuMemHostAlloc", "cuCtxSynchronize", "cuCtxGetCurrent", "cuEventQuery", "cuStreamSynchronize",
		"cuStreamDestroy_v2", "cuEventDestroy_v2", "cuCtxRecordEvent", "cuCtxPushCurrent_v2",
		"cuDevicePrimaryCtxRelease"};
	uint64_t n = 0;

	for (size_t i = 0; i < LENGTH(names); i++)
		n += app_calls(names[i]);
	return n;
}

static bool reports_at_exit;

/* Priority 101 makes it the last of the program's destructors. */
__attribute__((destructor(101))) static void report_calls(void)
{
	if (reports_at_exit)
		app_fact("calls at exit", all_calls() - calls_at_exit);
}

static void exit_with_blocks(void)
{
	void *host;

	app_start();
	for (unsigned i = 0; i < 32; i++) {
		CUdeviceptr ptr = app_alloc(MIB);

		if (i % 2)
			APP_MUST(cuMemFree_v2(ptr));
	}
	APP_MUST(cuMemHostAlloc(&host, MIB, 0));
	app_spin(NULL, 50000);
	reports_at_exit = true;
	calls_at_exit = all_calls();
	printf("bye\n");
}

static CUdeviceptr late_ptr;
static void *late_host;

/* The destructor of a static object in C++ would do this. */
__attribute__((destructor)) static void free_late(void)
{
	if (!late_ptr)
		return;
	app_result("free at exit", cuMemFree_v2(late_ptr));
	app_result("pinned free at exit", cuMemFreeHost(late_host));
	app_result("alloc at exit", cuMemAlloc_v2(&late_ptr, MIB));
	app_result("free at exit", cuMemFree_v2(late_ptr));
}

static void free_in_handler(void)
{
	app_result("free in a handler", cuMemFree_v2(late_ptr));
	late_ptr = app_alloc(MIB);
}

static void exit_late(void)
{
	app_start();
	atexit(free_in_handler);
	late_ptr = app_alloc(MIB);
	APP_MUST(cuMemHostAlloc(&late_host, MIB, 0));
}

static void release_in_handler(void)
{
	app_result("release", cuDevicePrimaryCtxRelease_v2(0));
}

/*
 * The handler is registered first and so runs after the driver's, like the handler of a runtime that was there early.
 */
static void exit_released(void)
{
	atexit(release_in_handler);
	app_start();
	for (unsigned i = 0; i < 16; i++)
		app_alloc(40 * MIB);
}

static void churn(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		APP_MUST(cuMemFree_v2(app_alloc(KIB * (1 + i % 64))));
}

/* Ends without a chance to run any more code. */
static void killed(void)
{
	app_start();
	churn(8000);
	printf("killed\n");
	fflush(stdout);
	raise(SIGKILL);
}

/* No file may grow beyond the size that a recording has at its start. */
static void full_disk(void)
{
	const struct rlimit limit = {40000, 40000};

	app_start();
	churn(64);
	APP_MUST(setrlimit(RLIMIT_FSIZE, &limit));
	churn(7936);
	printf("done\n");
}

/* Starts like a daemon: changes the directory and closes all descriptors above those it needs. */
static void moves_away(void)
{
	app_start();
	churn(1);
	APP_MUST(chdir("/"));
	for (int fd = 5; fd < 256; fd++)
		close(fd);
	churn(7999);
	printf("done\n");
}

const struct app_scenario app_scenarios[] = {
	{"fork-before", fork_before},
	{"fork-alone", fork_alone},
	{"fork-after", fork_after},
	{"exit", exit_with_blocks},
	{"exit-late", exit_late},
	{"exit-released", exit_released},
	{"killed", killed},
	{"moves-away", moves_away},
	{"full-disk", full_disk},
	{0},
};
