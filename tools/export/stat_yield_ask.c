/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_yield_ask.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stat_yield_peer.h"
#include "tools/ask/stat_dirs.h"
#include "tools/ask/stat_explain.h"

enum { SEARCH_SHARE = 4, VALUES_MAX = 16 };

/* More than any machine has, and so little that the sum of all processes does not wrap, nor one of such sums. */
#define BYTES_MAX ((uint64_t)INT64_MAX / STAT_YIELD_ASKED / 64)

/* The processes of a request, and those of them that have been opened. */
struct round {
	struct stat_yield_asker *asker;
	const struct stat_yield_request *request;
	pid_t except;
	struct stat_process *order[STAT_YIELD_ASKED];
	size_t n, next;
	pid_t asked[STAT_YIELD_ASKED];
	size_t n_asked;
	struct stat_yield_sums sums;
};

bool stat_yield_answer_parse(
	const char *text, size_t length, const struct stat_yield_request *request, struct stat_yield_sums *ret)
{
	const char *name = request->is_wanted ? "wanted" : "yield";
	char error[STAT_ERROR_MAX];
	enum stat_exit code;
	json_t *answer = stat_reply_parse(text, length, name, VALUES_MAX, &code, error);
	uint64_t released = UINT64_MAX, held = 0;
	bool is_valid = answer && stat_reply_u64(answer, "released_bytes", &released) && released <= BYTES_MAX &&
			(!request->is_wanted || (stat_reply_u64(answer, "held_bytes", &held) && held <= BYTES_MAX));

	json_decref(answer);
	*ret = is_valid ? (struct stat_yield_sums){released, held} : (struct stat_yield_sums){0, 0};
	return is_valid;
}

static uint64_t user_of(const struct stat_process *process)
{
	return stat_yield_user_of(process->client.peer_pid, process->uid);
}

static bool is_silent(const struct stat_yield_asker *asker, const struct stat_process *process)
{
	int64_t now_ns = ctl_client_now_ns();
	uint64_t user = user_of(process);
	unsigned n_of_user = 0;

	for (size_t i = 0; i < STAT_YIELD_SILENT; i++) {
		const struct stat_yield_silent *silent = &asker->silent[i];

		if (now_ns >= silent->until_ns || silent->user != user)
			continue;
		if (silent->pid == process->pid && silent->start_ticks == process->start_ticks)
			return true;
		n_of_user++;
	}
	return n_of_user >= STAT_YIELD_SILENT_OF_USER;
}

static void note_silent(struct stat_yield_asker *asker, const struct stat_process *process)
{
	asker->silent[asker->n_silent++ % STAT_YIELD_SILENT] = (struct stat_yield_silent){
		process->pid, process->start_ticks, user_of(process), ctl_client_now_ns() + STAT_YIELD_SILENT_NS};
}

/* Searches take at most 1 / SEARCH_SHARE of the time, however many processes there are. */
static void search(struct stat_yield_asker *asker)
{
	int64_t now_ns = ctl_client_now_ns();

	if (asker->searched_ns && now_ns - asker->searched_ns < (SEARCH_SHARE - 1) * asker->search_cost_ns)
		return;
	stat_survey_deinit(&asker->survey);
	stat_survey_find_all(&asker->survey);
	asker->searched_ns = ctl_client_now_ns();
	asker->search_cost_ns = asker->searched_ns - now_ns;
}

/* Orders by user, from the user with which a request begins. */
static int compare_uids(const void *a, const void *b, void *arg)
{
	const struct stat_process *one = *(struct stat_process *const *)a, *other = *(struct stat_process *const *)b;
	const struct stat_yield_asker *asker = arg;

	if (one->uid != other->uid)
		return one->uid - asker->first_uid < other->uid - asker->first_uid ? -1 : 1;
	return (one > other) - (one < other);
}

/* Chooses the processes to ask, one of each user, then the second of each, and so on. */
static void choose(struct round *round)
{
	struct stat_yield_asker *asker = round->asker;
	size_t n_all = asker->survey.n_processes, n_before = SIZE_MAX;
	struct stat_process **all = stat_alloc(calloc(n_all + 1, sizeof(struct stat_process *)));

	for (size_t i = 0; i < n_all; i++)
		all[i] = &asker->survey.processes[i];
	qsort_r(all, n_all, sizeof(struct stat_process *), compare_uids, asker);
	for (size_t nth = 0; nth < STAT_YIELD_ASKED_OF_USER && round->n != n_before; nth++) {
		n_before = round->n;
		for (size_t i = 0, of_user = 0; i < n_all && round->n < STAT_YIELD_ASKED; i++) {
			of_user = i && all[i]->uid == all[i - 1]->uid ? of_user + 1 : 0;
			if (of_user == nth)
				round->order[round->n++] = all[i];
		}
	}
	if (round->n == STAT_YIELD_ASKED)
		asker->first_uid = round->order[round->n - 1]->uid + 1;
	free(all);
}

