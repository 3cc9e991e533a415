/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The exporter's HTTP server among slow and hostile clients, with a simulated clock. */

#include <arpa/inet.h>
#include <check.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/suite.h"
#include "tools/export/stat_clients.h"
#include "tools/export/stat_http.h"

#define LENGTH(a)     ((int)(sizeof(a) / sizeof(*(a))))
#define TIME_NS       UINT64_C(30000000000)
#define PAGE_MAX      (64 << 20)
#define LINE_MAX_SIZE 256

static _Atomic uint64_t now_ns;
static size_t page_bytes; /* size of the page */
static sem_t made;        /* posted when the page is being made */
static sem_t may_go;      /* posted by the test to let the page be finished */
static bool is_held;
static struct stat_http *http;
static struct sockaddr_in server;

static uint64_t read_clock(void)
{
	return atomic_load(&now_ns);
}

static struct stat_page make(void *arg, const char *accepted)
{
	struct stat_page page = {malloc(page_bytes), page_bytes, "text/plain"};

	if (page.text)
		memset(page.text, 'x', page_bytes);
	if (is_held) {
		sem_post(&made);
		sem_wait(&may_go);
	}
	return page;
}

static void start(const char *address)
{
	struct stat_http_settings settings = {
		.path = "/metrics", .index = "hello\n", .make = make, .time_ns = TIME_NS, .now_ns = read_clock};
	socklen_t length = sizeof(server);

	settings.fd = socket(AF_INET, SOCK_STREAM, 0);
	server = (struct sockaddr_in){.sin_family = AF_INET};
	ck_assert_int_eq(inet_pton(AF_INET, address, &server.sin_addr), 1);
	ck_assert_int_eq(bind(settings.fd, (struct sockaddr *)&server, sizeof(server)), 0);
	ck_assert_int_eq(listen(settings.fd, 128), 0);
	ck_assert_int_eq(getsockname(settings.fd, (struct sockaddr *)&server, &length), 0);
	http = stat_http_start(&settings);
	ck_assert_ptr_nonnull(http);
	ck_assert_int_eq(inet_pton(AF_INET, "127.0.0.1", &server.sin_addr), 1);
}

static void setup(void)
{
	page_bytes = 5;
	is_held = false;
	atomic_store(&now_ns, 1000);
	sem_init(&made, 0, 0);
	sem_init(&may_go, 0, 0);
	start("127.0.0.1");
}

static void teardown(void)
{
	stat_http_stop(http);
}

/* Connects from 127.0.0.LAST and sends the text. */
static int connect_from(unsigned last, const char *text)
{
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000000 | last)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&own, sizeof(own)), 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&server, sizeof(server)), 0);
	ck_assert_int_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
	return fd;
}

static int connect_and_send(const char *text)
{
	return connect_from(1, text);
}

/* Reads the next line without its end; false if the connection ends instead. */
static bool read_line(int fd, char line[static LINE_MAX_SIZE])
{
	size_t n = 0;
	char byte;

	while (recv(fd, &byte, 1, 0) == 1) {
		if (byte == '\n') {
			line[n] = '\0';
			return true;
		}
		if (byte != '\r' && n < LINE_MAX_SIZE - 1)
			line[n++] = byte;
	}
	return false;
}

/* Returns the status of the next answer, or 0 if the connection ends without one. */
static int read_status(int fd)
{
	char line[LINE_MAX_SIZE];
	int status = 0;

	if (read_line(fd, line))
		(void)sscanf(line, "HTTP/1.1 %d", &status);
	return status;
}

/* Reads the page after the status, to its end. */
static void read_page(int fd)
{
	char line[LINE_MAX_SIZE];

	do
		ck_assert(read_line(fd, line));
	while (*line);
	ck_assert_int_eq(recv(fd, line, page_bytes, MSG_WAITALL), (ssize_t)page_bytes);
}

/* Returns the number of bytes that come before the connection ends, and checks that it ends. */
static size_t read_all(int fd)
{
	static char buffer[1 << 16];
	size_t sum = 0;
	ssize_t n;

	while ((n = recv(fd, buffer, sizeof(buffer), 0)) > 0)
		sum += (size_t)n;
	close(fd);
	return sum;
}

static int ask(const char *text)
{
	int fd = connect_and_send(text), status = read_status(fd);

	close(fd);
	return status;
}

#define GET "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

/* Connections are accepted in their order, so the answer to this one shows that earlier ones are accepted. */
static void wait_for_earlier_clients(void)
{
	int fd = connect_from(9, GET);

	ck_assert_int_eq(read_status(fd), 200);
	close(fd);
}

