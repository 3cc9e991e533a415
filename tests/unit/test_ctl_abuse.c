/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The control socket among badly behaved peers, at both of its ends. A peer must neither break another
 * process nor make it wait.
 */

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl_fixture.h"
#include "shim/ctl/ctl_server.h"
#include "stat_peer.h"
#include "tests/suite.h"

enum { NOBODY = 65534, STRANGER = 65533, SLOTS = 8 };

/* A helper process that acts once the server runs. It is forked before the server starts, so that it has no threads. */
struct actor {
	pid_t pid;
	int go;
};

static struct actor actor_new(void (*act)(const char *path))
{
	int go[2];
	struct actor actor;
	char path[256];

	ck_assert_int_eq(pipe2(go, O_CLOEXEC), 0);
	actor = (struct actor){fork(), go[1]};
	ck_assert_int_ge(actor.pid, 0);
	if (actor.pid)
		close(go[0]);
	if (actor.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(go[1]);
		if (read(go[0], path, sizeof(path)) <= 0)
			_exit(98);
		act(path);
		_exit(0);
	}
	return actor;
}

static void actor_go(const struct actor *actor)
{
	size_t size = strlen(gp_ctl_path()) + 1;

	ck_assert_int_eq(write(actor->go, gp_ctl_path(), size), (ssize_t)size);
	close(actor->go);
}

