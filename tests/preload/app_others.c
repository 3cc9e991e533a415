/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Memory that other processes or other contexts have cached, on a device of 1 GiB that all processes share
 * (SIMGPU_SHARED). The first process starts the others, as scenarios of the same program, and requests more than is
 * left.
 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/gpupool.h"
#include "app_driver.h"

enum { READY_FD = 5, GO_FD = 6, BLOCKS_MAX = 128, NOBODY = 65534, NAMES_MAX = 20, CROWD_MAX = 40 };

extern char **environ;

struct child {
	pid_t pid;
	int ready_fd, go_fd;
};

static CUdeviceptr blocks[BLOCKS_MAX];

static void hold(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		blocks[i] = app_alloc(8 * MIB);
}

static void free_blocks(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		APP_MUST(cuMemFree_v2(blocks[i]));
	APP_MUST(cuCtxSynchronize());
}

/* Runs in a child: reports that it is ready. */
static void report_ready(void)
{
	if (write(READY_FD, "r", 1) != 1)
		exit(71);
}

/* The same, and waits until the first process lets it go on. */
static void report_and_wait(void)
{
	char byte;

	report_ready();
	if (read(GO_FD, &byte, 1) < 0)
		exit(71);
}

/* Runs in a child that may go on: waits until the first process finishes it. */
static void wait_for_end(void)
{
	char byte;

	while (read(GO_FD, &byte, 1) > 0)
		;
}

static void fill_cache(unsigned n)
{
	app_start();
	hold(n);
	free_blocks(n);
	report_and_wait();
}

static void cache_much(void)
{
	fill_cache(75);
}

static void cache_some(void)
{
	fill_cache(35);
}

/* Holds memory, and caches none. */
static void keep(void)
{
	app_start();
	hold(75);
	report_and_wait();
}

/* Allocates all that it can get, several times, while another process does the same. */
static void greedy(void)
{
	app_start();
	report_and_wait();
	for (int round = 0; round < 3; round++) {
		unsigned n = 0;

		while (n < BLOCKS_MAX && !cuMemAlloc_v2(&blocks[n], 8 * MIB))
			n++;
		free_blocks(n);
	}
	report_and_wait();
}

static void await(const struct child *child)
{
	char byte;

	if (read(child->ready_fd, &byte, 1) != 1)
		app_must(-1, "a child is ready");
}

static struct child start(const char *scenario)
{
	char program[] = "/proc/self/exe", word[32], *words[] = {program, word, NULL};
	posix_spawn_file_actions_t actions;
	struct child child;
	int ready[2], go[2];

	snprintf(word, sizeof(word), "%s", scenario);
	APP_MUST(pipe2(ready, O_CLOEXEC));
	APP_MUST(pipe2(go, O_CLOEXEC));
	APP_MUST(posix_spawn_file_actions_init(&actions));
	APP_MUST(posix_spawn_file_actions_adddup2(&actions, ready[1], 20));
	APP_MUST(posix_spawn_file_actions_adddup2(&actions, go[0], 21));
	APP_MUST(posix_spawn_file_actions_adddup2(&actions, 20, READY_FD));
	APP_MUST(posix_spawn_file_actions_adddup2(&actions, 21, GO_FD));
	APP_MUST(posix_spawn(&child.pid, program, &actions, NULL, words, environ));
	posix_spawn_file_actions_destroy(&actions);
	close(ready[1]);
	close(go[0]);
	child.ready_fd = ready[0];
	child.go_fd = go[1];
	await(&child);
	return child;
}

static void go_on(const struct child *child)
{
	if (write(child->go_fd, "", 1) != 1)
		app_must(-1, "a child goes on");
}

static int finish(struct child *child)
{
	int status = -1;

	close(child->go_fd);
	close(child->ready_fd);
	APP_MUST(waitpid(child->pid, &status, 0) != child->pid);
	app_fact("child", (uint64_t)status);
	return status;
}

static CUresult request(size_t bytes)
{
	CUdeviceptr ptr;
	CUresult r = cuMemAlloc_v2(&ptr, bytes);

	if (!r)
		app_fill(NULL, ptr + bytes - KIB, KIB, 4);
	return r;
}

