/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A window of connections moves over the processes: when one has answered, the next is asked. Own processes come first;
 * foreign users take turns, each with a share of the window. A process that does not answer keeps its slot until the
 * deadline, unless other processes wait for the slot: then it is given up after a part of the time.
 *
 * A foreign process is asked once, even if it has several sockets: the kernel says which process listens at a socket.
 */

#include "stat_round.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "stat_abstract.h"
#include "stat_dirs.h"
#include "stat_explain.h"

enum {
	WINDOW_MAX = 256,
	USERS_SHARE = 8,       /* a foreign user gets 1 / USERS_SHARE of the window */
	ASK_TIMEOUT_SHARE = 8, /* a process gets 1 / ASK_TIMEOUT_SHARE of the time, if others wait */
	OTHER_DESCRIPTORS = 64,
	FEW_DESCRIPTORS = 8,
	VALUES_MIN = 1 << 16, /* per answer: more than twice those of the longest valid answer to "status" */
	SMALL_ANSWER = 1 << 20,
};

#define WINDOW_BYTES ((size_t)256 << 20) /* of all answers that are received at the same time */

/* The processes of a user. */
struct user {
	uid_t uid;
	size_t next, end; /* indices into the order of the round */
	size_t n_open, n_kept, n_asked;
	size_t n_bytes, n_values;
	pid_t *pids; /* of processes that were asked; only for a foreign user */
	bool is_ready;
};

struct round {
	struct stat_survey *survey;
	const struct stat_question *question;
	bool is_repeated;
	int64_t deadline_ns;
	size_t window, n_open, n_kept;
	struct stat_process **order;
	struct user *users; /* the first is the user of gpupool-stat, even without processes */
	size_t n_users, n_ready, turn;
	size_t max_values;                                             /* of an answer */
	size_t user_bytes, user_values, foreign_bytes, foreign_values; /* bounds per user, and for all of them */
	size_t n_bytes, n_values;                                      /* of all foreign users */
};

/* Only root asks processes of other users. */
static bool is_foreign(const struct user *user)
{
	return user->uid != geteuid();
}

static size_t share_of(const struct round *round, const struct user *user)
{
	size_t share = round->window / USERS_SHARE;

	if (!is_foreign(user))
		return round->window > 1 ? round->window - share : 1;
	return share ? share : 1;
}

/* Updates whether the next process of a user can be asked now. Must be called whenever that may have changed. */
static void update_ready(struct round *round, struct user *user)
{
	bool is_ready = user->next < user->end && user->n_open < share_of(round, user);

	round->n_ready += (size_t)is_ready - (size_t)user->is_ready;
	user->is_ready = is_ready;
}

/* Keeps a directory open while its sockets are asked, and only then: there may be more directories than descriptors. */
static int acquire_dir(struct stat_dir *dir)
{
	int error = 0;

	if (dir->n_users == 0 && !dir->is_abstract)
		error = stat_dir_open(dir);
	if (!error)
		dir->n_users++;
	return error;
}

static void release_dir(struct stat_dir *dir)
{
	if (--dir->n_users || dir->is_abstract)
		return;
	close(dir->fd);
	dir->fd = -1;
}

static bool is_wanted(const struct stat_question *question, pid_t pid)
{
	for (size_t i = 0; i < question->n_pids; i++)
		if (question->pids[i] == pid)
			return true;
	return question->n_pids == 0;
}

/* Returns true if a process has ended and left its socket behind. */
static bool has_ended(const struct stat_process *process)
{
	uint64_t start_ticks;
	char state;
	int error = gp_ctl_process_stat(process->pid, &start_ticks, &state);

	return error ? error == -ENOENT || error == -ESRCH : start_ticks != process->start_ticks;
}

static size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

