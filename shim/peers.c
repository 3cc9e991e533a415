/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "peers.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../pool/base.h"
#include "ctl_abstract.h"
#include "ctl_ask.h"
#include "ctl_proto.h"
#include "oom_name.h"

enum {
	PEERS_MAX = 32,
	OF_USER_MAX = 8,     /* of another user's; and so many names are looked at, since they may be anything */
	NAMES_OF_USER_MAX = 64 + GP_OOM_FILES_MAX,
	PATIENCE_MS = 2000,  /* for all of them together */
	BACKOFF_MS = 60000,  /* a process that was silent is not asked for so long */
	SILENT_MAX = 512,    /* processes of which that is known */
	SILENT_OF_USER_MAX = 8, /* then another user's other processes are not asked either */
	ANSWER_MAX = 512,
};

/*
 * One process, however many sockets it has: the number is that of the process at the other end, by the kernel, and what
 * a socket is called counts only for a process that cannot be seen from here.
 */
struct talk {
	int fd;
	pid_t pid;
	uid_t uid;
	uint64_t start_ticks;
	size_t length;
	char answer[ANSWER_MAX];
	int error; /* -EAGAIN: none yet */
	uint64_t bytes;
};

struct round {
	const char *request;
	bool are_all;
	uint64_t own_start_ticks;
	size_t n;
	struct talk talks[PEERS_MAX];
};

/* Processes that were silent. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct silent {
	pid_t pid;
	uid_t uid;
	uint64_t start_ticks;
	int64_t until_ms;
} silent[SILENT_MAX];
static unsigned n_silent; /* so far; a new one takes the place of the oldest */

static bool is_silent(const struct talk *talk)
{
	int64_t now = gp_ask_now_ms();
	bool is = false;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < SILENT_MAX && !is; i++)
		is = silent[i].pid == talk->pid && silent[i].start_ticks == talk->start_ticks &&
		     now < silent[i].until_ms;
	pthread_mutex_unlock(&lock);
	return is;
}

/* A user who starts processes only to have others wait for them would else cost each of them the whole time. */
static bool is_user_silent(uid_t uid)
{
	int64_t now = gp_ask_now_ms();
	unsigned n = 0;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < SILENT_MAX; i++)
		n += silent[i].pid && silent[i].uid == uid && now < silent[i].until_ms;
	pthread_mutex_unlock(&lock);
	return n >= SILENT_OF_USER_MAX;
}

static void note_silent(const struct talk *talk)
{
	pthread_mutex_lock(&lock);
	silent[n_silent++ % SILENT_MAX] =
		(struct silent){talk->pid, talk->uid, talk->start_ticks, gp_ask_now_ms() + BACKOFF_MS};
	pthread_mutex_unlock(&lock);
}

/* The whole request is far smaller than what a new connection takes at once. */
static bool say(int fd, const char *request)
{
	size_t length = strlen(request);

	return send(fd, request, length, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)length;
}

static bool is_called(const struct round *round, const struct talk *talk)
{
	size_t i = 0;

	while (i < round->n && (round->talks[i].pid != talk->pid || round->talks[i].start_ticks != talk->start_ticks))
		i++;
	return i < round->n;
}

static bool is_to_be_called(const struct round *round, const struct talk *talk)
{
	return round->n < PEERS_MAX && !is_called(round, talk) && !is_silent(talk);
}

/* A name in another user's directory says anything; that of a process that is not there is not worth a connection. */
static bool has_true_start(const struct talk *talk)
{
	uint64_t start_ticks;
	char state;

	return !gp_ctl_process_stat(talk->pid, &start_ticks, &state) && start_ticks == talk->start_ticks;
}

static int connect_to_own(struct talk *talk, int dir_fd, const char *name)
{
	int fd = gp_ctl_connect(dir_fd, name);
	pid_t pid = fd < 0 ? 0 : gp_ctl_peer_pid(fd);
	char state;

	if (pid > 0 && !gp_ctl_process_stat(pid, &talk->start_ticks, &state))
		talk->pid = pid;
	return fd;
}

static int connect_to_users(const struct talk *talk, int dir_fd, const char *name)
{
	return has_true_start(talk) ? gp_ctl_connect_to(dir_fd, name, talk->uid, talk->pid) : -ESRCH;
}

/* The process whose socket that is: with the number and the start time that its name has. */
static void call(struct round *round, int dir_fd, const char *name, struct talk talk)
{
	bool is_own = talk.uid == geteuid();
	bool is_self = talk.pid == getpid() && talk.start_ticks == round->own_start_ticks;
	int fd;

	if (is_self || !is_to_be_called(round, &talk))
		return;
	fd = is_own ? connect_to_own(&talk, dir_fd, name) : connect_to_users(&talk, dir_fd, name);
	if (fd < 0)
		return;
	/* The process may be one that was asked under another name. */
	if (!is_to_be_called(round, &talk) || !say(fd, round->request)) {
		close(fd);
		return;
	}
	talk.fd = fd;
	talk.error = -EAGAIN;
	round->talks[round->n++] = talk;
}

/* Until that many are called, or so many names seen. */
static void call_some_in(struct round *round, int dir_fd, uid_t uid, size_t max, size_t names_max)
{
	int list_fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = list_fd < 0 ? NULL : fdopendir(list_fd);
	const struct dirent *entry;
	size_t n = 0;

	if (!dir) {
		if (list_fd >= 0)
			close(list_fd);
		return;
	}
	max = gp_min(round->n + max, (size_t)PEERS_MAX);
	while (round->n < max && n++ < names_max && (entry = readdir(dir))) {
		struct talk talk = {.uid = uid};

		if (gp_ctl_name_parse(entry->d_name, &talk.pid, &talk.start_ticks))
			call(round, dir_fd, entry->d_name, talk);
	}
	closedir(dir);
}