/* Says what the program can see of the device before and after a neighbour takes 600 MiB, and after its own 64 MiB. */
static void view(void)
{
	struct child child;
	size_t before, during, after, total;

	app_start();
	APP_MUST(cuMemGetInfo_v2(&before, &total));
	child = start("hold");
	APP_MUST(cuMemGetInfo_v2(&during, &total));
	app_result("allocation", (int)request(64 * MIB));
	APP_MUST(cuMemGetInfo_v2(&after, &total));
	app_fact("before", before);
	app_fact("during", during);
	app_fact("after", after);
	app_fact("total", total);
	app_pause("looked");
	finish(&child);
}

static void releases(void)
{
	struct child child = start("cache-much");

	app_start();
	app_fact("child's pid", (uint64_t)child.pid);
	app_fact("large request", (uint64_t)request(700 * MIB));
	app_fact("own pid", (uint64_t)getpid());
	app_pause("released");
	finish(&child);
}

static void nothing_cached(void)
{
	struct child child = start("hold");

	app_start();
	app_fact("large request", (uint64_t)request(700 * MIB));
	app_fact("own pid", (uint64_t)getpid());
	app_pause("held");
	finish(&child);
}

static void stopped(void)
{
	struct child child = start("cache-some"), other = start("cache-some");

	app_start();
	APP_MUST(kill(child.pid, SIGSTOP));
	/*
	 * Wait for the stop. Otherwise the child could stop in the middle of an answer, with locks of the simulated
	 * driver held.
	 */
	APP_MUST(waitpid(child.pid, NULL, WUNTRACED) != child.pid);
	app_fact("stopped", (uint64_t)child.pid);
	app_fact("large request", (uint64_t)request(600 * MIB));
	app_fact("second large request", (uint64_t)request(600 * MIB));
	app_fact("own pid", (uint64_t)getpid());
	app_pause("stopped");
	APP_MUST(kill(child.pid, SIGCONT));
	finish(&child);
	finish(&other);
}

static void killed(void)
{
	struct child child = start("cache-much");

	app_start();
	APP_MUST(kill(child.pid, SIGKILL));
	/* The killed process leaves its socket behind. */
	APP_MUST(waitpid(child.pid, NULL, 0) != child.pid);
	app_fact("large request", (uint64_t)request(700 * MIB));
	close(child.go_fd);
	close(child.ready_fd);
}

static void ask_each_other(void)
{
	struct child child = start("greedy"), other = start("greedy");

	go_on(&child);
	go_on(&other);
	await(&child);
	await(&other);
	finish(&child);
	finish(&other);
}

static void contexts(void)
{
	CUcontext other;
	CUdeviceptr ptr;
	void *host, *more;

	app_start();
	hold(75);
	free_blocks(75);
	APP_MUST(cuCtxCreate_v2(&other, 0, 0));
	app_fact("large request", (uint64_t)cuMemAlloc_v2(&ptr, 700 * MIB));
	APP_MUST(cuMemHostAlloc(&host, 40 * MIB, 0));
	APP_MUST(cuMemFreeHost(host));
	APP_MUST(cuCtxSynchronize());
	APP_MUST(gpupool_set_limit(GPUPOOL_PINNED, 64 * MIB));
	app_fact("pinned", (uint64_t)cuMemHostAlloc(&more, 50 * MIB, 4));
	app_pause("contexts");
}

/* A gpupool-stat of the machine may connect to all sockets, too. */
static bool comes_from(int connection, pid_t pid)
{
	struct ucred peer = {0};
	socklen_t length = sizeof(peer);

	return connection >= 0 && !getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) && peer.pid == pid;
}

/* A listener at another process's socket name, which does not behave like gpupool. */
static struct {
	int fd;
	const char *answer; /* sent to each client; NULL: none is sent */
	bool ends;          /* closes the connection after that */
	pid_t asker;        /* the process whose requests are counted */
	unsigned asked;
	struct child *victim; /* ends before the first request to say what is held is answered; NULL: none does */
} impostor;

static unsigned long long start_of(pid_t pid)
{
	char path[64], text[1024], *rest;
	FILE *file;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "re");
	n = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
	if (file)
		fclose(file);
	text[n] = '\0';
	rest = strrchr(text, ')');
	for (int field = 2; rest && field < 22; field++)
		rest = strchr(rest + 1, ' ');
	return rest ? strtoull(rest, NULL, 10) : 0;
}

