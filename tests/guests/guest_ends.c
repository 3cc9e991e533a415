/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* All ways in which a process ends, with memory in use, cached and being accessed. */

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
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

static void print_line(const char *what)
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
	print_line("quick");
	quick_exit(7);
}

static void at_once(void)
{
	start();
	atexit(abort);
	print_line("at once");
	_exit(8);
}

static void aborted(void)
{
	start();
	print_line("aborts");
	abort();
}

static void killed(void)
{
	start();
	print_line("is killed");
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

/* Allocates and frees until the process has ended. Calls may fail by then. */
static void *use_forever(void *unused)
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

		pthread_create(&thread, NULL, use_forever, NULL);
	}
	pthread_barrier_wait(&barrier);
	print_line("busy");
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

/* A thread that starts when the process already ends calls the driver. */
static void *call_driver(void *unused)
{
	guest_join();
	free_kept();
	return NULL;
}

static void call_driver_last(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, call_driver, NULL);
	pthread_join(thread, NULL);
}

static void in_late_thread(void)
{
	start();
	atexit(call_driver_last);
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

static void do_nothing(void *unused)
{
}

static void *work_on(void *unused)
{
	guest_join();
	guest_use("after the main thread");
	return NULL;
}

/*
 * Runs in a child: the main thread ends before another one does. If a host function has run, the driver has a thread,
 * too.
 */
static _Noreturn void leave_main(bool has_driver_thread)
{
	pthread_t thread;

	start();
	if (has_driver_thread) {
		app_must(cuLaunchHostFunc(NULL, do_nothing, NULL), "a host function");
		app_must(cuCtxSynchronize(), "its end");
	}
	fflush(stdout);
	pthread_create(&thread, NULL, work_on, NULL);
	pthread_detach(thread);
	pthread_exit(NULL);
}

/* Reads the first line of a file in the /proc directory of a child's thread. */
static bool read_line(char line[static 512], int child, int task, const char *name)
{
	char path[128];
	FILE *file;
	bool is_read;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", child, task, name);
	file = fopen(path, "re");
	is_read = file && fgets(line, 512, file);
	if (file)
		fclose(file);
	return is_read;
}

static bool has_main_ended(int child)
{
	char line[512], *rest;

	rest = read_line(line, child, child, "stat") ? strrchr(line, ')') : NULL;
	return rest && rest[2] == 'Z';
}

/* True if the only thread of a child, apart from its main thread, is the library's. */
static bool has_only_library_thread(int child)
{
	unsigned n = 0, n_library_threads = 0;
	const struct dirent *entry;
	char path[64], line[512];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", child);
	dir = opendir(path);
	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.' && atoi(entry->d_name) != child) {
			n++;
			n_library_threads +=
				read_line(line, child, atoi(entry->d_name), "comm") && strcmp(line, "gpupool\n") == 0;
		}
	if (dir)
		closedir(dir);
	return n == 1 && n_library_threads == 1;
}

static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

/* Restores the default of signals that a background job of a shell, and so its children, may ignore. */
static int start_child(bool has_driver_thread)
{
	int child;

	fflush(stdout);
	child = fork();
	if (child == 0) {
		for (size_t i = 0; i < LENGTH(signals); i++)
			signal(signals[i], SIG_DFL);
		leave_main(has_driver_thread);
	}
	return child;
}

/* If no thread takes a signal, this process ends by SIGALRM. */
static void signal_without_main(void)
{
	alarm(30);
	for (size_t i = 0; i < LENGTH(signals); i++) {
		int child = start_child(true);

		while (!has_main_ended(child))
			sched_yield();
		kill(child, signals[i]);
		guest_wait("a child without its main thread", child);
	}
}

static void end_without_main(void)
{
	int child = start_child(false), status = 0, ended;

	alarm(30);
	while (!(ended = waitpid(child, &status, WNOHANG)) &&
		!(has_main_ended(child) && has_only_library_thread(child)))
		sched_yield();
	if (ended) {
		app_result("it ends", status);
		return;
	}
	print_line("it stays");
	kill(child, SIGKILL);
	guest_wait("it is killed", child);
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
	{"end-without-main", end_without_main},
	{"signal-without-main", signal_without_main},
	{0},
};
