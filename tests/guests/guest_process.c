/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Daemons, programs that close descriptors, and programs that become or start others. */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest.h"

extern char **environ;

static const char result_name[] = "result";

/* An old kernel, or an emulator, may not have close_range. */
static void close_from(unsigned first)
{
	if (close_range(first, ~0u, 0) == 0)
		return;
	for (unsigned fd = first; fd < 4096; fd++)
		close((int)fd);
}

/* Becomes a daemon as daemon(3) does, and leaves no earlier descriptor open. */
static void be_daemon(void)
{
	setsid();
	if (fork())
		_exit(0);
	close_from(0);
	if (open("/dev/null", O_RDWR) != 0 || dup(0) != 1 || dup(0) != 2)
		_exit(1);
	if (!freopen(result_name, "w", stdout))
		_exit(2);
	app_start();
	guest_use("daemon");
	close_from(3);
	guest_forget_descriptors(3);
	guest_use("daemon without descriptors");
	guest_list_descriptors("daemon");
	exit(5);
}

static void print_result(void)
{
	FILE *file = fopen(result_name, "r");
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		fputs(line, stdout);
	if (file)
		fclose(file);
	unlink(result_name);
}

/* The daemon becomes a child of this process, which waits for its end. */
static void daemonise(void)
{
	pid_t child, daemon_pid;
	int status = 0;

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	fflush(stdout);
	child = fork();
	if (child == 0)
		be_daemon();
	guest_wait("parent of the daemon", child);
	daemon_pid = wait(&status);
	printf("daemon: %d\n", daemon_pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	print_result();
}

enum { N_FILES = 64, OWN_FIRST = 512, OWN_LAST = 520 };

static bool is_intact(int fd, ino_t inode)
{
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && st.st_ino == inode && st.st_size == 0;
}

/* The kernel refuses a number with EBUSY for the moment in which another thread takes it. */
static int copy_to(int from, int to)
{
	int fd;

	do
		fd = dup2(from, to);
	while (fd < 0 && errno == EBUSY);
	return fd;
}

/*
 * The library loses its descriptors, and their numbers go to files of the program. These files must stay open, and
 * nothing may be written to them.
 */
static void close_all(void)
{
	int fds[N_FILES + OWN_LAST - OWN_FIRST];
	unsigned n = 0, n_lost = 0;
	struct stat st = {0};

	app_start();
	guest_use("before");
	close_from(5);
	while (n < N_FILES)
		fds[n++] = open(result_name, O_RDWR | O_CREAT | O_APPEND, 0600);
	for (int fd = OWN_FIRST; fd < OWN_LAST; fd++)
		fds[n++] = copy_to(fds[0], fd);
	guest_use("after");
	stat(result_name, &st);
	for (unsigned i = 0; i < n; i++) {
		if (is_intact(fds[i], st.st_ino))
			continue;
		n_lost++;
		fprintf(stderr, "file %u, descriptor %d is lost\n", i, fds[i]);
	}
	printf("lost: %u\n", n_lost);
	unlink(result_name);
}

static void become(const char *scenario)
{
	char self[PATH_MAX], word[32];
	char *const words[] = {self, word, NULL};
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n < 0)
		exit(74);
	self[n] = '\0';
	snprintf(word, sizeof(word), "%s", scenario);
	fflush(stdout);
	execv(self, words);
	perror(self);
	exit(75);
}

/*
 * Starts a new program in the same process. No state of the previous program is left, and the new one gets its own
 * pool.
 */
static void after_exec(void)
{
	guest_list_descriptors("after exec");
	app_start();
	guest_use("after exec");
	app_fact("threads", guest_count_entries("/proc/self/task"));
	app_report_driver();
}

static void exec_self(void)
{
	app_start();
	guest_use("before exec");
	become("after-exec");
}

static void *exec_in_thread(void *unused)
{
	guest_join();
	guest_use("in a thread");
	become("after-exec");
	return NULL;
}

static void exec_from_thread(void)
{
	pthread_t thread;

	app_start();
	pthread_create(&thread, NULL, exec_in_thread, NULL);
	pthread_join(thread, NULL);
}

static void fork_then_exec(void)
{
	pid_t child;

	app_start();
	guest_use("before");
	fflush(stdout);
	child = fork();
	if (child == 0)
		become("after-exec");
	guest_wait("child", child);
	guest_use("after");
}

/* Prints the descriptors and variables that child processes inherit, for each way to start a child. */
static void children(void)
{
	char command[] = "ls /proc/self/fd | tr '\\n' ' '; grep SigBlk /proc/self/status";
	char name[] = "sh", option[] = "-c";
	char *const words[] = {name, option, command, NULL};
	char line[256];
	FILE *pipe_;
	pid_t child;

	app_start();
	guest_use("before");
	guest_list_descriptors("before");
	fflush(stdout);
	app_result("system", system(command));
	pipe_ = popen(command, "r");
	while (pipe_ && fgets(line, sizeof(line), pipe_))
		fputs(line, stdout);
	app_result("popen", pipe_ ? pclose(pipe_) : -1);
	fflush(stdout);
	app_result("posix_spawn", posix_spawn(&child, "/bin/sh", NULL, NULL, words, environ));
	guest_wait("spawned", child);
	fflush(stdout);
	child = vfork();
	if (child == 0) {
		execv("/bin/sh", words);
		_exit(6);
	}
	guest_wait("after vfork", child);
	guest_use("after");
	guest_list_descriptors("after");
}

/* Runs until it is killed. */
static void endless(void)
{
	app_start();
	for (;;)
		(void)guest_count_wrong();
}

const struct app_scenario app_scenarios[] = {
	{"daemonise", daemonise},
	{"close-all", close_all},
	{"exec", exec_self},
	{"exec-from-thread", exec_from_thread},
	{"fork-then-exec", fork_then_exec},
	{"after-exec", after_exec},
	{"children", children},
	{"endless", endless},
	{0},
};
