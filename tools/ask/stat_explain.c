/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_explain.h"

#include <errno.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIBRARY "libgpupool.so"

void stat_explain_user(char text[static STAT_TEXT_MAX], uid_t uid)
{
	const struct passwd *user = getpwuid(uid);

	if (user && strlen(user->pw_name) < STAT_TEXT_MAX)
		stat_clean(text, STAT_TEXT_MAX, user->pw_name);
	else
		snprintf(text, STAT_TEXT_MAX, "%u", (unsigned)uid);
}

void stat_explain_command(char *command, size_t size, pid_t pid)
{
	char path[32];
	size_t length = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	file = fopen(path, "re");
	if (file) {
		length = fread(command, 1, size - 1, file);
		fclose(file);
	}
	command[length] = '\0';
	for (size_t i = 0; i + 1 < length; i++)
		if (!command[i])
			command[i] = ' ';
}

static void explain(struct stat_process *process, enum stat_exit exit_code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static void explain(struct stat_process *process, enum stat_exit exit_code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(process->error, sizeof(process->error), format, args);
	va_end(args);
	process->exit = exit_code;
}

static void advise(struct stat_process *process, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void advise(struct stat_process *process, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(process->next, sizeof(process->next), format, args);
	va_end(args);
}

static char state_of(const struct stat_process *process)
{
	uint64_t start_ticks;
	char state;

	return gp_ctl_process_stat(process->pid, &start_ticks, &state) ? '?' : state;
}

static bool is_stopped(char state)
{
	return state == 'T' || state == 't';
}

bool stat_explain_is_stopped(const struct stat_process *process)
{
	return is_stopped(state_of(process));
}

static bool is_move(const struct stat_question *question)
{
	return !strcmp(question->schema, "sleep") || !strcmp(question->schema, "wake");
}

static void explain_silence(struct stat_process *process, const struct stat_question *question)
{
	double seconds = question->timeout_ms / 1000.0;
	int pid = (int)process->pid;
	char state = state_of(process);

	if (is_stopped(state)) {
		explain(process, STAT_NO_ANSWER, "is stopped (state %c), and cannot answer.", state);
		advise(process, "kill -CONT %d, or wait for its debugger.", pid);
		return;
	}
	if (is_move(question)) {
		explain(process, STAT_NO_ANSWER, "has not finished its %s within %g s: the driver may block it.",
			question->schema, seconds);
		advise(process, "it goes on with that, and is asleep or awake afterwards: gpupool-stat status %d", pid);
		return;
	}
	explain(process, STAT_NO_ANSWER, "did not answer within %g s.", seconds);
	if (!strcmp(question->schema, "reclaim"))
		advise(process, "it may still be giving memory back: gpupool-stat status %d", pid);
	else
		advise(process, "give it more time with --timeout.");
}

void stat_explain_error(struct stat_process *process, int error, const struct stat_question *question)
{
	char user[STAT_TEXT_MAX];

	switch (error) {
	case -ETIMEDOUT:
	case -EAGAIN:
		explain_silence(process, question);
		break;
	case -EBUSY:
		explain(process, STAT_NO_ANSWER,
			"did not answer within its part of the time, and other processes were waiting.");
		advise(process, "ask it alone: gpupool-stat %d", (int)process->pid);
		break;
	case -ECONNREFUSED:
		explain(process, STAT_NO_ANSWER, "runs, but does not listen at its socket.");
		advise(process, "the program may have closed it; gpupool-stat(1), DIAGNOSTICS.");
		break;
	case -EPERM:
		stat_explain_user(user, process->uid);
		explain(process, STAT_NOT_PERMITTED, "has a socket of user %s, at which another user listens.", user);
		advise(process, "unless this is intended, remove the socket %s.", process->name);
		break;
	case -EACCES:
		stat_explain_user(user, process->uid);
		explain(process, STAT_NOT_PERMITTED, "belongs to %s.", user);
		advise(process, "ask %s, or run as root.", user);
		break;
	case -ENOTSOCK:
		explain(process, STAT_FAILED, "has a file that is not a socket: %s", process->name);
		break;
	case -EMSGSIZE:
		explain(process, STAT_FAILED, "sent an answer of more than %zu bytes.", question->max_bytes);
		break;
	case -ECONNRESET:
		explain(process, STAT_FAILED, "closed the connection before it had answered.");
		advise(process, "see whether it still runs: ps %d", (int)process->pid);
		break;
	default:
		explain(process, STAT_FAILED, "cannot be asked: %s.", strerror(-error));
	}
}

void stat_explain_share(struct stat_process *process)
{
	char user[STAT_TEXT_MAX];

	stat_explain_user(user, process->uid);
	explain(process, STAT_FAILED, "is left out: the answers of user %s take too much memory.", user);
	advise(process, "ask it alone: gpupool-stat %d", (int)process->pid);
}

/* Returns 1 if the process has mapped the library, 0 if not, and -1 if its mappings are not readable. */
static int has_library(pid_t pid)
{
	char path[32], *line = NULL;
	size_t size = 0;
	int found = 0;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	maps = fopen(path, "re");
	if (!maps)
		return -1;
	while (!found && getline(&line, &size, maps) > 0)
		found = strstr(line, LIBRARY) != NULL;
	free(line);
	fclose(maps);
	return found;
}

static void explain_no_socket(struct stat_process *process)
{
	int found = has_library(process->pid);

	if (found > 0) {
		explain(process, STAT_NO_PROCESS, "has " LIBRARY ", but no control socket.");
		advise(process, "wait for its first CUDA allocation, which makes the socket; "
				"GPUPOOL_LOG=info says why there is none.");
	} else if (found == 0) {
		explain(process, STAT_NO_PROCESS, "runs without " LIBRARY ".");
		advise(process, "start it with: gpupool-run COMMAND");
	} else {
		explain(process, STAT_NOT_PERMITTED, "has no control socket that you can see.");
		if (geteuid() != 0)
			advise(process, "run as root.");
		else
			advise(process, "this root lacks CAP_SYS_PTRACE over it; "
					"run where the process is visible: in its container, or on the host.");
	}
}

void stat_explain_missing(struct stat_process *process, pid_t pid, const struct stat_survey *survey)
{
	char path[32], user[STAT_TEXT_MAX], self[STAT_TEXT_MAX], state = '?';
	uint64_t start_ticks;
	struct stat st;

	*process = (struct stat_process){.pid = pid};
	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	if (stat(path, &st) != 0 && (kill(pid, 0) == 0 || errno == EPERM)) {
		explain(process, STAT_NOT_PERMITTED, "belongs to another user.");
		advise(process, "run as root.");
		return;
	}
	if (stat(path, &st) != 0) {
		explain(process, STAT_NO_PROCESS, "does not exist.");
		advise(process, "gpupool-stat list shows the processes that can be asked.");
		return;
	}
	gp_ctl_process_stat(pid, &start_ticks, &state);
	if (state == 'Z') {
		explain(process, STAT_NO_PROCESS, "has ended (state Z).");
	} else if (geteuid() != 0 && st.st_uid != geteuid()) {
		stat_explain_user(user, st.st_uid);
		stat_explain_user(self, geteuid());
		explain(process, STAT_NOT_PERMITTED, "belongs to %s; you are %s.", user, self);
		advise(process, "ask %s, or run as root.", user);
	} else if (survey->missed.n_late) {
		explain(process, STAT_NO_ANSWER, "was not asked, since the time was over.");
		advise(process, "give it more time with --timeout.");
	} else {
		explain_no_socket(process);
	}
}