static int actor_wait(const struct actor *actor)
{
	int status;

	ck_assert_int_eq(waitpid(actor->pid, &status, WUNTRACED), actor->pid);
	if (WIFSTOPPED(status))
		return 128 + WSTOPSIG(status);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Clients. */

enum { CROWD = 10, CLIENTS_EACH = 100 };

/* Connects many clients that stay. Half of them have sent a part of a request. */
static void crowd_in(const char *path)
{
	int fd = -1;

	for (int i = 0; i < CLIENTS_EACH; i++) {
		fd = fixture_try_connect(path);
		ck_assert_int_ge(fd, 0);
		if (i % 2)
			(void)fixture_try_send(fd, "versi");
	}
	/* A later client may have taken this client's connection slot. */
	if (fixture_try_send(fd, "on\n"))
		(void)fixture_read_line(fd);
	raise(SIGSTOP);
}

START_TEST(a_thousand_simultaneous_clients_do_not_lock_out_another)
{
	struct actor crowd[CROWD];
	int own[20];

	for (int i = 0; i < CROWD; i++)
		crowd[i] = actor_new(crowd_in);
	ck_assert_int_eq(fixture_start(0), 0);
	for (int i = 0; i < CROWD; i++)
		actor_go(&crowd[i]);
	for (int i = 0; i < LENGTH(own); i++)
		own[i] = fixture_try_connect(gp_ctl_path());
	for (int i = 0; i < CROWD; i++)
		ck_assert_int_eq(actor_wait(&crowd[i]), 128 + SIGSTOP);
	fixture_assert_serves();
	/*
	 * At most the sockets of this process, the listener, and one for each of the server's connection
	 * slots.
	 */
	ck_assert_int_le(fixture_count_sockets(), LENGTH(own) + 1 + SLOTS);
	for (int i = 0; i < CROWD; i++) {
		ck_assert_int_eq(kill(crowd[i].pid, SIGKILL), 0);
		ck_assert_int_eq(actor_wait(&crowd[i]), 128 + SIGKILL);
	}
	/* If the crowd was faster, some of these still hold a connection slot. */
	for (int i = 0; i < LENGTH(own); i++)
		close(own[i]);
	fixture_wait_for_sockets(1);
}
END_TEST

START_TEST(clients_that_never_read_do_not_delay_another)
{
	ck_assert_int_eq(fixture_start(0), 0);
	for (int i = 0; i < 3 * SLOTS; i++)
		fixture_send(fixture_connect(), "blocks 40000\nblocks 40000\n", 26);
	for (int i = 0; i < 3 * SLOTS; i++)
		fixture_assert_serves();
}
END_TEST

START_TEST(clients_that_never_end_their_request_do_not_delay_another)
{
	int fds[SLOTS];

	ck_assert_int_eq(fixture_start(0), 0);
	for (int i = 0; i < SLOTS; i++)
		fds[i] = fixture_connect();
	for (int k = 0; k < 100; k++) {
		for (int i = 0; i < SLOTS; i++)
			(void)fixture_try_send(fds[i], "v");
		fixture_assert_serves();
	}
}
END_TEST

/*
 * The server reads no request before it has sent the answers to earlier ones. So requests queue in the
 * socket, and the client has to wait.
 */
START_TEST(the_server_reads_no_requests_ahead_of_its_answers)
{
	size_t n_sent = 0;
	int fd;

	ck_assert_int_eq(fixture_start(0), 0);
	fd = fixture_connect();
	ck_assert_int_eq(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	while (fixture_try_send(fd, "version\n"))
		n_sent++;
	ck_assert_int_eq(errno, EAGAIN);
	fixture_assert_serves();
	for (size_t i = 0; i < n_sent; i++)
		ck_assert_str_eq(fixture_read_line(fd), fixture_version);
}
END_TEST

static void stop_in_mid_reply(const char *path)
{
	int fd = fixture_ask_without_reading(path);

	raise(SIGSTOP);
	ck_assert_uint_eq(strlen(fixture_read_line(fd)), FIXTURE_UNREAD_BYTES);
}

START_TEST(a_client_stopped_in_mid_reply_delays_no_other_and_gets_the_rest)
{
	struct actor client = actor_new(stop_in_mid_reply);

	ck_assert_int_eq(fixture_start(0), 0);
	actor_go(&client);
	ck_assert_int_eq(actor_wait(&client), 128 + SIGSTOP);
	for (int i = 0; i < 100; i++)
		fixture_assert_serves();
	ck_assert_int_eq(kill(client.pid, SIGCONT), 0);
	ck_assert_int_eq(actor_wait(&client), 0);
}
END_TEST

START_TEST(a_client_killed_in_mid_reply_leaves_no_socket_open_in_the_server)
{
	struct actor client = actor_new(stop_in_mid_reply);

	ck_assert_int_eq(fixture_start(0), 0);
	actor_go(&client);
	ck_assert_int_eq(actor_wait(&client), 128 + SIGSTOP);
	ck_assert_int_eq(kill(client.pid, SIGKILL), 0);
	ck_assert_int_eq(actor_wait(&client), 128 + SIGKILL);
	fixture_wait_for_sockets(1);
	fixture_assert_serves();
}
END_TEST

#ifndef __SANITIZE_THREAD__ /* it forbids threads after a fork */
/* Users. */

static const struct {
	uid_t uid;
	bool is_answered;
} users[] = {{0, true}, {NOBODY, true}, {STRANGER, false}};

static int ask_as(uid_t uid, const char *path)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		const char *answer;
		int fd;

		if (setuid(uid) != 0)
			_exit(97);
		fd = fixture_try_connect(path);
		ck_assert_int_ge(fd, 0);
		(void)fixture_try_send(fd, "version\n");
		answer = fixture_read_line(fd);
		_exit(!strcmp(answer, fixture_version) ? 1 : strstr(answer, "\"permission\"") ? 0 : 96);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* setuid() waits for every thread, also for the server's, which has its signals blocked. */
START_TEST(a_process_that_dropped_its_privileges_serves_its_new_user_and_root)
{
	int ready[2];
	char path[256];
	pid_t host;

	ck_assert_int_eq(pipe(ready), 0);
	host = fork();
	if (host == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		ck_assert_int_eq(fixture_start(0), 0);
		ck_assert_int_eq(chmod(fixture_root, 0711), 0);
		ck_assert_int_eq(chmod(gp_ctl_path(), 0666), 0);
		ck_assert_int_eq(setuid(NOBODY), 0);
		ck_assert_int_gt(write(ready[1], gp_ctl_path(), strlen(gp_ctl_path()) + 1), 0);
		for (;;)
			pause();
	}
	ck_assert_int_gt(read(ready[0], path, sizeof(path)), 0);
	for (int i = 0; i < LENGTH(users); i++)
		ck_assert_int_eq(ask_as(users[i].uid, path), users[i].is_answered);
	ck_assert_int_eq(kill(host, SIGKILL), 0);
	ck_assert_int_eq(waitpid(host, NULL, 0), host);
}
END_TEST

/* gpupool-stat, which asks a badly behaved process. */

static int stop_and_answer(int argc, char **argv, struct gp_json *out)
{
	raise(SIGSTOP);
	gp_ctl_answer_begin(out, GP_CTL_config);
	gp_json_array_begin(out, "settings");
	gp_json_array_end(out);
	gp_json_object_end(out);
	return 0;
}

static pid_t start_host(const gp_ctl_handler_fn *handlers)
{
	struct gp_ctl_options options = {.dirs = {.runtime_dir = peer_dir, .uid = geteuid()}, .handlers = handlers};
	int ready[2];
	char byte;
	pid_t host;

	ck_assert_int_eq(pipe(ready), 0);
	host = fork();
	if (host == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (gp_ctl_start(&options) || write(ready[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return host;
}

START_TEST(gpupool_stat_gives_up_on_a_process_stopped_before_its_answer)
{
	static const gp_ctl_handler_fn handlers[GP_CTL_N_COMMANDS] = {[GP_CTL_config] = stop_and_answer};
	pid_t host = start_host(handlers);
	char expected[256];
	int status;

	ck_assert_int_eq(STAT("config", "--timeout=0.2", stat_word(host)), 5);
	snprintf(expected, sizeof(expected),
		"gpupool-stat: pid %d is stopped (state T), and cannot answer.\n"
		"              Next: kill -CONT %d, or wait for its debugger.\n",
		(int)host, (int)host);
	ck_assert_str_eq(stat_err, expected);
	ck_assert_str_eq(stat_out, "");
	ck_assert_int_eq(waitpid(host, &status, WUNTRACED), host);
	ck_assert(WIFSTOPPED(status));
	/* The client that asked has disconnected before the process gets to its answer. */
	ck_assert_int_eq(kill(host, SIGCONT), 0);
	ck_assert_int_eq(STAT("limit", stat_word(host)), 1);
	stat_check_in(stat_err, " says: limit is not available in this process\n");
	ck_assert_int_eq(kill(host, SIGKILL), 0);
	ck_assert_int_eq(waitpid(host, NULL, 0), host);
}
END_TEST
#endif

START_TEST(gpupool_stat_gives_up_on_a_process_stopped_in_the_middle_of_its_answer)
{
	pid_t pid = peer_start(PEER_STOPS, NULL);
	char expected[128];

	ck_assert_int_eq(STAT("--timeout=0.2", stat_word(pid)), 5);
	snprintf(expected, sizeof(expected), "gpupool-stat: pid %d is stopped (state T), and cannot answer.\n",
		(int)pid);
	stat_check_in(stat_err, expected);
	ck_assert_str_eq(stat_out, "");
}
END_TEST

START_TEST(gpupool_stat_does_not_follow_a_symlink_in_place_of_the_socket_directory)
{
	char link[160];

	peer_start(PEER_ANSWERS, NULL);
	ck_assert_int_eq(STAT("list", "-q"), 0);
	snprintf(link, sizeof(link), "%s.link", peer_dir);
	ck_assert_int_eq(symlink(peer_dir, link), 0);
	setenv("GPUPOOL_RUNTIME_DIR", link, 1);
	ck_assert_int_eq(STAT("list", "-q"), 3);
	ck_assert_int_eq(unlink(link), 0);
}
END_TEST

static TCase *server_case(void)
{
	TCase *tc = tcase_create("server");

	tcase_add_checked_fixture(tc, fixture_setup, fixture_teardown);
	tcase_add_test(tc, a_thousand_simultaneous_clients_do_not_lock_out_another);
	tcase_add_test(tc, clients_that_never_read_do_not_delay_another);
	tcase_add_test(tc, clients_that_never_end_their_request_do_not_delay_another);
	tcase_add_test(tc, the_server_reads_no_requests_ahead_of_its_answers);
	tcase_add_test(tc, a_client_stopped_in_mid_reply_delays_no_other_and_gets_the_rest);
	tcase_add_test(tc, a_client_killed_in_mid_reply_leaves_no_socket_open_in_the_server);
#ifndef __SANITIZE_THREAD__
	if (geteuid() == 0)
		tcase_add_test(tc, a_process_that_dropped_its_privileges_serves_its_new_user_and_root);
#endif
	return tc;
}

static TCase *stat_case(void)
{
	TCase *tc = tcase_create("gpupool-stat");

	tcase_add_checked_fixture(tc, peer_setup, peer_teardown);
#ifndef __SANITIZE_THREAD__
	tcase_add_test(tc, gpupool_stat_gives_up_on_a_process_stopped_before_its_answer);
#endif
	tcase_add_test(tc, gpupool_stat_gives_up_on_a_process_stopped_in_the_middle_of_its_answer);
	tcase_add_test(tc, gpupool_stat_does_not_follow_a_symlink_in_place_of_the_socket_directory);
	return tc;
}

int main(int argc, char **argv)
{
	Suite *suite = suite_create("ctl_abuse");

	suite_add_tcase(suite, server_case());
	/* The path of gpupool-stat is given if it was built. */
	if (argc > 1) {
		stat_path = realpath(argv[1], NULL);
		suite_add_tcase(suite, stat_case());
	}
	return suite_run(suite);
}