static void advance_clock(uint64_t ns)
{
	atomic_fetch_add(&now_ns, ns);
	stat_http_tick(http);
}

static const char *const starts[] = {
	"", "G", "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ", "HEAD / HTTP/1.1\r\nHost: 127.0.0.1\r\n"};

START_TEST(a_client_that_sends_no_request_in_time_is_disconnected)
{
	int fd = connect_and_send(starts[_i]);

	wait_for_earlier_clients();
	advance_clock(TIME_NS);
	ck_assert_uint_eq(read_all(fd), 0);
	ck_assert_int_eq(ask(GET), 200);
}
END_TEST

START_TEST(a_client_that_asks_in_time_is_served_and_its_time_starts_again)
{
	int fd = connect_and_send("GET /metr");

	wait_for_earlier_clients();
	for (int i = 0; i < 3; i++) {
		advance_clock(TIME_NS - 1);
		ck_assert_int_eq(send(fd, GET + 9, strlen(GET) - 9, MSG_NOSIGNAL), (ssize_t)strlen(GET) - 9);
		ck_assert_int_eq(read_status(fd), 200);
		read_page(fd);
		/* The server is done with a request when it has answered the next one. */
		ck_assert_int_eq(send(fd, GET GET, strlen(GET) + 9, MSG_NOSIGNAL), (ssize_t)strlen(GET) + 9);
		ck_assert_int_eq(read_status(fd), 200);
		read_page(fd);
	}
	close(fd);
}
END_TEST

START_TEST(a_client_that_asks_nothing_more_after_an_answer_is_disconnected)
{
	int fd = connect_and_send(GET);

	ck_assert_int_eq(read_status(fd), 200);
	read_page(fd);
	wait_for_earlier_clients();
	advance_clock(TIME_NS);
	ck_assert_uint_eq(read_all(fd), 0);
}
END_TEST

START_TEST(a_client_whose_answer_is_being_made_is_not_disconnected)
{
	int fd;

	is_held = true;
	fd = connect_and_send(GET);
	sem_wait(&made);
	advance_clock(10 * TIME_NS);
	sem_post(&may_go);
	ck_assert_int_eq(read_status(fd), 200);
	close(fd);
}
END_TEST

START_TEST(a_client_that_does_not_read_its_answer_in_time_is_disconnected)
{
	size_t n;
	int fd;

	page_bytes = PAGE_MAX;
	fd = connect_and_send(GET);
	ck_assert_int_eq(read_status(fd), 200);
	advance_clock(TIME_NS - 1);
	advance_clock(1);
	n = read_all(fd);
	ck_assert_msg(n < PAGE_MAX, "expected the connection to end before all %zu bytes were read", n);
	page_bytes = 5;
	ck_assert_int_eq(ask(GET), 200);
}
END_TEST

/* Sends half a request from each of n connections. */
static void fill(int *fds, unsigned n, unsigned last)
{
	for (unsigned i = 0; i < n; i++)
		fds[i] = connect_from(last, "GET /metr");
}

static bool is_open(int fd)
{
	return send(fd, GET + 9, strlen(GET) - 9, MSG_NOSIGNAL) > 0 && read_status(fd) == 200;
}

START_TEST(the_earliest_client_makes_room_if_all_connection_slots_are_taken)
{
	int fds[STAT_CLIENTS_MAX];

	fill(fds, STAT_CLIENTS_OF_ONE_MAX, 2);
	fill(fds + STAT_CLIENTS_OF_ONE_MAX, STAT_CLIENTS_MAX - STAT_CLIENTS_OF_ONE_MAX, 3);
	ck_assert_int_eq(ask(GET), 200);
	ck_assert_uint_eq(read_all(fds[0]), 0);
	for (int i = 1; i < STAT_CLIENTS_MAX; i++) {
		ck_assert_msg(is_open(fds[i]), "expected client %d to be connected", i);
		close(fds[i]);
	}
}
END_TEST

START_TEST(the_earliest_client_of_an_address_with_too_many_connections_makes_room)
{
	int first = connect_from(3, "GET /metr"), fds[STAT_CLIENTS_OF_ONE_MAX];

	fill(fds, STAT_CLIENTS_OF_ONE_MAX, 1);
	ck_assert_int_eq(ask(GET), 200);
	ck_assert_uint_eq(read_all(fds[0]), 0);
	ck_assert(is_open(first));
	close(first);
	for (int i = 1; i < STAT_CLIENTS_OF_ONE_MAX; i++) {
		ck_assert_msg(is_open(fds[i]), "expected client %d to be connected", i);
		close(fds[i]);
	}
}
END_TEST

