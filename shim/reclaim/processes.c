/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "processes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/ctl_abstract.h"
#include "common/ctl_proto.h"
#include "common/oom_name.h"
#include "pool/base.h"
#include "shim/ctl/ctl_ask.h"

enum {
	ASKED_MAX = 32,                            /* processes that are asked at once */
	ASKED_OF_USER_MAX = 8,                     /* of these, processes of one other user */
	NAMES_OF_USER_MAX = 64 + GP_OOM_FILES_MAX, /* names read in another user's directory: it may hold anything */
	BACKOFF_MS = 60000,                        /* an unresponsive process is not asked again for this long */
	UNRESPONSIVE_MAX = 512,                    /* unresponsive processes that are remembered */
	UNRESPONSIVE_OF_USER_MAX = 8, /* once another user has this many, none of that user's processes is asked */
	ANSWER_MAX = 512,
};

/*
 * The exchange with one process. A process is asked only once, however many sockets it has. pid is the id that the
 * kernel reports for the other end of the socket. The id in the socket's name is used only if the kernel reports none,
 * for example for a process in another PID namespace.
 */
struct talk {
	int fd;
	pid_t pid;
	uid_t uid;
	uint64_t start_ticks;
	size_t length;
	char line[ANSWER_MAX];
	int error;                /* -EAGAIN: no answer yet */
	struct gp_process answer; /* its bytes and times */
};

struct round {
	const char *request;
	bool are_all;
	gp_processes_filter filter;
	const void *filter_arg;
	uint64_t own_start_ticks;
	size_t n;
	struct talk talks[ASKED_MAX];
};

/* Unresponsive processes, in a ring: a new one replaces the oldest. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct unresponsive {
	pid_t pid;
	uid_t uid;
	uint64_t start_ticks;
	int64_t until_ms;
} unresponsive[UNRESPONSIVE_MAX];
static unsigned n_unresponsive; /* added so far */

static bool is_unresponsive(const struct talk *talk)
{
	int64_t now = gp_ask_now_ms();
	bool is_listed = false;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < UNRESPONSIVE_MAX && !is_listed; i++)
		is_listed = unresponsive[i].pid == talk->pid && unresponsive[i].start_ticks == talk->start_ticks &&
			    now < unresponsive[i].until_ms;
	pthread_mutex_unlock(&lock);
	return is_listed;
}

/* Without this check, a user with many processes that never answer could use up the ask timeout of every request. */
static bool is_user_unresponsive(uid_t uid)
{
	int64_t now = gp_ask_now_ms();
	unsigned n = 0;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < UNRESPONSIVE_MAX; i++)
		n += unresponsive[i].pid && unresponsive[i].uid == uid && now < unresponsive[i].until_ms;
	pthread_mutex_unlock(&lock);
	return n >= UNRESPONSIVE_OF_USER_MAX;
}

static void note_unresponsive(const struct talk *talk)
{
	pthread_mutex_lock(&lock);
	unresponsive[n_unresponsive++ % UNRESPONSIVE_MAX] =
		(struct unresponsive){talk->pid, talk->uid, talk->start_ticks, gp_ask_now_ms() + BACKOFF_MS};
	pthread_mutex_unlock(&lock);
}

/* Sends without blocking: the request is far smaller than the send buffer of a new connection. */
static bool send_request(int fd, const char *request)
{
	size_t length = strlen(request);

	return send(fd, request, length, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)length;
}

static bool is_asked(const struct round *round, const struct talk *talk)
{
	size_t i = 0;

	while (i < round->n && (round->talks[i].pid != talk->pid || round->talks[i].start_ticks != talk->start_ticks))
		i++;
	return i < round->n;
}

static bool should_ask(const struct round *round, const struct talk *talk)
{
	return round->n < ASKED_MAX && !is_asked(round, talk) && !is_unresponsive(talk);
}

/* Names in another user's directory may be forged, so a name is used only if that process is running. */
static bool is_running(const struct talk *talk)
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

static int connect_to_foreign(const struct talk *talk, int dir_fd, const char *name)
{
	return is_running(talk) ? gp_ctl_connect_to(dir_fd, name, talk->uid, talk->pid) : -ESRCH;
}

