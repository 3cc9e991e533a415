/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_yield.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stat_yield_ask.h"
#include "stat_yield_clients.h"
#include "stat_yield_peer.h"
#include "stat_yield_share.h"
#include "tools/ask/ctl_client.h"

enum {
	BACKLOG = 128,
	ACCEPTS_A_STEP = 16,
	RETRY_MS = 100,         /* time without accepts after one that failed for lack of descriptors */
	DESCRIPTORS_MAX = 4096, /* more than the exporter and the broker need together */
};

struct stat_yield {
	int listen_fd, wake_fd;
	pthread_t server, asker;
	pthread_mutex_t mutex; /* guards the next ones */
	pthread_cond_t has_waiting;
	struct stat_yield_clients clients;
	bool is_over;

	struct stat_yield_shares shares;   /* for the asking thread */
	struct stat_yield_asker processes; /* likewise */
	int64_t accept_after_ns;           /* for the serving thread */
};

enum stat_exit stat_yield_check(void)
{
	if (geteuid() != 0 || !gp_ctl_has_all_users()) {
		stat_error("run it as root, outside of user namespaces, or leave out --yield.",
			"--yield needs root: it asks processes of other users for memory.");
		return STAT_NOT_PERMITTED;
	}
	if (getenv("GPUPOOL_RUNTIME_DIR")) {
		stat_error("unset GPUPOOL_RUNTIME_DIR, or leave out --yield.",
			"--yield searches the directories of all users, but GPUPOOL_RUNTIME_DIR names one of them.");
		return STAT_USAGE;
	}
	return STAT_OK;
}

static void take_client(struct stat_yield *yield, int fd, int64_t now_ns)
{
	struct ucred peer;
	socklen_t length = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
		close(fd);
		return;
	}
	stat_yield_clients_add(&yield->clients, fd, peer.uid, stat_yield_user_of(peer.pid, peer.uid), peer.pid, now_ns);
}

static void accept_clients(struct stat_yield *yield, int64_t now_ns)
{
	for (int i = 0; i < ACCEPTS_A_STEP; i++) {
		int fd = accept4(yield->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			take_client(yield, fd, now_ns);
			continue;
		}
		if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
			yield->accept_after_ns = now_ns + RETRY_MS * INT64_C(1000000);
		return;
	}
}

static int shorter(int wait_ms, int other_ms)
{
	return wait_ms < 0 || other_ms < wait_ms ? other_ms : wait_ms;
}

static void *serve(void *arg)
{
	enum { LISTENER = STAT_YIELD_CLIENTS, WAKE, N_FDS };
	struct stat_yield *yield = arg;
	struct pollfd fds[N_FDS];

	pthread_mutex_lock(&yield->mutex);
	while (!yield->is_over) {
		int64_t now_ns = ctl_client_now_ns();
		int wait_ms = stat_yield_clients_fill(&yield->clients, fds, now_ns);
		bool is_accepting = now_ns >= yield->accept_after_ns;

		fds[LISTENER] = (struct pollfd){.fd = is_accepting ? yield->listen_fd : -1, .events = POLLIN};
		fds[WAKE] = (struct pollfd){.fd = yield->wake_fd, .events = POLLIN};
		pthread_mutex_unlock(&yield->mutex);
		if (poll(fds, N_FDS, is_accepting ? wait_ms : shorter(wait_ms, RETRY_MS)) < 0) {
			memset(fds, 0, sizeof(fds));
			(void)poll(NULL, 0, errno == EINTR ? 0 : RETRY_MS);
		}
		now_ns = ctl_client_now_ns();
		pthread_mutex_lock(&yield->mutex);
		if (stat_yield_clients_step(&yield->clients, fds, now_ns))
			pthread_cond_signal(&yield->has_waiting);
		if (fds[LISTENER].revents)
			accept_clients(yield, now_ns);
	}
	pthread_mutex_unlock(&yield->mutex);
	return NULL;
}

/* Decides about a request, asks, and writes the answer. */
static void handle(struct stat_yield *yield, const struct stat_yield_client *client, char answer[GP_BROKER_ANSWER_MAX])
{
	const struct stat_yield_request *request = &client->request;
	const char *why;

	if (!stat_yield_shares_pay(
		    &yield->shares, client->user, client->pid, request->is_wanted, ctl_client_now_ns())) {
		stat_yield_error_format(answer, GP_BROKER_BUSY, "this process, or its user, has asked too much");
		return;
	}
	why = stat_yield_peer_check(client->pid, client->uid, request->uuid, STAT_YIELD_GPUS, STAT_YIELD_NVIDIA_MAJOR);
	if (why)
		stat_yield_error_format(answer, "permission", why);
	else
		stat_yield_answer_format(answer, request, stat_yield_ask(&yield->processes, request, client->pid));
}

