/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "survey_fixture.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/ctl_proto.h"

enum { PEERS_MAX = 8192 };

struct survey_peer survey_peers[PEERS_MAX];
int survey_n_peers, survey_n_asked;
char survey_root[64];
int64_t survey_now_ns;
const char survey_status[] = "{\"schema\":\"gpupool.status/2\",\"pid\":7,\"command\":\"train\",\"devices\":[]}\n";

static void take_client(struct survey_peer *peer)
{
	struct ucred client;
	socklen_t length = sizeof(client);

	peer->client = accept4(peer->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	peer->rest = NULL;
	if (peer->client < 0)
		return;
	ck_assert_int_eq(getsockopt(peer->client, SOL_SOCKET, SO_PEERCRED, &client, &length), 0);
	peer->asked_by = client.uid;
}

static void serve(struct survey_peer *peer)
{
	char request[256];
	ssize_t n;

	if (peer->client < 0)
		take_client(peer);
	if (peer->client < 0)
		return;
	if (!peer->rest && recv(peer->client, request, sizeof(request), 0) > 0) {
		survey_n_asked++;
		peer->rest = peer->answer;
	}
	while (peer->rest && *peer->rest && (n = send(peer->client, peer->rest, strlen(peer->rest), MSG_NOSIGNAL)) > 0)
		peer->rest += n;
	if (!peer->rest || *peer->rest)
		return;
	close(peer->client);
	peer->client = -1;
}

int fuzz_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	struct rlimit limit, most;
	int n_ready;

	/* The peers need descriptors beyond the limit of the code under test. */
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	most = (struct rlimit){limit.rlim_max, limit.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &most), 0);
	for (int i = 0; i < survey_n_peers; i++)
		serve(&survey_peers[i]);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	n_ready = poll(fds, n, 0);
	survey_now_ns += n_ready ? 1000 : (timeout_ms > 0 ? timeout_ms : 1) * INT64_C(1000000);
	return n_ready;
}

int fuzz_clock_gettime(clockid_t clock, struct timespec *ret_time)
{
	*ret_time = (struct timespec){survey_now_ns / 1000000000, survey_now_ns % 1000000000};
	return 0;
}

/*
 * Listens in a child that has become the user, so that the kernel reports that child and that user as the
 * owner.
 */
static void listen_as(int fd, uid_t uid)
{
	pid_t child = fork();
	int status;

	if (child == 0)
		_exit(setuid(uid) != 0 || listen(fd, 8) != 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}

/* The child's pid namespace is the test's, so the socket gets the name of the child. */
pid_t survey_add_stopped_peer(const char *dir)
{
	struct survey_peer *peer = &survey_peers[survey_n_peers++];
	int dir_fd = open(dir, O_PATH | O_CLOEXEC), status;
	char name[GP_CTL_NAME_MAX], state;
	struct sockaddr_un address;
	uint64_t start_ticks;
	socklen_t length;
	pid_t child;

	*peer = (struct survey_peer){
		socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), -1, NULL, NULL, (uid_t)-1};
	child = fork();
	if (child == 0) {
		(void)gp_ctl_process_stat(0, &start_ticks, &state);
		gp_ctl_name_format(name, getpid(), start_ticks);
		if (gp_ctl_address(dir_fd, name, &address, &length) ||
			bind(peer->listener, (struct sockaddr *)&address, length) || listen(peer->listener, 8))
			_exit(1);
		raise(SIGSTOP);
		_exit(0);
	}
	close(dir_fd);
	ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
	ck_assert(WIFSTOPPED(status));
	return child;
}

void survey_add_peer(const char *dir, uid_t uid, const char *answer, bool in_one_process)
{
	struct survey_peer *peer = &survey_peers[survey_n_peers++];
	int dir_fd = open(dir, O_PATH | O_CLOEXEC);
	char name[GP_CTL_NAME_MAX], state;
	struct sockaddr_un address;
	uint64_t start_ticks;
	socklen_t length;

	ck_assert_int_lt(survey_n_peers, PEERS_MAX);
	ck_assert_int_eq(gp_ctl_process_stat(0, &start_ticks, &state), 0);
	gp_ctl_name_format(name, getpid(), start_ticks + (unsigned)survey_n_peers);
	*peer = (struct survey_peer){
		socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), -1, answer, NULL, (uid_t)-1};
	ck_assert_int_eq(gp_ctl_address(dir_fd, name, &address, &length), 0);
	ck_assert_int_eq(bind(peer->listener, (struct sockaddr *)&address, length), 0);
	ck_assert_int_eq(fchownat(dir_fd, name, uid, (gid_t)-1, 0), 0);
	close(dir_fd);
	if (in_one_process) {
		ck_assert_int_eq(seteuid(uid), 0);
		ck_assert_int_eq(listen(peer->listener, 8), 0);
		ck_assert_int_eq(seteuid(0), 0);
	} else if (uid == geteuid()) {
		ck_assert_int_eq(listen(peer->listener, 8), 0);
	} else {
		listen_as(peer->listener, uid);
	}
}

struct stat_question survey_question(int timeout_ms)
{
	return (struct stat_question){
		.request = "status\n",
		.schema = "status",
		.max_bytes = 1 << 20,
		.timeout_ms = timeout_ms,
	};
}

void survey_setup(void)
{
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = limit.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	strcpy(survey_root, "/tmp/gpupool-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(survey_root));
	setenv("GPUPOOL_RUNTIME_DIR", survey_root, 1);
	setenv("TMPDIR", survey_root, 1);
	unsetenv("XDG_RUNTIME_DIR");
	survey_n_peers = survey_n_asked = 0;
}

void survey_teardown(void)
{
	char command[128];

	for (int i = 0; i < survey_n_peers; i++) {
		close(survey_peers[i].listener);
		if (survey_peers[i].client >= 0)
			close(survey_peers[i].client);
	}
	snprintf(command, sizeof(command), "rm -rf '%s'", survey_root);
	ck_assert_int_eq(system(command), 0);
}

size_t survey_count_answers(const struct stat_survey *survey)
{
	size_t n = 0;

	for (size_t i = 0; i < survey->n_processes; i++)
		n += survey->processes[i].reply != NULL;
	return n;
}