static void bind_as(pid_t pid, pid_t asker)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	impostor.asker = asker;
	impostor.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/%d.%llu.sock", getenv("GPUPOOL_RUNTIME_DIR"), (int)pid,
		start_of(pid));
	APP_MUST(bind(impostor.fd, (struct sockaddr *)&address, sizeof(address)));
}

static void *answer(void *unused)
{
	char request[256] = "";
	int fd;

	while ((fd = accept4(impostor.fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		impostor.asked += read(fd, request, sizeof(request)) > 0 && comes_from(fd, impostor.asker);
		if (impostor.victim && !strncmp(request, "wanted", strlen("wanted"))) {
			finish(impostor.victim);
			impostor.victim = NULL;
		}
		if (impostor.answer && write(fd, impostor.answer, strlen(impostor.answer)) < 0)
			break;
		if (impostor.ends)
			close(fd);
	}
	return NULL;
}

/* Makes no CUDA call, so that its socket name stays free. */
static void bystander(void)
{
	report_and_wait();
}

static pthread_t listen_as(pid_t pid, const char *text, bool ends)
{
	pthread_t thread;

	impostor.answer = text;
	impostor.ends = ends;
	bind_as(pid, getpid());
	APP_MUST(listen(impostor.fd, 8));
	APP_MUST(pthread_create(&thread, NULL, answer, NULL));
	return thread;
}

static void pretend(const char *text, bool ends)
{
	struct child child = start("bystander");
	pthread_t thread = listen_as(child.pid, text, ends);

	app_start();
	hold(75);
	app_fact("large request", (uint64_t)request(700 * MIB));
	app_fact("second large request", (uint64_t)request(700 * MIB));
	shutdown(impostor.fd, SHUT_RDWR);
	APP_MUST(pthread_join(thread, NULL));
	app_fact("requests", impostor.asked);
	finish(&child);
}

static void silent(void)
{
	pretend(NULL, false);
}

static void hangs_up(void)
{
	pretend(NULL, true);
}

static void impossible_number(void)
{
	pretend("{\"schema\":\"gpupool.yield/1\",\"released_bytes\":99999999999999999999}\n", false);
}

static void overstates(void)
{
	pretend("{\"schema\":\"gpupool.yield/1\",\"released_bytes\":1073741824}\n", false);
}

static void endless_answer(void)
{
	static char text[4096];

	memset(text, 'x', sizeof(text) - 1);
	pretend(text, false);
}

/* Listens as another user, at a name in this user's directory. Its exit code is the number of requests. */
static void be_foreign(int ready_fd, int go_fd)
{
	pthread_t thread;

	dup2(ready_fd, READY_FD);
	dup2(go_fd, GO_FD);
	bind_as(getpid(), getppid());
	APP_MUST(syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY) != 0);
	APP_MUST(listen(impostor.fd, 8));
	APP_MUST(pthread_create(&thread, NULL, answer, NULL));
	report_and_wait();
	_exit((int)impostor.asked);
}

/* Continues as another user, before the first allocation. Files that this user could not open are open by then. */
static void become_other_user(void)
{
	app_start();
	APP_MUST(setresuid(NOBODY, NOBODY, NOBODY));
}

static void cache_as_other_user(void)
{
	become_other_user();
	hold(75);
	free_blocks(75);
	report_and_wait();
}

static void hold_as_other_user(void)
{
	become_other_user();
	hold(75);
	report_and_wait();
}

static void request_beside_other_user(const char *scenario)
{
	struct child child = start(scenario);

	app_start();
	app_fact("large request", (uint64_t)request(700 * MIB));
	app_fact("own pid", (uint64_t)getpid());
	app_pause("asked");
	finish(&child);
}

static void other_user_releases(void)
{
	request_beside_other_user("cache-as-other-user");
}

static void other_user_has_nothing_cached(void)
{
	request_beside_other_user("hold-as-other-user");
}

/* Another user's directory contains a link, at the socket name of a process, to a socket of root. */
static void other_user_links(void)
{
	char dir[256], link[512], target[512];
	struct child child = start("bystander");
	pthread_t thread;

	snprintf(dir, sizeof(dir), "%s/gpupool-%d", getenv("TMPDIR"), NOBODY);
	snprintf(link, sizeof(link), "%s/%d.%llu.sock", dir, (int)child.pid, start_of(child.pid));
	snprintf(target, sizeof(target), "%s/%d.%llu.sock", getenv("GPUPOOL_RUNTIME_DIR"), (int)getpid(),
		start_of(getpid()));
	bind_as(getpid(), getpid());
	APP_MUST(mkdir(dir, 0700));
	APP_MUST(symlink(target, link));
	APP_MUST(chown(dir, NOBODY, NOBODY));
	APP_MUST(listen(impostor.fd, 8));
	APP_MUST(pthread_create(&thread, NULL, answer, NULL));
	app_start();
	hold(75);
	app_fact("large request", (uint64_t)request(700 * MIB));
	shutdown(impostor.fd, SHUT_RDWR);
	APP_MUST(pthread_join(thread, NULL));
	app_fact("requests", impostor.asked);
	finish(&child);
}

static void foreign(void)
{
	int ready[2], go[2];
	struct child child;

	app_fact("is root", geteuid() == 0);
	if (geteuid() != 0)
		return;
	APP_MUST(pipe2(ready, O_CLOEXEC));
	APP_MUST(pipe2(go, O_CLOEXEC));
	child = (struct child){.pid = fork(), .ready_fd = ready[0], .go_fd = go[1]};
	if (child.pid == 0)
		be_foreign(ready[1], go[0]);
	await(&child);
	app_start();
	hold(75);
	app_fact("large request", (uint64_t)request(700 * MIB));
	go_on(&child);
	finish(&child);
}

/*
 * Runs in a child: listens at n_names sockets and answers none. Its exit code is the number of connections that its
 * parent made to them.
 */
static _Noreturn void be_silent(const char *dir, unsigned n_names, uid_t uid, int ready_fd, int go_fd)
{
	struct pollfd fds[NAMES_MAX + 1];
	unsigned asked = 0;

	APP_MUST(syscall(SYS_setresuid, uid, uid, uid) != 0);
	for (unsigned i = 0; i < n_names; i++) {
		struct sockaddr_un address = {.sun_family = AF_UNIX};

		snprintf(address.sun_path, sizeof(address.sun_path), "%s/%d.%llu.sock", dir, (int)getpid(),
			start_of(getpid()) + i);
		fds[i] = (struct pollfd){.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), .events = POLLIN};
		APP_MUST(bind(fds[i].fd, (struct sockaddr *)&address, sizeof(address)));
		APP_MUST(listen(fds[i].fd, 8));
	}
	fds[n_names] = (struct pollfd){.fd = go_fd, .events = POLLIN};
	if (write(ready_fd, "r", 1) != 1)
		_exit(71);
	for (;;) {
		bool is_busy = false;

		APP_MUST(poll(fds, n_names + 1, -1) < 0);
		for (unsigned i = 0; i < n_names; i++)
			if (fds[i].revents) {
				is_busy = true;
				asked += comes_from(accept4(fds[i].fd, NULL, NULL, SOCK_CLOEXEC), getppid());
			}
		if (!is_busy)
			_exit((int)asked);
	}
}

