/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* gpupool-stat --watch: again and again, over connections that stay. */

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "stat_running.h"

START_TEST(all_answers_come_over_one_connection)
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

/* It hangs up after each answer, as a server may that has been asked nothing for a while. */
START_TEST(a_connection_that_has_ended_is_made_again)
{
	peer_start(PEER_ANSWERS, NULL);
	ck_assert_int_eq(STAT("limit", "--watch=0.01", "--count=3"), 0);
	ck_assert_str_eq(stat_err, "");
	ck_assert_ptr_eq(stat_out, strstr(stat_out, "DEVICE "));
	ck_assert_ptr_nonnull(strstr(strstr(stat_out, "\n\nDEVICE ") + 1, "\n\nDEVICE "));
}
END_TEST

START_TEST(it_ends_with_the_processes_that_were_named)
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

/* One that ends as programs do takes its socket along, between two times of which the first still had a connection. */
START_TEST(one_that_ends_has_ended_and_is_no_error)
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

START_TEST(without_names_it_waits_for_processes_to_come)
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

/* Once; later it is taken for late, and what it says then is its answer. */
START_TEST(a_stopped_process_is_waited_for_once)
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

START_TEST(what_nobody_reads_is_no_reason_to_go_on)
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
	tcase_add_test(tc, all_answers_come_over_one_connection);
	tcase_add_test(tc, a_connection_that_has_ended_is_made_again);
	tcase_add_test(tc, it_ends_with_the_processes_that_were_named);
	tcase_add_test(tc, one_that_ends_has_ended_and_is_no_error);
	tcase_add_test(tc, without_names_it_waits_for_processes_to_come);
	tcase_add_test(tc, a_stopped_process_is_waited_for_once);
	tcase_add_test(tc, what_nobody_reads_is_no_reason_to_go_on);
}

int main(int argc, char **argv)
{
	return stat_main(argc, argv, "stat_watch", add);
}