/* A process in another container is not visible by its pid, and counts as one that was not asked. */
static bool is_asked(const struct round *round, pid_t pid)
{
	for (size_t i = 0; pid > 0 && i < round->n_asked; i++)
		if (round->asked[i] == pid)
			return true;
	return false;
}

/* Returns true if a process that a client has reached, or that does not accept yet, is not to be asked. */
static bool is_left_out(const struct round *round, const struct stat_process *process)
{
	pid_t pid = process->client.peer_pid;

	return (pid > 0 && pid == round->except) || is_asked(round, pid) || is_silent(round->asker, process);
}

/* Connects to a process. Returns false if it is not to be asked. */
static bool open_process(struct round *round, struct stat_process *process)
{
	struct stat_dir *dir = &round->asker->survey.dirs[process->dir];
	struct ctl_client *client = &process->client;

	if (!dir->is_abstract && dir->fd < 0 && stat_dir_open(dir) != 0)
		return false;
	client->dir_fd = dir->fd;
	client->name = process->name;
	client->uid = dir->uid;
	client->is_kept = false;
	ctl_client_open(client);
	if ((client->error && client->error != -EAGAIN) || is_left_out(round, process)) {
		ctl_client_close(client);
		return false;
	}
	return true;
}

static struct ctl_client *next(void *arg)
{
	struct round *round = arg;

	while (round->next < round->n) {
		struct stat_process *process = round->order[round->next++];

		if (!open_process(round, process))
			continue;
		round->asked[round->n_asked++] = process->client.peer_pid;
		return &process->client;
	}
	return NULL;
}

static struct stat_process *process_of(const struct ctl_client *client)
{
	return (struct stat_process *)((char *)(uintptr_t)client - offsetof(struct stat_process, client));
}

static void done(void *arg, struct ctl_client *client)
{
	struct round *round = arg;
	struct stat_yield_sums sums;

	if (client->error == -ETIMEDOUT)
		note_silent(round->asker, process_of(client));
	else if (!client->error && stat_yield_answer_parse(client->answer, client->length, round->request, &sums)) {
		round->sums.released_bytes += sums.released_bytes;
		round->sums.held_bytes += sums.held_bytes;
	}
	ctl_client_close(client);
}

static bool is_slot_needed(void *unused, const struct ctl_client *client)
{
	return false;
}

static bool is_stopped(void *unused, const struct ctl_client *client)
{
	return stat_explain_is_stopped(process_of(client));
}

/* They were open as long as connections could be tried again. */
static void close_dirs(struct stat_survey *survey)
{
	for (size_t i = 0; i < survey->n_dirs; i++) {
		if (survey->dirs[i].is_abstract || survey->dirs[i].fd < 0)
			continue;
		close(survey->dirs[i].fd);
		survey->dirs[i].fd = -1;
	}
}

struct stat_yield_sums stat_yield_ask(
	struct stat_yield_asker *asker, const struct stat_yield_request *request, pid_t except)
{
	struct round round = {.asker = asker, .request = request, .except = except};
	char line[STAT_YIELD_REQUEST_MAX];
	struct ctl_round clients = {
		.request = line,
		.max_bytes = GP_BROKER_ANSWER_MAX,
		.window = STAT_YIELD_ASKED,
		.timeout_ns = STAT_YIELD_ANSWER_NS,
		.next = next,
		.done = done,
		.is_slot_needed = is_slot_needed,
		.is_stopped = is_stopped,
		.arg = &round,
	};

	stat_yield_request_format(line, request);
	search(asker);
	choose(&round);
	clients.deadline_ns = ctl_client_now_ns() + STAT_YIELD_ANSWER_NS;
	ctl_client_ask(&clients);
	close_dirs(&asker->survey);
	return round.sums;
}

void stat_yield_asker_deinit(struct stat_yield_asker *asker)
{
	stat_survey_deinit(&asker->survey);
}
