/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The directory in which the control socket is made, and the users whom the server answers. */

#include <check.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl_fixture.h"
#include "shim/ctl/ctl_server.h"
#include "tests/suite.h"

enum { NOBODY = 65534 };

START_TEST(the_first_usable_socket_directory_is_taken_and_the_others_are_explained)
{
	struct gp_ctl_dirs dirs = {.uid = geteuid(), .xdg_runtime_dir = "/nowhere/at/all", .tmp_dir = fixture_root};
	char open_dir[80], expected[256];

	snprintf(open_dir, sizeof(open_dir), "%s/open", fixture_root);
	ck_assert_int_eq(mkdir(open_dir, 0700), 0);
	ck_assert_int_eq(chmod(open_dir, 0755), 0);
	dirs.runtime_dir = open_dir;
	ck_assert_int_eq(fixture_start_at(&dirs, 0), 0);
	snprintf(expected, sizeof(expected), "%s/gpupool-%u/%d.", fixture_root, (unsigned)geteuid(), (int)getpid());
	ck_assert_int_eq(strncmp(gp_ctl_path(), expected, strlen(expected)), 0);
	snprintf(expected, sizeof(expected),
		"%s is open to other users (mode 0755); "
		"/nowhere/at/all/gpupool cannot be made: the directory above it does not exist",
		open_dir);
	ck_assert_str_eq(gp_ctl_problems(), expected);
}
END_TEST

START_TEST(the_folder_of_the_machine_is_used_only_if_others_cannot_remove_directories_in_it)
{
	static const struct {
		mode_t mode;
		bool is_used;
	} rows[] = {{01777, true}, {0777, false}, {0755, true}, {0775, false}, {01775, true}, {0757, false}};
	char path[80], other[96];

	snprintf(path, sizeof(path), "%s/run", fixture_root);
	snprintf(other, sizeof(other), "%s/link", fixture_root);
	ck_assert_ptr_null(gp_ctl_run_dir(path, geteuid()));
	ck_assert_int_eq(mkdir(path, 0700), 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		ck_assert_int_eq(chmod(path, rows[i].mode), 0);
		ck_assert_int_eq(gp_ctl_run_dir(path, geteuid()) == path, rows[i].is_used);
	}
	ck_assert_int_eq(chmod(path, 01777), 0);
	ck_assert_int_eq(symlink(path, other), 0);
	ck_assert_ptr_null(gp_ctl_run_dir(other, geteuid()));
	if (geteuid() == 0) {
		ck_assert_int_eq(chown(path, NOBODY, (gid_t)-1), 0);
		ck_assert_ptr_null(gp_ctl_run_dir(path, 1));
	}
}
END_TEST

START_TEST(the_folder_of_the_machine_comes_before_that_of_the_session)
{
	struct gp_ctl_dirs dirs = {
		.uid = geteuid(), .xdg_runtime_dir = fixture_root, .tmp_dir = fixture_root, .run_dir = fixture_root};
	char expected[256];

	ck_assert_int_eq(fixture_start_at(&dirs, 0), 0);
	snprintf(expected, sizeof(expected), "%s/%u/%d.", fixture_root, (unsigned)geteuid(), (int)getpid());
	ck_assert_int_eq(strncmp(gp_ctl_path(), expected, strlen(expected)), 0);
}
END_TEST

START_TEST(without_a_usable_directory_the_server_uses_an_abstract_socket)
{
	char expected[128];

	errno = 7;
	ck_assert_int_eq(fixture_start_without_file(), 0);
	ck_assert_int_eq(errno, 7);
	snprintf(expected, sizeof(expected), "@gpupool-%u/%d.", (unsigned)geteuid(), (int)getpid());
	ck_assert_int_eq(strncmp(gp_ctl_path(), expected, strlen(expected)), 0);
	snprintf(expected, sizeof(expected),
		"/nowhere/gpupool-%u cannot be made: the directory above it does not exist", (unsigned)geteuid());
	ck_assert_str_eq(gp_ctl_problems(), expected);
	fixture_assert_serves();
	ck_assert_int_eq(fixture_start_without_file(), -EALREADY);
}
END_TEST

/*
 * Lets a process of another user connect twenty times. Returns 0 if the server turned it away each time. n:
 * the number of sockets that this process has open.
 */
static int run_crowd(int n)
{
	pid_t child;
	int status;

	/* A fork during an accept would leave the child a descriptor. */
	fixture_assert_serves();
	while (fixture_count_sockets() > n)
		sched_yield();
	child = fork();
	if (child == 0 && setuid(NOBODY) != 0)
		_exit(1);
	for (int i = 0; child == 0 && i < 20; i++) {
		int fd = fixture_connect();

		if (*fixture_read_line(fd) || !fixture_is_closed(fd))
			_exit(2);
		close(fd);
	}
	if (child == 0)
		_exit(0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	return status;
}

START_TEST(connections_of_another_user_to_an_abstract_socket_displace_no_client)
{
	int fd;

	ck_assert_int_eq(fixture_start_without_file(), 0);
	ck_assert_int_eq(run_crowd(1), 0);
	fd = fixture_connect();
	ck_assert_str_eq(fixture_ask(fd, "version"), fixture_version);
	ck_assert_int_eq(run_crowd(3), 0);
	ck_assert_str_eq(fixture_ask(fd, "version"), fixture_version);
}
END_TEST

/* In such a namespace every user has the same number. */
START_TEST(a_server_in_a_user_namespace_without_mapped_users_refuses_all_clients)
{
	int fd;

	if (unshare(CLONE_NEWUSER) != 0) {
		printf("# skipped: a user namespace cannot be made here\n");
		return;
	}
	ck_assert_uint_eq(geteuid(), NOBODY);
	ck_assert_int_eq(fixture_start(0), 0);
	fd = fixture_connect();
	(void)fixture_try_send(fd, "version\n");
	ck_assert_ptr_nonnull(strstr(fixture_read_line(fd), "\"error\":\"this process belongs to another user\""));
	ck_assert(fixture_is_closed(fd));
}
END_TEST

START_TEST(a_process_of_uid_65534_serves_its_own_user)
{
	ck_assert_int_eq(chown(fixture_root, NOBODY, NOBODY), 0);
	ck_assert_int_eq(setuid(NOBODY), 0);
	ck_assert_int_eq(fixture_start(0), 0);
	fixture_assert_serves();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ctl_directory");
	TCase *tc = tcase_create("ctl_directory");

	suite_add_tcase(suite, tc);
	tcase_add_checked_fixture(tc, fixture_setup, fixture_teardown);
	tcase_add_test(tc, the_first_usable_socket_directory_is_taken_and_the_others_are_explained);
	tcase_add_test(tc, the_folder_of_the_machine_is_used_only_if_others_cannot_remove_directories_in_it);
	tcase_add_test(tc, the_folder_of_the_machine_comes_before_that_of_the_session);
	tcase_add_test(tc, without_a_usable_directory_the_server_uses_an_abstract_socket);
	tcase_add_test(tc, a_server_in_a_user_namespace_without_mapped_users_refuses_all_clients);
	if (geteuid() == 0) {
		tcase_add_test(tc, connections_of_another_user_to_an_abstract_socket_displace_no_client);
		tcase_add_test(tc, a_process_of_uid_65534_serves_its_own_user);
	} else {
		printf("# skipped: the tests with other users need root\n");
	}
	return suite_run(suite);
}
