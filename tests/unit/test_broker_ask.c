/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The library asks the broker of the machine: whom it believes, and which answers it counts. */

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/broker.h"
#include "shim/reclaim/broker_ask.h"
#include "tests/suite.h"

#define REQUEST "yield 00112233445566778899aabbccddeeff 1000\n"
#define ALL     "         0          0 4294967295\n"
#define POD     "         0     100000      65536\n"

enum { NOBODY = 65534 };

static const struct {
	uid_t uid;
	const char *map;
	bool may_be_root;
} users[] = {
	{0, ALL, true},
	{0, POD, true}, /* root of the namespace can do everything in it */
	{1000, ALL, false},
	{1000, POD, false},
	{NOBODY, ALL, false}, /* the user of that number */
	{NOBODY, POD, true},
	{NOBODY, "0 0 1\n", false}, /* root has a number, and this is another user without one */
	{NOBODY, "1000 1000 1\n0 100000 1000\n", true},
	{NOBODY, "1000 1000 1\n5 0 1\n", false},
	{NOBODY, "0 100000", false},
	{NOBODY, "x", false},
	{NOBODY, "", false},
};

START_TEST(a_user_may_be_root_by_its_number_or_without_one_in_a_namespace_without_root)
{
	ck_assert_int_eq(gp_broker_may_be_root(users[_i].uid, users[_i].map), users[_i].may_be_root);
}
END_TEST

static char dir[] = "/tmp/gpupool-broker-XXXXXX";
static int listener;

static void make_dir(void)
{
	strcpy(dir + strlen(dir) - 6, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	listener = -1;
}

static void remove_dir(void)
{
	char command[64];

	if (listener >= 0)
		close(listener);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	ck_assert_int_eq(system(command), 0);
}

static void listen_in_dir(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/" GP_BROKER_NAME, dir);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ck_assert_int_ge(listener, 0);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
}

static enum gp_broker_state open_state(void)
{
	struct gp_broker_answer answer;
	int fd = gp_broker_open(dir, &answer);

	if (fd < 0)
		return answer.state;
	close(fd);
	return GP_BROKER_ANSWERED;
}

START_TEST(a_folder_that_is_missing_or_has_no_socket_is_no_broker)
{
	ck_assert_int_eq(gp_broker_connect("/nonexistent/folder"), -ENOENT);
	ck_assert_int_eq(open_state(), GP_BROKER_NONE);
}
END_TEST

START_TEST(only_a_broker_of_root_in_a_folder_of_root_is_asked)
{
	listen_in_dir();
	ck_assert_int_eq(open_state(), geteuid() == 0 ? GP_BROKER_ANSWERED : GP_BROKER_NONE);
	ck_assert_int_eq(chmod(dir, 0777), 0);
	ck_assert_int_eq(gp_broker_connect(dir), -EPERM);
}
END_TEST

START_TEST(a_folder_that_is_a_link_is_not_followed)
{
	char link[64];

	listen_in_dir();
	snprintf(link, sizeof(link), "%s/link", dir);
	ck_assert_int_eq(symlink(dir, link), 0);
	ck_assert_int_lt(gp_broker_connect(link), 0);
}
END_TEST

#define ERROR(reason) "{\"schema\":\"gpupool.error/1\",\"reason\":\"" reason "\",\"error\":\"no\"}\n"

static const struct {
	const char *answer; /* NULL: the broker hangs up */
	enum gp_broker_state state;
	uint64_t bytes, held_bytes;
} answers[] = {
	{"{\"schema\":\"gpupool.yield/1\",\"released_bytes\":12}\n", GP_BROKER_ANSWERED, 12, 0},
	{"{\"schema\":\"gpupool.wanted/1\",\"released_bytes\":12,\"held_bytes\":34}\n", GP_BROKER_ANSWERED, 12, 34},
	{ERROR("busy"), GP_BROKER_IS_BUSY, 0, 0},
	{ERROR("permission"), GP_BROKER_REFUSED, 0, 0},
	{ERROR("usage"), GP_BROKER_REFUSED, 0, 0},
	{"{\"schema\":\"gpupool.yield/1\",\"released_bytes\":9223372036854775807}\n", GP_BROKER_INVALID, 0, 0},
	{"{\"schema\":\"gpupool.yield/1\",\"released_bytes\":-1}\n", GP_BROKER_INVALID, 0, 0},
	{"{\"schema\":\"gpupool.yield/1\",\"released_bytes\":12}x\n", GP_BROKER_INVALID, 0, 0},
	{"\n", GP_BROKER_INVALID, 0, 0},
	{NULL, GP_BROKER_INVALID, 0, 0},
	{"{\"schema\":\"gpupool.yield/1\"", GP_BROKER_SILENT, 0, 0},
};

static void ask(const char *text, int max_ms, struct gp_broker_answer *ret)
{
	char request[sizeof(REQUEST)] = "";
	int ends[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
	if (text)
		ck_assert_int_eq(send(ends[0], text, strlen(text), MSG_NOSIGNAL), strlen(text));
	else
		ck_assert_int_eq(shutdown(ends[0], SHUT_WR), 0);
	errno = 77;
	gp_broker_ask(ends[1], REQUEST, max_ms, ret);
	ck_assert_int_eq(errno, 77);
	ck_assert_int_eq(recv(ends[0], request, sizeof(request), MSG_DONTWAIT), strlen(REQUEST));
	ck_assert_str_eq(request, REQUEST);
	close(ends[0]);
}

START_TEST(an_answer_counts_only_in_its_one_form)
{
	struct gp_broker_answer answer;

	ask(answers[_i].answer, 50, &answer);
	ck_assert_int_eq(answer.state, answers[_i].state);
	ck_assert_uint_eq(answer.bytes, answers[_i].bytes);
	ck_assert_uint_eq(answer.held_bytes, answers[_i].held_bytes);
}
END_TEST

START_TEST(an_endless_answer_is_invalid)
{
	char text[2 * GP_BROKER_ANSWER_MAX];
	struct gp_broker_answer answer;

	memset(text, '{', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	ask(text, 50, &answer);
	ck_assert_int_eq(answer.state, GP_BROKER_INVALID);
}
END_TEST

START_TEST(a_silent_broker_is_not_asked_again_soon_but_one_that_had_little_time_is)
{
	struct gp_broker_answer answer;

	listen_in_dir();
	ask("", 10, &answer);
	ck_assert_int_eq(answer.state, GP_BROKER_SILENT);
	ck_assert_int_ne(open_state(), GP_BROKER_SILENT);
	ask("", GP_BROKER_ASK_MS, &answer);
	ck_assert_int_eq(open_state(), GP_BROKER_SILENT);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("broker_ask");
	TCase *tc = tcase_create("broker_ask");

	suite_add_tcase(suite, tc);
	tcase_add_checked_fixture(tc, make_dir, remove_dir);
	ADD_ROWS(tc, users, a_user_may_be_root_by_its_number_or_without_one_in_a_namespace_without_root);
	tcase_add_test(tc, a_folder_that_is_missing_or_has_no_socket_is_no_broker);
	tcase_add_test(tc, only_a_broker_of_root_in_a_folder_of_root_is_asked);
	tcase_add_test(tc, a_folder_that_is_a_link_is_not_followed);
	ADD_ROWS(tc, answers, an_answer_counts_only_in_its_one_form);
	tcase_add_test(tc, an_endless_answer_is_invalid);
	tcase_add_test(tc, a_silent_broker_is_not_asked_again_soon_but_one_that_had_little_time_is);
	return suite_run(suite);
}