static bool call_all_in(void *arg, int dir_fd)
{
	call_some_in(arg, dir_fd, geteuid(), PEERS_MAX, SIZE_MAX);
	return true;
}

static bool call_user_in(void *arg, int dir_fd, uid_t uid)
{
	struct round *round = arg;

	if (!is_user_silent(uid))
		call_some_in(round, dir_fd, uid, OF_USER_MAX, NAMES_OF_USER_MAX);
	return round->n < PEERS_MAX;
}

static unsigned count_of_user(const struct round *round, uid_t uid)
{
	unsigned n = 0;

	for (size_t i = 0; i < round->n; i++)
		n += round->talks[i].uid == uid;
	return n;
}

/* Sockets without a file, whoever has made them. */
static bool call_abstract(void *arg, const struct gp_ctl_abstract *found)
{
	struct talk talk = {.pid = found->pid, .uid = found->uid, .start_ticks = found->start_ticks};
	struct round *round = arg;

	if (talk.uid == geteuid() || (round->are_all && count_of_user(round, talk.uid) < OF_USER_MAX &&
					     !is_user_silent(talk.uid)))
		call(round, GP_CTL_NO_DIR, found->name, talk);
	return round->n < PEERS_MAX;
}

static void call_all(struct round *round)
{
	char state;

	if (gp_ctl_process_stat(0, &round->own_start_ticks, &state))
		return;
	gp_ask_each_dir(call_all_in, round);
	if (round->are_all)
		gp_ask_each_user(call_user_in, round);
	if (!gp_ask_is_dir_named())
		gp_ctl_abstract_each(call_abstract, round);
}

int gp_peers_parse(const char *line, uint64_t *ret_bytes)
{
	uint64_t bytes;

	if (gp_ask_take_text(&line, "{\"schema\":\"gpupool.error/1\""))
		return -EPERM;
	if (!gp_ask_take_text(&line, "{\"schema\":\"gpupool.yield/1\",\"released_bytes\":") ||
		!gp_ask_take_number(&line, &bytes))
		return -EPROTO;
	/* More than any machine has is no amount, and sums must not wrap. */
	if (strcmp(line, "}") != 0 || bytes > INT64_MAX / PEERS_MAX)
		return -EPROTO;
	*ret_bytes = bytes;
	return 0;
}

static void hang_up(struct talk *talk, int error)
{
	close(talk->fd);
	talk->fd = -1;
	talk->error = error;
}

static void listen_to(struct talk *talk)
{
	ssize_t n = recv(talk->fd, talk->answer + talk->length, ANSWER_MAX - 1 - talk->length, MSG_DONTWAIT);
	char *end;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		hang_up(talk, -ECONNRESET);
		return;
	}
	talk->length += (size_t)n;
	talk->answer[talk->length] = '\0';
	end = strchr(talk->answer, '\n');
	if (end) {
		*end = '\0';
		hang_up(talk, gp_peers_parse(talk->answer, &talk->bytes));
	} else if (talk->length == ANSWER_MAX - 1) {
		hang_up(talk, -EPROTO);
	}
}

static void listen_to_all(struct round *round, int64_t end_ms)
{
	struct pollfd fds[PEERS_MAX];

	for (;;) {
		int64_t left = end_ms - gp_ask_now_ms();
		size_t n_open = 0;

		for (size_t i = 0; i < round->n; i++) {
			fds[i] = (struct pollfd){.fd = round->talks[i].fd, .events = POLLIN};
			n_open += fds[i].fd >= 0;
		}
		if (!n_open || left <= 0)
			break;
		if (poll(fds, round->n, (int)left) <= 0)
			continue;
		for (size_t i = 0; i < round->n; i++)
			if (fds[i].fd >= 0 && fds[i].revents)
				listen_to(&round->talks[i]);
	}
	for (size_t i = 0; i < round->n; i++) {
		if (round->talks[i].fd < 0)
			continue;
		hang_up(&round->talks[i], -ETIMEDOUT);
		note_silent(&round->talks[i]);
	}
}

/* Most bytes first; whoever said nothing is last. */
static int compare(const void *a, const void *b)
{
	const struct talk *one = a, *other = b;

	return (one->bytes < other->bytes) - (one->bytes > other->bytes);
}

static void sum_up(struct round *round, struct gp_peers *ret)
{
	*ret = (struct gp_peers){.n = (unsigned)round->n};
	qsort(round->talks, round->n, sizeof(round->talks[0]), compare);
	for (size_t i = 0; i < round->n; i++) {
		const struct talk *talk = &round->talks[i];

		ret->bytes += talk->bytes;
		ret->n_silent += talk->error != 0;
		if (i < GP_PEERS_SHOWN)
			ret->shown[i] = (struct gp_peer){talk->pid, talk->uid, talk->error, talk->bytes};
	}
}

void gp_peers_ask(const char *request, bool are_all, struct gp_peers *ret)
{
	struct round *round = malloc(sizeof(*round)); /* too large for the stacks of others */
	int cancel_state, saved_errno = errno;

	*ret = (struct gp_peers){0};
	if (!round)
		return;
	round->request = request;
	round->are_all = are_all;
	round->n = 0;
	/* A thread must not vanish in here with descriptors open. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	call_all(round);
	listen_to_all(round, gp_ask_now_ms() + PATIENCE_MS);
	sum_up(round, ret);
	pthread_setcancelstate(cancel_state, NULL);
	free(round);
	errno = saved_errno;
}
