/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ctl_fixture.h"
#include "shim/ctl/ctl_server.h"
#include "tests/suite.h"

#define ROWS(table) ((int)(sizeof(table) / sizeof((table)[0])))

static void setup(void)
{
	fixture_setup();
	ck_assert_int_eq(fixture_start(0), 0);
}

static bool exists(const char *path)
{
	return access(path, F_OK) == 0;
}

/*
 * Runs the body in a child, once the server is idle. A fork during an accept would leave the child an unknown
 * descriptor, and a fork while the thread starts, locked locks of a sanitizer.
 */
static int run_child(void (*body)(void))
{
	pid_t child;
	int status;

	fixture_assert_serves();
	while (fixture_count_sockets() > 1)
		sched_yield();
	child = fork();
	if (child == 0) {
		body();
		_exit(99);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static const struct {
	int before_ms, ms;
} ticks[] = {{50, 100}, {400, 800}, {800, 1000}, {1000, 1000}};

START_TEST(the_interval_of_ticks_doubles_up_to_a_second)
{
	ck_assert_int_eq(gp_ctl_tick_ms(ticks[_i].before_ms), ticks[_i].ms);
}
END_TEST

#define ERROR(reason, text) "{\"schema\":\"gpupool.error/1\",\"reason\":\"" reason "\",\"error\":\"" text "\"}"

static const struct {
	const char *request, *answer;
} requests[] = {
	{"version", fixture_version},
	{"version\r", fixture_version},
	{"  version\t", fixture_version},
	{"status", "{\"schema\":\"gpupool.status/2\",\"thread\":\"gpupool\",\"blocked_signals\":29}"},
	{"reclaim", "{\"schema\":\"gpupool.reclaim/1\",\"words\":[]}"},
	{"reclaim 0 pinned", "{\"schema\":\"gpupool.reclaim/1\",\"words\":[\"0\",\"pinned\"]}"},
	{"reclaim 0 pinned 1", ERROR("usage", "usage: reclaim [DEVICE] [pinned]")},
	{"status callers now", ERROR("usage", "usage: status [callers]")},
	{"a b c d e f g h i", ERROR("usage", "the request has more than 8 words")},
	{"", ERROR("usage", "the request is empty; try: help")},
	{"   ", ERROR("usage", "the request is empty; try: help")},
	{"statu", ERROR("unknown", "no command 'statu'; try: help")},
	{"STATUS", ERROR("unknown", "no command 'STATUS'; try: help")},
	{"0123456789012345678901234567890123456789",
		ERROR("unknown", "no command '01234567890123456789012345678901'; try: help")},
	{"limit", ERROR("unknown", "limit is not available in this process")},
	{"config", ERROR("failed", "config failed with error 19")},
	{"\x1b[31mversion", ERROR("usage", "a request is one line of printable ASCII words; try: help")},
	{"version \xff", ERROR("usage", "a request is one line of printable ASCII words; try: help")},
	{"{\"method\":\"status\"}", ERROR("unknown", "no command '{\\\"method\\\":\\\"status\\\"}'; try: help")},
	{"blocks 50000", ERROR("failed", "the answer is too long; ask for less")},
};

START_TEST(every_request_gets_its_answer_or_an_error)
{
	int fd = fixture_connect();

	ck_assert_str_eq(fixture_ask(fd, requests[_i].request), requests[_i].answer);
	ck_assert_str_eq(fixture_ask(fd, "version"), fixture_version);
}
END_TEST

START_TEST(help_lists_every_command)
{
	const char *help = fixture_ask(fixture_connect(), "help");
	char member[64];

	for (int i = 0; i < GP_CTL_N_COMMANDS; i++) {
		snprintf(member, sizeof(member), "{\"name\":\"%s\",", gp_ctl_commands[i].name);
		ck_assert_ptr_nonnull(strstr(help, member));
	}
}
END_TEST

START_TEST(a_request_that_arrives_byte_by_byte_is_answered)
{
	int fd = fixture_connect();

	for (const char *s = "version\n"; *s; s++)
		fixture_send(fd, s, 1);
	ck_assert_str_eq(fixture_read_line(fd), fixture_version);
}
END_TEST

/* There are more requests than the server answers in one go, and more than fit into its buffer. */
START_TEST(requests_in_one_packet_are_answered_in_order)
{
	char packet[16 * 1024] = "";
	int fd = fixture_connect(), n = 1000;

	for (int i = 0; i < n; i++)
		snprintf(packet + strlen(packet), 32, "reclaim %d\n", i);
	fixture_send(fd, packet, strlen(packet));
	for (int i = 0; i < n; i++) {
		char expected[64];

		snprintf(expected, sizeof(expected), "{\"schema\":\"gpupool.reclaim/1\",\"words\":[\"%d\"]}", i);
		ck_assert_str_eq(fixture_read_line(fd), expected);
	}
}
END_TEST

START_TEST(a_request_without_a_newline_is_refused)
{
	int fd = fixture_connect();

	fixture_send(fd, "version\nreclaim 1", 17);
	shutdown(fd, SHUT_WR);
	ck_assert_str_eq(fixture_read_line(fd), fixture_version);
	ck_assert_str_eq(fixture_read_line(fd), ERROR("usage", "the request does not end in a newline"));
	ck_assert(fixture_is_closed(fd));
	fixture_assert_serves();
}
END_TEST

START_TEST(a_request_just_before_the_client_shuts_down_is_answered)
{
	int fd = fixture_connect();

	fixture_send(fd, "version\n", 8);
	shutdown(fd, SHUT_WR);
	ck_assert_str_eq(fixture_read_line(fd), fixture_version);
	ck_assert(fixture_is_closed(fd));
}
END_TEST

START_TEST(a_request_of_the_maximum_length_is_answered_and_a_longer_one_refused)
{
	char line[GP_CTL_REQUEST_MAX + 1];
	int fd = fixture_connect();

	memset(line, ' ', sizeof(line));
	memcpy(line, "version", 7);
	line[GP_CTL_REQUEST_MAX - 1] = '\n';
	fixture_send(fd, line, GP_CTL_REQUEST_MAX);
	ck_assert_str_eq(fixture_read_line(fd), fixture_version);
	line[GP_CTL_REQUEST_MAX - 1] = ' ';
	line[GP_CTL_REQUEST_MAX] = '\n';
	fixture_send(fd, line, sizeof(line));
	ck_assert_str_eq(fixture_read_line(fd), ERROR("usage", "the request is too long"));
	ck_assert(fixture_is_closed(fd));
	fixture_assert_serves();
}
END_TEST

START_TEST(idle_clients_do_not_lock_out_another)
{
	int fds[20];

	for (int i = 0; i < ROWS(fds); i++) {
		fds[i] = fixture_connect();
		ck_assert_str_eq(fixture_ask(fds[i], "version"), fixture_version);
	}
	for (int i = 0; i < ROWS(fds) - 8; i++)
		ck_assert(fixture_is_closed(fds[i]));
	for (int i = ROWS(fds) - 8; i < ROWS(fds); i++)
		ck_assert_str_eq(fixture_ask(fds[i], "version"), fixture_version);
	ck_assert_int_eq(fixture_count_sockets(), ROWS(fds) + 8 + 1);
}
END_TEST

START_TEST(a_slow_reader_delays_no_other_client_and_gets_the_whole_answer)
{
	int slow = fixture_connect(), rows = 40000;
	const char *answer;

	fixture_send(slow, "blocks 40000\nversion\n", 21);
	fixture_assert_serves();
	answer = fixture_read_line(slow);
	ck_assert_uint_eq(
		strlen(answer), strlen("{\"schema\":\"gpupool.blocks/1\",\"blocks\":[]}") + (size_t)rows * 100 - 1);
	ck_assert_str_eq(fixture_read_line(slow), fixture_version);
}
END_TEST

START_TEST(a_client_that_disconnects_early_does_not_disturb_another)
{
	for (int i = 0; i < 20; i++) {
		int fd = fixture_connect();

		fixture_send(fd, "blocks 40000\n", 13);
		close(fd);
	}
	fixture_assert_serves();
}
END_TEST

START_TEST(random_bytes_are_answered_with_an_error)
{
	unsigned seed = (unsigned)time(NULL);

	for (int round = 0; round < 200; round++) {
		int fd = fixture_connect();
		char bytes[256];

		for (size_t i = 0; i < sizeof(bytes); i++)
			bytes[i] = (char)rand_r(&seed);
		bytes[sizeof(bytes) - 1] = '\n';
		fixture_send(fd, bytes, sizeof(bytes));
		ck_assert_msg(strstr(fixture_read_line(fd), "gpupool.error/1"),
			"expected an error as the answer to random bytes, seed %u", seed);
		close(fd);
	}
	fixture_assert_serves();
}
END_TEST

START_TEST(the_socket_is_private_and_named_after_the_process)
{
	char expected[256], name[GP_CTL_NAME_MAX], state;
	uint64_t start;
	struct stat st;

	ck_assert_int_eq(gp_ctl_process_stat(0, &start, &state), 0);
	gp_ctl_name_format(name, getpid(), start);
	snprintf(expected, sizeof(expected), "%s/%s", fixture_root, name);
	ck_assert_str_eq(gp_ctl_path(), expected);
	ck_assert_int_eq(lstat(expected, &st), 0);
	ck_assert(S_ISSOCK(st.st_mode));
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
}
END_TEST

START_TEST(the_servers_descriptors_are_high_and_close_on_exec)
{
	int client = fixture_connect(), n = 0;

	ck_assert_str_eq(fixture_ask(client, "version"), fixture_version);
	for (int fd = 200; fd < 1024; fd++) {
		if (!fixture_is_socket(fd))
			continue;
		n++;
		ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	}
	ck_assert_int_eq(n, 2);
	ck_assert_int_eq(fixture_count_sockets(), 3);
}
END_TEST

START_TEST(a_second_server_start_is_refused)
{
	errno = 7;
	ck_assert_int_eq(fixture_start(0), -EALREADY);
	ck_assert_int_eq(errno, 7);
	fixture_assert_serves();
}
END_TEST

START_TEST(the_server_waits_while_the_process_has_no_free_descriptors)
{
	struct rlimit before, few = {.rlim_cur = 64};
	int fd, last = -1, client = socket(AF_UNIX, SOCK_STREAM, 0);
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	strcpy(address.sun_path, gp_ctl_path());
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	few.rlim_max = before.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	while ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
		last = fd;
	ck_assert_int_eq(errno, EMFILE);
	ck_assert_int_eq(connect(client, (struct sockaddr *)&address, sizeof(address)), 0);
	fixture_send(client, "version\n", 8);
	close(last);
	ck_assert_str_eq(fixture_read_line(client), fixture_version);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
}
END_TEST

static void child_without_server(void)
{
	gp_ctl_after_fork_child();
	if (fixture_count_sockets() == 0 && !*gp_ctl_path())
		exit(0);
}

START_TEST(a_forked_child_closes_the_parents_sockets)
{
	int fd = fixture_connect();

	ck_assert_str_eq(fixture_ask(fd, "version"), fixture_version);
	close(fd);
	ck_assert_int_eq(run_child(child_without_server), 0);
	ck_assert(exists(gp_ctl_path()));
	fixture_assert_serves();
}
END_TEST

#ifndef __SANITIZE_THREAD__ /* it forbids threads after a fork */
static void child_with_server(void)
{
	char parents[512];

	strcpy(parents, gp_ctl_path());
	gp_ctl_after_fork_child();
	if (fixture_start(0) == 0 && strcmp(gp_ctl_path(), parents)) {
		fixture_assert_serves();
		exit(0);
	}
}

START_TEST(a_forked_child_can_start_its_own_server)
{
	char command[128];

	ck_assert_int_eq(run_child(child_with_server), 0);
	fixture_assert_serves();
	/* The child's exit has removed its own socket file and no other. */
	snprintf(command, sizeof(command), "test $(ls -A %s | wc -l) = 1", fixture_root);
	ck_assert_int_eq(system(command), 0);
}
END_TEST
#endif

static void child_that_only_exits(void)
{
	exit(0);
}

START_TEST(the_exit_of_a_forked_child_leaves_the_parents_socket_file)
{
	ck_assert_int_eq(run_child(child_that_only_exits), 0);
	ck_assert(exists(gp_ctl_path()));
	fixture_assert_serves();
}
END_TEST

static void child_of_another_user(void)
{
	int fd;

	if (setuid(65534) != 0)
		_exit(1);
	fd = fixture_connect();
	if (!strcmp(fixture_read_line(fd), ERROR("permission", "this process belongs to another user")) &&
		fixture_is_closed(fd))
		_exit(0);
}

START_TEST(a_client_of_another_user_is_refused)
{
	ck_assert_int_eq(chmod(fixture_root, 0711), 0);
	ck_assert_int_eq(chmod(gp_ctl_path(), 0666), 0);
	ck_assert_int_eq(run_child(child_of_another_user), 0);
	fixture_assert_serves();
}
END_TEST

START_TEST(a_client_that_sends_nothing_is_disconnected)
{
	int fd;

	ck_assert_int_eq(fixture_start(1), 0);
	fd = fixture_connect();
	ck_assert(fixture_is_closed(fd));
}
END_TEST

START_TEST(a_client_that_does_not_read_is_disconnected)
{
	int fd;

	ck_assert_int_eq(fixture_start(1), 0);
	fd = fixture_connect();
	/* On a busy machine the server may have closed the connection before. */
	(void)fixture_try_send(fd, "blocks 40000\n");
	/*
	 * Returns once the answer has begun, or the connection has ended. Of the server's sockets only the
	 * listener remains.
	 */
	(void)fixture_is_closed(fd);
	fixture_wait_for_sockets(2);
	ck_assert_str_eq(fixture_read_line(fd), "");
}
END_TEST

START_TEST(the_socket_is_private_under_every_umask_of_the_process)
{
	static const mode_t masks[] = {0, 0777, 0177};
	struct stat st;

	umask(masks[_i]);
	ck_assert_int_eq(fixture_start(0), 0);
	ck_assert_int_eq(stat(gp_ctl_path(), &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	ck_assert_uint_eq(umask(0), masks[_i]);
	fixture_assert_serves();
}
END_TEST

/* Returns the process id of a process that has ended. */
static pid_t past_pid(void)
{
	pid_t child = fork();

	if (child == 0)
		_exit(0);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	return child;
}

static void make_socket(const char *path, bool listens)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	ck_assert_uint_lt(strlen(path), sizeof(address.sun_path));
	strcpy(address.sun_path, path);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	if (listens)
		ck_assert_int_eq(listen(fd, 1), 0);
	else
		close(fd);
}

static const struct {
	const char *before, *after; /* around the process id, which is unused, or 1 */
	bool is_alive, listens, stays;
	bool is_old; /* five minutes */
} leftovers[] = {
	{"", ".1.sock", false, false, false},
	{"", ".18446744073709551615.sock", false, false, false},
	{"", ".1.sock", false, true, true}, /* as of a process in a container that shares the directory */
	{"", ".1.sock", true, false, true}, /* the start time of process 1 cannot be compared */
	{"", ".sock", false, false, true},
	{"", ".1.sock.old", false, false, true},
	{"a", ".1.sock", false, false, true},
	{".", ".1.sock.new", false, false, false, true}, /* killed while it started */
	{".", ".1.sock.new", false, false, true, false}, /* may be starting in a container */
	{".", ".1.sock.new", true, false, true, true},
	{".", ".1.sock.ne", false, false, true, true},
	{".", ".new", false, false, true, true},
};

START_TEST(a_start_removes_sockets_that_killed_processes_left_behind)
{
	const struct timespec past[2] = {{.tv_sec = time(NULL) - 300}, {.tv_sec = time(NULL) - 300}};
	char path[2 * sizeof(fixture_root)];

	snprintf(path, sizeof(path), "%s/%s%d%s", fixture_root, leftovers[_i].before,
		leftovers[_i].is_alive ? 1 : (int)past_pid(), leftovers[_i].after);
	make_socket(path, leftovers[_i].listens);
	ck_assert(exists(path));
	if (leftovers[_i].is_old)
		ck_assert_int_eq(utimensat(AT_FDCWD, path, past, 0), 0);
	ck_assert_int_eq(fixture_start(0), 0);
	ck_assert_int_eq(exists(path), leftovers[_i].stays);
	fixture_assert_serves();
}
END_TEST

static TCase *with_server(void)
{
	TCase *tc = tcase_create("server");

	tcase_add_checked_fixture(tc, setup, fixture_teardown);
	tcase_add_loop_test(tc, every_request_gets_its_answer_or_an_error, 0, ROWS(requests));
	tcase_add_test(tc, help_lists_every_command);
	tcase_add_test(tc, a_request_that_arrives_byte_by_byte_is_answered);
	tcase_add_test(tc, requests_in_one_packet_are_answered_in_order);
	tcase_add_test(tc, a_request_without_a_newline_is_refused);
	tcase_add_test(tc, a_request_just_before_the_client_shuts_down_is_answered);
	tcase_add_test(tc, a_request_of_the_maximum_length_is_answered_and_a_longer_one_refused);
	tcase_add_test(tc, idle_clients_do_not_lock_out_another);
	tcase_add_test(tc, a_slow_reader_delays_no_other_client_and_gets_the_whole_answer);
	tcase_add_test(tc, a_client_that_disconnects_early_does_not_disturb_another);
	tcase_add_test(tc, random_bytes_are_answered_with_an_error);
	tcase_add_test(tc, the_socket_is_private_and_named_after_the_process);
	tcase_add_test(tc, the_servers_descriptors_are_high_and_close_on_exec);
	tcase_add_test(tc, a_second_server_start_is_refused);
	tcase_add_test(tc, the_server_waits_while_the_process_has_no_free_descriptors);
	tcase_add_test(tc, a_forked_child_closes_the_parents_sockets);
#ifndef __SANITIZE_THREAD__
	tcase_add_test(tc, a_forked_child_can_start_its_own_server);
#endif
	tcase_add_test(tc, the_exit_of_a_forked_child_leaves_the_parents_socket_file);
	if (geteuid() == 0)
		tcase_add_test(tc, a_client_of_another_user_is_refused);
	return tc;
}

static TCase *without_server(void)
{
	TCase *tc = tcase_create("start");

	tcase_add_checked_fixture(tc, fixture_setup, fixture_teardown);
	tcase_add_loop_test(tc, the_interval_of_ticks_doubles_up_to_a_second, 0, ROWS(ticks));
	tcase_add_test(tc, a_client_that_sends_nothing_is_disconnected);
	tcase_add_test(tc, a_client_that_does_not_read_is_disconnected);
	tcase_add_loop_test(tc, the_socket_is_private_under_every_umask_of_the_process, 0, 3);
	tcase_add_loop_test(tc, a_start_removes_sockets_that_killed_processes_left_behind, 0, ROWS(leftovers));
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("ctl_server");

	suite_add_tcase(suite, with_server());
	suite_add_tcase(suite, without_server());
	return suite_run(suite);
}
