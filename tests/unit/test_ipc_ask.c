/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Asks another process for one of its blocks. The other process may send any answer, or none. */

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/ctl_proto.h"
#include "shim/ipc/ipc_ask.h"
#include "tests/suite.h"

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))
#define HEX16         "00112233445566778899aabbccddeeff"
#define HEX           HEX16 HEX16 HEX16 HEX16
#define ANSWER(hex, offset, bytes) \
	"{\"schema\":\"gpupool.ipc/1\",\"handle\":\"" hex "\",\"offset\":" offset ",\"bytes\":" bytes "}"

enum { PID = 4242, START = 99 };

static char dir[] = "/tmp/gpupool-test-XXXXXX";
static pid_t peer;

static const struct {
	const char *text;
	int result;
} answers[] = {
	{ANSWER(HEX, "512", "1000"), 0},
	{ANSWER(HEX, "0", "18446744073709551615"), 0},
	{"{\"schema\":\"gpupool.error/1\",\"reason\":\"unknown\",\"error\":\"x\"}", -ENOENT},
	{"{\"schema\":\"gpupool.error/1\",\"reason\":\"usage\",\"error\":\"x\"}", -EPROTO},
	{ANSWER(HEX, "512", "0"), -EPROTO},
	{ANSWER(HEX, "1", "18446744073709551615"), -EPROTO},
	{ANSWER(HEX, "512", "1000") "x", -EPROTO},
	{ANSWER(HEX, "512", "1000") " ", -EPROTO},
	{ANSWER(HEX, "-1", ""), -EPROTO},
	{ANSWER(HEX, "-5", "3"), -EPROTO},
	{ANSWER(HEX, "512", "+3"), -EPROTO},
	{ANSWER(HEX, " 512", "1000"), -EPROTO},
	{ANSWER(HEX, "0512", "1000"), -EPROTO},
	{ANSWER(HEX, "0", "18446744073709551616"), -EPROTO},
	{ANSWER(HEX, "", ""), -EPROTO},
	{ANSWER(HEX "00", "512", "1000"), -EPROTO},
	{ANSWER(HEX16, "512", "1000"), -EPROTO},
	{ANSWER(HEX16 HEX16 HEX16 "00112233445566778899aabbccddeefg", "512", "1000"), -EPROTO},
	{"{\"schema\":\"gpupool.ipc/2\"}", -EPROTO},
	{"{\"schema\":\"gpupool.ipc/1\",\"handle\":\"", -EPROTO},
	{"", -EPROTO},
};

START_TEST(only_a_well_formed_ipc_answer_is_accepted)
{
	struct gp_ipc_reply reply;

	ck_assert_int_eq(gp_ipc_parse(answers[_i].text, &reply), answers[_i].result);
	if (!answers[_i].result)
		ck_assert_int_eq((unsigned char)reply.segment.reserved[63], 0xff);
}
END_TEST

static void setup(void)
{
	strcpy(dir + strlen(dir) - 6, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	setenv("GPUPOOL_RUNTIME_DIR", dir, 1);
	unsetenv("XDG_RUNTIME_DIR");
	setenv("TMPDIR", dir, 1);
	peer = 0;
}

static void teardown(void)
{
	char command[64];

	if (peer) {
		kill(peer, SIGKILL);
		waitpid(peer, NULL, 0);
	}
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	ck_assert_int_eq(system(command), 0);
}

/*
 * Starts a process at the socket of PID and START that answers each client with the text. hangs_up: it then
 * closes the connection.
 */
static void listen_and_answer(const char *text, size_t length, bool hangs_up)
{
	int dir_fd = gp_ctl_dir_open(dir, geteuid(), false), fd = socket(AF_UNIX, SOCK_STREAM, 0);
	struct sockaddr_un address;
	char name[GP_CTL_NAME_MAX];
	socklen_t size;

	gp_ctl_name_format(name, PID, START);
	ck_assert_int_eq(gp_ctl_address(dir_fd, name, &address, &size), 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, size), 0);
	ck_assert_int_eq(listen(fd, 8), 0);
	peer = fork();
	while (peer == 0) {
		int client = accept(fd, NULL, NULL);
		char request[64];

		if (read(client, request, sizeof(request)) < 0 || write(client, text, length) < 0)
			_exit(1);
		if (hangs_up)
			close(client);
	}
	close(fd);
	close(dir_fd);
}

START_TEST(a_process_answers_with_the_offset_and_size_of_its_block)
{
	static const char line[] = ANSWER(HEX, "512", "1000") "\n";
	struct gp_ipc_reply reply;

	listen_and_answer(line, sizeof(line) - 1, true);
	ck_assert_int_eq(gp_ipc_ask(PID, START, 1, 2, &reply), 0);
	ck_assert_uint_eq(reply.offset, 512);
	ck_assert_uint_eq(reply.bytes, 1000);
}
END_TEST

START_TEST(a_process_that_has_ended_is_not_waited_for)
{
	struct gp_ipc_reply reply;

	ck_assert_int_eq(gp_ipc_ask(PID, START, 1, 2, &reply), -ENOENT);
	listen_and_answer("", 0, true);
	kill(peer, SIGKILL);
	waitpid(peer, NULL, 0);
	peer = 0;
	ck_assert_int_eq(gp_ipc_ask(PID, START, 1, 2, &reply), -ENOENT);
	ck_assert_int_eq(gp_ipc_ask(PID, START + 1, 1, 2, &reply), -ENOENT);
}
END_TEST

START_TEST(half_an_ipc_answer_is_refused)
{
	struct gp_ipc_reply reply;

	listen_and_answer("{\"schema\"", 9, true);
	ck_assert_int_eq(gp_ipc_ask(PID, START, 1, 2, &reply), -ENOENT);
}
END_TEST

