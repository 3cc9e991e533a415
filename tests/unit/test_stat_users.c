/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * gpupool-stat of root asks processes of other users, most of which are hostile. Each user gets a share of the
 * resources.
 */

#include <check.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "survey_fixture.h"
#include "tests/suite.h"
#include "tools/export/stat_metrics.h"
#include "tools/ask/stat_round.h"

enum { STRANGER = 65533, N_UIDS = 40, FIRST_UID = 20000 };

START_TEST(a_process_of_another_user_is_asked_once_however_many_sockets_it_has)
{
	struct stat_question question = survey_question(SURVEY_TIMEOUT_MS);
	struct stat_survey survey;

	ck_assert_int_eq(chown(survey_root, STRANGER, (gid_t)-1), 0);
	for (int i = 0; i < 300; i++)
		survey_add_peer(survey_root, STRANGER, survey_status, true);
	stat_survey_run(&survey, &question);
	ck_assert_int_eq(survey_n_asked, 1);
	ck_assert_uint_eq(survey.n_processes, 1);
	stat_survey_deinit(&survey);
}
END_TEST

START_TEST(a_limited_number_of_processes_of_another_user_is_asked)
{
	struct stat_question question = survey_question(SURVEY_TIMEOUT_MS);
	struct stat_survey survey;
	char why[STAT_ERROR_MAX];

	ck_assert_int_eq(chown(survey_root, STRANGER, (gid_t)-1), 0);
	for (int i = 0; i < STAT_USER_PROCESSES + 10; i++)
		survey_add_peer(survey_root, STRANGER, survey_status, false);
	stat_survey_run(&survey, &question);
	ck_assert_int_eq(survey_n_asked, STAT_USER_PROCESSES);
	ck_assert(stat_survey_is_incomplete(&survey, why));
	ck_assert_str_eq(why, "processes beyond the share of their user (10)");
	stat_survey_deinit(&survey);
}
END_TEST

START_TEST(a_directory_of_another_user_is_read_up_to_a_limit)
{
	struct stat_question question = survey_question(SURVEY_TIMEOUT_MS);
	struct stat_survey survey;
	char path[128], why[STAT_ERROR_MAX];

	ck_assert_int_eq(chown(survey_root, STRANGER, (gid_t)-1), 0);
	for (int i = 0; i < 17000; i++) {
		snprintf(path, sizeof(path), "%s/%d", survey_root, i);
		ck_assert_int_eq(mknod(path, S_IFREG | 0600, 0), 0);
	}
	stat_survey_run(&survey, &question);
	ck_assert(stat_survey_is_incomplete(&survey, why));
	ck_assert_str_eq(why, "directories with too many entries (1)");
	stat_survey_deinit(&survey);
}
END_TEST

/* A million values in each of 40 answers would take gigabytes. */
START_TEST(the_values_of_another_user_are_bounded_over_all_answers)
{
	static char text[100000];
	struct stat_question question = survey_question(SURVEY_TIMEOUT_MS);
	struct stat_survey survey;
	size_t n_values = 0, n = 0;
	char why[STAT_ERROR_MAX];

	n = (size_t)sprintf(text, "{\"schema\":\"gpupool.status/2\",\"x\":[");
	while (n < 90000)
		n += (size_t)sprintf(text + n, "{},");
	strcpy(text + n, "{}]}\n");
	ck_assert_int_eq(chown(survey_root, STRANGER, (gid_t)-1), 0);
	for (int i = 0; i < 40; i++)
		survey_add_peer(survey_root, STRANGER, text, false);
	stat_survey_run(&survey, &question);
	for (size_t i = 0; i < survey.n_processes; i++)
		n_values += json_array_size(json_object_get(survey.processes[i].reply, "x"));
	ck_assert_uint_gt(n_values, 0);
	ck_assert_uint_le(2 * n_values, STAT_USER_VALUES); /* each has a comma */
	ck_assert(stat_survey_is_incomplete(&survey, why));
	stat_survey_deinit(&survey);
}
END_TEST

START_TEST(the_bytes_of_another_user_are_bounded_over_all_answers)
{
	enum { BYTES = 1000000, N = 20 };
	static char text[BYTES + 64];
	struct stat_question question = survey_question(SURVEY_TIMEOUT_MS);
	struct stat_survey survey;
	size_t n = (size_t)sprintf(text, "{\"schema\":\"gpupool.status/2\",\"x\":\"");

	memset(text + n, 'x', BYTES - n);
	strcpy(text + BYTES, "\"}\n");
	ck_assert_int_eq(chown(survey_root, STRANGER, (gid_t)-1), 0);
	for (int i = 0; i < N; i++)
		survey_add_peer(survey_root, STRANGER, text, false);
	stat_survey_run(&survey, &question);
	ck_assert_uint_eq(survey_count_answers(&survey), STAT_USER_BYTES / (BYTES + 2));
	stat_survey_deinit(&survey);
}
END_TEST

START_TEST(root_connects_as_the_owner_of_the_socket_directory)
{
	struct stat_question question = survey_question(SURVEY_TIMEOUT_MS);
	struct stat_survey survey;

	ck_assert_int_eq(chown(survey_root, STRANGER, (gid_t)-1), 0);
	survey_add_peer(survey_root, STRANGER, survey_status, false);
	stat_survey_run(&survey, &question);
	ck_assert_uint_eq(survey_count_answers(&survey), 1);
	ck_assert_uint_eq(survey_peers[0].asked_by, STRANGER);
	ck_assert_uint_eq(geteuid(), 0);
	stat_survey_deinit(&survey);
}
END_TEST