/* Asks the process that the socket belongs to. talk: the process id and start time of the socket's name. */
static void ask_process(struct round *round, int dir_fd, const char *name, struct talk talk)
{
	bool is_own = talk.uid == geteuid();
	bool is_self = talk.pid == getpid() && talk.start_ticks == round->own_start_ticks;
	uint32_t named = gp_process_named(talk.pid, talk.start_ticks);
	int fd;

	if (is_self || (round->filter && !round->filter(round->filter_arg, talk.pid, talk.start_ticks)) ||
		!should_ask(round, &talk))
		return;
	fd = is_own ? connect_to_own(&talk, dir_fd, name) : connect_to_foreign(&talk, dir_fd, name);
	if (fd < 0)
		return;
	/* The process at the other end may have been asked through another socket. */
	if (!should_ask(round, &talk) || !send_request(fd, round->request)) {
		close(fd);
		return;
	}
	talk.fd = fd;
	talk.error = -EAGAIN;
	talk.answer.named = named;
	round->talks[round->n++] = talk;
}

/* Asks the processes with a socket in the directory, at most max of them, and reads at most names_max names. */
static void ask_in_dir(struct round *round, int dir_fd, uid_t uid, size_t max, size_t names_max)
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
	max = gp_min(round->n + max, (size_t)ASKED_MAX);
	while (round->n < max && n++ < names_max && (entry = readdir(dir))) {
		struct talk talk = {.uid = uid};

		if (gp_ctl_name_parse(entry->d_name, &talk.pid, &talk.start_ticks))
			ask_process(round, dir_fd, entry->d_name, talk);
	}
	closedir(dir);
}

static bool ask_own_in_dir(void *arg, int dir_fd)
{
	ask_in_dir(arg, dir_fd, geteuid(), ASKED_MAX, SIZE_MAX);
	return true;
}

static bool ask_user_in_dir(void *arg, int dir_fd, uid_t uid)
{
	struct round *round = arg;

	if (!is_user_unresponsive(uid))
		ask_in_dir(round, dir_fd, uid, ASKED_OF_USER_MAX, NAMES_OF_USER_MAX);
	return round->n < ASKED_MAX;
}

static unsigned count_of_user(const struct round *round, uid_t uid)
{
	unsigned n = 0;

	for (size_t i = 0; i < round->n; i++)
		n += round->talks[i].uid == uid;
	return n;
}

/* Asks the process of an abstract socket, which has no file. Any user can make such sockets. */
static bool ask_abstract(void *arg, const struct gp_ctl_abstract *found)
{
	struct talk talk = {.pid = found->pid, .uid = found->uid, .start_ticks = found->start_ticks};
	struct round *round = arg;

	if (talk.uid == geteuid() || (round->are_all && count_of_user(round, talk.uid) < ASKED_OF_USER_MAX &&
					     !is_user_unresponsive(talk.uid)))
		ask_process(round, GP_CTL_NO_DIR, found->name, talk);
	return round->n < ASKED_MAX;
}

static void ask_all(struct round *round)
{
	char state;

	if (gp_ctl_process_stat(0, &round->own_start_ticks, &state))
		return;
	gp_ask_each_dir(ask_own_in_dir, round);
	if (round->are_all)
		gp_ask_each_user(ask_user_in_dir, round);
	if (!gp_ask_is_dir_named())
		gp_ctl_abstract_each(ask_abstract, round);
}

/* Rejects amounts larger than any machine's memory, so that sums cannot wrap. */
static bool take_bytes(const char **line, const char *name, uint64_t *ret_bytes)
{
	return gp_ask_take_text(line, name) && gp_ask_take_number(line, ret_bytes) &&
	       *ret_bytes <= INT64_MAX / ASKED_MAX;
}

