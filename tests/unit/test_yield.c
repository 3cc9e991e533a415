/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The broker of gpupool-stat export --yield among honest and hostile clients and processes, with a simulated clock. */

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "survey_fixture.h"
#include "tests/suite.h"
#include "tools/ask/stat_dirs.h"
#include "tools/export/stat_yield_ask.h"
#include "tools/export/stat_yield_clients.h"
#include "tools/export/stat_yield_peer.h"
#include "tools/export/stat_yield_share.h"

#define UUID    "00112233445566778899aabbccddeeff"
#define SHOWN   "GPU-00112233-4455-6677-8899-aabbccddeeff"
#define YIELD   "yield " UUID " 1000"
#define MS      INT64_C(1000000)
#define MINUTE  (60000 * MS)
#define YIELDED "{\"schema\":\"gpupool.yield/1\",\"released_bytes\":5}\n"
#define WANTED  "{\"schema\":\"gpupool.wanted/1\",\"released_bytes\":5,\"held_bytes\":7}\n"

enum { ALICE = 1001, BOB = 1002, CAROL = 1003 };

static struct stat_yield_shares shares;
static struct stat_yield_clients clients;
static struct stat_yield_asker asker;

/* Returns how many requests are paid for that come every `step_ns` within a time. */
static unsigned pay_often(uint64_t user, pid_t pid, bool is_wanted, int64_t from_ns, int64_t to_ns, int64_t step_ns)
{
	unsigned n = 0;

	for (int64_t now_ns = from_ns; now_ns < to_ns; now_ns += step_ns)
		n += stat_yield_shares_pay(&shares, user, pid, is_wanted, now_ns);
	return n;
}

START_TEST(a_process_may_keep_the_caches_of_others_empty_for_10_s_and_then_a_sixth_of_the_time)
{
	unsigned n = pay_often(ALICE, 1, true, MS, MINUTE, 500 * MS);

	/* 10 s at once, and 10 s that accrue within the minute, at 0.5 s a request. */
	ck_assert_uint_ge(n, 38);
	ck_assert_uint_le(n, 40);
	n = pay_often(ALICE, 1, true, MINUTE, 2 * MINUTE, 500 * MS);
	ck_assert_uint_ge(n, 19);
	ck_assert_uint_le(n, 21);
}
END_TEST

START_TEST(a_process_that_asks_often_pays_for_the_time_and_not_for_each_request)
{
	ck_assert_uint_eq(pay_often(ALICE, 1, true, MS, 10000 * MS, 100 * MS), 100);
	ck_assert_uint_eq(pay_often(BOB, 2, true, MS, 10000 * MS, MS), 9999);
}
END_TEST

START_TEST(the_processes_of_a_user_share_20_s_a_minute_and_take_nothing_from_other_users)
{
	unsigned n = 0;

	for (pid_t pid = 1; pid <= 100; pid++)
		n += pay_often(ALICE, pid, true, MINUTE + pid * 600 * MS, MINUTE + pid * 600 * MS + 1, 1);
	ck_assert_uint_ge(n, 78);
	ck_assert_uint_le(n, 80);
	ck_assert_uint_eq(pay_often(BOB, 200, true, 2 * MINUTE, 2 * MINUTE + 1, 1), 1);
}
END_TEST

START_TEST(requests_without_a_wait_cost_20_ms_each)
{
	ck_assert_uint_eq(pay_often(ALICE, 1, false, MS, MS + 1000, 1), 500);
	ck_assert(!stat_yield_shares_pay(&shares, ALICE, 1, false, 2 * MS));
	ck_assert(stat_yield_shares_pay(&shares, ALICE, 1, false, MS + MINUTE));
}
END_TEST

START_TEST(processes_beyond_those_remembered_use_the_share_of_their_user)
{
	unsigned n = 0;

	for (pid_t pid = 1; pid <= 4 * STAT_YIELD_PIDS; pid++)
		n += stat_yield_shares_pay(&shares, ALICE, pid, false, MS + pid);
	ck_assert_uint_eq(n, 1000);
}
END_TEST