static size_t max_size(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* Counts an answer of a foreign user. Returns false if it exceeds the share of the user, or that of all of them. */
static bool charge(struct round *round, struct user *user, size_t n_bytes, size_t n_values)
{
	if (n_bytes > round->user_bytes - user->n_bytes || n_bytes > round->foreign_bytes - round->n_bytes ||
		n_values > round->user_values - user->n_values || n_values > round->foreign_values - round->n_values)
		return false;
	user->n_values += n_values;
	round->n_values += n_values;
	user->n_bytes += n_bytes;
	round->n_bytes += n_bytes;
	return true;
}

/* Leaves out the remaining processes of a user. */
static void leave_out_rest(struct round *round, struct user *user)
{
	round->survey->missed.n_beyond += user->end - user->next;
	user->end = user->next;
	update_ready(round, user);
}

static void read_answer(struct round *round, struct stat_process *process)
{
	struct user *user = &round->users[process->user];
	const struct ctl_client *client = &process->client;
	size_t n_values = stat_reply_count(client->answer, client->length);

	if (is_foreign(user) && n_values <= round->max_values && !charge(round, user, client->length, n_values)) {
		stat_explain_share(process);
		round->survey->missed.n_beyond++;
		leave_out_rest(round, user);
		return;
	}
	process->reply = stat_reply_parse(client->answer, client->length, round->question->schema, round->max_values,
		&process->exit, process->error);
	if (process->reply && round->question->keeps == STAT_KEEPS_LAST) {
		json_decref(process->before);
		process->before = NULL;
	}
}

static void handle_answer(struct round *round, struct stat_process *process)
{
	const struct ctl_client *client = &process->client;

	/* The process may have ended, and removed its socket, while it was asked. */
	if (client->error == -ENOENT ||
		((client->error == -ECONNRESET || client->error == -ECONNREFUSED) && has_ended(process)))
		process->is_dropped = true;
	if (process->is_dropped)
		return;
	if (client->error)
		stat_explain_error(process, client->error, round->question);
	else if (round->question->request)
		read_answer(round, process);
	if (process->exit == STAT_OTHER_VERSION)
		snprintf(process->next, sizeof(process->next),
			"use the gpupool-stat of the same version as its libgpupool.so.");
}

static struct stat_process *process_of(const struct ctl_client *client)
{
	return (struct stat_process *)((char *)(uintptr_t)client - offsetof(struct stat_process, client));
}

/* Ends the asking of a process that was opened, with or without an answer. */
static void finish(struct round *round, struct stat_process *process)
{
	struct user *user = &round->users[process->user];
	struct ctl_client *client = &process->client;

	handle_answer(round, process);
	/* A late client keeps the part that it has received. */
	if (!client->is_late) {
		free(client->answer);
		client->answer = NULL;
	}
	if (!client->is_kept || process->is_dropped)
		ctl_client_close(client);
	release_dir(&round->survey->dirs[process->dir]);
	user->n_open--;
	round->n_open--;
	update_ready(round, user);
}

static void drop(struct stat_process *process)
{
	process->is_dropped = true;
	ctl_client_close(&process->client);
	process->client.error = -ENOENT;
}

/* Returns true if a connection can be kept, and counts it: it takes a descriptor as long as the survey is repeated. */
static bool can_keep(struct round *round, struct user *user, const struct ctl_client *client)
{
	if (!round->is_repeated || round->n_kept == round->window)
		return false;
	/* A late client is kept beyond the share: it would be waited for again if it were asked anew. */
	if (user->n_kept == share_of(round, user) && !client->is_late)
		return false;
	round->n_kept++;
	user->n_kept++;
	return true;
}

/* Connects to a process, unless its connection was kept. */
static void open_process(struct round *round, struct stat_process *process)
{
	struct stat_dir *dir = &round->survey->dirs[process->dir];
	struct ctl_client *client = &process->client;

	client->dir_fd = dir->fd;
	client->name = process->name;
	client->uid = dir->uid;
	client->is_kept = can_keep(round, &round->users[process->user], client);
	if (client->fd < 0 && !client->is_late)
		ctl_client_open(client);
	/* -EPERM without a peer: not even the owner of the directory may connect. */
	if ((client->error == -ECONNREFUSED || (client->error == -EPERM && !client->peer_pid)) && has_ended(process)) {
		if (dir->uid == geteuid())
			unlinkat(dir->fd, process->name, 0);
		process->is_dropped = true;
	}
	if (client->peer_pid > 0)
		process->pid = client->peer_pid;
	process->is_dropped |= stat_abstract_is_false(round->survey, process);
}

/* Returns true if a foreign process was asked at another socket. A process that cannot be seen from here has no pid. */
static bool is_asked_already(struct user *user, const struct stat_process *process)
{
	if (!is_foreign(user) || process->client.peer_pid <= 0)
		return false;
	for (size_t i = 0; i < user->n_asked; i++)
		if (user->pids[i] == process->pid)
			return true;
	return false;
}

/* Returns false if the process is dropped, or its user has as many processes as may be asked. */
static bool admit(struct round *round, struct user *user, struct stat_process *process)
{
	if (process->client.error == -ENOENT || process->is_dropped || !is_wanted(round->question, process->pid) ||
		is_asked_already(user, process)) {
		drop(process);
		return false;
	}
	if (!is_foreign(user))
		return true;
	if (user->n_asked == STAT_USER_PROCESSES) {
		drop(process);
		round->survey->missed.n_beyond++;
		leave_out_rest(round, user);
		return false;
	}
	if (!user->pids)
		user->pids = stat_alloc(calloc(STAT_USER_PROCESSES, sizeof(*user->pids)));
	user->pids[user->n_asked++] = process->pid;
	return true;
}

/* Returns true if there is no descriptor now, and one becomes free when another process has answered. */
static bool must_wait(const struct round *round, int error)
{
	return (error == -EMFILE || error == -ENFILE) && round->n_open;
}

/* Opens a process. Returns 1 if it must be asked, 0 if it is finished, and -EAGAIN if there is no descriptor now. */
static int start(struct round *round, struct user *user, struct stat_process *process)
{
	struct stat_dir *dir = &round->survey->dirs[process->dir];
	struct ctl_client *client = &process->client;
	int error = acquire_dir(dir);

	if (must_wait(round, error))
		return -EAGAIN;
	if (error) {
		ctl_client_close(client);
		client->error = error == -ESTALE ? -ENOENT : error; /* the directory was replaced */
		handle_answer(round, process);
		return 0;
	}
	open_process(round, process);
	if (must_wait(round, client->error) || !admit(round, user, process)) {
		release_dir(dir);
		return process->is_dropped ? 0 : -EAGAIN;
	}
	user->n_open++;
	round->n_open++;
	update_ready(round, user);
	if (round->question->request)
		return 1;
	finish(round, process);
	return 0;
}

static struct user *choose_user(struct round *round)
{
	if (round->users[0].is_ready)
		return &round->users[0];
	while (!round->users[round->turn % round->n_users].is_ready)
		round->turn++;
	return &round->users[round->turn++ % round->n_users];
}

static struct ctl_client *next(void *arg)
{
	struct round *round = arg;

	while (round->n_ready && round->n_open < round->window && ctl_client_now_ns() < round->deadline_ns) {
		struct user *user = choose_user(round);
		struct stat_process *process = round->order[user->next++];
		int result = start(round, user, process);

		process->is_started = result >= 0;
		if (result < 0) {
			user->next--;
			round->window = round->n_open;
		}
		update_ready(round, user);
		if (result > 0)
			return &process->client;
	}
	return NULL;
}

static void done(void *arg, struct ctl_client *client)
{
	finish(arg, process_of(client));
}

/* Returns true if a process waits for the slot of this client, because the user's share or the window is full. */
static bool is_slot_needed(void *arg, const struct ctl_client *client)
{
	const struct round *round = arg;
	const struct user *user = &round->users[process_of(client)->user];

	return (user->next < user->end && user->n_open >= share_of(round, user)) ||
	       (round->n_open >= round->window && round->n_ready);
}

static bool is_stopped(void *unused, const struct ctl_client *client)
{
	return stat_explain_is_stopped(process_of(client));
}

static size_t user_of(struct round *round, uid_t uid)
{
	for (size_t i = round->n_users; i--;)
		if (round->users[i].uid == uid)
			return i;
	round->users = stat_alloc(reallocarray(round->users, round->n_users + 1, sizeof(*round->users)));
	round->users[round->n_users] = (struct user){.uid = uid};
	return round->n_users++;
}

/* Orders by user; within a user, named processes come first, and those that were silent before come last. */
static int compare(const void *a, const void *b)
{
	const struct stat_process *one = *(struct stat_process *const *)a, *other = *(struct stat_process *const *)b;

	if (one->user != other->user)
		return one->user < other->user ? -1 : 1;
	if (one->is_named != other->is_named)
		return one->is_named ? -1 : 1;
	if (one->was_silent != other->was_silent)
		return one->was_silent ? 1 : -1;
	return (one > other) - (one < other);
}

static void make_order(struct round *round)
{
	struct stat_survey *survey = round->survey;

	(void)user_of(round, geteuid());
	round->order = stat_alloc(calloc(survey->n_processes + 1, sizeof(struct stat_process *)));
	for (size_t i = 0; i < survey->n_processes; i++) {
		struct stat_process *process = &survey->processes[i];

		round->order[i] = process;
		process->user = user_of(round, process->uid);
		process->is_named = is_wanted(round->question, process->pid);
		process->is_started = false;
	}
	qsort(round->order, survey->n_processes, sizeof(struct stat_process *), compare);
	for (size_t i = 0; i < survey->n_processes; i++) {
		struct user *user = &round->users[round->order[i]->user];

		if (!user->end)
			user->next = i;
		user->end = i + 1;
	}
	for (size_t i = 0; i < round->n_users; i++)
		update_ready(round, &round->users[i]);
}

/*
 * Chooses the window by the number of descriptors. A process that is asked needs two, for its socket and its directory.
 * A kept connection needs one.
 */
static size_t window_of(const struct stat_question *question)
{
	size_t window = WINDOW_MAX, n_free = SIZE_MAX;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
		size_t n_other = limit.rlim_cur > 4 * OTHER_DESCRIPTORS ? OTHER_DESCRIPTORS : FEW_DESCRIPTORS;

		n_free = limit.rlim_cur > n_other ? (size_t)limit.rlim_cur - n_other : 1;
	}
	window = min_size(window, n_free / 3);
	if (question->max_bytes)
		window = min_size(window, WINDOW_BYTES / question->max_bytes);
	return window ? window : 1;
}

