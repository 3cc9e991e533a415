/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Clients of this process's control socket, if gpupool is loaded and $GPUPOOL_RUNTIME_DIR is set. The clients are
 * children of a spawner process, which is forked at the start, before CUDA and any thread. The spawner makes a client
 * for each byte that it receives. A client stops at a random point of a conversation, where it exits or is killed.
 */

#include "soak.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANSWER_MAX = 1 << 16, CLIENT_TIMEOUT_S = 120 };

static const char *runtime_dir;
static pid_t host; /* the process that has the control socket */
static pid_t spawner;
static int requests_fd = -1, results_fd = -1; /* pipes to and from the spawner */

/* The point of the conversation where a client exits or is killed. */
enum stop_point { BEFORE_REQUEST, IN_REQUEST, BEFORE_ANSWER, IN_ANSWER, AFTER_ANSWER, N_ENDS };

static int connect_to_host(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char prefix[32];
	struct dirent *entry;
	DIR *dir = opendir(runtime_dir);
	int fd, length = 0;

	snprintf(prefix, sizeof(prefix), "%d.", (int)host);
	while (dir && !length && (entry = readdir(dir)))
		if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0 && strstr(entry->d_name, ".sock"))
			length = snprintf(
				address.sun_path, sizeof(address.sun_path), "%s/%s", runtime_dir, entry->d_name);
	if (dir)
		closedir(dir);
	if (!length || length >= (int)sizeof(address.sun_path))
		return -1;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

/* Reads one line. Returns its length, or 0 if no complete line comes. */
static size_t read_answer(int fd, char answer[static ANSWER_MAX])
{
	size_t length = 0;
	ssize_t n = 1;

	while (n > 0 && length < ANSWER_MAX - 1) {
		n = recv(fd, answer + length, ANSWER_MAX - 1 - length, 0);
		length += n > 0 ? (size_t)n : 0;
		if (length && answer[length - 1] == '\n')
			break;
	}
	answer[length] = '\0';
	return length && answer[length - 1] == '\n' ? length : 0;
}

/* Talks to the server up to the given point. Returns the exit status: 1 if the server did not answer as it must. */
static int converse(enum stop_point stop_point, const char *request)
{
	static char answer[ANSWER_MAX];
	int fd = connect_to_host();
	size_t length = strlen(request);

	/* The queue of a busy server may be full. */
	if (fd < 0 || stop_point == BEFORE_REQUEST)
		return 0;
	if (stop_point == IN_REQUEST)
		length /= 2;
	if (send(fd, request, length, MSG_NOSIGNAL) != (ssize_t)length)
		return 0; /* the server dropped this client, the one idle for longest, to accept another */
	if (stop_point == IN_REQUEST || stop_point == BEFORE_ANSWER)
		return 0;
	if (stop_point == IN_ANSWER) {
		(void)!recv(fd, answer, 8, 0);
		return 0;
	}
	length = read_answer(fd, answer);
	return length && strncmp(answer, "{\"schema\":\"gpupool.", 19) != 0;
}

/* Runs one client. Returns true if it was killed, and adds 1 to *n_wrong if the server did not answer properly. */
static bool run_client(struct soak_random *random, uint64_t *n_wrong)
{
	static const char *const requests[] = {"status\n", "status\n", "blocks 20\n", "reclaim\n", "reclaim 0\n",
		"reclaim pinned\n", "config\n", "limit\n", "reclaim x\n", "\x80\n"};
	const char *request = requests[soak_random(random) % LENGTH(requests)];
	enum stop_point stop_point = (enum stop_point)(soak_random(random) % N_ENDS);
	bool kills = soak_one_in(random, 2);
	int status, at_end[2];
	pid_t child;

	if (pipe(at_end))
		return false;
	child = fork();
	if (child == 0) {
		alarm(CLIENT_TIMEOUT_S);
		status = converse(stop_point, request);
		if (kills && write(at_end[1], "", 1) == 1)
			pause();
		_exit(status);
	}
	close(at_end[1]);
	if (kills && read(at_end[0], &status, 1) == 1)
		kill(child, SIGKILL);
	close(at_end[0]);
	if (child < 0 || waitpid(child, &status, 0) != child)
		return false;
	/* SIGALRM ends a client that got no answer. */
	*n_wrong += WIFEXITED(status) ? WEXITSTATUS(status) != 0 : WTERMSIG(status) != SIGKILL;
	return WIFSIGNALED(status);
}

