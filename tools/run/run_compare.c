/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Each run is a process group of its own, so that its processes can be ended together. The terminal's signals then
 * reach this process alone, which blocks all signals and takes them while it waits: an interrupt is passed on to the
 * group, which is killed if it has not ended after GRACE_NS, or at the second signal. Output goes to files without a
 * name, and every run gets the same input: a file from the same place, or nothing.
 */

#include "run_compare.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/config.h"
#include "run_nvml.h"
#include "run_summary.h"
#include "run_table.h"
#include "run_wait.h"

#define SECOND_NS UINT64_C(1000000000)
#define GRACE_NS  SECOND_NS

enum { SAMPLE_NS = 10000000, TAIL_LINES = 10, NAME_MAX_BYTES = 48 };

struct session {
	const struct run_compare *compare;
	struct run_nvml nvml;
	off_t input_at;      /* -1: the runs have no input */
	sigset_t mask;       /* of the command */
	bool shows_progress; /* on a terminal */
	int ended_by;        /* the signal that interrupts the comparison; 0: none */
};

/* A run that goes on. */
struct running {
	pid_t pid;
	uint64_t start_ns, base_bytes, shown_s, kill_at_ns;
	bool is_stopped; /* it asked for the terminal */
};

enum run_status run_compare_parse(struct run_compare *compare, const char *text)
{
	struct gp_text_error error;
	const char *at = text;

