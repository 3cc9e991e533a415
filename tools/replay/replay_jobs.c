/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Each process that runs a job sends words through a pipe: numbers of events, and at its end LAST, or LAST + 1 after a
 * failure. The result, or the message, follows.
 */

#include "replay_jobs.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/text/stat_progress.h"

enum {
	WORTH_A_PROCESS = 100000, /* events; fewer take less time than the processes would */
	AT_ONCE_MAX = 8,          /* bounds the memory of all processes together */
	EVENTS_A_WORD = 16384,
};

#define LAST (UINT64_C(1) << 63)

struct worker {
	pid_t pid; /* 0: none */
	int fd;
	size_t nth; /* the job */
	size_t used;
	unsigned char *answer;
};

static void send_all(int fd, const void *data, size_t n)
{
	const char *at = data;

	while (n) {
		ssize_t sent = write(fd, at, n);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			_exit(EXIT_FAILURE);
		at += sent;
		n -= (size_t)sent;
	}
}

void replay_progress_add(struct replay_progress *progress, uint64_t n_events)
{
	uint64_t before = progress->n_done;

	progress->n_done += n_events;
	if (progress->fd < 0) {
		stat_progress(progress->n_done, progress->n_all);
	} else if (before / EVENTS_A_WORD != progress->n_done / EVENTS_A_WORD) {
		uint64_t word = EVENTS_A_WORD;

		send_all(progress->fd, &word, sizeof(word));
	}
}

static size_t answer_bytes(const struct replay_jobs *jobs)
{
	return jobs->result_bytes > REPLAY_ERROR_MAX ? jobs->result_bytes : REPLAY_ERROR_MAX;
}

/* Runs in a process of its own. It opens the file anew, since processes would share the position in an open one. */
static _Noreturn void work(const struct replay_jobs *jobs, size_t nth, int fd)
{
	struct replay_progress progress = {.fd = fd};
	unsigned char *answer = stat_alloc(calloc(1, answer_bytes(jobs)));
	char error[REPLAY_ERROR_MAX] = "";
	struct replay_file *file = replay_open(jobs->path, error);
	uint64_t word = LAST;
	int r = -1;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (file && *jobs->contents->damage)
		replay_end_at(file, jobs->contents->n_events);
	if (file)
		r = jobs->run(jobs->arg, nth, file, &progress, answer, error);
	if (r) {
		word++;
		memcpy(answer, error, sizeof(error));
	}
	send_all(fd, &word, sizeof(word));
	send_all(fd, answer, answer_bytes(jobs));
	_exit(EXIT_SUCCESS);
}

/* Returns false if no process can be started. */
static bool start(const struct replay_jobs *jobs, struct worker *worker, size_t nth)
{
	int ends[2];

	if (pipe(ends))
		return false;
	fflush(stdout);
	fflush(stderr);
	worker->pid = fork();
	if (worker->pid == 0) {
		close(ends[0]);
		work(jobs, nth, ends[1]);
	}
	close(ends[1]);
	if (worker->pid < 0) {
		close(ends[0]);
		worker->pid = 0;
		return false;
	}
	worker->fd = ends[0];
	worker->nth = nth;
	worker->used = 0;
	return true;
}

static void stop(struct worker *worker)
{
	if (!worker->pid)
		return;
	close(worker->fd);
	kill(worker->pid, SIGKILL);
	while (waitpid(worker->pid, NULL, 0) < 0 && errno == EINTR)
		;
	worker->pid = 0;
}

/* Takes the words that have come. Returns the number of events that they tell of, and removes them. */
static uint64_t take_words(struct worker *worker)
{
	uint64_t n_events = 0, word;
	size_t at = 0;

	for (; worker->used - at >= sizeof(word); at += sizeof(word)) {
		memcpy(&word, worker->answer + at, sizeof(word));
		if (word & LAST)
			break;
		n_events += word;
	}
	memmove(worker->answer, worker->answer + at, worker->used - at);
	worker->used -= at;
	return n_events;
}

/*
 * Reads what a process has sent. Returns 1 if it has not ended, 0 once it has sent its result, or -1 with the reason in
 * error.
 */