/* Starts n silent processes and runs out of memory three times. */
static void request_beside_crowd(const char *dir, unsigned n, unsigned n_names, uid_t uid)
{
	struct child crowd[CROWD_MAX];
	uint64_t asked = 0;

	for (unsigned i = 0; i < n; i++) {
		int ready[2], go[2];

		APP_MUST(pipe2(ready, O_CLOEXEC));
		APP_MUST(pipe2(go, O_CLOEXEC));
		crowd[i] = (struct child){.pid = fork(), .ready_fd = ready[0], .go_fd = go[1]};
		if (crowd[i].pid == 0)
			be_silent(dir, n_names, uid, ready[1], go[0]);
		await(&crowd[i]);
	}
	app_start();
	hold(75);
	for (int i = 0; i < 3; i++)
		app_fact("large request", (uint64_t)request(700 * MIB));
	for (unsigned i = 0; i < n; i++) {
		int status = -1;

		go_on(&crowd[i]);
		APP_MUST(waitpid(crowd[i].pid, &status, 0) != crowd[i].pid || !WIFEXITED(status));
		asked += (unsigned)WEXITSTATUS(status);
	}
	app_fact("connections", asked);
}

static void request_beside_sockets_of_other_user(unsigned n, unsigned n_names)
{
	char dir[64];

	snprintf(dir, sizeof(dir), "%s/gpupool-%d", getenv("TMPDIR"), NOBODY);
	APP_MUST(mkdir(dir, 0700));
	APP_MUST(chown(dir, NOBODY, NOBODY));
	request_beside_crowd(dir, n, n_names, NOBODY);
}

