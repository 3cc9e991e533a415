/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A window of connections moves over the processes: when one has answered, the next is asked. Own processes come first;
 * foreign users take turns, each with a share of the window. A process that does not answer keeps its place until the
 * deadline, unless others wait for it: then it is given up after a part of the time.
 *
 * A foreign process is asked once, whatever sockets it has: the kernel says which process listens at a socket.
 */

#include "stat_round.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "stat_abstract.h"
#include "stat_explain.h"
#include "stat_places.h"

enum {
	WINDOW_MAX = 256,
	USERS_SHARE = 8,    /* a foreign user has this part of the window */
	PATIENCE_SHARE = 8, /* and a process this part of the time, if others wait */
	OTHER_DESCRIPTORS = 64,
	FEW_DESCRIPTORS = 8,
	VALUES_MIN = 1 << 16, /* of an answer: more than twice the longest honest answer to "status" */
	SMALL_ANSWER = 1 << 20,
};

#define WINDOW_BYTES ((size_t)256 << 20) /* of all answers that are received at a time */

/* The processes of a user. */
struct user {
	uid_t uid;
	size_t next, end; /* in the order of the round */
	size_t n_open, n_kept, n_asked;
	size_t n_bytes, n_values;
	pid_t *pids; /* that were asked; of a foreign user */
	bool is_ready;
};

struct round {
	struct stat_survey *survey;
	const struct stat_question *question;
	bool is_repeated;
	int64_t deadline_ns;
	size_t window, n_open, n_kept;
	struct stat_process **order;
	struct user *users; /* the first is the one who asks, though it may have no processes */
	size_t n_users, n_ready, turn;
	size_t max_values;	  /* of an answer */
	size_t user_bytes, user_values, foreign_bytes, foreign_values; /* the most of a user, and of all of them */
	size_t n_bytes, n_values; /* of all foreign users */
};

/* Only root asks processes of others. */
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

/* Whether the next process of a user can be asked now. To be called whenever that may have changed. */
static void update_ready(struct round *round, struct user *user)
{
	bool is_ready = user->next < user->end && user->n_open < share_of(round, user);

	round->n_ready += (size_t)is_ready - (size_t)user->is_ready;
	user->is_ready = is_ready;
}

/* A directory is open while one of its sockets is asked: there may be more of them than descriptors. */
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

/* True if a process has ended, whose socket was left behind. */
static bool is_dead(const struct stat_process *process)
{
	uint64_t start_ticks;
	char state;
	int error = gp_ctl_process_stat(process->pid, &start_ticks, &state);

	return error ? error == -ENOENT || error == -ESRCH : start_ticks != process->start_ticks;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static size_t most(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* Counts an answer of a foreign user; false if there is no room left for it. */
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

/* The rest of a user's processes are left out. */
static void cut_off(struct round *round, struct user *user)
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
		cut_off(round, user);
		return;
	}
	process->reply = stat_reply_parse(client->answer, client->length, round->question->schema, round->max_values,
		&process->exit, process->error);
}

static void take_answer(struct round *round, struct stat_process *process)
{
	const struct ctl_client *client = &process->client;

	/* It may have ended while it was asked, and taken its socket along. */
	if (client->error == -ENOENT ||
		((client->error == -ECONNRESET || client->error == -ECONNREFUSED) && is_dead(process)))
		process->is_dropped = true;
	if (process->is_dropped)
		return;
	if (client->error)
		stat_explain_error(process, client->error, round->question);
	else if (round->question->request)
		read_answer(round, process);
	if (process->exit == STAT_OTHER_VERSION)
		snprintf(process->next, sizeof(process->next),
			"use the gpupool-stat that belongs to its libgpupool.so.");
}

static struct stat_process *process_of(const struct ctl_client *client)
{
	return (struct stat_process *)((char *)(uintptr_t)client - offsetof(struct stat_process, client));
}

