/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The life of the server. gp_ctl_start() creates the socket in the calling thread, so that a failure can be reported.
 * From then on only the server's thread changes the data below; other threads change nothing but the state.
 * If the program closes the listening socket, the server's thread creates it again, under the same name. The thread
 * ends if that fails, or if the program has closed the socket more than MAX_RENEWALS times.
 *
 * At exit the file is removed and the thread answers no more requests, since its handlers might call a CUDA driver
 * that is shutting down. The thread itself is ended by the kernel with the process.
 *
 * A forked child has a copy of all this but not the thread. It closes its copies of the parent's sockets: as long as
 * any process holds the listening one, clients can connect to it and then wait for an answer that never comes.
 */

#include "ctl_server.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "ctl_conn.h"
#include "ctl_listen.h"
#include "shim/base/own_thread.h"

enum {
	MAX_CONNS = 8,
	MAX_RENEWALS = 3,
	IDLE_MS = 60000,
	RENEWAL_MAX_MS =
		1000,   /* the process's exit waits at most this long for a renewal, which is a few system calls */
	RETRY_MS = 100, /* time without accepts after one that failed for lack of descriptors or memory */
};

enum state { UNUSED, STARTING, RUNNING, RENEWING, ENDED };

static struct {
	_Atomic enum state state;
	pid_t owner;
	struct gp_ctl_listener listener;
	char path[GP_CTL_PATH_MAX + GP_CTL_NAME_MAX];
	const gp_ctl_handler_fn *handlers;
	void (*begin)(void);
	void (*tick)(void);
	int64_t tick_ns; /* when the next tick is due */
	int tick_interval_ms;
	int (*watch)(void);
	int64_t watch_ns; /* when it is called next */
	int64_t idle_ns;
	int64_t accept_after_ns;
	unsigned renewals;
	bool unlinks_at_exit;
	_Atomic bool has_conns; /* the connection slots are initialised */
	struct gp_ctl_conn conns[MAX_CONNS];
} server;

static int64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static bool is_open(const struct gp_ctl_conn *conn)
{
	return conn->fd.fd >= 0;
}

/*
 * Returns a free slot. If there is none, the connection that was silent for longest is closed: idle clients must not
 * keep a new client out.
 */
static struct gp_ctl_conn *find_slot(void)
{
	struct gp_ctl_conn *oldest = &server.conns[0];

	for (int i = 0; i < MAX_CONNS; i++) {
		struct gp_ctl_conn *conn = &server.conns[i];

		if (!is_open(conn))
			return conn;
		if (conn->active_ns < oldest->active_ns)
			oldest = conn;
	}
	gp_ctl_conn_close(oldest);
	return oldest;
}

/*
 * Returns false if the server must end. The state RENEWING makes the process's exit wait for the renewal: otherwise the
 * new file would stay after the exit.
 */
static bool renew_listener(void)
{
	enum state running = RUNNING;
	int error;

	gp_ctl_fd_close(&server.listener.fd);
	if (server.renewals++ == MAX_RENEWALS || !atomic_compare_exchange_strong(&server.state, &running, RENEWING))
		return false;
	error = gp_ctl_listener_open(&server.listener);
	atomic_store(&server.state, RUNNING);
	return !error || error == -EBADF; /* the program has closed the new one already */
}

static bool accept_clients(int64_t now_ns)
{
	for (int i = 0; i < MAX_CONNS; i++) {
		int fd = gp_ctl_listener_accept(&server.listener);

		if (fd >= 0) {
			gp_ctl_conn_open(find_slot(), fd, now_ns);
			continue;
		}
		if (fd == -EBADF)
			return renew_listener();
		if (fd != -EAGAIN && fd != -EINTR && fd != -ECONNABORTED)
			server.accept_after_ns = now_ns + RETRY_MS * INT64_C(1000000);
		break;
	}
	return true;
}

int gp_ctl_tick_ms(int before_ms)
{
	return before_ms < GP_CTL_TICK_MS / 2 ? 2 * before_ms : GP_CTL_TICK_MS;
}

/* Returns the milliseconds until the next timeout, -1 if there is none. */
static int wait_ms(int64_t now_ns)
{
	int64_t next_ns = INT64_MAX;

	if (server.tick)
		next_ns = server.tick_ns;
	if (server.watch && server.watch_ns < next_ns)
		next_ns = server.watch_ns;
	if (server.accept_after_ns > now_ns && server.accept_after_ns < next_ns)
		next_ns = server.accept_after_ns;
	for (int i = 0; i < MAX_CONNS; i++)
		if (is_open(&server.conns[i]) && server.conns[i].active_ns + server.idle_ns < next_ns)
			next_ns = server.conns[i].active_ns + server.idle_ns;
	if (next_ns == INT64_MAX)
		return -1;
	return next_ns <= now_ns ? 0 : (int)((next_ns - now_ns) / 1000000 + 1);
}

static void fill(struct pollfd fds[static MAX_CONNS + 1], int64_t now_ns)
{
	for (int i = 0; i < MAX_CONNS; i++) {
		struct gp_ctl_conn *conn = &server.conns[i];

		fds[i] = (struct pollfd){.fd = conn->fd.fd};
		if (is_open(conn))
			fds[i].events = gp_ctl_conn_events(conn);
	}
	fds[MAX_CONNS] = (struct pollfd){.fd = server.listener.fd.fd, .events = POLLIN};
	if (server.accept_after_ns > now_ns)
		fds[MAX_CONNS].fd = -1;
}