static void own_crowd(void)
{
	request_beside_crowd(getenv("GPUPOOL_RUNTIME_DIR"), CROWD_MAX, 1, geteuid());
}

static void other_user_crowd(void)
{
	request_beside_sockets_of_other_user(12, 1);
}

static void other_user_names(void)
{
	request_beside_sockets_of_other_user(1, NAMES_MAX);
}

static void pause_ms(unsigned ms)
{
	const struct timespec moment = {.tv_nsec = ms * 1000000L};

	nanosleep(&moment, NULL);
}

/* Frees what it holds a moment after it may go on, and lives on. */
static void hold_for_a_moment(void)
{
	app_start();
	hold(75);
	report_and_wait();
	pause_ms(500);
	free_blocks(75);
	wait_for_end();
}

/* Ends a moment after it may go on, with what it holds. */
static void hold_and_end(void)
{
	app_start();
	hold(75);
	report_and_wait();
	pause_ms(500);
}

static void request_while_it_goes_on(const char *scenario)
{
	struct child child = start(scenario);

	app_start();
	go_on(&child);
	app_fact("large request", (uint64_t)request(700 * MIB));
	app_fact("own pid", (uint64_t)getpid());
	app_pause("requested");
	finish(&child);
}

static void waits(void)
{
	request_while_it_goes_on("hold-for-a-moment");
}

static void waits_for_end(void)
{
	request_while_it_goes_on("hold-and-end");
}

/*
 * Requests more while another process does the same, and keeps what it has until that one has failed, too. Its exit
 * code is that of the request.
 */
static void hold_and_request(void)
{
	CUresult r;

	app_start();
	hold(50);
	report_and_wait();
	r = request(400 * MIB);
	wait_for_end();
	exit((int)r);
}

static void wait_for_each_other(void)
{
	struct child child = start("hold-and-request");

	app_start();
	hold(50);
	go_on(&child);
	app_fact("large request", (uint64_t)request(400 * MIB));
	app_fact("own pid", (uint64_t)getpid());
	app_pause("requested");
	finish(&child);
}

enum { UNIT_MIB = 32, UNITS_AT_MOST = 14, UNITS_LEFT = 22, N_TURNS = 6 };

/* Takes and frees up to 14 units, again and again. Its exit code is the number of requests that failed. */
static void take_turns(void)
{
	unsigned failed = 0, seed = (unsigned)getpid();

	app_start();
	report_and_wait();
	for (int i = 0; i < N_TURNS; i++) {
		CUdeviceptr ptr;

		seed = seed * 1103515245 + 12345;
		if (cuMemAlloc_v2(&ptr, (UNITS_AT_MOST - (seed >> 16) % 3) * UNIT_MIB * MIB)) {
			failed++;
			continue;
		}
		app_fill(NULL, ptr, KIB, 4);
		APP_MUST(cuCtxSynchronize());
		pause_ms(50);
		APP_MUST(cuMemFree_v2(ptr));
	}
	exit((int)failed);
}

/* Leaves 22 units of the device to two processes. */
static void leave_22(void)
{
	struct child children[2];
	size_t available, total;

	app_start();
	children[0] = start("take-turns");
	children[1] = start("take-turns");
	APP_MUST(cuMemGetInfo_v2(&available, &total));
	(void)app_alloc(available - (size_t)UNITS_LEFT * UNIT_MIB * MIB);
	go_on(&children[0]);
	go_on(&children[1]);
	app_fact("failed", (uint64_t)finish(&children[0]) + (uint64_t)finish(&children[1]));
}

static void captures(void)
{
	struct child child = start("hold");
	CUstream stream;
	CUgraph graph;

	app_start();
	stream = app_stream();
	APP_MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	app_fact("large request", (uint64_t)request(700 * MIB));
	APP_MUST(cuStreamEndCapture(stream, &graph));
	app_fact("own pid", (uint64_t)getpid());
	app_pause("requested");
	finish(&child);
}

static void limited(void)
{
	struct child child = start("hold");

	app_start();
	hold(20);
	APP_MUST(gpupool_set_limit(0, 500 * MIB));
	app_fact("large request", (uint64_t)request(400 * MIB));
	app_fact("own pid", (uint64_t)getpid());
	app_pause("requested");
	finish(&child);
}

