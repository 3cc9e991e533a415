/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The control socket of this process, if gpupool is in it and $GPUPOOL_RUNTIME_DIR is set. Clients come from a process
 * that is forked at the very start, so that it has neither threads nor CUDA; it makes one for each byte that it is
 * sent, lets it come to some point of a conversation, and kills it there.
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

enum { ANSWER_MAX = 1 << 16, PATIENCE_S = 120 };

static const char *runtime_dir;
static pid_t host; /* whose socket it is */
static pid_t breeder;
static int orders = -1, results = -1; /* pipes to and from the breeder */

/* Where a client stops, and is killed or goes away. */
enum end { BEFORE_REQUEST, IN_REQUEST, BEFORE_ANSWER, IN_ANSWER, AFTER_ANSWER, N_ENDS };

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
			length = snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", runtime_dir,
				entry->d_name);
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

/* One line; its length, or 0 if it does not come. */
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

/* Stops where it is told to and says so. The exit status is 1 if the server did not answer as it must. */
static int converse(enum end end, const char *request)
{
	static char answer[ANSWER_MAX];
	int fd = connect_to_host();
	size_t length = strlen(request);

	/* A server that is busy has a full queue. */
	if (fd < 0 || end == BEFORE_REQUEST)
		return 0;
	if (end == IN_REQUEST)
		length /= 2;
	if (send(fd, request, length, MSG_NOSIGNAL) != (ssize_t)length)
		return 0; /* others came, and this one was silent for longest */
	if (end == IN_REQUEST || end == BEFORE_ANSWER)
		return 0;
	if (end == IN_ANSWER) {
		(void)!recv(fd, answer, 8, 0);
		return 0;
	}
	length = read_answer(fd, answer);
	return length && strncmp(answer, "{\"schema\":\"gpupool.", 19) != 0;
}

/* True if it was killed; counts what went wrong. */
static bool breed(struct soak_random *random, uint64_t *n_wrong)
{
	static const char *const requests[] = {"status\n", "status\n", "blocks 20\n", "reclaim\n", "reclaim 0\n",
		"reclaim pinned\n", "config\n", "limit\n", "reclaim x\n", "\x80\n"};
	const char *request = requests[soak_random(random) % LENGTH(requests)];
	enum end end = (enum end)(soak_random(random) % N_ENDS);
	bool kills = soak_one_in(random, 2);
	int status, at_end[2];
	pid_t child;

	if (pipe(at_end))
		return false;
	child = fork();
	if (child == 0) {
		alarm(PATIENCE_S);
		status = converse(end, request);
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
	/* A client that was never answered was ended by its alarm. */
	*n_wrong += WIFEXITED(status) ? WEXITSTATUS(status) != 0 : WTERMSIG(status) != SIGKILL;
	return WIFSIGNALED(status);
}

struct results {
	uint64_t clients, killed, wrong;
};

static void breed_all(uint64_t seed)
{
	struct soak_random random = {seed};
	struct results done = {0};
	char order;

	while (read(orders, &order, 1) == 1) {
		done.clients++;
		done.killed += breed(&random, &done.wrong);
	}
	(void)!write(results, &done, sizeof(done));
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
	breeder = fork();
	if (breeder < 0)
		SOAK_MUST(errno);
	if (breeder == 0) {
		close(to[1]);
		close(from[0]);
		orders = to[0];
		results = from[1];
		breed_all(seed);
	}
	close(to[0]);
	close(from[1]);
	orders = to[1];
	results = from[0];
}

void soak_control_client(void)
{
	if (orders >= 0)
		SOAK_MUST(write(orders, "", 1) != 1);
}

void soak_control_stop(void)
{
	struct results done = {0};

	if (orders < 0)
		return;
	close(orders);
	orders = -1;
	SOAK_MUST(read(results, &done, sizeof(done)) != sizeof(done));
	close(results);
	waitpid(breeder, NULL, 0);
	soak_counts[SOAK_CLIENTS] = done.clients;
	soak_counts[SOAK_KILLED] = done.killed;
	if (done.wrong)
		soak_wrong("clients without a proper answer", done.wrong);
}

static uint64_t number(const char *section, const char *name)
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
	uint64_t found = number(section, name);

	if (found == expected)
		return;
	soak_wrong(name, found);
	soak_wrong("which should be", expected);
}

/* What is true of every device, and of pinned memory, when no call is under way. */
static void check_section(const char *section, uint64_t requested)
{
	expect(section, "requested_bytes", requested);
	expect(section, "total_bytes",
		number(section, "used_bytes") + number(section, "pending_bytes") + number(section, "cached_bytes") +
			number(section, "returning_bytes"));
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
			soak_wrong("no control socket, error", (unsigned long long)errno);
		return;
	}
	if (send(fd, "status\n", 7, MSG_NOSIGNAL) != 7 || !read_answer(fd, answer))
		soak_wrong("no status, error", (unsigned long long)errno);
	close(fd);
	while ((section = strstr(section, "\"index\":"))) {
		uint64_t device = number(section, "index");

		section += strlen("\"index\":");
		if (device < SOAK_DEVICES_MAX)
			check_section(section, requested[device]);
	}
	section = strstr(answer, "\"pinned\":");
	if (section)
		check_section(section, 0);
	else
		soak_wrong("no pinned memory in the status", 0);
}