/*
 * Closes connections whose descriptors the program has closed. Polling such a number might wait for a file of the
 * program. Returns false if the server must end.
 */
static bool close_lost(void)
{
	for (int i = 0; i < MAX_CONNS; i++)
		if (is_open(&server.conns[i]) && !gp_ctl_fd_is_ours(&server.conns[i].fd))
			gp_ctl_conn_close(&server.conns[i]);
	return gp_ctl_fd_is_ours(&server.listener.fd) || renew_listener();
}

static void set_tick(int interval_ms)
{
	server.tick_interval_ms = interval_ms;
	server.tick_ns = clock_ns() + interval_ms * INT64_C(1000000);
}

static void tick(int64_t now_ns)
{
	if (!server.tick || now_ns < server.tick_ns)
		return;
	server.tick();
	set_tick(gp_ctl_tick_ms(server.tick_interval_ms));
}

/* A watch may take long, so the next one is counted from its end. */
static void watch(int64_t now_ns)
{
	if (server.watch && now_ns >= server.watch_ns)
		server.watch_ns = server.watch() * INT64_C(1000000) + clock_ns();
}

static bool step(void)
{
	struct pollfd fds[MAX_CONNS + 1];
	int64_t now_ns = clock_ns();

	if (!close_lost())
		return false;
	fill(fds, now_ns);
	if (poll(fds, MAX_CONNS + 1, wait_ms(now_ns)) < 0 && errno != EINTR)
		return false;
	if (atomic_load(&server.state) != RUNNING)
		return false;
	now_ns = clock_ns();
	tick(now_ns);
	watch(now_ns);
	now_ns = clock_ns();
	for (int i = 0; i < MAX_CONNS; i++) {
		struct gp_ctl_conn *conn = &server.conns[i];

		if (!is_open(conn))
			continue;
		if (fds[i].revents)
			gp_ctl_conn_step(conn, server.handlers, now_ns);
		else if (now_ns - conn->active_ns >= server.idle_ns)
			gp_ctl_conn_close(conn);
	}
	return !fds[MAX_CONNS].revents || accept_clients(now_ns);
}

static void *serve(void *unused)
{
	enum state running = RUNNING;

	prctl(PR_SET_NAME, "gpupool");
	gp_ctl_fd_raise(&server.listener.fd);
	for (int i = 0; i < MAX_CONNS; i++)
		gp_ctl_conn_init(&server.conns[i]);
	atomic_store(&server.has_conns, true);
	if (server.begin)
		server.begin();
	set_tick(GP_CTL_FIRST_TICK_MS);
	while (step())
		;
	if (!atomic_compare_exchange_strong(&server.state, &running, ENDED))
		return NULL; /* the process is exiting, and end_at_exit() removes the file */
	for (int i = 0; i < MAX_CONNS; i++)
		gp_ctl_conn_close(&server.conns[i]);
	gp_ctl_fd_close(&server.listener.fd);
	gp_ctl_listener_unlink(&server.listener);
	return NULL;
}

static void end_at_exit(void)
{
	static const struct timespec ms = {.tv_nsec = 1000000};
	enum state found = RUNNING;

	if (getpid() != server.owner)
		return; /* a child that was forked without the fork handlers */
	for (int n = 0; !atomic_compare_exchange_strong(&server.state, &found, ENDED); n++) {
		if (found != RENEWING || n == RENEWAL_MAX_MS)
			return;
		found = RUNNING;
		nanosleep(&ms, NULL);
	}
	gp_ctl_listener_unlink(&server.listener);
}

static int start(const struct gp_ctl_options *options)
{
	int error;

	server.owner = getpid();
	server.handlers = options->handlers;
	server.begin = options->begin;
	server.tick = options->tick;
	server.watch = options->watch;
	server.watch_ns = 0;
	server.idle_ns = (options->idle_ms ? options->idle_ms : IDLE_MS) * INT64_C(1000000);
	server.accept_after_ns = 0;
	server.renewals = 0;
	server.has_conns = false;
	error = gp_ctl_listener_init(&server.listener, &options->dirs);
	if (error)
		return error;
	snprintf(server.path, sizeof(server.path), "%s%s%s", server.listener.dir, *server.listener.dir ? "/" : "@",
		server.listener.name);
	if (!server.unlinks_at_exit)
		server.unlinks_at_exit = atexit(end_at_exit) == 0;
	atomic_store(&server.state, RUNNING);
	error = gp_own_thread_start(serve, NULL, GP_STACK_SMALL);
	if (error) {
		gp_ctl_fd_close(&server.listener.fd);
		gp_ctl_listener_unlink(&server.listener);
		server.path[0] = '\0';
	}
	return error;
}

int gp_ctl_start(const struct gp_ctl_options *options)
{
	enum state unused = UNUSED;
	int kept = errno, error;

	if (!atomic_compare_exchange_strong(&server.state, &unused, STARTING))
		return -EALREADY;
	error = start(options);
	if (error)
		atomic_store(&server.state, ENDED);
	errno = kept;
	return error;
}

const char *gp_ctl_path(void)
{
	return server.path;
}

const char *gp_ctl_problems(void)
{
	return server.listener.problems;
}

void gp_ctl_after_fork_child(void)
{
	int kept = errno;

	if (atomic_exchange(&server.state, UNUSED) != UNUSED) {
		gp_ctl_fd_close(&server.listener.fd);
		for (int i = 0; i < MAX_CONNS && atomic_load(&server.has_conns); i++)
			gp_ctl_conn_close_copies(&server.conns[i]);
		server.path[0] = '\0';
	}
	errno = kept;
}
