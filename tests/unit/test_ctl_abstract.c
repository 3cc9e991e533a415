/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Abstract control sockets (without a file): their names, and how the machine's sockets are searched for
 * them.
 */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/ctl_abstract.h"
#include "tests/suite.h"

static const struct {
	const char *name;
	bool is_right;
} names[] = {
	{"gpupool-1000/42.7.0123abcd", true},
	{"gpupool-0/1.0.00000000", true},
	{"gpupool-4294967294/2147483647.18446744073709551615.ffffffff", true},
	{"", false},
	{"gpupool-", false},
	{"gpupool-1000", false},
	{"gpupool-1000/42.7", false},
	{"gpupool-1000/42.7.", false},
	{"gpupool-1000/42.7.0123abc", false},
	{"gpupool-1000/42.7.0123abcde", false},
	{"gpupool-1000/42.7.0123ABCD", false},
	{"gpupool-1000/42.7.0123abcg", false},
	{"gpupool-1000/42.7.0123abcd ", false},
	{"gpupool-1000/042.7.0123abcd", false},
	{"gpupool-01000/42.7.0123abcd", false},
	{"gpupool--1/42.7.0123abcd", false},
	{"gpupool-1000/0.7.0123abcd", false},
	{"gpupool-1000/2147483648.7.0123abcd", false},
	{"gpupool-4294967295/42.7.0123abcd", false},
	{"gpupool-1000/42.18446744073709551616.0123abcd", false},
	{"gpupool-1000/42.sock", false},
	{"Gpupool-1000/42.7.0123abcd", false},
};

START_TEST(only_a_well_formed_abstract_socket_name_is_parsed)
{
	struct gp_ctl_abstract found;

	ck_assert_int_eq(gp_ctl_abstract_parse(names[_i].name, &found), names[_i].is_right);
	if (names[_i].is_right)
		ck_assert_str_eq(found.name, names[_i].name);
}
END_TEST

START_TEST(a_generated_socket_name_identifies_the_process_and_is_unique)
{
	char one[GP_CTL_NAME_MAX], other[GP_CTL_NAME_MAX], state;
	struct gp_ctl_abstract found;
	uint64_t start_ticks;

	ck_assert_int_eq(gp_ctl_process_stat(0, &start_ticks, &state), 0);
	ck_assert_int_eq(gp_ctl_abstract_draw(one, 4711), 0);
	ck_assert_int_eq(gp_ctl_abstract_draw(other, 4711), 0);
	ck_assert_str_ne(one, other);
	ck_assert(gp_ctl_abstract_parse(one, &found));
	ck_assert_uint_eq(found.uid, 4711);
	ck_assert_int_eq(found.pid, getpid());
	ck_assert_uint_eq(found.start_ticks, start_ticks);
}
END_TEST

struct look {
	const char *name;
	unsigned n_found, n_stops;
};

static bool count(void *arg, const struct gp_ctl_abstract *found)
{
	struct look *look = arg;

	look->n_found += strcmp(found->name, look->name) == 0;
	return true;
}

static bool stop(void *arg, const struct gp_ctl_abstract *found)
{
	struct look *look = arg;

	look->n_stops++;
	return false;
}

static unsigned count_of(const char *name)
{
	struct look look = {.name = name};

	gp_ctl_abstract_each(count, &look);
	return look.n_found;
}

static int make(const char *name, struct sockaddr_un *address, socklen_t *length)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(gp_ctl_address(GP_CTL_NO_DIR, name, address, length), 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)address, *length), 0);
	return fd;
}

START_TEST(a_listening_abstract_socket_is_found_once_however_many_clients_it_has)
{
	char name[GP_CTL_NAME_MAX];
	struct sockaddr_un address;
	socklen_t length;
	int server, client;

	ck_assert_int_eq(gp_ctl_abstract_draw(name, geteuid()), 0);
	server = make(name, &address, &length);
	ck_assert_uint_eq(count_of(name), 0);
	ck_assert_int_eq(listen(server, 8), 0);
	ck_assert_uint_eq(count_of(name), 1);
	client = gp_ctl_connect(GP_CTL_NO_DIR, name);
	ck_assert_int_ge(client, 0);
	ck_assert_int_ge(accept(server, NULL, NULL), 0);
	ck_assert_uint_eq(count_of(name), 1);
	close(server);
	ck_assert_uint_eq(count_of(name), 0);
}
END_TEST

START_TEST(the_walk_over_abstract_sockets_ends_when_the_callback_returns_false)
{
	struct look look = {.name = ""};
	char name[GP_CTL_NAME_MAX];
	struct sockaddr_un address;
	socklen_t length;

	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(gp_ctl_abstract_draw(name, geteuid()), 0);
		ck_assert_int_eq(listen(make(name, &address, &length), 1), 0);
	}
	gp_ctl_abstract_each(stop, &look);
	ck_assert_uint_eq(look.n_stops, 1);
}
END_TEST

/*
 * There are more sockets than the walk reads at once. The hostile names do not parse, and contain newlines.
 */
START_TEST(each_of_200_abstract_sockets_is_found_among_hostile_names)
{
	static char wanted[200][GP_CTL_NAME_MAX];
	char hostile[GP_CTL_NAME_MAX];
	struct sockaddr_un address;
	socklen_t length;

	for (int i = 0; i < 200; i++) {
		ck_assert_int_eq(gp_ctl_abstract_draw(wanted[i], geteuid()), 0);
		ck_assert_int_eq(listen(make(wanted[i], &address, &length), 1), 0);
		snprintf(hostile, sizeof(hostile), "gpupool-test\n\n %d\n%d \n", (int)getpid(), i);
		ck_assert_int_eq(listen(make(hostile, &address, &length), 1), 0);
	}
	for (int i = 0; i < 200; i++)
		ck_assert_uint_eq(count_of(wanted[i]), 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ctl_abstract");
	TCase *tc = tcase_create("ctl_abstract");

	suite_add_tcase(suite, tc);
	tcase_add_loop_test(tc, only_a_well_formed_abstract_socket_name_is_parsed, 0, sizeof(names) / sizeof(*names));
	tcase_add_test(tc, a_generated_socket_name_identifies_the_process_and_is_unique);
	tcase_add_test(tc, a_listening_abstract_socket_is_found_once_however_many_clients_it_has);
	tcase_add_test(tc, the_walk_over_abstract_sockets_ends_when_the_callback_returns_false);
	tcase_add_test(tc, each_of_200_abstract_sockets_is_found_among_hostile_names);
	return suite_run(suite);
}
