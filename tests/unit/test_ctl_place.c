/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Where the control socket goes, and who may ask it there. */

#include <check.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl_fixture.h"
#include "shim/ctl_server.h"
#include "tests/suite.h"

enum { NOBODY = 65534 };

START_TEST(the_first_usable_directory_is_taken_and_the_others_are_explained)
{
	struct gp_ctl_places places = {.uid = geteuid(), .xdg_runtime_dir = "/nowhere/at/all", .tmp_dir = fixture_root};
	char open_dir[80], expected[256];

	snprintf(open_dir, sizeof(open_dir), "%s/open", fixture_root);
	ck_assert_int_eq(mkdir(open_dir, 0700), 0);
	ck_assert_int_eq(chmod(open_dir, 0755), 0);
	places.runtime_dir = open_dir;
	ck_assert_int_eq(fixture_start_at(&places, 0), 0);
	snprintf(expected, sizeof(expected), "%s/gpupool-%u/%d.", fixture_root, (unsigned)geteuid(), (int)getpid());
	ck_assert_int_eq(strncmp(gp_ctl_path(), expected, strlen(expected)), 0);
	snprintf(expected, sizeof(expected),
		"%s is open to other users (mode 0755); "
		"/nowhere/at/all/gpupool cannot be made: the directory above it does not exist",
		open_dir);
	ck_assert_str_eq(gp_ctl_problems(), expected);
}
END_TEST

START_TEST(without_a_usable_directory_the_socket_has_no_file_and_serves)
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

/* Another user's process connects twenty times and is turned away each time; 0 if so. n: this process's sockets. */
static int run_crowd(int n)
{
	pid_t child;
	int status;

	/* A fork in the middle of an accept would leave the child a descriptor. */
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

START_TEST(a_crowd_of_another_user_at_a_socket_without_a_file_takes_no_clients_place)
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

/* There every user is shown as the same one. */
START_TEST(in_a_user_namespace_that_maps_no_user_nobody_may_ask)
{
	int fd;

	if (unshare(CLONE_NEWUSER) != 0) {
		printf("# a user namespace: not shown, since none can be made here\n");
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

START_TEST(a_process_of_nobody_serves_its_user)
{
	ck_assert_int_eq(chown(fixture_root, NOBODY, NOBODY), 0);
	ck_assert_int_eq(setuid(NOBODY), 0);
	ck_assert_int_eq(fixture_start(0), 0);
	fixture_assert_serves();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ctl_place");
	TCase *tc = tcase_create("ctl_place");

	suite_add_tcase(suite, tc);
	tcase_add_checked_fixture(tc, fixture_setup, fixture_teardown);
	tcase_add_test(tc, the_first_usable_directory_is_taken_and_the_others_are_explained);
	tcase_add_test(tc, without_a_usable_directory_the_socket_has_no_file_and_serves);
	tcase_add_test(tc, in_a_user_namespace_that_maps_no_user_nobody_may_ask);
	if (geteuid() == 0) {
		tcase_add_test(tc, a_crowd_of_another_user_at_a_socket_without_a_file_takes_no_clients_place);
		tcase_add_test(tc, a_process_of_nobody_serves_its_user);
	} else {
		printf("# other users: not shown, since only root can become one\n");
	}
	return suite_run(suite);
}