static int receive(const struct replay_jobs *jobs, struct worker *worker, struct replay_progress *progress,
	char error[static REPLAY_ERROR_MAX])
{
	size_t size = sizeof(uint64_t) + answer_bytes(jobs);
	ssize_t n = read(worker->fd, worker->answer + worker->used, size - worker->used);
	uint64_t word;

	if (n < 0 && errno == EINTR)
		return 1;
	if (n <= 0) {
		snprintf(error, REPLAY_ERROR_MAX, "a process that replayed it ended early, perhaps for lack of memory");
		return -1;
	}
	worker->used += (size_t)n;
	replay_progress_add(progress, take_words(worker));
	if (worker->used < size)
		return 1;
	memcpy(&word, worker->answer, sizeof(word));
	if (word == LAST) {
		memcpy((char *)jobs->results + worker->nth * jobs->result_bytes, worker->answer + sizeof(word),
			jobs->result_bytes);
		return 0;
	}
	memcpy(error, worker->answer + sizeof(word), REPLAY_ERROR_MAX);
	error[REPLAY_ERROR_MAX - 1] = '\0';
	return -1;
}

static size_t count_processors(void)
{
	cpu_set_t set;
	int n = sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);

	return n < AT_ONCE_MAX ? (size_t)n : AT_ONCE_MAX;
}

/* Waits until a process has sent something, and reads it. Returns 0, or -1 with the reason in error. */
static int attend(const struct replay_jobs *jobs, struct worker *workers, size_t n, size_t *n_left,
	struct replay_progress *progress, char error[static REPLAY_ERROR_MAX])
{
	struct pollfd fds[AT_ONCE_MAX];

	for (size_t i = 0; i < n; i++)
		fds[i] = (struct pollfd){workers[i].pid ? workers[i].fd : -1, POLLIN, 0};
	if (poll(fds, (nfds_t)n, -1) < 0)
		return 0;
	for (size_t i = 0; i < n; i++) {
		int r = fds[i].revents ? receive(jobs, &workers[i], progress, error) : 1;

		if (r < 0)
			return -1;
		if (r > 0)
			continue;
		stop(&workers[i]);
		(*n_left)--;
	}
	return 0;
}

/* Returns 0, -1 with the reason in error, or 1 if no process can be started. */
static int run_in_processes(const struct replay_jobs *jobs, size_t n_at_once, char error[static REPLAY_ERROR_MAX])
{
	struct replay_progress progress = {.fd = -1, .n_all = jobs->n_events};
	struct worker workers[AT_ONCE_MAX] = {0};
	size_t next = 0, n_left = jobs->n;
	int r = 0;

	for (size_t i = 0; i < n_at_once; i++)
		workers[i].answer = stat_alloc(calloc(1, sizeof(uint64_t) + answer_bytes(jobs)));
	while (!r && n_left) {
		size_t n_running = 0;

		for (size_t i = 0; i < n_at_once; i++) {
			if (!workers[i].pid && next < jobs->n && start(jobs, &workers[i], next))
				next++;
			n_running += workers[i].pid != 0;
		}
		r = n_running ? attend(jobs, workers, n_at_once, &n_left, &progress, error) : 1;
	}
	for (size_t i = 0; i < n_at_once; i++) {
		stop(&workers[i]);
		free(workers[i].answer);
	}
	return r;
}

static int run_here(const struct replay_jobs *jobs, char error[static REPLAY_ERROR_MAX])
{
	struct replay_progress progress = {.fd = -1, .n_all = jobs->n_events};
	struct replay_file *file = replay_open(jobs->path, error);
	int r = file ? 0 : -1;

	if (file && *jobs->contents->damage)
		replay_end_at(file, jobs->contents->n_events);
	for (size_t i = 0; i < jobs->n && !r; i++)
		r = jobs->run(jobs->arg, i, file, &progress, (char *)jobs->results + i * jobs->result_bytes, error);
	if (file)
		replay_close(file);
	return r;
}

int replay_jobs_run(const struct replay_jobs *jobs, char error[static REPLAY_ERROR_MAX])
{
	size_t n_at_once = count_processors();
	int r = 1;

	memset(jobs->results, 0, jobs->n * jobs->result_bytes);
	if (n_at_once > 1 && jobs->n > 1 && jobs->n_events >= WORTH_A_PROCESS)
		r = run_in_processes(jobs, n_at_once, error);
	if (r > 0)
		r = run_here(jobs, error);
	stat_progress_end();
	return r;
}