static void *ask(void *arg)
{
	struct stat_yield *yield = arg;
	char answer[GP_BROKER_ANSWER_MAX];

	pthread_mutex_lock(&yield->mutex);
	while (!yield->is_over) {
		struct stat_yield_client *client = stat_yield_clients_next(&yield->clients, ctl_client_now_ns());

		if (!client) {
			pthread_cond_wait(&yield->has_waiting, &yield->mutex);
			continue;
		}
		/* The client keeps its place, and the serving thread leaves it alone. */
		pthread_mutex_unlock(&yield->mutex);
		handle(yield, client, answer);
		pthread_mutex_lock(&yield->mutex);
		stat_yield_clients_answer(client, answer);
	}
	pthread_mutex_unlock(&yield->mutex);
	return NULL;
}

static enum stat_exit fail(const char *next, const char *what)
{
	stat_error(next, "--yield: %s: %s.", what, strerror(errno));
	return STAT_FAILED;
}

/* Makes the folder of the socket, in which only root may make files. */
static enum stat_exit make_folder(void)
{
	struct stat st;

	if (!gp_ctl_run_dir(GP_CTL_RUN_DIR, 0)) {
		stat_error("make it with mode 1777; gpupool(7) says how.",
			"--yield: there is no " GP_CTL_RUN_DIR " of root, in which users cannot replace folders.");
		return STAT_FAILED;
	}
	if (mkdir(GP_BROKER_DIR, 0755) != 0 && errno != EEXIST)
		return fail(NULL, "cannot make " GP_BROKER_DIR);
	if (lstat(GP_BROKER_DIR, &st) != 0)
		return fail(NULL, GP_BROKER_DIR);
	if (!S_ISDIR(st.st_mode) || st.st_uid != 0) {
		stat_error("remove it.", "--yield: " GP_BROKER_DIR " is not a directory of root.");
		return STAT_NOT_PERMITTED;
	}
	return chmod(GP_BROKER_DIR, 0755) == 0 ? STAT_OK : fail(NULL, GP_BROKER_DIR);
}

static bool is_served(const struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool is_connected =
		fd >= 0 && (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 || errno == EAGAIN);

	if (fd >= 0)
		close(fd);
	return is_connected;
}

/* Makes the socket, to which every user may connect, whatever the umask is. */
static enum stat_exit listen_in_folder(int *ret_fd)
{
	const struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = GP_BROKER_DIR "/" GP_BROKER_NAME};
	int fd;

	if (is_served(&address)) {
		stat_error("leave out --yield, or end the other one.", "--yield: another exporter does this already.");
		return STAT_FAILED;
	}
	(void)unlink(address.sun_path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return fail(NULL, "no socket");
	if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 || chmod(address.sun_path, 0666) != 0 ||
		listen(fd, BACKLOG) != 0) {
		close(fd);
		return fail(NULL, "cannot listen at " GP_BROKER_DIR "/" GP_BROKER_NAME);
	}
	*ret_fd = fd;
	return STAT_OK;
}

static void raise_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= DESCRIPTORS_MAX)
		return;
	limit.rlim_cur = limit.rlim_max < DESCRIPTORS_MAX ? limit.rlim_max : DESCRIPTORS_MAX;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
}

static void close_all(struct stat_yield *yield)
{
	stat_yield_clients_close(&yield->clients);
	stat_yield_asker_deinit(&yield->processes);
	if (yield->listen_fd >= 0) {
		close(yield->listen_fd);
		(void)unlink(GP_BROKER_DIR "/" GP_BROKER_NAME);
	}
	if (yield->wake_fd >= 0)
		close(yield->wake_fd);
	free(yield);
}

static void end_threads(struct stat_yield *yield)
{
	const uint64_t one = 1;

	pthread_mutex_lock(&yield->mutex);
	yield->is_over = true;
	pthread_cond_broadcast(&yield->has_waiting);
	pthread_mutex_unlock(&yield->mutex);
	(void)!write(yield->wake_fd, &one, sizeof(one));
}

/* Starts both threads, or none. */
static bool start_threads(struct stat_yield *yield)
{
	yield->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (yield->wake_fd < 0 || pthread_create(&yield->server, NULL, serve, yield) != 0)
		return false;
	if (pthread_create(&yield->asker, NULL, ask, yield) == 0)
		return true;
	end_threads(yield);
	pthread_join(yield->server, NULL);
	return false;
}

enum stat_exit stat_yield_start(struct stat_yield **ret)
{
	struct stat_yield *yield = stat_alloc(calloc(1, sizeof(*yield)));
	enum stat_exit result = make_folder();

	yield->listen_fd = yield->wake_fd = -1;
	pthread_mutex_init(&yield->mutex, NULL);
	pthread_cond_init(&yield->has_waiting, NULL);
	raise_descriptors();
	if (result == STAT_OK)
		result = listen_in_folder(&yield->listen_fd);
	if (result == STAT_OK && !start_threads(yield))
		result = fail(NULL, "no thread");
	if (result == STAT_OK)
		*ret = yield;
	else
		close_all(yield);
	return result;
}

void stat_yield_stop(struct stat_yield *yield)
{
	if (!yield)
		return;
	end_threads(yield);
	pthread_join(yield->server, NULL);
	pthread_join(yield->asker, NULL);
	close_all(yield);
}
