/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * gpupool-stat asks many processes of one user: within one deadline, with few descriptors, and repeatedly.
 */

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "survey_fixture.h"
#include "tests/suite.h"
#include "tools/ask/stat_explain.h"
#include "tools/export/stat_metrics.h"

static bool has_descriptors(int n)
{
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	if (limit.rlim_cur >= (rlim_t)n)
		return true;
	printf("# skipped: %d descriptors are needed\n", n);
	return false;
}

START_TEST(silent_processes_take_one_timeout_together)
{
	struct stat_question question = survey_question(SURVEY_TIMEOUT_MS);
	struct stat_survey survey;
	int64_t begin_ns = survey_now_ns;

	if (!has_descriptors(2000))
		return;
	for (int i = 0; i < 700; i++)
		survey_add_peer(survey_root, geteuid(), NULL, false);
	stat_survey_run(&survey, &question);
	ck_assert_int_le((survey_now_ns - begin_ns) / 1000000, SURVEY_TIMEOUT_MS + 1);
	ck_assert_uint_eq(survey.n_processes, 700);
	stat_survey_deinit(&survey);
}
END_TEST

static void kill_child(pid_t child)
{
	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
}

START_TEST(a_stopped_process_is_not_waited_for)
{
	struct stat_question question = survey_question(SURVEY_TIMEOUT_MS);
	struct stat_survey survey;
	int64_t begin_ns = survey_now_ns;
	pid_t stopped = survey_add_stopped_peer(survey_root);

	survey_add_peer(survey_root, geteuid(), survey_status, false);
	stat_survey_run(&survey, &question);
	ck_assert_int_lt((survey_now_ns - begin_ns) / 1000000, SURVEY_TIMEOUT_MS / 10);
	ck_assert_uint_eq(survey.n_processes, 2);
	ck_assert_uint_eq(survey_count_answers(&survey), 1);
	ck_assert_str_eq(stat_survey_find(&survey, stopped)->error, "is stopped (state T), and cannot answer.");
	stat_survey_deinit(&survey);
	kill_child(stopped);
}
END_TEST

START_TEST(a_process_that_does_not_answer_keeps_its_last_answer_and_others_keep_none)
{
	struct stat_question question = survey_question(SURVEY_TIMEOUT_MS);
	struct stat_survey survey = {0};

	question.keeps = STAT_KEEPS_LAST;
	survey_add_peer(survey_root, geteuid(), survey_status, false);
	survey_add_peer(survey_root, geteuid(), survey_status, false);
	stat_survey_again(&survey, &question);
	ck_assert_uint_eq(survey_count_answers(&survey), 2);
	survey_peers[0].answer = NULL;
	for (int i = 0; i < 3; i++) {
		stat_survey_again(&survey, &question);
		ck_assert_uint_eq(survey.n_processes, 2);
		for (size_t k = 0; k < 2; k++)
			ck_assert(!survey.processes[k].reply == !!survey.processes[k].before);
		ck_assert_uint_eq(survey_count_answers(&survey), 1);
	}
	stat_survey_deinit(&survey);
}
END_TEST

static char *metrics_of(struct stat_survey *survey)
{
	char *text = NULL;
	size_t length;
	FILE *out = open_memstream(&text, &length);

	ck_assert_ptr_nonnull(out);
	stat_metrics_write(out, survey, NULL, (struct stat_metrics_form){.is_all = true});
	fclose(out);
	return text;
}

/* As from two containers, whose processes have numbers that mean nothing here. */
START_TEST(processes_of_two_pid_namespaces_with_one_number_are_both_in_the_metrics)
{
	struct stat_process processes[] = {
		{.pid = 1, .start_ticks = UINT64_MAX - 2, .client.fd = -1},
		{.pid = 1, .start_ticks = UINT64_MAX - 1, .client.fd = -1},
		{.pid = 1, .start_ticks = UINT64_MAX - 1, .client.fd = -1},
		{.pid = 7, .client = {.fd = -1, .peer_pid = 7}},
		{.pid = 7, .client = {.fd = -1, .peer_pid = 7}}, /* another socket of the same process */
	};
	struct stat_survey survey = {.processes = processes, .n_processes = 5};
	char *text = metrics_of(&survey);
	const char *line = text;
	int n = 0;

	ck_assert_ptr_nonnull(strstr(text, "gpupool_up{pid=\"1\",start=\"18446744073709551613\"} 0\n"));
	ck_assert_ptr_nonnull(strstr(text, "gpupool_up{pid=\"1\",start=\"18446744073709551614\"} 0\n"));
	ck_assert_ptr_nonnull(strstr(text, "gpupool_up{pid=\"1\",start=\"18446744073709551614-2\"} 0\n"));
	ck_assert_ptr_nonnull(strstr(text, "gpupool_up{pid=\"7\"} 0\n"));
	while ((line = strstr(line, "\ngpupool_up{")) != NULL) {
		line++;
		n++;
	}
	ck_assert_int_eq(n, 4);
	free(text);
}
END_TEST