/* A process that is not under gpupool holds most of the device. */
static void too_little(void)
{
	struct child unseen, child;

	APP_MUST(setenv("GPUPOOL", "off", 1));
	unseen = start("hold");
	APP_MUST(unsetenv("GPUPOOL"));
	child = start("hold-little");
	app_start();
	app_fact("large request", (uint64_t)request(700 * MIB));
	app_fact("own pid", (uint64_t)getpid());
	app_pause("requested");
	finish(&child);
	finish(&unseen);
}

/*
 * A process that is not under gpupool holds most of the device. It ends while another one answers that it holds
 * nothing.
 */
static void ends_meanwhile(void)
{
	struct child unseen, child;
	pthread_t thread;

	APP_MUST(setenv("GPUPOOL", "off", 1));
	unseen = start("hold");
	APP_MUST(unsetenv("GPUPOOL"));
	child = start("bystander");
	impostor.victim = &unseen;
	thread =
		listen_as(child.pid, "{\"schema\":\"gpupool.wanted/1\",\"released_bytes\":0,\"held_bytes\":0}\n", true);
	app_start();
	app_fact("large request", (uint64_t)request(700 * MIB));
	app_fact("own pid", (uint64_t)getpid());
	app_pause("requested");
	shutdown(impostor.fd, SHUT_RDWR);
	APP_MUST(pthread_join(thread, NULL));
	finish(&child);
}

static void hold_little(void)
{
	app_start();
	hold(20);
	report_and_wait();
}

/* On a device of 64 MiB: two such processes do not fit. */
enum { RESTING_BLOCKS = 20, RESTING_TRIES = 1200, RESTING_TRY_MS = 50 };
#define RESTING_BYTES ((size_t)40 * MIB)

static void hold_small(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		blocks[i] = app_alloc(2 * MIB);
}

static void fill_blocks(void)
{
	for (unsigned i = 0; i < RESTING_BLOCKS; i++)
		app_fill(NULL, blocks[i], 2 * MIB, i + 1);
	APP_MUST(cuCtxSynchronize());
}

static size_t count_wrong_blocks(void)
{
	size_t n = 0;

	for (unsigned i = 0; i < RESTING_BLOCKS; i++)
		n += app_count_wrong(NULL, blocks[i], 2 * MIB, i + 1) != 0;
	return n;
}

/* A process is asked to sleep only once it has been idle for a second. */
static CUresult request_until_served(CUdeviceptr *ret_ptr)
{
	CUresult r = 2;

	for (int i = 0; i < RESTING_TRIES && r == 2; i++) {
		r = cuMemAlloc_v2(ret_ptr, RESTING_BYTES);
		if (r == 2)
			pause_ms(RESTING_TRY_MS);
	}
	return r;
}

/* Holds memory and is idle. Then finds its content; the exit code is the number of wrong blocks. */
static void hold_and_rest(void)
{
	app_start();
	hold_small(RESTING_BLOCKS);
	fill_blocks();
	report_and_wait();
	exit((int)count_wrong_blocks());
}

/* Rests, and is killed as it falls asleep, after the unmap of its first memory. */
static void rest_and_die(void)
{
	app_start();
	hold_small(RESTING_BLOCKS);
	fill_blocks();
	app_stop_calls("cuMemUnmap", true);
	report_ready();
	app_await_stopped_call();
	(void)kill(getpid(), SIGKILL);
}

/* The process that falls asleep for a request of this one is killed meanwhile. */
static void dies_resting(void)
{
	struct child child = start("rest-and-die");
	CUdeviceptr ptr;

	app_start();
	app_fact("large request", (uint64_t)request_until_served(&ptr));
	app_fill(NULL, ptr, RESTING_BYTES, 7);
	app_fact("wrong words", app_count_wrong(NULL, ptr, RESTING_BYTES, 7));
	finish(&child);
}

/* A process that rests sleeps for a request of this one, and finds its content afterwards. */
static void rests(void)
{
	struct child child = start("hold-and-rest");
	CUdeviceptr ptr;

	app_start();
	app_fact("large request", (uint64_t)request_until_served(&ptr));
	app_fill(NULL, ptr, RESTING_BYTES, 7);
	APP_MUST(cuCtxSynchronize());
	app_fact("own pid", (uint64_t)getpid());
	app_fact("child's pid", (uint64_t)child.pid);
	app_pause("served");
	app_fact("wrong words", app_count_wrong(NULL, ptr, RESTING_BYTES, 7));
	APP_MUST(cuMemFree_v2(ptr));
	finish(&child);
}

