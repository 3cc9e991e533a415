/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The shell, or whatever started gpupool-run, knows this process and not the command, so this process behaves as the
 * command does:
 *
 *   signals   This process blocks all signals and takes them one by one. The terminal and the kernel send theirs to the
 *             whole process group, so the command has them already. A signal that a process sent is passed on, since it
 *             may have been sent to this process alone. If it was sent to the group, the command gets it twice.
 *   stop      When the command stops, this process stops by the same signal, and the shell takes the terminal back.
 *             SIGCONT is passed on like other signals.
 *   end       This process ends with the same exit status, or by the same signal, without a second core dump.
 *   SIGKILL   If it ends this process, the kernel ends the command as well.
 *   files     This process closes its copies, so that the ends of pipes are noticed as without it.
 */

#include "run_wait.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dirent.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum run_status run_cannot_start(const char *command, int error)
{
	run_error(NULL, "%s cannot be started: %s.", command, strerror(error));
	return error == ENOENT ? RUN_NOT_FOUND : RUN_NOT_STARTABLE;
}

/* The signal settings that the command inherits. This process changes its own while it waits. */
struct before {
	sigset_t mask;
	struct sigaction on_child;
};

/* A parent may have ignored SIGCHLD. Then the kernel would keep no exit status. */
static void take_signals(struct before *before)
{
	const struct sigaction standard = {.sa_handler = SIG_DFL};
	sigset_t all;

	sigaction(SIGCHLD, &standard, &before->on_child);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before->mask);
}

static void give_signals_back(const struct before *before)
{
	sigaction(SIGCHLD, &before->on_child, NULL);
	sigprocmask(SIG_SETMASK, &before->mask, NULL);
}

static void become(char **command, const struct before *before, pid_t parent, int report_fd)
{
	int error;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(RUN_FAILED);
	give_signals_back(before);
	execvp(*command, command);
	error = errno;
	(void)!write(report_fd, &error, sizeof(error));
	_exit(RUN_NOT_STARTABLE);
}

/* Returns the error of execvp(), or 0 once the command has started: then the other end of the pipe is closed. */
static int read_error(int fd)
{
	int error = 0;
	ssize_t n = read(fd, &error, sizeof(error));

	close(fd);
	return n == (ssize_t)sizeof(error) ? error : 0;
}

static void close_others(int kept_fd)
{
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		int fd = atoi(entry->d_name);

		if (fd > STDERR_FILENO && fd != kept_fd && fd != dirfd(dir))
			close(fd);
	}
	if (dir)
		closedir(dir);
	for (int fd = STDIN_FILENO; fd <= STDOUT_FILENO; fd++) {
		int null_fd;

		close(fd);
		/* Takes the number that was closed, or a lower one that was closed all the time. */
		null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
		if (null_fd > fd)
			close(null_fd);
	}
}

/* Stops this process by the signal that stopped the command. The kernel may have sent the signal here as well. */
static void stop_by(int signal_number)
{
	static const struct timespec at_once;
	sigset_t one, before;

	sigemptyset(&one);
	sigaddset(&one, signal_number);
	if (signal_number != SIGSTOP) {
		(void)sigtimedwait(&one, NULL, &at_once);
		(void)signal(signal_number, SIG_DFL);
	}
	raise(signal_number);
	sigprocmask(SIG_UNBLOCK, &one, &before);
	sigprocmask(SIG_SETMASK, &before, NULL);
}

static void pass_on(pid_t child, const siginfo_t *info)
{
	bool is_by_process = info->si_code <= 0;

	if (!is_by_process || info->si_pid == child)
		return;
	if (info->si_code == SI_QUEUE)
		(void)sigqueue(child, info->si_signo, info->si_value);
	else
		(void)kill(child, info->si_signo);
}

/* Returns true once the command has ended. */
static bool has_ended(struct run_command *child)
{
	pid_t pid;

	while ((pid = waitpid(child->pid, &child->status, WNOHANG | WUNTRACED)) > 0) {
		if (!WIFSTOPPED(child->status))
			return true;
		stop_by(WSTOPSIG(child->status));
	}
	return false;
}

static void wait_for_end(struct run_command *child)
{
	siginfo_t info;
	sigset_t all;

	sigfillset(&all);
	while (!has_ended(child))
		if (sigwaitinfo(&all, &info) > 0 && info.si_signo != SIGCHLD)
			pass_on(child->pid, &info);
}

bool run_wait(char **command, int kept_fd, struct run_command *ret_command)
{
	struct before before;
	pid_t self = getpid();
	int report[2];

	*ret_command = (struct run_command){0};
	if (pipe2(report, O_CLOEXEC) < 0) {
		run_error(NULL, "cannot start a process: %s.", strerror(errno));
		return false;
	}
	take_signals(&before);
	ret_command->pid = fork();
	if (ret_command->pid == 0)
		become(command, &before, self, report[1]);
	if (ret_command->pid < 0) {
		int error = errno;
		give_signals_back(&before);
		run_error(NULL, "cannot start a process: %s.", strerror(error));
		return false;
	}
	close(report[1]);
	ret_command->error = read_error(report[0]);
	if (!ret_command->error)
		close_others(kept_fd);
	wait_for_end(ret_command);
	return true;
}

void run_end_like(const struct run_command *child)
{
	int signal_number = WTERMSIG(child->status);
	sigset_t one;

	if (WIFEXITED(child->status))
		exit(WEXITSTATUS(child->status));
	prctl(PR_SET_DUMPABLE, 0);
	(void)setrlimit(RLIMIT_CORE, &(const struct rlimit){0, 0});
	(void)signal(signal_number, SIG_DFL);
	raise(signal_number);
	sigemptyset(&one);
	sigaddset(&one, signal_number);
	sigprocmask(SIG_UNBLOCK, &one, NULL);
	/* The first process of a container is not ended by its own signals. */
	exit(128 + signal_number);
}
