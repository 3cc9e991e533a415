/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The control socket as a guest in the program: in a file system where other users plant and move files, and
 * with descriptors that the program closes and reuses. The server must not touch foreign files and descriptors.
 */

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ctl_fixture.h"
#include "common/ctl_proto.h"
#include "shim/ctl/ctl_server.h"
#include "tests/suite.h"

#define ROWS(table) ((int)(sizeof(table) / sizeof((table)[0])))

/*
 * Above the test's own descriptors and below all of the server's. In the smallest table of descriptors the listening
 * socket starts at 56, and stays there if the program closes its new number while it is raised.
 */
enum { SERVERS_FD_MIN = 32 };

static const char *in(const char *dir, const char *name)
{
	static char paths[4][256];
	static int next;
	char *path = paths[next++ % 4];

	ck_assert_int_lt(snprintf(path, sizeof(paths[0]), "%s/%s", dir, name), (int)sizeof(paths[0]));
	return path;
}

/* Returns the file name of a socket of this process. */
static const char *socket_name(void)
{
	static char name[GP_CTL_NAME_MAX];
	uint64_t start_ticks;
	char state;

	ck_assert_int_eq(gp_ctl_process_stat(0, &start_ticks, &state), 0);
	gp_ctl_name_format(name, getpid(), start_ticks);
	return name;
}

static void make_file(const char *path)
{
	int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0644);

	ck_assert_int_eq(write(fd, "mine", 4), 4);
	ck_assert_int_eq(fchmod(fd, 0644), 0);
	close(fd);
}

static void assert_untouched(const char *path)
{
	char bytes[8];
	struct stat st;
	int fd = open(path, O_RDONLY);

	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert(S_ISREG(st.st_mode));
	ck_assert_uint_eq(st.st_mode & 07777, 0644);
	ck_assert_int_eq(read(fd, bytes, sizeof(bytes)), 4);
	ck_assert_int_eq(memcmp(bytes, "mine", 4), 0);
	close(fd);
}

/* Around the socket's name: its final name, and the name until it listens. */
static const struct {
	const char *before, *after;
} planted[] = {{"", ""}, {".", ".new"}};

static const char *planted_name(int row)
{
	static char name[GP_CTL_NAME_MAX + 8];

	snprintf(name, sizeof(name), "%s%s%s", planted[row].before, socket_name(), planted[row].after);
	return name;
}

START_TEST(the_server_does_not_follow_a_symlink_with_its_sockets_name)
{
	char victim[128];
	struct stat st;

	snprintf(victim, sizeof(victim), "%s", in(fixture_root, "victim"));
	make_file(victim);
	ck_assert_int_eq(symlink("victim", in(fixture_root, planted_name(_i))), 0);
	ck_assert_int_eq(fixture_start(0), 0);
	assert_untouched(victim);
	ck_assert_int_eq(lstat(gp_ctl_path(), &st), 0);
	ck_assert(S_ISSOCK(st.st_mode));
	fixture_assert_serves();
}
END_TEST

START_TEST(the_server_leaves_a_directory_with_its_sockets_name_alone)
{
	const struct gp_ctl_dirs dirs = {.runtime_dir = fixture_root, .tmp_dir = "/nowhere", .uid = geteuid()};

	ck_assert_int_eq(mkdir(in(fixture_root, planted_name(_i)), 0755), 0);
	errno = 7;
	ck_assert_int_eq(fixture_start_at(&dirs, 0), 0);
	ck_assert_int_eq(errno, 7);
	/* Each gpupool-stat on the machine finds an abstract socket, and may be connected to it for a moment. */
	fixture_wait_for_sockets(1);
	ck_assert_int_eq(*gp_ctl_path(), '@');
	/* The server left nothing else there. */
	ck_assert_int_eq(rmdir(in(fixture_root, planted_name(_i))), 0);
	ck_assert_int_eq(rmdir(fixture_root), 0);
}
END_TEST