/* Each process reports as many series as a process can have. The test counts the lines: basic ones, then all. */
START_TEST(the_metric_series_of_another_user_are_bounded)
{
	enum { N = 20 };
	static char text[1 << 19];
	struct stat_question question = survey_question(SURVEY_TIMEOUT_MS);
	struct stat_survey survey;
	size_t n = (size_t)sprintf(text, "{\"schema\":\"gpupool.status/2\",\"devices\":["), length = 0, n_lines = 0;
	char *metrics = NULL;
	FILE *out = open_memstream(&metrics, &length);

	for (int i = 0; i < 64; i++) {
		n += (size_t)sprintf(text + n, "%s{\"index\":%d,\"used_bytes\":1,\"by_region\":[", i ? "," : "", i);
		for (int k = 0; k < 64; k++)
			n += (size_t)sprintf(text + n, "%s{\"name\":\"r%d\",\"used_bytes\":1}", k ? "," : "", k);
		n += (size_t)sprintf(text + n, "]}");
	}
	strcpy(text + n, "]}\n");
	ck_assert_int_eq(chown(survey_root, STRANGER, (gid_t)-1), 0);
	for (int i = 0; i < N; i++)
		survey_add_peer(survey_root, STRANGER, text, false);
	stat_survey_run(&survey, &question);
	stat_metrics_write(out, &survey, NULL, (struct stat_metrics_form){.is_all = _i});
	fclose(out);
	for (const char *line = metrics; (line = strchr(line, '\n')) != NULL; line++)
		n_lines++;
	ck_assert_uint_gt(n_lines, 1000);
	ck_assert_uint_lt(n_lines, _i ? 51000 : 9000);
	ck_assert_ptr_nonnull(strstr(metrics, "\ngpupool_incomplete 1\n"));
	free(metrics);
	stat_survey_deinit(&survey);
}
END_TEST

/*
 * Mounts a private /tmp, so that the usual directories are only those of the test. Returns false if that is
 * not permitted here.
 */
static bool make_own_tmp(void)
{
	if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
		mount("none", "/tmp", "tmpfs", 0, "mode=1777") == 0) {
		unsetenv("GPUPOOL_RUNTIME_DIR");
		setenv("TMPDIR", "/tmp", 1);
		return true;
	}
	printf("# skipped: a private mount is not permitted\n");
	return false;
}

static void make_dir(char dir[static 64], unsigned uid)
{
	snprintf(dir, 64, "/tmp/gpupool-%u", uid);
	ck_assert_int_eq(mkdir(dir, 0700), 0);
	ck_assert_int_eq(chown(dir, uid, (gid_t)-1), 0);
}

static bool has_answer_of(const struct stat_survey *survey, uid_t uid)
{
	for (size_t i = 0; i < survey->n_processes; i++)
		if (survey->processes[i].uid == uid && survey->processes[i].reply)
			return true;
	return false;
}

START_TEST(hundreds_of_socket_directories_do_not_hide_a_process)
{
	struct stat_question question = survey_question(SURVEY_TIMEOUT_MS);
	struct rlimit limit, few;
	struct stat_survey survey;
	char dir[64];

	if (!make_own_tmp())
		return;
	for (unsigned i = 0; i < 200; i++)
		make_dir(dir, FIRST_UID + i);
	make_dir(dir, FIRST_UID + 200);
	survey_add_peer(dir, FIRST_UID + 200, survey_status, false);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	few = (struct rlimit){64, limit.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	stat_survey_run(&survey, &question);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert(has_answer_of(&survey, FIRST_UID + 200));
	stat_survey_deinit(&survey);
}
END_TEST

START_TEST(silent_processes_of_many_users_do_not_delay_another_user)
{
	struct stat_question question = survey_question(SURVEY_TIMEOUT_MS);
	struct stat_survey survey;
	int64_t begin_ns = survey_now_ns;
	char dir[64];

	if (!make_own_tmp())
		return;
	for (unsigned i = 0; i < N_UIDS; i++) {
		make_dir(dir, FIRST_UID + i);
		for (int k = 0; k < 8; k++)
			survey_add_peer(dir, FIRST_UID + i, NULL, false);
	}
	make_dir(dir, FIRST_UID + N_UIDS);
	survey_add_peer(dir, FIRST_UID + N_UIDS, survey_status, false);
	stat_survey_run(&survey, &question);
	ck_assert(has_answer_of(&survey, FIRST_UID + N_UIDS));
	ck_assert_int_le((survey_now_ns - begin_ns) / 1000000, SURVEY_TIMEOUT_MS + 1);
	stat_survey_deinit(&survey);
}
END_TEST

static TCase *make_case(void)
{
	TCase *tc = tcase_create("stat_users");

	tcase_add_checked_fixture(tc, survey_setup, survey_teardown);
	if (geteuid() != 0) {
		printf("# skipped: processes of other users need root\n");
		return tc;
	}
	tcase_add_test(tc, a_process_of_another_user_is_asked_once_however_many_sockets_it_has);
	tcase_add_test(tc, a_limited_number_of_processes_of_another_user_is_asked);
	tcase_add_test(tc, a_directory_of_another_user_is_read_up_to_a_limit);
	tcase_add_test(tc, the_values_of_another_user_are_bounded_over_all_answers);
	tcase_add_test(tc, the_bytes_of_another_user_are_bounded_over_all_answers);
	tcase_add_test(tc, root_connects_as_the_owner_of_the_socket_directory);
	tcase_add_loop_test(tc, the_metric_series_of_another_user_are_bounded, 0, 2);
	tcase_add_test(tc, hundreds_of_socket_directories_do_not_hide_a_process);
	tcase_add_test(tc, silent_processes_of_many_users_do_not_delay_another_user);
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("stat_users");

	suite_add_tcase(suite, make_case());
	return suite_run(suite);
}
