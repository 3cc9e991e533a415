/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Processes in which system calls of the library are forbidden or fail. Each process still gets its memory. */

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest.h"

static void use_and_report(const char *label)
{
	app_start();
	guest_use(label);
	app_report_driver();
}

/* Makes the kernel answer these two calls with an error from now on. */
static void forbid(unsigned first, unsigned second, unsigned error)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, first, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, second, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {LENGTH(filter), filter};

	/* An emulator may not support filters. */
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		printf("no filter: error %d\n", errno);
}

static void no_socket(void)
{
	forbid(SYS_socket, SYS_socketpair, EACCES);
	use_and_report("no socket");
}

static void no_thread(void)
{
	forbid(SYS_clone, SYS_clone3, EAGAIN);
	use_and_report("no thread");
}

/* Old sandboxes do not know this call. */
static void no_statx(void)
{
	forbid(SYS_statx, SYS_statx, ENOSYS);
	use_and_report("no statx");
}

static void *ask_and_end(void *unused)
{
	size_t available, total;

	guest_join();
	pthread_cancel(pthread_self());
	(void)cuMemGetInfo_v2(&available, &total);
	pthread_testcancel();
	return NULL;
}

/*
 * A filter that is set while CUDA is already in use. A thread that ends in the middle of a call must not keep a lock.
 */
static void no_barrier(void)
{
	pthread_t thread;

	app_start();
	guest_use("before");
	forbid(SYS_membarrier, SYS_membarrier, EPERM);
	APP_MUST(pthread_create(&thread, NULL, ask_and_end, NULL));
	pthread_join(thread, NULL);
	guest_use("after");
	app_report_driver();
}

static void no_opening(void)
{
	app_start();
	forbid(SYS_openat, SYS_mkdirat, EPERM);
	guest_use("no opening");
	app_report_driver();
}

/* Uses up all descriptors. A descriptor that is closed later must be available to the program. */
static void no_descriptors(void)
{
	struct rlimit limit = {24, 24};
	int last = -1, fd;

	app_start();
	setrlimit(RLIMIT_NOFILE, &limit);
	while ((fd = dup(0)) >= 0)
		last = fd;
	printf("error %d, last %d\n", errno, last);
	guest_use("no descriptors");
	close(last);
	guest_use("one descriptor");
	app_report_driver();
	app_result("reused", open("/dev/null", O_RDONLY));
}

/* Lowers the limit of descriptors below the high number of the library's socket. */
static void lowered(void)
{
	struct rlimit limit = {16, 16};

	app_start();
	guest_use("before");
	setrlimit(RLIMIT_NOFILE, &limit);
	guest_use("after");
	app_report_driver();
}

/*
 * A daemon closes the first three descriptors and expects to get them again, at a limit that leaves no room far
 * above.
 */
static void first_three(void)
{
	struct rlimit limit = {24, 24};
	FILE *out;
	int fds[3];

	app_start();
	out = fdopen(dup(STDOUT_FILENO), "w");
	if (!out || setrlimit(RLIMIT_NOFILE, &limit))
		exit(80);
	for (int fd = 0; fd < 3; fd++)
		close(fd);
	if (guest_count_wrong())
		exit(81);
	for (int i = 0; i < 3; i++)
		fds[i] = open("/dev/null", O_RDWR);
	fprintf(out, "got %d %d %d\n", fds[0], fds[1], fds[2]);
	fclose(out);
	app_report_driver();
}

/* Limits files to their present size. The library may want to print to stderr, which is a file. */
static void no_files(void)
{
	struct rlimit limit = {0, 0};

	app_start();
	printf("the last line\n");
	fflush(stdout);
	setrlimit(RLIMIT_FSIZE, &limit);
	exit(guest_count_wrong() ? 78 : 13);
}

static void *use_in_thread(void *unused)
{
	guest_join();
	guest_use("in a thread");
	return NULL;
}

/* Limits the address space to little more than the process uses. */
static void little_memory(void)
{
	struct rlimit limit;
	unsigned long pages = 0;
	pthread_t thread;
	FILE *file;

	app_start();
	file = fopen("/proc/self/statm", "r");
	if (!file || fscanf(file, "%lu", &pages) != 1)
		exit(79);
	fclose(file);
	getrlimit(RLIMIT_AS, &limit);
	limit.rlim_cur = pages * (unsigned long)sysconf(_SC_PAGESIZE) + 48 * MIB;
	setrlimit(RLIMIT_AS, &limit);
	guest_use("little memory");
	if (pthread_create(&thread, NULL, use_in_thread, NULL) == 0)
		pthread_join(thread, NULL);
	app_report_driver();
}

const struct app_scenario app_scenarios[] = {
	{"no-socket", no_socket},
	{"no-thread", no_thread},
	{"no-statx", no_statx},
	{"no-barrier", no_barrier},
	{"no-opening", no_opening},
	{"no-descriptors", no_descriptors},
	{"lowered", lowered},
	{"first-three", first_three},
	{"no-files", no_files},
	{"little-memory", little_memory},
	{0},
};