/* Sets the bounds for answers. Where answers are long, a user has room for a few of them. */
static void set_limits(struct round *round)
{
	size_t max_bytes = round->question->max_bytes;

	round->max_values = max_bytes > SMALL_ANSWER ? STAT_VALUES_MAX : VALUES_MIN;
	round->user_values = max_size(STAT_USER_VALUES, round->max_values);
	round->foreign_values = max_size(STAT_FOREIGN_VALUES, 2 * round->max_values);
	round->user_bytes = max_size(STAT_USER_BYTES, 4 * max_bytes);
	round->foreign_bytes = max_size(STAT_FOREIGN_BYTES, 16 * max_bytes);
}

/* Drops the processes that were not asked because there was no time. */
static void drop_rest(struct round *round)
{
	struct stat_survey *survey = round->survey;

	for (size_t i = 0; i < round->n_users; i++)
		survey->missed.n_late += round->users[i].end - round->users[i].next;
	for (size_t i = 0; i < survey->n_processes; i++)
		if (!survey->processes[i].is_started)
			drop(&survey->processes[i]);
}

void stat_round_ask(struct stat_survey *survey, const struct stat_question *question, bool is_repeated)
{
	struct round round = {
		.survey = survey,
		.question = question,
		.is_repeated = is_repeated,
		.deadline_ns = ctl_client_now_ns() + question->timeout_ms * INT64_C(1000000),
		.window = window_of(question),
	};
	struct ctl_round clients = {
		.request = question->request,
		.max_bytes = question->max_bytes,
		.window = round.window,
		.deadline_ns = round.deadline_ns,
		.timeout_ns = question->timeout_ms * INT64_C(1000000) / ASK_TIMEOUT_SHARE,
		.next = next,
		.done = done,
		.is_slot_needed = is_slot_needed,
		.is_stopped = is_stopped,
		.arg = &round,
	};

	set_limits(&round);
	make_order(&round);
	if (question->request)
		ctl_client_ask(&clients);
	else
		(void)next(&round);
	drop_rest(&round);
	for (size_t i = 0; i < round.n_users; i++)
		free(round.users[i].pids);
	free(round.users);
	free(round.order);
}