static void teardown(void)
{
	char command[256];

	snprintf(command, sizeof(command), "rm -rf '%s' '%s.aside' '%s.victim'", fixture_root, fixture_root,
		fixture_root);
	ck_assert_int_eq(system(command), 0);
	fixture_teardown();
}

#ifndef __SANITIZE_THREAD__ /* it forbids threads after a fork, and closing descriptors in use */
/* Files that replace the socket's directory. */
static const struct {
	const char *name;
	bool is_link;
	mode_t mode; /* 0: nothing replaces it */
	bool serves; /* a server that lost its socket makes a new one there */
} replacements[] = {
	{"nothing", false, 0, true},
	{"a directory", false, 0700, true},
	{"a directory open to others", false, 0755, false},
	{"a link to a directory", true, 0700, false},
};

/* Replaces the directory by one with a foreign file under the socket's name. */
static void replace_directory(int row)
{
	char aside[128], victim[128], path[256];

	snprintf(aside, sizeof(aside), "%s.aside", fixture_root);
	snprintf(victim, sizeof(victim), "%s%s", fixture_root, replacements[row].is_link ? ".victim" : "");
	ck_assert_int_eq(rename(fixture_root, aside), 0);
	if (!replacements[row].mode)
		return;
	ck_assert_int_eq(mkdir(victim, 0700), 0);
	ck_assert_int_eq(chmod(victim, replacements[row].mode), 0);
	snprintf(path, sizeof(path), "%s", in(victim, socket_name()));
	make_file(path);
	if (replacements[row].is_link)
		ck_assert_int_eq(symlink(victim, fixture_root), 0);
}

START_TEST(the_exit_removes_no_file_from_a_replaced_socket_directory)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		ck_assert_int_eq(fixture_start(0), 0);
		fixture_assert_serves();
		replace_directory(_i);
		exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	/* The file that was named like the child's socket. */
	if (replacements[_i].mode) {
		char command[256];

		snprintf(command, sizeof(command), "test \"$(cat %s/*.sock)\" = mine", fixture_root);
		ck_assert_int_eq(system(command), 0);
	}
}
END_TEST

static void close_servers(void)
{
	for (int fd = SERVERS_FD_MIN; fd < 1024; fd++)
		if (fixture_is_socket(fd))
			close(fd);
}

/* Until the server notices the loss and makes a new socket, connections are cut or refused. */
static void wait_until_served(void)
{
	for (bool served = false; !served; sched_yield()) {
		int fd = fixture_try_connect(gp_ctl_path());

		served =
			fd >= 0 && fixture_try_send(fd, "version\n") && !strcmp(fixture_read_line(fd), fixture_version);
		if (fd >= 0)
			close(fd);
	}
}

/* Returns true if the server has ended: its thread lives as long as the server. */
static bool has_ended(void)
{
	struct stat st;

	ck_assert_int_eq(stat("/proc/self/task", &st), 0);
	return st.st_nlink == 2 + 1;
}

START_TEST(an_abstract_socket_that_the_program_closes_is_recreated_with_the_same_name)
{
	char name[GP_CTL_NAME_MAX];

	ck_assert_int_eq(fixture_start_without_file(), 0);
	snprintf(name, sizeof(name), "%s", gp_ctl_path());
	close_servers();
	wait_until_served();
	ck_assert_str_eq(gp_ctl_path(), name);
}
END_TEST

START_TEST(a_closed_socket_is_recreated_only_in_a_private_directory)
{
	char victim[160];
	int client;

	ck_assert_int_eq(fixture_start(0), 0);
	client = fixture_connect();
	ck_assert_str_eq(fixture_ask(client, "version"), fixture_version);
	replace_directory(_i);
	snprintf(victim, sizeof(victim), "%s/%s", fixture_root, socket_name());
	close_servers();
	/* A connected client still wakes the server; no other client can reach it. */
	(void)fixture_try_send(client, "version\n");
	ck_assert(fixture_is_closed(client));
	close(client);
	if (replacements[_i].serves) {
		wait_until_served();
	} else {
		while (!has_ended())
			sched_yield();
		assert_untouched(victim);
	}
}
END_TEST