int gp_processes_parse(const char *line, struct gp_process *ret)
{
	static const struct {
		const char *schema;
		bool has_held_bytes, has_idle_ms;
	} answers[] = {
		{"{\"schema\":\"gpupool.yield/1\"", false, false},
		{"{\"schema\":\"gpupool.wanted/1\"", true, false},
		{"{\"schema\":\"gpupool.rest/1\"", true, true},
	};
	uint64_t bytes, held_bytes = 0, idle_ms = 0;
	size_t i = 0;

	if (gp_ask_take_text(&line, "{\"schema\":\"gpupool.error/1\""))
		return -EPERM;
	while (i < sizeof(answers) / sizeof(*answers) && !gp_ask_take_text(&line, answers[i].schema))
		i++;
	if (i == sizeof(answers) / sizeof(*answers) || !take_bytes(&line, ",\"released_bytes\":", &bytes) ||
		(answers[i].has_held_bytes && !take_bytes(&line, ",\"held_bytes\":", &held_bytes)) ||
		(answers[i].has_idle_ms && !take_bytes(&line, ",\"idle_ms\":", &idle_ms)) || strcmp(line, "}") != 0)
		return -EPROTO;
	ret->bytes = bytes;
	ret->held_bytes = held_bytes;
	ret->idle_ds = (unsigned)gp_min(idle_ms / 100, (uint64_t)GP_PROCESS_IDLE_MAX_DS);
	ret->may_sleep = answers[i].has_idle_ms;
	return 0;
}

static void end_talk(struct talk *talk, int error)
{
	close(talk->fd);
	talk->fd = -1;
	talk->error = error;
}

static void receive_from(struct talk *talk)
{
	ssize_t n = recv(talk->fd, talk->line + talk->length, ANSWER_MAX - 1 - talk->length, MSG_DONTWAIT);
	char *end;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		end_talk(talk, -ECONNRESET);
		return;
	}
	talk->length += (size_t)n;
	talk->line[talk->length] = '\0';
	end = strchr(talk->line, '\n');
	if (end) {
		*end = '\0';
		end_talk(talk, gp_processes_parse(talk->line, &talk->answer));
	} else if (talk->length == ANSWER_MAX - 1) {
		end_talk(talk, -EPROTO);
	}
}

static void receive_all(struct round *round, int max_ms)
{
	int64_t end_ms = gp_ask_now_ms() + max_ms;
	struct pollfd fds[ASKED_MAX];

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
				receive_from(&round->talks[i]);
	}
	for (size_t i = 0; i < round->n; i++) {
		if (round->talks[i].fd < 0)
			continue;
		end_talk(&round->talks[i], -ETIMEDOUT);
		if (max_ms == GP_PROCESSES_ASK_MS)
			note_unresponsive(&round->talks[i]);
	}
}

/* Orders by bytes given back and then by bytes held, most first. Processes without an answer have 0 bytes. */
static int compare(const void *a, const void *b)
{
	const struct gp_process *one = &((const struct talk *)a)->answer, *other = &((const struct talk *)b)->answer;

	if (one->bytes != other->bytes)
		return one->bytes < other->bytes ? 1 : -1;
	return (one->held_bytes < other->held_bytes) - (one->held_bytes > other->held_bytes);
}

static void summarize(struct round *round, struct gp_processes *ret)
{
	*ret = (struct gp_processes){.n = (unsigned)round->n};
	qsort(round->talks, round->n, sizeof(round->talks[0]), compare);
	for (size_t i = 0; i < round->n; i++) {
		struct talk *talk = &round->talks[i];

		ret->bytes += talk->answer.bytes;
		ret->held_bytes += talk->answer.held_bytes;
		talk->answer.pid = talk->pid;
		talk->answer.uid = talk->uid;
		talk->answer.error = talk->error;
		if (i < GP_PROCESSES_SHOWN)
			ret->shown[i] = talk->answer;
	}
}

void gp_processes_ask(const char *request, bool are_all, gp_processes_filter filter, const void *arg, int max_ms,
	struct gp_processes *ret)
{
	struct round *round = malloc(sizeof(*round)); /* too large for the stack of a thread of the program */
	int cancel_state, saved_errno = errno;

	*ret = (struct gp_processes){0};
	if (!round)
		return;
	round->request = request;
	round->are_all = are_all;
	round->filter = filter;
	round->filter_arg = arg;
	round->n = 0;
	/* A thread cancelled here would leave descriptors open. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	ask_all(round);
	receive_all(round, max_ms);
	summarize(round, ret);
	pthread_setcancelstate(cancel_state, NULL);
	free(round);
	errno = saved_errno;
}