/* Takes the memory of a process that rests, and then rests itself. */
static void take_and_rest(void)
{
	CUdeviceptr ptr;
	CUresult r;

	app_start();
	r = request_until_served(&ptr);
	if (!r)
		app_fill(NULL, ptr, RESTING_BYTES, 7);
	APP_MUST(cuCtxSynchronize());
	report_and_wait();
	exit(r || app_count_wrong(NULL, ptr, RESTING_BYTES, 7));
}

/* This process sleeps for another one. It has the other one sleep in turn when its own work wakes it. */
static void rests_in_turn(void)
{
	struct child child;

	app_start();
	hold_small(RESTING_BLOCKS);
	fill_blocks();
	child = start("take-and-rest");
	app_fact("own pid", (uint64_t)getpid());
	app_fact("child's pid", (uint64_t)child.pid);
	app_pause("asleep");
	app_fact("wrong blocks", count_wrong_blocks());
	app_pause("awake");
	for (unsigned i = 0; i < RESTING_BLOCKS; i++)
		APP_MUST(cuMemFree_v2(blocks[i]));
	finish(&child);
}

/* Requests more than is left as often as another process does. The exit code is the number of wrong blocks. */
static void rest_or_request(void)
{
	app_start();
	hold_small(RESTING_BLOCKS / 2);
	for (unsigned i = 0; i < RESTING_BLOCKS / 2; i++)
		app_fill(NULL, blocks[i], 2 * MIB, i + 1);
	APP_MUST(cuCtxSynchronize());
	report_and_wait();
	for (int i = 0; i < 5; i++) {
		CUdeviceptr ptr;
		CUresult r = cuMemAlloc_v2(&ptr, RESTING_BYTES);

		APP_MUST(r && r != 2);
		if (!r)
			APP_MUST(cuMemFree_v2(ptr));
	}
	for (unsigned i = 0; i < RESTING_BLOCKS / 2; i++)
		if (app_count_wrong(NULL, blocks[i], 2 * MIB, i + 1))
			exit(1);
	report_and_wait();
}

/* Two processes that ask each other to sleep both get an answer. */
static void rest_for_each_other(void)
{
	struct child child = start("rest-or-request"), other = start("rest-or-request");

	go_on(&child);
	go_on(&other);
	await(&child);
	await(&other);
	finish(&child);
	finish(&other);
}

const struct app_scenario app_scenarios[] = {
	{"endless-answer", endless_answer},
	{"overstates", overstates},
	{"ask-each-other", ask_each_other},
	{"bystander", bystander},
	{"captures", captures},
	{"contexts", contexts},
	{"dies-resting", dies_resting},
	{"killed", killed},
	{"foreign", foreign},
	{"releases", releases},
	{"greedy", greedy},
	{"hangs-up", hangs_up},
	{"nothing-cached", nothing_cached},
	{"cache-as-other-user", cache_as_other_user},
	{"cache-much", cache_much},
	{"cache-some", cache_some},
	{"hold", keep},
	{"hold-and-end", hold_and_end},
	{"hold-and-request", hold_and_request},
	{"hold-for-a-moment", hold_for_a_moment},
	{"hold-and-rest", hold_and_rest},
	{"hold-little", hold_little},
	{"hold-as-other-user", hold_as_other_user},
	{"impossible-number", impossible_number},
	{"leave-22", leave_22},
	{"limited", limited},
	{"other-user-crowd", other_user_crowd},
	{"other-user-releases", other_user_releases},
	{"other-user-nothing-cached", other_user_has_nothing_cached},
	{"other-user-links", other_user_links},
	{"other-user-names", other_user_names},
	{"own-crowd", own_crowd},
	{"rest-and-die", rest_and_die},
	{"rest-for-each-other", rest_for_each_other},
	{"rest-or-request", rest_or_request},
	{"rests", rests},
	{"rests-in-turn", rests_in_turn},
	{"silent", silent},
	{"stopped", stopped},
	{"take-and-rest", take_and_rest},
	{"take-turns", take_turns},
	{"too-little", too_little},
	{"ends-meanwhile", ends_meanwhile},
	{"view", view},
	{"wait-for-each-other", wait_for_each_other},
	{"waits", waits},
	{"waits-for-end", waits_for_end},
	{NULL},
};
