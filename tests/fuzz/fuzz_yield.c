/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The broker of gpupool-stat export --yield with hostile clients and processes. The input is what the clients send,
 * mixed with operations: connections of a few users, hang-ups, time, and turns, for which the following bytes are the
 * answer of a process (enum op).
 */

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "tools/export/stat_yield_ask.h"
#include "tools/export/stat_yield_clients.h"
#include "tools/export/stat_yield_share.h"

enum op { OP_LITERAL, OP_CONNECT, OP_CHOOSE, OP_STEP, OP_HANG_UP, OP_TIME, OP_TURN, N_OPS };
enum { ENDS_MAX = 80, USERS = 5, PIDS = 7, SENT_MAX = 256 };

/* A client's end of a connection. */
struct end {
	int fd; /* -1: none */
	size_t n_sent;
	char sent[SENT_MAX];
};

static struct end ends[ENDS_MAX];
static unsigned n_ends, chosen;
static struct stat_yield_clients clients;
static struct stat_yield_shares shares;
static int64_t now_ns, paid_ns[USERS];

/* Receives what the broker has answered, at most one line of a known form, after which the connection ends. */
static void check_answer(struct end *end)
{
	char text[2 * GP_BROKER_ANSWER_MAX] = "";
	ssize_t n = recv(end->fd, text, sizeof(text) - 1, MSG_DONTWAIT);

	if (n <= 0)
		return;
	FUZZ_CHECK(text[n - 1] == '\n' && memchr(text, '\n', (size_t)n) == text + n - 1, "not one line: %s", text);
	FUZZ_CHECK(!strncmp(text, "{\"schema\":\"gpupool.", 19) && text[n - 2] == '}', "not an answer: %s", text);
	FUZZ_CHECK(recv(end->fd, text, 1, MSG_DONTWAIT) <= 0, "more than one answer");
}

static void hang_up(struct end *end)
{
	if (end->fd < 0)
		return;
	check_answer(end);
	close(end->fd);
	end->fd = -1;
}

static void connect_user(unsigned user)
{
	int fds[2];

	if (n_ends == ENDS_MAX)
		return;
	fuzz_require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0, "a socket");
	chosen = n_ends++;
	ends[chosen] = (struct end){.fd = fds[1]};
	stat_yield_clients_add(&clients, fds[0], (uid_t)user, user, (pid_t)chosen + 1, now_ns);
}

static void send_byte(uint8_t byte)
{
	struct end *end = &ends[chosen];

	if (!n_ends || end->fd < 0 || end->n_sent == SENT_MAX)
		return;
	if (send(end->fd, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1)
		end->sent[end->n_sent++] = (char)byte;
}

/* A client waits only for what it has sent, written in the one form. */
static void check_waiting(const struct stat_yield_client *client)
{
	const struct end *end = &ends[client->pid - 1];
	char line[STAT_YIELD_REQUEST_MAX];

	stat_yield_request_format(line, &client->request);
	FUZZ_CHECK(strlen(line) <= end->n_sent && !memcmp(line, end->sent, strlen(line)), "'%.*s' is taken for '%s'",
		(int)end->n_sent, end->sent, line);
}

static void check_clients(void)
{
	unsigned of_user[USERS] = {0};

	for (int i = 0; i < STAT_YIELD_CLIENTS; i++) {
		const struct stat_yield_client *client = &clients.all[i];

		if (client->state == YIELD_FREE)
			continue;
		of_user[client->user]++;
		if (client->state == YIELD_WAITS)
			check_waiting(client);
		FUZZ_CHECK(client->state != YIELD_SENDS || now_ns - client->since_ns < STAT_YIELD_SEND_NS,
			"a silent client stays");
	}
	for (unsigned i = 0; i < USERS; i++)
		FUZZ_CHECK(of_user[i] <= STAT_YIELD_CLIENTS_OF_USER, "user %u has %u connections", i, of_user[i]);
}

static void step(void)
{
	struct pollfd fds[STAT_YIELD_CLIENTS];

	(void)stat_yield_clients_fill(&clients, fds, now_ns);
	(void)poll(fds, STAT_YIELD_CLIENTS, 0);
	(void)stat_yield_clients_step(&clients, fds, now_ns);
	check_clients();
}

/* The longest time that a user may have paid for so far. */
static void check_paid(unsigned user)
{
	FUZZ_CHECK(paid_ns[user] <= STAT_YIELD_USER_NS + now_ns / 3 + 1, "a user pays for more than it has");
}

/* Answers the client whose turn it is by the answer of a process, which ends with the next operation. */
static void take_turn(struct fuzz_input *in)
{
	struct stat_yield_client *client = stat_yield_clients_next(&clients, now_ns);
	char text[GP_BROKER_ANSWER_MAX] = "", answer[GP_BROKER_ANSWER_MAX];
	struct stat_yield_sums sums;
	size_t length = 0;

	if (!client)
		return;
	while (!fuzz_is_over(in) && *in->at != 0xfe && length < sizeof(text) - 1)
		text[length++] = (char)fuzz_byte(in);
	if (!stat_yield_shares_pay(&shares, client->user, client->pid % PIDS + 1, client->request.is_wanted, now_ns)) {
		stat_yield_error_format(answer, GP_BROKER_BUSY, "too much");
	} else {
		paid_ns[client->user] += client->request.is_wanted ? 0 : STAT_YIELD_COST_NS;
		check_paid((unsigned)client->user);
		if (!stat_yield_answer_parse(text, length, &client->request, &sums))
			FUZZ_CHECK(!sums.released_bytes && !sums.held_bytes, "an invalid answer counts");
		FUZZ_CHECK(sums.released_bytes <= INT64_MAX / STAT_YIELD_ASKED / 32, "the sum of all may wrap");
		FUZZ_CHECK(sums.held_bytes <= INT64_MAX / STAT_YIELD_ASKED / 32, "the sum of all may wrap");
		stat_yield_answer_format(answer, &client->request, sums);
	}
	stat_yield_clients_answer(client, answer);
}

static void run(struct fuzz_input *in, uint8_t op)
{
	switch (op % N_OPS) {
	case OP_CONNECT:
		connect_user(fuzz_byte(in) % USERS);
		break;
	case OP_CHOOSE:
		chosen = n_ends ? fuzz_byte(in) % n_ends : 0;
		break;
	case OP_HANG_UP:
		if (n_ends)
			hang_up(&ends[chosen]);
		break;
	case OP_TIME:
		now_ns += (int64_t)fuzz_u16(in) * 1000000;
		step();
		break;
	case OP_TURN:
		take_turn(in);
		break;
	default:
		step();
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, data + size};
	uint8_t byte;

	now_ns = 1;
	n_ends = chosen = 0;
	memset(paid_ns, 0, sizeof(paid_ns));
	memset(&clients, 0, sizeof(clients));
	memset(&shares, 0, sizeof(shares));
	connect_user(0);
	while (!fuzz_is_over(&in)) {
		if (fuzz_op(&in, &byte))
			run(&in, byte);
		else
			send_byte(byte);
	}
	step();
	for (unsigned i = 0; i < n_ends; i++)
		hang_up(&ends[i]);
	step();
	for (int i = 0; i < STAT_YIELD_CLIENTS; i++)
		FUZZ_CHECK(clients.all[i].state == YIELD_FREE, "a client stays after it has hung up");
	stat_yield_clients_close(&clients);
	return 0;
}
