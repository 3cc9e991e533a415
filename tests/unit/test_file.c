/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "common/job.h"
#include "tests/suite.h"

#define LENGTH(a) (sizeof(a) / sizeof(*(a)))

static char path[PATH_MAX];

static const char *expand(const char *const *environment, const char *path_template)
{
	gp_file_read_names((char *const *)environment);
	ck_assert(gp_file_expand(path, sizeof(path), path_template));
	return path;
}

#define LONG_64 "0123456789012345678901234567890123456789012345678901234567890123"

static const struct {
	const char *environment[4];
	const char *path_template, *path;
} rows[] = {
	{{NULL}, "plain", "plain"},
	{{NULL}, "50%% of %%p", "50% of %p"},
	{{NULL}, "%r.%j", "no-rank.no-job"},
	{{"SLURM_JOB_ID=8812", "SLURM_PROCID=3"}, "/a/%j/%r%r.rec", "/a/8812/33.rec"},
	{{"PBS_JOBID=71[2].server", "PMI_RANK=0"}, "%j-%r", "71_2_.server-0"},
	{{"LSB_JOBID=9", "OMPI_COMM_WORLD_RANK=7", "SLURM_PROCID=1"}, "%j-%r", "9-7"},
	{{"PMIX_RANK=5", "PMI_RANK=6"}, "%r", "5"},
	{{"PMIX_RANK=", "PMI_RANK=6"}, "%r", "6"},
	{{"RANK=4"}, "%r", "no-rank"},
	{{"RANK=4", "WORLD_SIZE=8"}, "%r", "4"},
	{{"JOB_ID=4"}, "%j", "no-job"},
	{{"JOB_ID=4", "SGE_ROOT=/opt/sge"}, "%j", "4"},
	{{"USER=alice", "LOGNAME=bob"}, "%u", "alice"},
	{{"USER=", "LOGNAME=bob"}, "%u", "bob"},
	{{"USER=a/../b c\n\xc3\xa4%p"}, "%u", "a_.._b_c____p"},
	{{"USER=AZaz09._-"}, "%u", "AZaz09._-"},
	{{"USER=.", "SLURM_JOB_ID=..", "PMI_RANK=..."}, "%u/%j/%r", "_/__/..."},
	{{"USERS=x", "LOGNAME=bob"}, "%u", "bob"},
	{{"SLURM_JOB_ID=" LONG_64 LONG_64 LONG_64}, "%j",
		LONG_64 "012345678901234567890123456789012345678901234567890123456789012"},
};

START_TEST(a_file_name_template_expands_environment_values_to_plain_characters)
{
	ck_assert_str_eq(expand(rows[_i].environment, rows[_i].path_template), rows[_i].path);
}
END_TEST

START_TEST(the_user_in_a_file_name_is_a_number_if_the_environment_names_none)
{
	static const char *const nothing[] = {NULL};
	char wanted[32];

	snprintf(wanted, sizeof(wanted), "%u", (unsigned)getuid());
	ck_assert_str_eq(expand(nothing, "%u"), wanted);
}
END_TEST

START_TEST(the_host_and_process_id_in_a_file_name_are_the_current_ones)
{
	static const char *const nothing[] = {NULL};
	char host[128] = "", wanted[256];

	ck_assert_int_eq(gethostname(host, sizeof(host) - 1), 0);
	for (char *c = host; *c; c++)
		if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-", *c))
			*c = '_';
	snprintf(wanted, sizeof(wanted), "%s.%d", host, (int)getpid());
	ck_assert_str_eq(expand(nothing, "%h.%p"), wanted);
}
END_TEST

START_TEST(every_percent_letter_is_expanded_before_and_after_the_environment_is_read)
{
	static const char *const nothing[] = {NULL};

	for (int is_read = 0; is_read < 2; is_read++) {
		for (const char *letter = GP_FILE_LETTERS; *letter; letter++) {
			char text[] = {'%', *letter, '\0'};

			ck_assert(gp_file_expand(path, sizeof(path), text));
			ck_assert_msg(!strchr(path, '%'), "expected no %% in the expansion of %s", text);
			ck_assert_ptr_nonnull(strstr(GP_FILE_LETTERS_HELP, text));
		}
		gp_file_read_names((char *const *)nothing);
	}
}
END_TEST

START_TEST(a_file_name_that_does_not_fit_its_buffer_is_refused)
{
	static const char *const environment[] = {"USER=abcd", NULL};

	gp_file_read_names((char *const *)environment);
	ck_assert(gp_file_expand(path, 6, "/%u"));
	ck_assert_str_eq(path, "/abcd");
	ck_assert(!gp_file_expand(path, 5, "/%u"));
	ck_assert(!gp_file_expand(path, 5, "%u/"));
	ck_assert(!gp_file_expand(path, 5, ""));
}
END_TEST

static const char *find_none(const void *environment, const char *name)
{
	return NULL;
}

/* Every row of the table has a label that is shown, and every label has a row. */
START_TEST(every_job_label_has_a_variable_and_every_variable_a_label)
{
	static const char *const labels[] = {
#define GP_JOB_VARIABLE(label, variable, beside) label,
#include "common/job.def"
	};

	for (size_t i = 0; i < LENGTH(labels); i++) {
		bool is_known = false;

		for (size_t k = 0; gp_job_labels[k]; k++)
			is_known = is_known || !strcmp(labels[i], gp_job_labels[k]);
		ck_assert_msg(is_known, "expected the label %s to be shown", labels[i]);
	}
	for (size_t k = 0; gp_job_labels[k]; k++) {
		bool is_in_table = false;

		for (size_t i = 0; i < LENGTH(labels); i++)
			is_in_table = is_in_table || !strcmp(labels[i], gp_job_labels[k]);
		ck_assert_msg(is_in_table, "expected a row for the label %s", gp_job_labels[k]);
		ck_assert_ptr_null(gp_job_value(gp_job_labels[k], find_none, NULL));
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("file");
	TCase *tc = tcase_create("file");

	ADD_ROWS(tc, rows, a_file_name_template_expands_environment_values_to_plain_characters);
	tcase_add_test(tc, the_user_in_a_file_name_is_a_number_if_the_environment_names_none);
	tcase_add_test(tc, the_host_and_process_id_in_a_file_name_are_the_current_ones);
	tcase_add_test(tc, every_percent_letter_is_expanded_before_and_after_the_environment_is_read);
	tcase_add_test(tc, a_file_name_that_does_not_fit_its_buffer_is_refused);
	tcase_add_test(tc, every_job_label_has_a_variable_and_every_variable_a_label);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