	for (compare->n_types = 0;;) {
		size_t length = strcspn(at, ",");
		char *type = compare->types[compare->n_types];

		if (length < RUN_TYPE_SIZE)
			memcpy(type, at, length);
		type[length < RUN_TYPE_SIZE ? length : 0] = '\0';
		if (gp_config_check(GP_OPTION_POOL, type, &error) < 0) {
			error.offset = (size_t)(at - text);
			run_mark("--compare", text, &error);
			return RUN_USAGE;
		}
		compare->n_types++;
		at += length;
		if (!*at)
			return RUN_OK;
		if (compare->n_types == RUN_TYPES_MAX) {
			run_mark("--compare", text,
				&(struct gp_text_error){.offset = (size_t)(at - text),
					.why = "has too many pool types",
					.next = "name at most five"});
			return RUN_USAGE;
		}
		at++;
	}
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

/* Returns the position of standard input if it is a file, or -1. */
static off_t find_input(void)
{
	struct stat st;

	return fstat(STDIN_FILENO, &st) == 0 && S_ISREG(st.st_mode) ? lseek(STDIN_FILENO, 0, SEEK_CUR) : -1;
}

static void open_input(off_t at)
{
	int fd = open(at < 0 ? "/dev/null" : "/proc/self/fd/0", O_RDONLY);

	if (fd < 0)
		return;
	if (at >= 0)
		(void)lseek(fd, at, SEEK_SET);
	dup2(fd, STDIN_FILENO);
	if (fd != STDIN_FILENO)
		close(fd);
}

static void become(const struct session *session, const struct run_result *result, pid_t parent, int report_fd)
{
	char **command = session->compare->command;
	int error;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setpgid(0, 0);
	if (getppid() != parent)
		_exit(RUN_FAILED);
	open_input(session->input_at);
	dup2(result->out_fd, STDOUT_FILENO);
	dup2(result->err_fd, STDERR_FILENO);
	sigprocmask(SIG_SETMASK, &session->mask, NULL);
	if (result->type && setenv("GPUPOOL_POOL", result->type, 1) < 0)
		_exit(RUN_FAILED);
	if (!result->type)
		environ = session->compare->raw_environment;
	execvp(*command, command);
	error = errno;
	(void)!write(report_fd, &error, sizeof(error));
	_exit(RUN_NOT_STARTABLE);
}

/* Starts a run. Returns 0, or the exit status after a message. */
static int begin(const struct session *session, const struct run_result *result, struct running *ret)
{
	pid_t self = getpid();
	int report[2], error = 0;
	ssize_t n;

	if (pipe2(report, O_CLOEXEC) < 0) {
		run_error(NULL, "cannot start a process: %s.", strerror(errno));
		return RUN_FAILED;
	}
	*ret = (struct running){.start_ns = now_ns(), .shown_s = UINT64_MAX};
	ret->pid = fork();
	if (ret->pid == 0)
		become(session, result, self, report[1]);
	close(report[1]);
	if (ret->pid < 0) {
		run_error(NULL, "cannot start a process: %s.", strerror(errno));
		close(report[0]);
		return RUN_FAILED;
	}
	setpgid(ret->pid, ret->pid);
	n = read(report[0], &error, sizeof(error));
	close(report[0]);
	if (n != (ssize_t)sizeof(error))
		return 0;
	waitpid(ret->pid, NULL, 0);
	return run_cannot_start(*session->compare->command, error);
}

static void sample(const struct session *session, const struct running *run, struct run_result *result)
{
	uint64_t used;

	if (!run_nvml_used(&session->nvml, &used))
		return;
	result->has_peak = true;
	if (used > run->base_bytes && used - run->base_bytes > result->peak_bytes)
		result->peak_bytes = used - run->base_bytes;
}

/* Returns the words after the command, as in "with split". */
static const char *name_of(const struct run_result *result, char text[static NAME_MAX_BYTES])
{
	snprintf(text, NAME_MAX_BYTES, "%s%s", result->type ? "with " : "without gpupool",
		result->type ? result->type : "");
	return text;
}

static void show_progress(
	const struct session *session, struct running *run, const struct run_result *result, unsigned n)
{
	uint64_t s = (now_ns() - run->start_ns) / SECOND_NS;

	char name[NAME_MAX_BYTES];

	if (!session->shows_progress || s == run->shown_s)
		return;
	run->shown_s = s;
	run_progress("run %u of %u, %s: %llu s", n + 1, session->compare->n_types + 1, name_of(result, name),
		(unsigned long long)s);
}

static void stop_all(struct running *run)
{
	uint64_t before = now_ns();

	(void)kill(-run->pid, SIGSTOP);
	raise(SIGSTOP);
	(void)kill(-run->pid, SIGCONT);
	run->start_ns += now_ns() - before;
}

static void take_signal(struct session *session, struct running *run, int signal_number)
{
	switch (signal_number) {
	case SIGTSTP:
		stop_all(run);
		break;
	case SIGINT:
	case SIGTERM:
	case SIGHUP:
	case SIGQUIT:
		(void)kill(-run->pid, session->ended_by ? SIGKILL : signal_number);
		session->ended_by = signal_number;
		run->kill_at_ns = now_ns() + GRACE_NS;
		break;
	default:
		break;
	}
}

/* Returns true once the command has ended. A command that wants the terminal would wait forever, and is killed. */
static bool has_ended(struct running *run, int *ret_status)
{
	if (run->kill_at_ns && now_ns() >= run->kill_at_ns)
		(void)kill(-run->pid, SIGKILL);
	if (waitpid(run->pid, ret_status, WNOHANG | WUNTRACED) != run->pid)
		return false;
	if (!WIFSTOPPED(*ret_status))
		return true;
	if (WSTOPSIG(*ret_status) == SIGTTIN || WSTOPSIG(*ret_status) == SIGTTOU) {
		run->is_stopped = true;
		(void)kill(-run->pid, SIGKILL);
	}
	return false;
}

static void attend(struct session *session, struct running *run, struct run_result *result, unsigned n)
{
	static const struct timespec interval = {.tv_nsec = SAMPLE_NS};
	sigset_t all;

	sigfillset(&all);
	show_progress(session, run, result, n);
	while (!has_ended(run, &result->status)) {
		int signal_number = sigtimedwait(&all, NULL, &interval);

		if (signal_number > 0)
			take_signal(session, run, signal_number);
		sample(session, run, result);
		show_progress(session, run, result, n);
	}
	result->ns = now_ns() - run->start_ns;
	if (session->ended_by)
		(void)kill(-run->pid, SIGKILL);
}

static void say_failure(const struct session *session, const struct run_result *result, const struct running *run)
{
	const char *command = *session->compare->command;
	char text[RUN_END_TEXT_MAX], name[NAME_MAX_BYTES];

	if (!result->status)
		return;
	if (run->is_stopped)
		run_error("give CMD its input in a file.", "%s %s wants the terminal, and was ended.", command,
			name_of(result, name));
	else
		run_error(NULL, "%s %s ended with %s.", command, name_of(result, name),
			run_end_text(text, result->status));
	run_spool_tail(result->err_fd, TAIL_LINES);
}

/* Makes run number n. Returns 0, or the exit status after a message. */
static int run_one(struct session *session, struct run_result *results, unsigned n)
{
	struct run_result *result = &results[n];
	struct run_summary summary;
	struct running run;
	struct stat st;
	uint64_t base = 0;
	int r;

	result->has_sum = result->type && run_summary_init(&summary);
	(void)run_nvml_used(&session->nvml, &base);
	r = begin(session, result, &run);
	run.base_bytes = base;
	if (!r)
		attend(session, &run, result, n);
	if (session->shows_progress)
		run_progress("%s", "");
	if (result->has_sum) {
		run_summary_total(&summary, &result->sum);
		run_summary_deinit(&summary);
	}
	if (r || session->ended_by)
		return r;
	say_failure(session, result, &run);
	if (fstat(result->out_fd, &st) == 0)
		result->out_bytes = st.st_size;
	if (n && !run_spool_compare(results[0].out_fd, result->out_fd, &result->difference)) {
		run_error(NULL, "cannot read the output of %s: %s.", *session->compare->command, strerror(errno));
		return RUN_FAILED;
	}
	return 0;
}

/* Restores the mask, so that this process ends by the signal. */
static int end_by(const struct session *session)
{
	(void)signal(session->ended_by, SIG_DFL);
	raise(session->ended_by);
	sigprocmask(SIG_SETMASK, &session->mask, NULL);
	return 128 + session->ended_by;
}

static int finish(const struct session *session, const struct run_result *results, unsigned n)
{
	bool is_good = true, has_peak = true;

	for (unsigned i = 0; i < n; i++) {
		is_good &= !results[i].status && !results[i].difference.is_different;
		has_peak &= results[i].has_peak;
	}
	if (!run_table_print(results, n, has_peak ? NULL : session->nvml.why)) {
		run_error(NULL, "cannot print: %s.", strerror(errno));
		return RUN_FAILED;
	}
	return is_good ? 0 : 1;
}

int run_compare(const struct run_compare *compare)
{
	struct session session = {
		.compare = compare, .input_at = find_input(), .shows_progress = !run_is_quiet && isatty(STDERR_FILENO)};
	struct run_result results[RUN_TYPES_MAX + 1] = {{.type = NULL}};
	unsigned n = compare->n_types + 1;
	sigset_t all;
	int r = 0;

	run_nvml_open(&session.nvml);
	(void)signal(SIGCHLD, SIG_DFL);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &session.mask);
	for (unsigned i = 0; i < n && !r && !session.ended_by; i++) {
		results[i].type = i ? compare->types[i - 1] : NULL;
		results[i].out_fd = run_spool_open();
		results[i].err_fd = run_spool_open();
		r = results[i].out_fd < 0 || results[i].err_fd < 0 ? RUN_FAILED : run_one(&session, results, i);
	}
	if (session.ended_by)
		return end_by(&session);
	return r ? r : finish(&session, results, n);
}