START_TEST(processes_that_answer_are_asked_even_if_hundreds_are_silent)
{
	struct stat_question question = survey_question(SURVEY_TIMEOUT_MS);
	struct stat_survey survey;

	if (!has_descriptors(2000))
		return;
	for (int i = 0; i < 350; i++)
		survey_add_peer(survey_root, geteuid(), NULL, false);
	for (int i = 0; i < 10; i++)
		survey_add_peer(survey_root, geteuid(), survey_status, false);
	for (int i = 0; i < 350; i++)
		survey_add_peer(survey_root, geteuid(), NULL, false);
	stat_survey_run(&survey, &question);
	ck_assert_uint_eq(survey_count_answers(&survey), 10);
	stat_survey_deinit(&survey);
}
END_TEST

START_TEST(two_thousand_processes_of_the_user_are_all_asked)
{
	struct stat_question question = survey_question(SURVEY_TIMEOUT_MS);
	struct stat_survey survey;
	char why[STAT_ERROR_MAX];

	if (!has_descriptors(4000))
		return;
	for (int i = 0; i < 2000; i++)
		survey_add_peer(survey_root, geteuid(), survey_status, false);
	stat_survey_run(&survey, &question);
	ck_assert_uint_eq(survey_count_answers(&survey), 2000);
	ck_assert_int_eq(survey_n_asked, 2000);
	ck_assert(!stat_survey_is_incomplete(&survey, why));
	stat_survey_deinit(&survey);
}
END_TEST

START_TEST(a_repeated_survey_keeps_connections_and_waits_once_for_silent_processes)
{
	struct stat_question question = survey_question(SURVEY_TIMEOUT_MS);
	struct stat_survey survey = {0};
	int64_t begin_ns;

	survey_add_peer(survey_root, geteuid(), NULL, false);
	survey_add_peer(survey_root, geteuid(), survey_status, false);
	stat_survey_again(&survey, &question);
	ck_assert_uint_eq(survey_count_answers(&survey), 1);
	for (int i = 0; i < 3; i++) {
		begin_ns = survey_now_ns;
		stat_survey_again(&survey, &question);
		ck_assert_uint_eq(survey.n_processes, 2);
		ck_assert_uint_eq(survey_count_answers(&survey), 1);
		ck_assert_int_lt((survey_now_ns - begin_ns) / 1000000, SURVEY_TIMEOUT_MS / 2);
	}
	/* The silent process was asked once, and still has that connection. */
	ck_assert_int_eq(survey_n_asked, 1 + 4);
	survey_peers[0].rest = survey_status;
	stat_survey_again(&survey, &question);
	ck_assert_uint_eq(survey_count_answers(&survey), 2);
	stat_survey_deinit(&survey);
}
END_TEST

START_TEST(processes_that_cannot_be_asked_in_time_make_a_survey_incomplete)
{
	struct stat_question question = survey_question(0);
	struct stat_survey survey;
	char why[STAT_ERROR_MAX];

	for (int i = 0; i < 3; i++)
		survey_add_peer(survey_root, geteuid(), survey_status, false);
	stat_survey_run(&survey, &question);
	ck_assert_uint_eq(survey.n_processes, 0);
	ck_assert(stat_survey_is_incomplete(&survey, why));
	ck_assert_str_eq(why, "sockets for which there was no time (3)");
	stat_survey_deinit(&survey);
}
END_TEST

/* It must not be reported as a process without the library or a socket. */
START_TEST(a_named_process_that_cannot_be_asked_in_time_has_not_answered)
{
	struct stat_question question = survey_question(0);
	struct stat_process missing;
	struct stat_survey survey;
	pid_t self = getpid();

	question.pids = &self;
	question.n_pids = 1;
	survey_add_peer(survey_root, geteuid(), survey_status, false);
	stat_survey_run(&survey, &question);
	ck_assert_ptr_null(stat_survey_find(&survey, self));
	stat_explain_missing(&missing, self, &survey);
	ck_assert_int_eq(missing.exit, STAT_NO_ANSWER);
	ck_assert_str_eq(missing.error, "was not asked, since the time was over.");
	stat_survey_deinit(&survey);
}
END_TEST