struct results {
	uint64_t clients, killed, wrong;
};

static void run_spawner(uint64_t seed)
{
	struct soak_random random = {seed};
	struct results done = {0};
	char byte;

	while (read(requests_fd, &byte, 1) == 1) {
		done.clients++;
		done.killed += run_client(&random, &done.wrong);
	}
	(void)!write(results_fd, &done, sizeof(done));
	_exit(0);
}

void soak_control_start(uint64_t seed)
{
	int to[2], from[2];

	runtime_dir = getenv("GPUPOOL_RUNTIME_DIR");
	host = getpid();
	if (!runtime_dir)
		return;
	if (pipe(to) || pipe(from))
		SOAK_MUST(errno);
	spawner = fork();
	if (spawner < 0)
		SOAK_MUST(errno);
	if (spawner == 0) {
		close(to[1]);
		close(from[0]);
		requests_fd = to[0];
		results_fd = from[1];
		run_spawner(seed);
	}
	close(to[0]);
	close(from[1]);
	requests_fd = to[1];
	results_fd = from[0];
}

void soak_control_client(void)
{
	if (requests_fd >= 0)
		SOAK_MUST(write(requests_fd, "", 1) != 1);
}

void soak_control_stop(void)
{
	struct results done = {0};

	if (requests_fd < 0)
		return;
	close(requests_fd);
	requests_fd = -1;
	SOAK_MUST(read(results_fd, &done, sizeof(done)) != sizeof(done));
	close(results_fd);
	waitpid(spawner, NULL, 0);
	soak_counts[SOAK_CLIENTS] = done.clients;
	soak_counts[SOAK_KILLED] = done.killed;
	if (done.wrong)
		soak_wrong("clients of the control socket without a proper answer", done.wrong);
}

static uint64_t number_at(const char *section, const char *name)
{
	char key[64];
	const char *found;

	snprintf(key, sizeof(key), "\"%s\":", name);
	found = strstr(section, key);
	if (!found) {
		soak_wrong(name, 0);
		return 0;
	}
	return strtoull(found + strlen(key), NULL, 10);
}

static void expect(const char *section, const char *name, uint64_t expected)
{
	uint64_t found = number_at(section, name);

	if (found == expected)
		return;
	soak_wrong(name, found);
	soak_wrong("the expected value of the number above is", expected);
}

/* Checks the invariants of each device's figures, and of those of pinned memory, while no call is running. */
static void check_section(const char *section, uint64_t requested)
{
	expect(section, "requested_bytes", requested);
	expect(section, "total_bytes",
		number_at(section, "used_bytes") + number_at(section, "pending_bytes") +
			number_at(section, "cached_bytes") + number_at(section, "returning_bytes"));
	expect(section, "invalid_frees", 0);
	expect(section, "double_frees", 0);
	expect(section, "release_errors", 0);
}

void soak_control_compare(const uint64_t requested[SOAK_DEVICES_MAX])
{
	static char answer[ANSWER_MAX];
	int fd = runtime_dir ? connect_to_host() : -1;
	const char *section = answer;

	if (fd < 0) {
		if (runtime_dir)
			soak_wrong("no connection to the control socket, errno", (unsigned long long)errno);
		return;
	}
	if (send(fd, "status\n", 7, MSG_NOSIGNAL) != 7 || !read_answer(fd, answer))
		soak_wrong("no answer to the command status, errno", (unsigned long long)errno);
	close(fd);
	while ((section = strstr(section, "\"index\":"))) {
		uint64_t device = number_at(section, "index");

		section += strlen("\"index\":");
		/* The driver serves allocations in stream order while a stream captures. */
		if (device < SOAK_DEVICES_MAX)
			check_section(section, requested[device] - number_at(section, "unpooled_bytes"));
	}
	section = strstr(answer, "\"pinned\":");
	if (section)
		check_section(section, 0);
	else
		soak_wrong("no pinned memory in the status", 0);
}