START_TEST(an_endless_ipc_answer_is_refused)
{
	static char text[4096];
	struct gp_ipc_reply reply;

	memset(text, 'x', sizeof(text));
	listen_and_answer(text, sizeof(text), false);
	ck_assert_int_eq(gp_ipc_ask(PID, START, 1, 2, &reply), -EPROTO);
}
END_TEST

/* The clock of this process, which is ahead of the machine's. */
static uint64_t ahead_ms;

int clock_gettime(clockid_t clock, struct timespec *time)
{
	long r = syscall(SYS_clock_gettime, clock, time);

	time->tv_sec += (time_t)(ahead_ms / 1000);
	time->tv_nsec += (long)(ahead_ms % 1000) * 1000000;
	if (time->tv_nsec >= 1000000000) {
		time->tv_nsec -= 1000000000;
		time->tv_sec++;
	}
	return (int)r;
}

enum { CHUNKS = 600, CHUNK_BYTES = 4096 };

static void send_chunk(int client)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.align = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
	char line[160];
	struct iovec part = {
		line, (size_t)snprintf(line, sizeof(line),
			      "{\"schema\":\"gpupool.chunk/1\",\"bytes\":%d,\"span_bytes\":%d,\"offset\":0,"
			      "\"block_bytes\":%d}\n",
			      CHUNK_BYTES, CHUNKS * CHUNK_BYTES, CHUNKS * CHUNK_BYTES)};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control.bytes)};

	memcpy(CMSG_DATA(&control.align), &client, sizeof(client));
	if (sendmsg(client, &message, MSG_NOSIGNAL) < 0)
		_exit(1);
}

/* Answers each request with a chunk. Any descriptor will do. */
static void pass_all(int fd)
{
	char request[160];
	int client = accept(fd, NULL, NULL);

	while (read(client, request, sizeof(request)) > 0)
		send_chunk(client);
}

/* Serves one request of every second client, and hangs up on the others at once. */
static void pass_and_hang_up(int fd)
{
	char request[160];

	for (unsigned n = 0;; n++) {
		int client = accept(fd, NULL, NULL);

		if (n % 2 && read(client, request, sizeof(request)) > 0)
			send_chunk(client);
		close(client);
	}
}

static void hang_up_always(int fd)
{
	for (;;)
		close(accept(fd, NULL, NULL));
}

static void listen_and(void (*serve)(int fd))
{
	int dir_fd = gp_ctl_dir_open(dir, geteuid(), false), fd = socket(AF_UNIX, SOCK_STREAM, 0);
	struct sockaddr_un address;
	char name[GP_CTL_NAME_MAX];
	socklen_t size;

	gp_ctl_name_format(name, PID, START);
	ck_assert_int_eq(gp_ctl_address(dir_fd, name, &address, &size), 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, size), 0);
	ck_assert_int_eq(listen(fd, 8), 0);
	peer = fork();
	if (peer == 0) {
		serve(fd);
		_exit(0);
	}
	close(fd);
	close(dir_fd);
}

/* A driver needs some milliseconds to map a chunk. */
static int map_slowly(void *arg, const struct gp_ipc_chunk *chunk)
{
	unsigned *n = arg;

	ahead_ms += 12;
	return ++*n == 0;
}

START_TEST(a_block_of_many_chunks_is_opened_however_long_it_takes_to_map_them)
{
	static const uint64_t words[3] = {1, 2, 3};
	unsigned n = 0;

	listen_and(pass_all);
	ck_assert_int_eq(gp_ipc_ask_chunks(PID, START, words, map_slowly, &n), 0);
	ck_assert_uint_eq(n, CHUNKS);
}
END_TEST

static int map_a_few(void *arg, const struct gp_ipc_chunk *chunk)
{
	unsigned *n = arg;

	ck_assert_uint_eq(chunk->at, *n * CHUNK_BYTES);
	return ++*n == 10;
}

START_TEST(a_process_that_hangs_up_before_an_answer_is_asked_again_for_the_same_chunk)
{
	static const uint64_t words[3] = {1, 2, 3};
	unsigned n = 0;

	listen_and(pass_and_hang_up);
	ck_assert_int_eq(gp_ipc_ask_chunks(PID, START, words, map_a_few, &n), 1);
	ck_assert_uint_eq(n, 10);
}
END_TEST

START_TEST(a_process_that_always_hangs_up_is_given_up)
{
	static const uint64_t words[3] = {1, 2, 3};
	struct gp_ipc_reply reply;
	unsigned n = 0;

	listen_and(hang_up_always);
	ck_assert_int_eq(gp_ipc_ask_chunks(PID, START, words, map_a_few, &n), -ENOENT);
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(gp_ipc_ask(PID, START, 1, 2, &reply), -ENOENT);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ipc_ask");
	TCase *tc = tcase_create("ipc_ask");

	suite_add_tcase(suite, tc);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, only_a_well_formed_ipc_answer_is_accepted, 0, (int)LENGTH(answers));
	tcase_add_test(tc, a_process_answers_with_the_offset_and_size_of_its_block);
	tcase_add_test(tc, a_process_that_has_ended_is_not_waited_for);
	tcase_add_test(tc, half_an_ipc_answer_is_refused);
	tcase_add_test(tc, an_endless_ipc_answer_is_refused);
	tcase_add_test(tc, a_block_of_many_chunks_is_opened_however_long_it_takes_to_map_them);
	tcase_add_test(tc, a_process_that_hangs_up_before_an_answer_is_asked_again_for_the_same_chunk);
	tcase_add_test(tc, a_process_that_always_hangs_up_is_given_up);
	return suite_run(suite);
}