/* A process that was opened has an answer, or none. */
static void finish(struct round *round, struct stat_process *process)
{
	struct user *user = &round->users[process->user];
	struct ctl_client *client = &process->client;

	take_answer(round, process);
	/* A late one goes on with what it has received. */
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

/* A kept connection needs a descriptor for as long as the survey is repeated. */
static bool can_keep(struct round *round, struct user *user)
{
	if (!round->is_repeated || round->n_kept == round->window || user->n_kept == share_of(round, user))
		return false;
	round->n_kept++;
	user->n_kept++;
	return true;
}

/* Connects at the first time; later the process is connected still, or has to be again. */
static void open_process(struct round *round, struct stat_process *process)
{
	struct stat_dir *dir = &round->survey->dirs[process->dir];
	struct ctl_client *client = &process->client;

	client->dir_fd = dir->fd;
	client->name = process->name;
	client->uid = dir->uid;
	client->is_kept = can_keep(round, &round->users[process->user]);
	if (client->fd < 0 && !client->is_late)
		ctl_client_open(client);
	/* -EPERM without a peer: the directory's owner may not even connect. */
	if ((client->error == -ECONNREFUSED || (client->error == -EPERM && !client->peer_pid)) && is_dead(process)) {
		if (dir->uid == geteuid())
			unlinkat(dir->fd, process->name, 0);
		process->is_dropped = true;
	}
	if (client->peer_pid > 0)
		process->pid = client->peer_pid;
	process->is_dropped |= stat_abstract_is_false(round->survey, process);
}

/* Whether a foreign process was asked at another of its sockets. A process that cannot be seen from here has no id. */
static bool is_asked_already(struct user *user, const struct stat_process *process)
{
	if (!is_foreign(user) || process->client.peer_pid <= 0)
		return false;
	for (size_t i = 0; i < user->n_asked; i++)
		if (user->pids[i] == process->pid)
			return true;
	return false;
}

/* False: the process is dropped, or its user has had all that it may have. */
static bool admit(struct round *round, struct user *user, struct stat_process *process)
{
	if (process->client.error == -ENOENT || process->is_dropped ||
		!is_wanted(round->question, process->pid) || is_asked_already(user, process)) {
		drop(process);
		return false;
	}
	if (!is_foreign(user))
		return true;
	if (user->n_asked == STAT_USER_PROCESSES) {
		drop(process);
		round->survey->missed.n_beyond++;
		cut_off(round, user);
		return false;
	}
	if (!user->pids)
		user->pids = stat_alloc(calloc(STAT_USER_PROCESSES, sizeof(*user->pids)));
	user->pids[user->n_asked++] = process->pid;
	return true;
}

/* Descriptors become free when others have answered. */
static bool is_to_wait(const struct round *round, int error)
{
	return (error == -EMFILE || error == -ENFILE) && round->n_open;
}

/* 1: the process is to be asked, 0: it is finished, -EAGAIN: there are no descriptors for it now. */
static int start(struct round *round, struct user *user, struct stat_process *process)
{
	struct stat_dir *dir = &round->survey->dirs[process->dir];
	struct ctl_client *client = &process->client;
	int error = acquire_dir(dir);

	if (is_to_wait(round, error))
		return -EAGAIN;
	if (error) {
		ctl_client_close(client);
		client->error = error == -ESTALE ? -ENOENT : error; /* the directory has gone */
		take_answer(round, process);
		return 0;
	}
	open_process(round, process);
	if (is_to_wait(round, client->error) || !admit(round, user, process)) {
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

/* Others of the same user wait for its place in the user's share, or any for its place in the window. */
static bool is_in_the_way(void *arg, const struct ctl_client *client)
{
	const struct round *round = arg;
	const struct user *user = &round->users[process_of(client)->user];

	return (user->next < user->end && user->n_open >= share_of(round, user)) ||
	       (round->n_open >= round->window && round->n_ready);
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

/* A socket and a directory for each process that is asked, and as many sockets that are kept. */
static size_t window_of(const struct stat_question *question)
{
	size_t window = WINDOW_MAX, n_free = SIZE_MAX;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
		size_t n_other = limit.rlim_cur > 4 * OTHER_DESCRIPTORS ? OTHER_DESCRIPTORS : FEW_DESCRIPTORS;

		n_free = limit.rlim_cur > n_other ? (size_t)limit.rlim_cur - n_other : 1;
	}
	window = least(window, n_free / 3);
	if (question->max_bytes)
		window = least(window, WINDOW_BYTES / question->max_bytes);
	return window ? window : 1;
}

/* A question whose answers are long has room for some of them. */
static void set_limits(struct round *round)
{
	size_t max_bytes = round->question->max_bytes;

	round->max_values = max_bytes > SMALL_ANSWER ? STAT_VALUES_MAX : VALUES_MIN;
	round->user_values = most(STAT_USER_VALUES, round->max_values);
	round->foreign_values = most(STAT_FOREIGN_VALUES, 2 * round->max_values);
	round->user_bytes = most(STAT_USER_BYTES, 4 * max_bytes);
	round->foreign_bytes = most(STAT_FOREIGN_BYTES, 16 * max_bytes);
}

/* Drops the processes that were not asked, since there was no time. */
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
		.patience_ns = question->timeout_ms * INT64_C(1000000) / PATIENCE_SHARE,
		.next = next,
		.done = done,
		.is_in_the_way = is_in_the_way,
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