static const struct {
	const char *line;
	bool is_valid, is_wanted;
	uint64_t bytes;
} lines[] = {
	{YIELD, true, false, 1000},
	{"wanted " UUID " 0", true, true, 0},
	{"yield " UUID " 18446744073709551615", true, false, UINT64_MAX},
	{"yield " UUID " 18446744073709551616", false, false, 0},
	{"yield " UUID " 01", false, false, 0},
	{"yield " UUID " -1", false, false, 0},
	{"yield " UUID " 1M", false, false, 0},
	{"yield " UUID " ", false, false, 0},
	{"yield " UUID, false, false, 0},
	{"yield " UUID " 1 2", false, false, 0},
	{"yield  " UUID " 1", false, false, 0},
	{" " YIELD, false, false, 0},
	{YIELD " ", false, false, 0},
	{YIELD "\r", false, false, 0},
	{"yield 00112233445566778899AABBCCDDEEFF 1", false, false, 0},
	{"yield 00112233445566778899aabbccddee 1", false, false, 0},
	{"yield " SHOWN " 1", false, false, 0},
	{"status", false, false, 0},
	{"reclaim " UUID " 1", false, false, 0},
	{"", false, false, 0},
};

START_TEST(only_the_two_requests_are_understood_in_their_one_form)
{
	struct stat_yield_request request;
	char line[STAT_YIELD_REQUEST_MAX], again[STAT_YIELD_REQUEST_MAX];

	strcpy(line, lines[_i].line);
	ck_assert_int_eq(stat_yield_request_parse(line, &request), lines[_i].is_valid);
	if (!lines[_i].is_valid)
		return;
	ck_assert_int_eq(request.is_wanted, lines[_i].is_wanted);
	ck_assert_uint_eq(request.bytes, lines[_i].bytes);
	stat_yield_request_format(again, &request);
	ck_assert_int_eq(strncmp(again, lines[_i].line, strlen(lines[_i].line)), 0);
	ck_assert_str_eq(again + strlen(lines[_i].line), "\n");
}
END_TEST

static const struct {
	const char *answer;
	bool is_valid; /* as an answer to "wanted" */
} answers[] = {
	{"{\"schema\":\"gpupool.wanted/1\",\"released_bytes\":5,\"held_bytes\":7}", true},
	{"{\"schema\":\"gpupool.wanted/1\",\"released_bytes\":5}", false},
	{"{\"schema\":\"gpupool.wanted/1\",\"released_bytes\":-5,\"held_bytes\":7}", false},
	{"{\"schema\":\"gpupool.wanted/1\",\"released_bytes\":5,\"held_bytes\":9223372036854775807}", false},
	{"{\"schema\":\"gpupool.wanted/1\",\"released_bytes\":\"5\",\"held_bytes\":7}", false},
	{"{\"schema\":\"gpupool.yield/1\",\"released_bytes\":5}", false},
	{"{\"schema\":\"gpupool.error/1\",\"reason\":\"permission\",\"error\":\"GPUPOOL_YIELD is off\"}", false},
	{"[[[[[[[[[[[[[[[[[[[[", false},
	{"", false},
};

START_TEST(an_answer_of_a_process_counts_only_if_it_is_valid)
{
	const struct stat_yield_request request = {.is_wanted = true};
	struct stat_yield_sums sums;

	ck_assert_int_eq(stat_yield_answer_parse(answers[_i].answer, strlen(answers[_i].answer), &request, &sums),
		answers[_i].is_valid);
	ck_assert_uint_eq(sums.released_bytes, answers[_i].is_valid ? 5 : 0);
	ck_assert_uint_eq(sums.held_bytes, answers[_i].is_valid ? 7 : 0);
}
END_TEST