static _Atomic bool is_slow, is_binding, is_waited_for, is_past;

/* Replace the C library's functions, so that the program exits while the server makes a new socket. */
int bind(int fd, const struct sockaddr *addr, socklen_t size)
{
	atomic_store(&is_binding, true);
	while (atomic_load(&is_slow) && !atomic_load(&is_waited_for) && !atomic_load(&is_past))
		sched_yield();
	return (int)syscall(SYS_bind, fd, addr, size);
}

int nanosleep(const struct timespec *time, struct timespec *rest)
{
	atomic_store(&is_waited_for, true);
	return (int)syscall(SYS_nanosleep, time, rest);
}

/*
 * Runs after the server's own exit handler: if that did not wait for the thread, the thread makes its socket
 * now.
 */
static void let_go_on(void)
{
	atomic_store(&is_past, true);
	while (!atomic_load(&is_waited_for) && access(gp_ctl_path(), F_OK))
		sched_yield();
}

START_TEST(a_socket_that_is_being_recreated_is_removed_at_exit)
{
	pid_t child = fork();
	char command[256];
	int status, client;

	if (child == 0) {
		ck_assert_int_eq(atexit(let_go_on), 0);
		ck_assert_int_eq(fixture_start(0), 0);
		client = fixture_connect();
		ck_assert_str_eq(fixture_ask(client, "version"), fixture_version);
		close_servers();
		atomic_store(&is_slow, true);
		atomic_store(&is_binding, false);
		(void)fixture_try_send(client, "version\n");
		while (!atomic_load(&is_binding))
			sched_yield();
		exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	snprintf(command, sizeof(command), "test -z \"$(ls -A %s)\"", fixture_root);
	ck_assert_int_eq(system(command), 0);
}
END_TEST

/* Descriptors. */

START_TEST(a_socket_that_the_program_closes_is_recreated_at_most_three_times)
{
	ck_assert_int_eq(fixture_start(0), 0);
	fixture_assert_serves();
	for (int i = 0; i < 3; i++) {
		close_servers();
		wait_until_served();
	}
	close_servers();
	/* A connection attempt makes the server notice. */
	while (!has_ended())
		close(fixture_try_connect(gp_ctl_path()));
	ck_assert_int_eq(fixture_try_connect(gp_ctl_path()), -1);
	ck_assert_int_eq(fixture_count_sockets(), 0);
}
END_TEST

/* Puts the file in place of the server's sockets, under the same descriptors. */
static int take_numbers(int file, int taken[static 2])
{
	int n = 0;

	for (int fd = SERVERS_FD_MIN; fd < 1024; fd++) {
		if (!fixture_is_socket(fd))
			continue;
		ck_assert_int_lt(n, 2);
		taken[n++] = fd;
	}
	for (int i = 0; i < n; i++)
		ck_assert_int_eq(dup2(file, taken[i]), taken[i]);
	return n;
}

/* The program's file has data to read, which the server must not consume. */
START_TEST(descriptors_that_the_program_has_reused_are_left_alone)
{
	int client, pipes[2], taken[2];
	char bytes[4];

	ck_assert_int_eq(fixture_start(0), 0);
	client = fixture_connect();
	ck_assert_str_eq(fixture_ask(client, "version"), fixture_version);
	ck_assert_int_eq(pipe(pipes), 0);
	ck_assert_int_eq(write(pipes[1], "data", 4), 4);
	ck_assert_int_eq(take_numbers(pipes[0], taken), 2);
	(void)fixture_try_send(client, "version\n");
	ck_assert(fixture_is_closed(client));
	wait_until_served();
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(fcntl(taken[i], F_GETFD), 0);
	ck_assert_int_eq(read(taken[0], bytes, sizeof(bytes)), 4);
	ck_assert_int_eq(memcmp(bytes, "data", 4), 0);
}
END_TEST

enum host_file { A_FILE, A_SOCKET, N_HOST_FILES };

/* Opens a file or socket of the program. *ret_other reads what the server would write to it. */
static int open_host_file(enum host_file which, int *ret_other)
{
	int fds[2];

	if (which == A_FILE)
		return *ret_other = memfd_create("host", MFD_CLOEXEC);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
	*ret_other = fds[1];
	return fds[0];
}

START_TEST(an_answer_under_way_is_not_written_to_a_file_of_the_program)
{
	int client, other, file = open_host_file((enum host_file)_i, &other), taken[2];
	char bytes[16];

	ck_assert_int_eq(fixture_start(0), 0);
	client = fixture_ask_without_reading(gp_ctl_path());
	ck_assert_int_eq(take_numbers(file, taken), 2);
	ck_assert_str_eq(fixture_read_line(client), ""); /* the connection ends before the answer does */
	wait_until_served();
	ck_assert_int_eq(_i == A_FILE ? pread(other, bytes, sizeof(bytes), 0) : read(other, bytes, sizeof(bytes)),
		_i == A_FILE ? 0 : -1);
	for (int i = 0; i < 2; i++)
		ck_assert_int_ge(fcntl(taken[i], F_GETFD), 0);
}
END_TEST

/*
 * Closes all descriptors, as launchers and daemons do, with clients in every state, until the server gives
 * up.
 */
START_TEST(a_program_that_closes_all_descriptors_in_a_loop_is_not_disturbed)
{
	int kept = memfd_create("kept", MFD_CLOEXEC), copies[16];
	struct stat before, after;

	ck_assert_int_eq(fixture_start(0), 0);
	ck_assert_int_eq(fstat(kept, &before), 0);
	for (int round = 0; !has_ended(); round++) {
		int client = fixture_try_connect(gp_ctl_path());

		if (client >= 0)
			(void)fixture_try_send(client, (round + _i) % 2 ? "blocks 40000\n" : "version\nvers");
		for (int fd = SERVERS_FD_MIN; fd < 1024; fd++)
			close(fd);
		for (int i = 0; i < ROWS(copies); i++)
			copies[i] = fcntl(kept, F_DUPFD_CLOEXEC, 512);
		for (int i = 0; i < ROWS(copies); i++) {
			ck_assert_int_eq(fstat(copies[i], &after), 0);
			ck_assert_uint_eq(after.st_ino, before.st_ino);
		}
		if (client >= 0)
			close(client);
	}
	ck_assert_int_eq(after.st_size, 0);
}
END_TEST
#endif

int main(void)
{
	Suite *suite = suite_create("ctl_guest");
	TCase *tc = tcase_create("guest");

	tcase_add_checked_fixture(tc, fixture_setup, teardown);
	tcase_add_loop_test(tc, the_server_does_not_follow_a_symlink_with_its_sockets_name, 0, ROWS(planted));
	tcase_add_loop_test(tc, the_server_leaves_a_directory_with_its_sockets_name_alone, 0, ROWS(planted));
#ifndef __SANITIZE_THREAD__
	tcase_add_loop_test(tc, the_exit_removes_no_file_from_a_replaced_socket_directory, 0, ROWS(replacements));
	tcase_add_test(tc, an_abstract_socket_that_the_program_closes_is_recreated_with_the_same_name);
	tcase_add_loop_test(tc, a_closed_socket_is_recreated_only_in_a_private_directory, 0, ROWS(replacements));
	tcase_add_test(tc, a_socket_that_is_being_recreated_is_removed_at_exit);
	tcase_add_test(tc, a_socket_that_the_program_closes_is_recreated_at_most_three_times);
	tcase_add_test(tc, descriptors_that_the_program_has_reused_are_left_alone);
	tcase_add_loop_test(tc, an_answer_under_way_is_not_written_to_a_file_of_the_program, 0, N_HOST_FILES);
	tcase_add_loop_test(tc, a_program_that_closes_all_descriptors_in_a_loop_is_not_disturbed, 0, 16);
#endif
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