START_TEST(a_new_client_is_refused_if_all_others_wait_for_answers)
{
	int fds[STAT_CLIENTS_OF_ONE_MAX];

	is_held = true;
	for (int i = 0; i < STAT_CLIENTS_OF_ONE_MAX; i++) {
		fds[i] = connect_and_send(GET);
		sem_wait(&made);
	}
	ck_assert_int_eq(ask(""), 0);
	for (int i = 0; i < STAT_CLIENTS_OF_ONE_MAX; i++)
		sem_post(&may_go);
	for (int i = 0; i < STAT_CLIENTS_OF_ONE_MAX; i++) {
		ck_assert_int_eq(read_status(fds[i]), 200);
		close(fds[i]);
	}
	is_held = false;
	ck_assert_int_eq(ask(GET), 200);
}
END_TEST

#define HEAD "/metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n"

/* The announced bodies never come. */
static const struct {
	const char *request;
	int status;
} requests[] = {
	{"GET " HEAD "Content-Length: 100000000\r\n\r\n", 400},
	{"GET " HEAD "Content-Length: 1\r\n\r\n", 400},
	{"HEAD " HEAD "Content-Length: 1\r\n\r\n", 400},
	{"GET " HEAD "Transfer-Encoding: chunked\r\n\r\n", 400},
	{"POST " HEAD "Content-Length: 100000000\r\n\r\n", 405},
	{"PUT " HEAD "Transfer-Encoding: chunked\r\n\r\n", 405},
	{"GET " HEAD "Content-Length: 0\r\n\r\n", 200},
	{"POST " HEAD "Content-Length: 0\r\n\r\n", 405},
	{"DELETE " HEAD "\r\n", 405},
	{"GET / HTTP/1.0\r\n\r\n", 200},
	{"GET /other HTTP/1.0\r\n\r\n", 404},
};

START_TEST(a_request_with_a_body_is_refused_before_the_body)
{
	ck_assert_int_eq(ask(requests[_i].request), requests[_i].status);
}
END_TEST

static const struct {
	const char *host;
	bool is_local;
} hosts[] = {
	{"127.0.0.1", true},
	{"127.0.0.1:9791", true},
	{"10.1.2.3:80", true},
	{"[::1]", true},
	{"[::1]:9791", true},
	{"localhost", true},
	{"LocalHost:9791", true},
	{"", false},
	{":9791", false},
	{"attacker.example", false},
	{"attacker.example:9791", false},
	{"localhost.attacker.example", false},
	{"127.0.0.1.attacker.example", false},
	{"[", false},
	{"[]", false},
	{"[attacker.example]", false},
	{"a-name-that-is-longer-than-any-address-can-be.and-then-some-more-of-it.example", false},
};

static int ask_host(const char *host)
{
	char request[LINE_MAX_SIZE];

	snprintf(request, sizeof(request), "GET /metrics HTTP/1.1\r\nHost: %s\r\n\r\n", host);
	return ask(request);
}

START_TEST(on_a_loopback_address_the_host_header_must_be_an_address_or_localhost)
{
	ck_assert_int_eq(ask_host(hosts[_i].host), hosts[_i].is_local ? 200 : 421);
}
END_TEST

START_TEST(on_another_address_the_host_header_may_be_any_name)
{
	stat_http_stop(http);
	start("0.0.0.0");
	ck_assert_int_eq(ask_host(hosts[_i].host), 200);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("http");
	TCase *tc = tcase_create("http");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, a_client_that_sends_no_request_in_time_is_disconnected, 0, LENGTH(starts));
	tcase_add_test(tc, a_client_that_asks_in_time_is_served_and_its_time_starts_again);
	tcase_add_test(tc, a_client_that_asks_nothing_more_after_an_answer_is_disconnected);
	tcase_add_test(tc, a_client_whose_answer_is_being_made_is_not_disconnected);
	tcase_add_test(tc, a_client_that_does_not_read_its_answer_in_time_is_disconnected);
	tcase_add_test(tc, the_earliest_client_makes_room_if_all_connection_slots_are_taken);
	tcase_add_test(tc, the_earliest_client_of_an_address_with_too_many_connections_makes_room);
	tcase_add_test(tc, a_new_client_is_refused_if_all_others_wait_for_answers);
	tcase_add_loop_test(tc, a_request_with_a_body_is_refused_before_the_body, 0, LENGTH(requests));
	tcase_add_loop_test(
		tc, on_a_loopback_address_the_host_header_must_be_an_address_or_localhost, 0, LENGTH(hosts));
	tcase_add_loop_test(tc, on_another_address_the_host_header_may_be_any_name, 0, LENGTH(hosts));
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