START_TEST(a_survey_needs_fewer_descriptors_than_processes)
{
	static const rlim_t limits[] = {40, 24, 3};
	struct stat_question question = survey_question(SURVEY_TIMEOUT_MS);
	struct rlimit limit, few;
	struct stat_survey survey;

	for (int i = 0; i < 60; i++)
		survey_add_peer(survey_root, geteuid(), survey_status, false);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	few = (struct rlimit){limits[_i] + (rlim_t)survey_peers[survey_n_peers - 1].listener, limit.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	stat_survey_run(&survey, &question);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_uint_eq(survey_count_answers(&survey), 60);
	stat_survey_deinit(&survey);
}
END_TEST

START_TEST(an_answer_with_more_values_than_the_library_sends_is_refused)
{
	static char text[300000];
	struct stat_question question = survey_question(SURVEY_TIMEOUT_MS);
	struct stat_survey survey;
	size_t n = (size_t)sprintf(text, "{\"schema\":\"gpupool.status/2\",\"x\":[0");

	for (int i = 0; i < 70000; i++)
		n += (size_t)sprintf(text + n, ",0");
	strcpy(text + n, "]}\n");
	survey_add_peer(survey_root, geteuid(), text, false);
	stat_survey_run(&survey, &question);
	ck_assert_uint_eq(survey.n_processes, 1);
	ck_assert_str_eq(survey.processes[0].error, "gave an answer that has too many values");
	stat_survey_deinit(&survey);
}
END_TEST

START_TEST(directories_that_cannot_be_opened_make_a_survey_incomplete)
{
	struct stat_question question = survey_question(SURVEY_TIMEOUT_MS);
	struct rlimit limit, none;
	struct stat_survey survey;
	char why[STAT_ERROR_MAX];
	int next_fd;

	survey_add_peer(survey_root, geteuid(), survey_status, false);
	next_fd = dup(0);
	close(next_fd);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){(rlim_t)next_fd, limit.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	stat_survey_run(&survey, &question);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert(stat_survey_is_incomplete(&survey, why));
	ck_assert_ptr_nonnull(strstr(why, "too many open files"));
	stat_survey_deinit(&survey);
}
END_TEST

static size_t count_answers(void)
{
	struct stat_question question = survey_question(SURVEY_TIMEOUT_MS);
	struct stat_survey survey;
	size_t n = 0;

	stat_survey_run(&survey, &question);
	for (size_t i = 0; i < survey.n_processes; i++)
		n += survey.processes[i].uid == geteuid() && survey.processes[i].reply;
	stat_survey_deinit(&survey);
	return n;
}

START_TEST(other_directories_are_searched_only_if_the_named_one_cannot_be_used)
{
	char other[128], missing[128];

	snprintf(other, sizeof(other), "%s/gpupool-%u", survey_root, (unsigned)geteuid());
	snprintf(missing, sizeof(missing), "%s/missing", survey_root);
	ck_assert_int_eq(mkdir(other, 0700), 0);
	survey_add_peer(survey_root, geteuid(), survey_status, false);
	survey_add_peer(other, geteuid(), survey_status, false);
	ck_assert_uint_eq(count_answers(), 1);
	setenv("GPUPOOL_RUNTIME_DIR", missing, 1);
	ck_assert_uint_ge(count_answers(), 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stat_survey");
	TCase *tc = tcase_create("stat_survey");

	tcase_add_checked_fixture(tc, survey_setup, survey_teardown);
	tcase_add_test(tc, silent_processes_take_one_timeout_together);
	tcase_add_test(tc, a_stopped_process_is_not_waited_for);
	tcase_add_test(tc, a_process_that_does_not_answer_keeps_its_last_answer_and_others_keep_none);
	tcase_add_test(tc, processes_of_two_pid_namespaces_with_one_number_are_both_in_the_metrics);
	tcase_add_test(tc, processes_that_answer_are_asked_even_if_hundreds_are_silent);
	tcase_add_test(tc, two_thousand_processes_of_the_user_are_all_asked);
	tcase_add_test(tc, a_repeated_survey_keeps_connections_and_waits_once_for_silent_processes);
	tcase_add_test(tc, processes_that_cannot_be_asked_in_time_make_a_survey_incomplete);
	tcase_add_test(tc, a_named_process_that_cannot_be_asked_in_time_has_not_answered);
	tcase_add_test(tc, an_answer_with_more_values_than_the_library_sends_is_refused);
	tcase_add_test(tc, directories_that_cannot_be_opened_make_a_survey_incomplete);
	tcase_add_test(tc, other_directories_are_searched_only_if_the_named_one_cannot_be_used);
	tcase_add_loop_test(tc, a_survey_needs_fewer_descriptors_than_processes, 0, 3);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
