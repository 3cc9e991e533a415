/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* gpupool-stat --watch: repeated requests over connections that stay open. */

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "stat_running.h"

START_TEST(all_watched_answers_come_over_one_connection)
{
	pid_t pid = peer_start(PEER_STAYS, NULL);
	char expected[1024] = "";

	for (int n = 1; n <= 4; n++)
		snprintf(expected + strlen(expected), sizeof(expected) - strlen(expected), peer_counted "\n", 1, n);
	ck_assert_int_eq(STAT("limit", "--watch=0.01", "--count=4", "--json", stat_word(pid)), 0);
	ck_assert_str_eq(stat_out, expected);
	ck_assert_str_eq(stat_err, "");
}
END_TEST

/* The process hangs up after each answer, as a server may after it was idle for a while. */
START_TEST(a_watched_connection_that_has_ended_is_made_again)
{
	peer_start(PEER_ANSWERS, NULL);
	ck_assert_int_eq(STAT("limit", "--watch=0.01", "--count=3"), 0);
	ck_assert_str_eq(stat_err, "");
	ck_assert_ptr_eq(stat_out, strstr(stat_out, "DEVICE "));
	ck_assert_ptr_nonnull(strstr(strstr(stat_out, "\n\nDEVICE ") + 1, "\n\nDEVICE "));
}
END_TEST

START_TEST(watch_ends_when_all_named_processes_have_ended)
{
	struct stat_running running;
	pid_t one = peer_start(PEER_STAYS, NULL), other = peer_start(PEER_ANSWERS, NULL);
	char title[64];

	STAT_START(&running, "status", "--watch=0.01", "--json", stat_word(one), stat_word(other));
	stat_await(&running, "\"command\":\"python train.py\"");
	peer_kill(one);
	snprintf(title, sizeof(title), "{\"pid\":%d,\"error\":\"does not exist.\"}", (int)one);
	stat_await(&running, title);
	stat_check_in(running.line, "python train.py");
	peer_kill(other);
	while (stat_next_line(&running))
		;
	ck_assert_int_eq(WEXITSTATUS(stat_finish(&running)), 3);
}
END_TEST

/*
 * A program that ends normally removes its socket. Here it does so between two requests, of which the first
 * still had a connection.
 */
START_TEST(a_watched_process_that_ends_is_reported_as_ended_without_another_error)
{
	struct stat_running running;
	pid_t pid = peer_start(PEER_STAYS, NULL);
	char ended[64];

	STAT_START(&running, "limit", "--watch=0.01", stat_word(pid));
	stat_await(&running, "DEVICE ");
	ck_assert_int_eq(unlink(peer_socket(pid)), 0);
	peer_kill(pid);
	snprintf(ended, sizeof(ended), "gpupool-stat: pid %d does not exist.\n", (int)pid);
	do
		ck_assert(stat_next_line(&running));
	while (strncmp(running.line, "gpupool-stat: ", 14) != 0);
	ck_assert_str_eq(running.line, ended);
	while (stat_next_line(&running))
		;
	ck_assert_int_eq(WEXITSTATUS(stat_finish(&running)), 3);
}
END_TEST

START_TEST(watch_without_process_ids_waits_for_processes_to_start)
{
	struct stat_running running;
	char pid[32];

	STAT_START(&running, "list", "--watch=0.01", "--json");
	stat_await(&running, "\"processes\":[],");
	snprintf(pid, sizeof(pid), "\"processes\":[{\"pid\":%d,", (int)peer_start(PEER_ANSWERS, NULL));
	stat_await(&running, pid);
	kill(running.pid, SIGTERM);
	stat_finish(&running);
}
END_TEST

/* Watch waits for the process only once, and accepts its answer later. */
START_TEST(a_watched_process_that_stops_is_waited_for_once)
{
	struct stat_running running;
	pid_t stops = peer_start(PEER_STAYS, NULL), answers = peer_start(PEER_STAYS, NULL);
	char counted[256];

	STAT_START(&running, "limit", "--watch=0.01", "--timeout=0.3", "--json");
	stat_await(&running, "\"errors\":[]");
	ck_assert_int_eq(kill(stops, SIGSTOP), 0);
	for (int n = 0; n < 100; n++)
		stat_await(&running, "is stopped (state T)");
	snprintf(counted, sizeof(counted), "\"pid\":%d}],", (int)answers);
	stat_check_in(running.line, counted);
	ck_assert_int_eq(kill(stops, SIGCONT), 0);
	stat_await(&running, "\"errors\":[]");
	snprintf(counted, sizeof(counted), "\"index\":1,");
	stat_check_in(running.line, counted);
	kill(running.pid, SIGTERM);
	stat_finish(&running);
}
END_TEST

START_TEST(watch_ends_when_its_output_is_no_longer_read)
{
	struct stat_running running;

	peer_start(PEER_ANSWERS, NULL);
	STAT_START(&running, "list", "--watch=0.01");
	ck_assert(stat_next_line(&running));
	ck_assert_int_eq(WTERMSIG(stat_finish(&running)), SIGPIPE);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, all_watched_answers_come_over_one_connection);
	tcase_add_test(tc, a_watched_connection_that_has_ended_is_made_again);
	tcase_add_test(tc, watch_ends_when_all_named_processes_have_ended);
	tcase_add_test(tc, a_watched_process_that_ends_is_reported_as_ended_without_another_error);
	tcase_add_test(tc, watch_without_process_ids_waits_for_processes_to_start);
	tcase_add_test(tc, a_watched_process_that_stops_is_waited_for_once);
	tcase_add_test(tc, watch_ends_when_its_output_is_no_longer_read);
}

int main(int argc, char **argv)
{
	return stat_main(argc, argv, "stat_watch", add);
}