/* A client's end of a connection. */
static int connect_as(uint64_t user, int64_t now_ns)
{
	int ends[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
	stat_yield_clients_add(&clients, ends[0], (uid_t)user, user, getpid(), now_ns);
	return ends[1];
}

static void say(int fd, const char *text)
{
	ck_assert_int_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* Lets the broker handle what has happened on its connections. Returns true if a client waits. */
static bool step(int64_t now_ns)
{
	struct pollfd fds[STAT_YIELD_CLIENTS];

	(void)stat_yield_clients_fill(&clients, fds, now_ns);
	ck_assert_int_ge(poll(fds, STAT_YIELD_CLIENTS, 0), 0);
	return stat_yield_clients_step(&clients, fds, now_ns);
}

static bool is_closed(int fd)
{
	char byte;

	/* A reset: the broker has not read all that the client has sent. */
	return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0 || errno == ECONNRESET;
}

/* Checks that the broker has sent a line with that part, and closed the connection. */
static void check_answer(int fd, const char *part)
{
	char text[GP_BROKER_ANSWER_MAX] = "";
	ssize_t n = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);

	ck_assert_int_gt(n, 0);
	ck_assert_msg(strstr(text, part) != NULL, "expected '%s' in: %s", part, text);
	ck_assert(text[n - 1] == '\n' && is_closed(fd));
	close(fd);
}

START_TEST(a_request_in_pieces_waits_for_its_turn_and_gets_the_answer)
{
	int fd = connect_as(ALICE, 0);
	struct stat_yield_client *client;

	ck_assert(!step(0));
	for (const char *at = YIELD; *at; at++) {
		ck_assert_int_eq(send(fd, at, 1, MSG_NOSIGNAL), 1);
		ck_assert(!step(0));
	}
	say(fd, "\n");
	ck_assert(step(0));
	client = stat_yield_clients_next(&clients, 0);
	ck_assert_ptr_nonnull(client);
	ck_assert_uint_eq(client->request.bytes, 1000);
	ck_assert_ptr_null(stat_yield_clients_next(&clients, 0));
	stat_yield_clients_answer(client, YIELDED);
	check_answer(fd, YIELDED);
}
END_TEST

static const char *const wrong[] = {"status\n", YIELD "\n" YIELD "\n", "\n", "yield \x01\n",
	"yield yield yield yield yield yield yield yield yield yield yield yield yield yield yield yield yield yield "
	"yield "
	"yield yield yield yield"};

START_TEST(a_wrong_request_gets_an_error_and_the_end_of_the_connection)
{
	int fd = connect_as(ALICE, 0);

	say(fd, wrong[_i]);
	ck_assert(!step(0));
	check_answer(fd, "\"reason\":\"usage\"");
}
END_TEST

START_TEST(a_request_with_a_zero_byte_is_wrong)
{
	int fd = connect_as(ALICE, 0);

	ck_assert_int_eq(send(fd, YIELD "\0\n", sizeof(YIELD) + 1, MSG_NOSIGNAL), sizeof(YIELD) + 1);
	ck_assert(!step(0));
	check_answer(fd, "\"reason\":\"usage\"");
}
END_TEST

START_TEST(a_silent_client_is_closed_after_a_second)
{
	int fd = connect_as(ALICE, 0);

	say(fd, "yield");
	ck_assert(!step(0));
	ck_assert(!step(STAT_YIELD_SEND_NS - 1));
	ck_assert(!is_closed(fd));
	ck_assert(!step(STAT_YIELD_SEND_NS));
	ck_assert(is_closed(fd));
	close(fd);
}
END_TEST

START_TEST(a_client_that_waits_too_long_gets_the_answer_busy)
{
	int fd = connect_as(ALICE, 0);

	say(fd, YIELD "\n");
	ck_assert(step(0));
	ck_assert(!step(STAT_YIELD_TURN_NS));
	check_answer(fd, "\"reason\":\"busy\"");
}
END_TEST

START_TEST(a_client_that_hangs_up_while_it_waits_gets_no_turn)
{
	int fd = connect_as(ALICE, 0);

	say(fd, YIELD "\n");
	ck_assert(step(0));
	close(fd);
	ck_assert(!step(0));
	ck_assert_ptr_null(stat_yield_clients_next(&clients, 0));
}
END_TEST

START_TEST(a_client_that_hangs_up_while_it_is_asked_for_harms_nothing)
{
	int fd = connect_as(ALICE, 0);
	struct stat_yield_client *client;

	say(fd, YIELD "\n");
	ck_assert(step(0));
	client = stat_yield_clients_next(&clients, 0);
	close(fd);
	ck_assert(!step(0));
	stat_yield_clients_answer(client, YIELDED);
	ck_assert_int_eq(client->state, YIELD_FREE);
}
END_TEST

START_TEST(a_user_with_too_many_connections_loses_its_own_oldest_one)
{
	int other = connect_as(BOB, 0), own[STAT_YIELD_CLIENTS_OF_USER + 1];

	for (int i = 0; i <= STAT_YIELD_CLIENTS_OF_USER; i++)
		own[i] = connect_as(ALICE, i + 1);
	ck_assert(is_closed(own[0]) && !is_closed(own[1]) && !is_closed(other));
	for (int i = 0; i <= STAT_YIELD_CLIENTS_OF_USER; i++)
		close(own[i]);
	close(other);
}
END_TEST

START_TEST(clients_that_wait_are_not_closed_for_a_new_one_of_their_user)
{
	int own[STAT_YIELD_CLIENTS_OF_USER], last;

	for (int i = 0; i < STAT_YIELD_CLIENTS_OF_USER; i++) {
		own[i] = connect_as(ALICE, 0);
		say(own[i], YIELD "\n");
	}
	ck_assert(step(0));
	last = connect_as(ALICE, 0);
	ck_assert(is_closed(last));
	for (int i = 0; i < STAT_YIELD_CLIENTS_OF_USER; i++) {
		ck_assert(!is_closed(own[i]));
		close(own[i]);
	}
	close(last);
}
END_TEST

START_TEST(a_new_user_gets_a_place_among_many_users_that_send_nothing)
{
	int fds[STAT_YIELD_CLIENTS], fd;

	for (int i = 0; i < STAT_YIELD_CLIENTS; i++)
		fds[i] = connect_as((uint64_t)(5000 + i), i);
	fd = connect_as(ALICE, STAT_YIELD_CLIENTS);
	say(fd, YIELD "\n");
	ck_assert(step(STAT_YIELD_CLIENTS));
	ck_assert(is_closed(fds[0]) && !is_closed(fds[1]));
	for (int i = 0; i < STAT_YIELD_CLIENTS; i++)
		close(fds[i]);
	close(fd);
}
END_TEST

/* Returns the user whose turn it is, and answers. */
static uint64_t take_turn(void)
{
	struct stat_yield_client *client = stat_yield_clients_next(&clients, 0);
	uint64_t user;

	ck_assert_ptr_nonnull(client);
	user = client->user;
	stat_yield_clients_answer(client, YIELDED);
	return user;
}

START_TEST(a_user_with_many_requests_and_users_with_one_take_turns)
{
	static const uint64_t users[] = {BOB, BOB, BOB, BOB, ALICE, CAROL};
	static const uint64_t turns[] = {ALICE, BOB, CAROL, BOB, BOB, BOB};
	int fds[6];

	for (int i = 0; i < 6; i++) {
		fds[i] = connect_as(users[i], i);
		say(fds[i], YIELD "\n");
	}
	ck_assert(step(6));
	for (int i = 0; i < 6; i++)
		ck_assert_uint_eq(take_turn(), turns[i]);
	for (int i = 0; i < 6; i++)
		close(fds[i]);
}
END_TEST

/* Adds a process of this user that listens, with a process id of its own. Returns that. */
static pid_t add_process(const char *answer)
{
	struct survey_peer *peer = &survey_peers[survey_n_peers];
	pid_t child;

	survey_add_peer(survey_root, geteuid(), answer, false);
	child = fork(); /* the kernel reports who has called listen() last */
	if (child == 0)
		_exit(listen(peer->listener, 8) != 0);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	return child;
}

static struct stat_yield_sums ask(bool is_wanted, pid_t except)
{
	const struct stat_yield_request request = {.is_wanted = is_wanted, .bytes = 1000};

	return stat_yield_ask(&asker, &request, except);
}

START_TEST(the_answer_is_the_sum_of_the_answers_of_all_processes)
{
	struct stat_yield_sums sums;

	add_process(WANTED);
	add_process(WANTED);
	add_process("{\"schema\":\"gpupool.error/1\",\"reason\":\"permission\",\"error\":\"GPUPOOL_YIELD is off\"}\n");
	sums = ask(true, 0);
	ck_assert_uint_eq(sums.released_bytes, 10);
	ck_assert_uint_eq(sums.held_bytes, 14);
	ck_assert_int_eq(survey_n_asked, 3);
}
END_TEST

START_TEST(the_process_that_asks_is_not_asked_itself)
{
	pid_t self = add_process(YIELDED);

	add_process(YIELDED);
	ck_assert_uint_eq(ask(false, self).released_bytes, 5);
	ck_assert_int_eq(survey_n_asked, 1);
}
END_TEST

START_TEST(a_process_that_has_started_since_the_last_request_is_asked)
{
	add_process(YIELDED);
	ck_assert_uint_eq(ask(false, 0).released_bytes, 5);
	add_process(YIELDED);
	ck_assert_uint_eq(ask(false, 0).released_bytes, 10);
}
END_TEST

START_TEST(a_silent_process_delays_one_request_only)
{
	int64_t begin_ns = survey_now_ns;

	add_process(NULL);
	add_process(YIELDED);
	ck_assert_uint_eq(ask(false, 0).released_bytes, 5);
	ck_assert_int_ge(survey_now_ns - begin_ns, STAT_YIELD_ANSWER_NS);
	begin_ns = survey_now_ns;
	ck_assert_uint_eq(ask(false, 0).released_bytes, 5);
	ck_assert_int_lt(survey_now_ns - begin_ns, STAT_YIELD_ANSWER_NS / 10);
	survey_now_ns += STAT_YIELD_SILENT_NS;
	begin_ns = survey_now_ns;
	ck_assert_uint_eq(ask(false, 0).released_bytes, 5);
	ck_assert_int_ge(survey_now_ns - begin_ns, STAT_YIELD_ANSWER_NS);
}
END_TEST

/* Fills the backlog of the only process, which accepts no connections. */
static void fill_backlog(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char pattern[128];
	glob_t found;
	int error = 0;

	snprintf(pattern, sizeof(pattern), "%s/*.sock", survey_root);
	ck_assert_int_eq(glob(pattern, 0, NULL, &found), 0);
	strcpy(address.sun_path, found.gl_pathv[0]);
	globfree(&found);
	while (!error) {
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		error = connect(fd, (struct sockaddr *)&address, sizeof(address)) ? errno : 0;
	}
	ck_assert_int_eq(error, EAGAIN);
}

START_TEST(a_process_that_accepts_no_connections_delays_one_request_only)
{
	int64_t begin_ns = survey_now_ns;

	add_process(NULL);
	survey_peers[0].client = dup(0); /* the fixture serves one client at a time, and this one stays */
	fill_backlog();
	add_process(YIELDED);
	ck_assert_uint_eq(ask(false, 0).released_bytes, 5);
	ck_assert_int_ge(survey_now_ns - begin_ns, STAT_YIELD_ANSWER_NS);
	begin_ns = survey_now_ns;
	ck_assert_uint_eq(ask(false, 0).released_bytes, 5);
	ck_assert_int_lt(survey_now_ns - begin_ns, STAT_YIELD_ANSWER_NS / 10);
}
END_TEST

START_TEST(a_user_with_8_silent_processes_is_not_asked_for_a_minute)
{
	for (int i = 0; i < STAT_YIELD_SILENT_OF_USER; i++)
		add_process(NULL);
	(void)ask(false, 0);
	add_process(YIELDED);
	survey_n_asked = 0;
	ck_assert_uint_eq(ask(false, 0).released_bytes, 0);
	ck_assert_int_eq(survey_n_asked, 0);
	survey_now_ns += STAT_YIELD_SILENT_NS;
	add_process(YIELDED); /* a peer of the fixture serves only one connection that ends without a request */
	ck_assert_uint_eq(ask(false, 0).released_bytes, 5);
}
END_TEST

START_TEST(a_stopped_process_is_not_waited_for)
{
	pid_t child = survey_add_stopped_peer(survey_root);
	int64_t begin_ns = survey_now_ns;

	add_process(YIELDED);
	ck_assert_uint_eq(ask(false, 0).released_bytes, 5);
	ck_assert_int_lt(survey_now_ns - begin_ns, STAT_YIELD_ANSWER_NS / 2);
	kill(child, SIGKILL);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
}
END_TEST

START_TEST(of_many_processes_of_a_user_32_are_asked)
{
	for (int i = 0; i < STAT_YIELD_ASKED_OF_USER + 8; i++)
		add_process(YIELDED);
	ck_assert_uint_eq(ask(false, 0).released_bytes, 5 * STAT_YIELD_ASKED_OF_USER);
}
END_TEST

START_TEST(more_users_than_can_be_asked_at_once_take_turns)
{
	struct stat_survey *survey = &asker.survey;

	survey->dirs = calloc(1, sizeof(*survey->dirs));
	ck_assert_ptr_nonnull(survey->dirs);
	survey->dirs[survey->n_dirs++] = (struct stat_dir){.path = "/nonexistent", .fd = -1};
	for (uid_t uid = 0; uid < STAT_YIELD_ASKED + 10; uid++) {
		const struct stat_process process = {.name = "1.1.sock", .pid = 1, .uid = uid, .client = {.fd = -1}};

		stat_dirs_add_process(survey, &process);
	}
	asker.searched_ns = survey_now_ns;
	asker.search_cost_ns = MINUTE; /* so these are not searched for again */
	(void)ask(false, 0);
	ck_assert_uint_eq(asker.first_uid, STAT_YIELD_ASKED);
	(void)ask(false, 0);
	ck_assert_uint_eq(asker.first_uid, STAT_YIELD_ASKED - 10);
}
END_TEST

/* The driver's folder, with a GPU whose node is that of /dev/null. */
static void make_gpus(char path[static 128], const char *uuid)
{
	char name[256];
	FILE *file;

	snprintf(path, 128, "%s/gpus", survey_root);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	snprintf(name, sizeof(name), "%s/0000:01:00.0", path);
	ck_assert_int_eq(mkdir(name, 0700), 0);
	strcat(name, "/information");
	file = fopen(name, "w");
	ck_assert_ptr_nonnull(file);
	fprintf(file, "Model: \t\t NVIDIA H100\nGPU UUID:   \t %s\nDevice Minor: \t 3\n", uuid);
	ck_assert_int_eq(fclose(file), 0);
}

static const struct {
	const char *uuid; /* in the driver's folder */
	const char *opened;
	unsigned major;
	bool has_device;
} nodes[] = {
	{SHOWN, "/dev/null", 1, true},
	{SHOWN, "/dev/zero", 1, false}, /* another GPU */
	{SHOWN, "/dev/null", 195, false},
	{SHOWN, "/", 1, false},
	{"GPU-of-another-number", "/dev/zero", 1, true}, /* a MIG instance: any GPU */
	{"GPU-of-another-number", "/dev/null", 195, false},
};

START_TEST(a_process_has_a_device_if_it_has_opened_the_node_of_the_device)
{
	struct stat_yield_request request;
	char path[128], line[] = YIELD;
	int ready[2], end[2];
	const char *why;
	pid_t child;
	char byte;

	make_gpus(path, nodes[_i].uuid);
	ck_assert(stat_yield_request_parse(line, &request));
	ck_assert_int_eq(pipe(ready), 0);
	ck_assert_int_eq(pipe(end), 0);
	child = fork();
	if (child == 0) {
		/* The test itself may have these nodes open. */
		for (int fd = 0; fd < 1024; fd++)
			if (fd != ready[1] && fd != end[0])
				close(fd);
		if (open(nodes[_i].opened, O_RDONLY) < 0 || write(ready[1], "r", 1) != 1)
			_exit(1);
		_exit(read(end[0], &byte, 1) != 0);
	}
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	why = stat_yield_peer_check(child, geteuid(), request.uuid, path, nodes[_i].major);
	close(end[1]);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	ck_assert_msg((why == NULL) == nodes[_i].has_device, "%s", why ? why : "has the device");
}
END_TEST

START_TEST(a_process_that_is_not_visible_or_shows_no_device_is_refused)
{
	const unsigned char uuid[STAT_YIELD_UUID] = {1};

	ck_assert_ptr_nonnull(strstr(stat_yield_peer_check(0, 0, uuid, "/nonexistent", 1), "PID namespace"));
	ck_assert_ptr_nonnull(strstr(stat_yield_peer_check(getpid(), geteuid(), uuid, "/nonexistent", 1), "page"));
}
END_TEST

static void set_up(void)
{
	survey_setup();
	survey_now_ns = MS;
}

static void tear_down(void)
{
	stat_yield_clients_close(&clients);
	stat_yield_asker_deinit(&asker);
	survey_teardown();
}

int main(void)
{
	Suite *suite = suite_create("yield");
	TCase *tc = tcase_create("yield");

	suite_add_tcase(suite, tc);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, a_process_may_keep_the_caches_of_others_empty_for_10_s_and_then_a_sixth_of_the_time);
	tcase_add_test(tc, a_process_that_asks_often_pays_for_the_time_and_not_for_each_request);
	tcase_add_test(tc, the_processes_of_a_user_share_20_s_a_minute_and_take_nothing_from_other_users);
	tcase_add_test(tc, requests_without_a_wait_cost_20_ms_each);
	tcase_add_test(tc, processes_beyond_those_remembered_use_the_share_of_their_user);
	ADD_ROWS(tc, lines, only_the_two_requests_are_understood_in_their_one_form);
	ADD_ROWS(tc, answers, an_answer_of_a_process_counts_only_if_it_is_valid);
	tcase_add_test(tc, a_request_in_pieces_waits_for_its_turn_and_gets_the_answer);
	ADD_ROWS(tc, wrong, a_wrong_request_gets_an_error_and_the_end_of_the_connection);
	tcase_add_test(tc, a_request_with_a_zero_byte_is_wrong);
	tcase_add_test(tc, a_silent_client_is_closed_after_a_second);
	tcase_add_test(tc, a_client_that_waits_too_long_gets_the_answer_busy);
	tcase_add_test(tc, a_client_that_hangs_up_while_it_waits_gets_no_turn);
	tcase_add_test(tc, a_client_that_hangs_up_while_it_is_asked_for_harms_nothing);
	tcase_add_test(tc, a_user_with_too_many_connections_loses_its_own_oldest_one);
	tcase_add_test(tc, clients_that_wait_are_not_closed_for_a_new_one_of_their_user);
	tcase_add_test(tc, a_new_user_gets_a_place_among_many_users_that_send_nothing);
	tcase_add_test(tc, a_user_with_many_requests_and_users_with_one_take_turns);
	tcase_add_test(tc, the_answer_is_the_sum_of_the_answers_of_all_processes);
	tcase_add_test(tc, the_process_that_asks_is_not_asked_itself);
	tcase_add_test(tc, a_process_that_has_started_since_the_last_request_is_asked);
	tcase_add_test(tc, a_silent_process_delays_one_request_only);
	tcase_add_test(tc, a_process_that_accepts_no_connections_delays_one_request_only);
	tcase_add_test(tc, a_user_with_8_silent_processes_is_not_asked_for_a_minute);
	tcase_add_test(tc, a_stopped_process_is_not_waited_for);
	tcase_add_test(tc, of_many_processes_of_a_user_32_are_asked);
	tcase_add_test(tc, more_users_than_can_be_asked_at_once_take_turns);
	ADD_ROWS(tc, nodes, a_process_has_a_device_if_it_has_opened_the_node_of_the_device);
	tcase_add_test(tc, a_process_that_is_not_visible_or_shows_no_device_is_refused);
	return suite_run(suite);
}
