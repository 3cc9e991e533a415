/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Runs all scenarios of a program. This process makes no CUDA call. It forks a child for each scenario, reads what
 * the child prints, and limits its time, since a hang may be the expected result.
 */

#include "app.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Starts a line that names the scenario to which the following lines belong. */
#define NAME_MARK "\001"

struct output {
	const char *name; /* the scenario that prints the current lines */
	char line[4096];
	size_t used;
};

static long limit_ms(void)
{
	const char *text = getenv("APP_LIMIT_S");
	long seconds = text ? strtol(text, NULL, 10) : 0;

	return (seconds > 0 ? seconds : 20) * 1000;
}

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static const char *scenario_name(const char *text)
{
	for (const struct app_scenario *s = app_scenarios; s->name; s++)
		if (strcmp(s->name, text) == 0)
			return s->name;
	return "?";
}

static void put_line(struct output *out)
{
	out->line[out->used] = '\0';
	if (out->line[0] == NAME_MARK[0])
		out->name = scenario_name(out->line + 1);
	else if (out->used)
		printf("%s/%s\n", out->name, out->line);
	out->used = 0;
}

static void take(struct output *out, const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		if (text[i] == '\n' || out->used + 1 == sizeof(out->line))
			put_line(out);
		if (text[i] != '\n')
			out->line[out->used++] = text[i];
	}
}

/* Reads until the output ends. Returns false if the time limit passes first. */
static bool collect(struct output *out, int fd)
{
	struct pollfd poll_fd = {fd, POLLIN, 0};
	long end = now_ms() + limit_ms();
	char text[4096];
	ssize_t n = 1;

	while (n > 0) {
		long left = end - now_ms();

		if (left <= 0 || poll(&poll_fd, 1, (int)left) == 0)
			return false;
		n = read(fd, text, sizeof(text));
		take(out, text, n > 0 ? (size_t)n : 0);
	}
	put_line(out);
	return true;
}

/* Runs in the child: a scenario, and those after it that may share its process. */
static _Noreturn void run_scenarios(const struct app_scenario *first, const struct app_scenario *end)
{
	for (const struct app_scenario *s = first; s < end; s++) {
		printf(NAME_MARK "%s\n", s->name);
		fflush(stdout);
		s->run();
		fflush(stdout);
	}
	exit(0);
}

static void report_end(const struct output *out, int status, bool is_in_time)
{
	if (!is_in_time)
		printf("%s: hangs\n", out->name);
	else if (WIFSIGNALED(status))
		printf("%s: signal %d\n", out->name, WTERMSIG(status));
	else if (WEXITSTATUS(status))
		printf("%s: status %d\n", out->name, WEXITSTATUS(status));
	fflush(stdout);
}

static void run_group(const struct app_scenario *first, const struct app_scenario *end)
{
	struct output out = {.name = first->name};
	bool is_in_time;
	int fds[2], status = 0;
	pid_t child;

	if (pipe(fds))
		exit(71);
	fflush(stdout);
	child = fork();
	if (child < 0)
		exit(71);
	if (child == 0) {
		setpgid(0, 0); /* the children end with this process */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(fds[1], STDOUT_FILENO);
		close(fds[0]);
		close(fds[1]);
		run_scenarios(first, end);
	}
	close(fds[1]);
	is_in_time = collect(&out, fds[0]);
	close(fds[0]);
	if (!is_in_time && kill(-child, SIGKILL))
		kill(child, SIGKILL);
	waitpid(child, &status, 0);
	report_end(&out, status, is_in_time);
}

int app_run_all(void)
{
	const struct app_scenario *s = app_scenarios;

	while (s->name) {
		const struct app_scenario *first = s++;

		while (s->name && (first->flags & APP_TOGETHER) && (s->flags & APP_TOGETHER))
			s++;
		run_group(first, s);
	}
	return 0;
}
