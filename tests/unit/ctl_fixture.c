/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "ctl_fixture.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim/ctl/ctl_server.h"

enum { TIMEOUT_MS = 20000 }; /* an answer that never comes fails the test */

char fixture_root[64];

static int answer_status(int argc, char **argv, struct gp_json *out)
{
	char name[16] = "";
	sigset_t blocked;
	int n = 0;

	prctl(PR_GET_NAME, name);
	sigprocmask(SIG_SETMASK, NULL, &blocked);
	for (int i = 1; i < 32; i++)
		n += sigismember(&blocked, i);
	gp_ctl_answer_begin(out, GP_CTL_status);
	gp_json_string(out, "thread", name);
	gp_json_i64(out, "blocked_signals", n);
	gp_json_object_end(out);
	return 0;
}

/* Answers with as many rows of 100 bytes as the request asks for. */
static int answer_blocks(int argc, char **argv, struct gp_json *out)
{
	int max = argc > 1 ? atoi(argv[1]) : 1;
	char row[98];

	memset(row, '.', sizeof(row) - 1);
	row[sizeof(row) - 1] = '\0';
	gp_ctl_answer_begin(out, GP_CTL_blocks);
	gp_json_array_begin(out, "blocks");
	for (int i = 0; i < max; i++)
		gp_json_string(out, NULL, row);
	gp_json_array_end(out);
	gp_json_object_end(out);
	return 0;
}

static int answer_reclaim(int argc, char **argv, struct gp_json *out)
{
	gp_ctl_answer_begin(out, GP_CTL_reclaim);
	gp_json_array_begin(out, "words");
	for (int i = 1; i < argc; i++)
		gp_json_string(out, NULL, argv[i]);
	gp_json_array_end(out);
	gp_json_object_end(out);
	return 0;
}

static int fail_silently(int argc, char **argv, struct gp_json *out)
{
	return -ENODEV;
}

static const gp_ctl_handler_fn handlers[GP_CTL_N_COMMANDS] = {
	[GP_CTL_status] = answer_status,
	[GP_CTL_blocks] = answer_blocks,
	[GP_CTL_reclaim] = answer_reclaim,
	[GP_CTL_config] = fail_silently,
};

void fixture_setup(void)
{
	strcpy(fixture_root, "/tmp/gpupool-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(fixture_root));
}

void fixture_teardown(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf '%s'", fixture_root);
	ck_assert_int_eq(system(command), 0);
}

int fixture_start_at(const struct gp_ctl_dirs *dirs, int idle_ms)
{
	struct gp_ctl_options options = {.dirs = *dirs, .handlers = handlers, .idle_ms = idle_ms};

	return gp_ctl_start(&options);
}

int fixture_start(int idle_ms)
{
	return fixture_start_at(&(struct gp_ctl_dirs){.runtime_dir = fixture_root, .uid = geteuid()}, idle_ms);
}

int fixture_start_without_file(void)
{
	return fixture_start_at(&(struct gp_ctl_dirs){.tmp_dir = "/nowhere", .uid = geteuid()}, 0);
}

int fixture_try_connect(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	socklen_t length = sizeof(address);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_uint_lt(strlen(path), sizeof(address.sun_path));
	strcpy(address.sun_path, path);
	if (*path == '@')
		ck_assert_int_eq(gp_ctl_address(GP_CTL_NO_DIR, path + 1, &address, &length), 0);
	if (connect(fd, (struct sockaddr *)&address, length) == 0)
		return fd;
	ck_assert(errno == ECONNREFUSED || errno == ENOENT);
	close(fd);
	return -1;
}

int fixture_connect(void)
{
	int fd = fixture_try_connect(gp_ctl_path());

	ck_assert_int_ge(fd, 0);
	return fd;
}

void fixture_send(int fd, const char *bytes, size_t length)
{
	ck_assert_int_eq(send(fd, bytes, length, MSG_NOSIGNAL), (ssize_t)length);
}

bool fixture_try_send(int fd, const char *text)
{
	return send(fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text);
}

/*
 * Returns the bytes that have arrived, without consuming them; 0 at the end of the stream or after a reset.
 */
static size_t peek(int fd, char *bytes, size_t size)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	ssize_t n;

	ck_assert_int_eq(poll(&ready, 1, TIMEOUT_MS), 1);
	n = recv(fd, bytes, size, MSG_PEEK);
	ck_assert(n >= 0 || errno == ECONNRESET);
	return n > 0 ? (size_t)n : 0;
}

const char *fixture_read_line(int fd)
{
	static char *line;
	size_t length = 0, seen;
	char *end = NULL;

	free(line);
	line = malloc(GP_CTL_ANSWER_MAX + 1);
	ck_assert_ptr_nonnull(line);
	while (!end && (seen = peek(fd, line + length, GP_CTL_ANSWER_MAX - length)) > 0) {
		end = memchr(line + length, '\n', seen);
		if (end)
			seen = (size_t)(end - line) - length + 1;
		ck_assert_int_eq(recv(fd, line + length, seen, 0), (ssize_t)seen);
		length += seen;
	}
	line[end ? length - 1 : 0] = '\0';
	return line;
}

const char *fixture_ask(int fd, const char *request)
{
	fixture_send(fd, request, strlen(request));
	fixture_send(fd, "\n", 1);
	return fixture_read_line(fd);
}

bool fixture_is_closed(int fd)
{
	char byte;

	return peek(fd, &byte, 1) == 0;
}

/* Uses statx, because a race detector takes fstat() for a use of the file. */
bool fixture_is_socket(int fd)
{
	struct statx st;

	return statx(fd, "", AT_EMPTY_PATH, STATX_TYPE, &st) == 0 && S_ISSOCK(st.stx_mode);
}

int fixture_count_sockets(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fixture_is_socket(fd);
	return n;
}

void fixture_wait_for_sockets(int n)
{
	while (fixture_count_sockets() != n)
		sched_yield();
}

const char fixture_version[] = "{\"schema\":\"gpupool.version/1\",\"version\":\"" GPUPOOL_VERSION "\"}";

void fixture_assert_serves(void)
{
	int fd = fixture_connect();

	ck_assert_str_eq(fixture_ask(fd, "version"), fixture_version);
	close(fd);
}

int fixture_ask_without_reading(const char *path)
{
	int fd = fixture_try_connect(path);
	char bytes[100];

	ck_assert_int_ge(fd, 0);
	fixture_send(fd, "blocks 40000\n", 13);
	ck_assert_int_eq(recv(fd, bytes, sizeof(bytes), MSG_WAITALL), sizeof(bytes));
	return fd;
}
