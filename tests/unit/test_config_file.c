/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Settings in the administrator's files, in a directory that stands for /etc. */

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/config.h"
#include "tests/suite.h"

#define GIB (UINT64_C(1) << 30)

enum { REPORTS = 16 };

static char directory[] = "/tmp/gpupool-etc-XXXXXX";
static struct gp_config config;
static unsigned n_reports;
static char reports[REPORTS][GP_CONFIG_MESSAGE_SIZE];

static void note(void *arg, const struct gp_config_report *report)
{
	ck_assert_uint_lt(n_reports, REPORTS);
	gp_config_report_format(report, reports[n_reports++], GP_CONFIG_MESSAGE_SIZE);
}

static void make_directory(void)
{
	char path[64];

	strcpy(directory + strlen(directory) - 6, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/gpupool.d", directory);
	ck_assert_int_eq(mkdir(path, 0755), 0);
}

static void remove_directory(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", directory);
	ck_assert_int_eq(system(command), 0);
}

static const char *path_of(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return path;
}

static void put(const char *name, const char *text)
{
	int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	ck_assert_int_eq(fchmod(fd, 0644), 0);
	close(fd);
}

static int load(const char *first, const char *second)
{
	char where[64];
	const char *environment[] = {where, first ? first : second, first ? second : NULL, NULL};

	snprintf(where, sizeof(where), "GPUPOOL_CONFIG_DIR=%s", directory);
	memset(&config, 0x55, sizeof(config));
	n_reports = 0;
	return gp_config_load(&config, (char *const *)environment, note, NULL);
}

/* True if the report is "DIRECTORY/" and this text. */
static bool is_report(unsigned nth, const char *text)
{
	size_t length = strlen(directory) + 1;

	return nth < n_reports && strncmp(reports[nth], directory, length - 1) == 0 &&
	       strcmp(reports[nth] + length, text) == 0;
}

static void check_source(enum gp_option option, const char *source)
{
	const char *text = gp_config_source_text(&config, option);

	if (strchr(source, ':'))
		ck_assert_str_eq(text, path_of(source));
	else
		ck_assert_str_eq(text, source);
}

START_TEST(a_directory_of_settings_that_does_not_exist_is_reported)
{
	const char *environment[] = {"GPUPOOL_CONFIG_DIR=/dev/null/x", "GPUPOOL_LIMIT=1GiB", NULL};

	n_reports = 0;
	ck_assert_int_eq(gp_config_load(&config, (char *const *)environment, note, NULL), 0);
	ck_assert_uint_eq(n_reports, 1);
	ck_assert_str_eq(reports[0], "/dev/null/x is not a directory; it is ignored");
	check_source(GP_OPTION_LIMIT, "environment");
}
END_TEST

START_TEST(without_files_the_defaults_hold_and_nothing_is_reported)
{
	ck_assert_int_eq(rmdir(path_of("gpupool.d")), 0);
	ck_assert_int_eq(load(NULL, NULL), 0);
	ck_assert_uint_eq(n_reports, 0);
	ck_assert_int_eq(config.pool, GP_CONFIG_POOL_SPLIT);
	check_source(GP_OPTION_POOL, "default");
}
END_TEST

START_TEST(later_files_win_over_earlier_ones_and_the_environment_over_all)
{
	put("gpupool.conf", "GPUPOOL_POOL=vmm\nGPUPOOL_LIMIT=1GiB\nGPUPOOL_YIELD=off\n");
	put("gpupool.d/20-b.conf", "GPUPOOL_LIMIT=3GiB\n");
	put("gpupool.d/10-a.conf", "\n# a comment\n  GPUPOOL_LIMIT = 2GiB \n");
	put("gpupool.d/notes.txt", "GPUPOOL_LIMIT=4GiB\n");
	put("gpupool.d/.hidden.conf", "GPUPOOL_LIMIT=5GiB\n");
	ck_assert_int_eq(load("GPUPOOL_POOL=simple", NULL), 0);
	ck_assert_uint_eq(n_reports, 0);
	ck_assert_int_eq(config.pool, GP_CONFIG_POOL_SIMPLE);
	ck_assert_uint_eq(config.limit.rest.bytes, 3 * GIB);
	ck_assert_int_eq(config.yield, GP_CONFIG_YIELD_OFF);
	check_source(GP_OPTION_POOL, "environment");
	check_source(GP_OPTION_LIMIT, "gpupool.d/20-b.conf:1");
	check_source(GP_OPTION_YIELD, "gpupool.conf:3");
}
END_TEST

START_TEST(the_limit_of_a_scheduler_wins_over_that_of_a_file)
{
	put("gpupool.conf", "GPUPOOL_LIMIT=1GiBx\n");
	ck_assert_int_eq(load("CUDA_DEVICE_MEMORY_LIMIT=2g", NULL), 0);
	ck_assert_uint_eq(config.limit.rest.bytes, 2 * GIB);
	ck_assert_str_eq(config.limit_error, "");
	check_source(GP_OPTION_LIMIT, "CUDA_DEVICE_MEMORY_LIMIT");
}
END_TEST

static const struct {
	const char *section, *variable;
	bool is_taken;
} sections[] = {
	{"[all]", NULL, true},
	{"[user SELF]", NULL, true},
	{"[user 4294967294]", NULL, false},
	{"[user missing-user]", NULL, false},
	{"[user carol]", "USER=carol", true},
	{"[user carol]", "USER=caro", false},
	{"[ user   carol ]", "LOGNAME=carol", true},
	{"[job 47*]", "SLURM_JOB_ID=4711", true},
	{"[job 47*]", "SLURM_JOB_ID=5711", false},
	{"[job *]", NULL, false},
	{"[job 4?.pbs]", "PBS_JOBID=42.pbs", true},
};

START_TEST(a_section_is_for_the_processes_that_it_names)
{
	char section[64], text[128];

	snprintf(section, sizeof(section), "%s", sections[_i].section);
	if (strstr(section, "SELF"))
		snprintf(section, sizeof(section), "[user %u]", (unsigned)getuid());
	snprintf(text, sizeof(text), "[user 4294967294]\nGPUPOOL_YIELD=off\n%s\nGPUPOOL_LIMIT=1GiB\n", section);
	put("gpupool.conf", text);
	ck_assert_int_eq(load(sections[_i].variable, NULL), 0);
	ck_assert_uint_eq(n_reports, 0);
	ck_assert_int_eq(config.source[GP_OPTION_LIMIT], sections[_i].is_taken ? GP_CONFIG_FILE : GP_CONFIG_DEFAULT);
	ck_assert_int_eq(config.yield, GP_CONFIG_YIELD_ON);
}
END_TEST

static const struct {
	const char *line, *report;
} bad_lines[] = {
	{"GPUPOOL_LIMIT", "gpupool.conf:2: 'GPUPOOL_LIMIT' is not of the form NAME=value; it is ignored"},
	{"=1GiB", "gpupool.conf:2: '=1GiB' is not of the form NAME=value; it is ignored"},
	{"GPUPOOL_LIMITS=1GiB",
		"gpupool.conf:2: GPUPOOL_LIMITS is not a variable of gpupool; the nearest is GPUPOOL_LIMIT"},
	{"PATH=/bin", "gpupool.conf:2: PATH is not a variable of gpupool"},
	{"GPUPOOL_YIELD=maybe", "gpupool.conf:2: GPUPOOL_YIELD: 'maybe' is neither on, off nor all (character 1): use "
				"on, off or all; it "
				"is ignored"},
	{"GPUPOOL_OWN_POOLS=off", "gpupool.conf:2: 'GPUPOOL_OWN_POOLS' cannot be set in a file; it is ignored"},
	{"GPUPOOL_CONFIG_DIR=/x", "gpupool.conf:2: 'GPUPOOL_CONFIG_DIR' cannot be set in a file; it is ignored"},
	{"[user]\n[all]", "gpupool.conf:2: 'user' is not a section, or lacks its name: use [user NAME], [job PATTERN] "
			  "or [all]; it is "
			  "ignored"},
	{"[job 1\n[all]",
		"gpupool.conf:2: '[job 1' has no ] at its end: use [user NAME], [job PATTERN] or [all]; it is ignored"},
};

START_TEST(a_bad_line_is_reported_once_with_its_place_and_the_rest_holds)
{
	char text[256];

	snprintf(text, sizeof(text), "GPUPOOL_POOL=vmm\n%s\nGPUPOOL_RESERVE=1GiB\n", bad_lines[_i].line);
	put("gpupool.conf", text);
	ck_assert_int_eq(load(NULL, NULL), 0);
	ck_assert_msg(n_reports == 1 && is_report(0, bad_lines[_i].report), "%u: %s", n_reports, reports[0]);
	ck_assert_int_eq(config.pool, GP_CONFIG_POOL_VMM);
	ck_assert_uint_eq(config.reserve_bytes, GIB);
}
END_TEST

static const struct {
	const char *line;
	enum gp_option option;
} bad_limits[] = {
	{"GPUPOOL_LIMIT=8GiBx", GP_OPTION_LIMIT},
	{"GPUPOOL_LIMIT_GROUP=a b:8GiB", GP_OPTION_LIMIT_GROUP},
	{"GPUPOOL_PINNED_LIMIT=0", GP_OPTION_PINNED_LIMIT},
};

START_TEST(a_limit_in_a_file_that_cannot_be_read_is_a_limit_of_zero_unless_the_environment_has_one)
{
	char text[128], variable[64];

	snprintf(text, sizeof(text), "%s\n", bad_limits[_i].line);
	put("gpupool.conf", text);
	ck_assert_int_eq(load(NULL, NULL), 0);
	ck_assert_uint_eq(n_reports, 1);
	ck_assert_ptr_nonnull(strstr(reports[0], "allocations fail until it is corrected"));
	check_source(bad_limits[_i].option, "gpupool.conf:1");
	if (bad_limits[_i].option == GP_OPTION_LIMIT)
		ck_assert(config.limit.rest.kind == GP_LIMIT_BYTES && !config.limit.rest.bytes && *config.limit_error);
	else if (bad_limits[_i].option == GP_OPTION_LIMIT_GROUP)
		ck_assert(config.group.is_on && !config.group.limit.rest.bytes && *config.group_error);
	else
		ck_assert(config.pinned_limit.kind == GP_LIMIT_BYTES && !config.pinned_limit.bytes);
	snprintf(variable, sizeof(variable), "%s=1GiB", gp_config_options[bad_limits[_i].option].variable);
	ck_assert_int_eq(load(variable, NULL), 0);
	ck_assert(!*config.limit_error && !*config.group_error && !*config.pinned_limit_error);
	check_source(bad_limits[_i].option, "environment");
}
END_TEST

START_TEST(a_line_that_is_too_long_is_ignored_as_a_whole)
{
	char text[3000];

	memset(text, 'x', sizeof(text));
	memcpy(text, "GPUPOOL_LOG_FILE=", 17);
	strcpy(text + sizeof(text) - 30, "\nGPUPOOL_LIMIT=1GiB\n");
	put("gpupool.conf", text);
	ck_assert_int_eq(load(NULL, NULL), 0);
	ck_assert_uint_eq(n_reports, 1);
	ck_assert_ptr_nonnull(strstr(reports[0], "is longer than 1279 characters"));
	ck_assert_str_eq(config.log_file, "stderr");
	check_source(GP_OPTION_LIMIT, "gpupool.conf:2");
}
END_TEST

START_TEST(lines_below_a_section_whose_name_is_too_long_are_ignored)
{
	char text[3000];

	memset(text, 'x', sizeof(text));
	memcpy(text, "[user ", 6);
	strcpy(text + sizeof(text) - 30, "]\nGPUPOOL_LIMIT=1GiB\n");
	put("gpupool.conf", text);
	ck_assert_int_eq(load(NULL, NULL), 0);
	ck_assert_uint_eq(n_reports, 1);
	ck_assert_ptr_nonnull(strstr(reports[0], "is longer than 1279 characters"));
	check_source(GP_OPTION_LIMIT, "default");
}
END_TEST

static void *load_while_cancelled(void *is_loaded)
{
	pthread_cancel(pthread_self());
	load(NULL, NULL);
	*(bool *)is_loaded = true;
	pthread_testcancel();
	return NULL;
}

START_TEST(a_cancelled_thread_reads_the_files_to_their_end)
{
	bool is_loaded = false;
	pthread_t thread;

	put("gpupool.conf", "GPUPOOL_LIMIT=1GiB\n");
	ck_assert_int_eq(pthread_create(&thread, NULL, load_while_cancelled, &is_loaded), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert(is_loaded);
	check_source(GP_OPTION_LIMIT, "gpupool.conf:1");
}
END_TEST

START_TEST(a_last_line_without_its_end_counts)
{
	put("gpupool.conf", "GPUPOOL_LIMIT=1GiB");
	ck_assert_int_eq(load(NULL, NULL), 0);
	check_source(GP_OPTION_LIMIT, "gpupool.conf:1");
}
END_TEST

static void make_writable(void)
{
	ck_assert_int_eq(chmod(path_of("gpupool.conf"), 0664), 0);
}

static void make_directory_writable(void)
{
	ck_assert_int_eq(unlink(path_of("gpupool.conf")), 0);
	put("gpupool.d/a.conf", "GPUPOOL_LIMIT=1GiB\n");
	ck_assert_int_eq(chmod(path_of("gpupool.d"), 0777), 0);
}

static void make_pipe(void)
{
	ck_assert_int_eq(unlink(path_of("gpupool.conf")), 0);
	ck_assert_int_eq(mkfifo(path_of("gpupool.conf"), 0644), 0);
}

static void make_folder(void)
{
	ck_assert_int_eq(unlink(path_of("gpupool.conf")), 0);
	ck_assert_int_eq(mkdir(path_of("gpupool.conf"), 0755), 0);
}

static const struct {
	void (*change)(void);
	const char *report;
} refusals[] = {
	{make_writable, "gpupool.conf can be written to by other users; it is ignored"},
	{make_directory_writable, "gpupool.d can be written to by other users; it is ignored"},
	{make_pipe, "gpupool.conf is not a regular file; it is ignored"},
	{make_folder, "gpupool.conf is not a regular file; it is ignored"},
};

START_TEST(a_file_that_other_users_may_have_written_is_refused)
{
	put("gpupool.conf", "GPUPOOL_LIMIT=1GiB\n");
	refusals[_i].change();
	ck_assert_int_eq(load(NULL, NULL), 0);
	ck_assert_msg(n_reports == 1 && is_report(0, refusals[_i].report), "%u: %s", n_reports, reports[0]);
	check_source(GP_OPTION_LIMIT, "default");
}
END_TEST

static unsigned n_settings, n_problems;

static void count_setting(void *arg, const char *origin, const char *name, const char *value)
{
	n_settings++;
}

static void count_problem(void *arg, const char *origin, const char *text, const char *why, const char *next)
{
	n_problems += !text && strstr(why, "belong") != NULL;
}

START_TEST(by_default_the_files_must_be_those_of_root)
{
	const struct gp_config_lines lines = {count_setting, count_problem, NULL};
	const struct gp_config_process process = {.uid = getuid()};

	put("gpupool.conf", "GPUPOOL_LIMIT=1GiB\n");
	if (geteuid() == 0)
		ck_assert_int_eq(chown(path_of("gpupool.conf"), 65534, 65534), 0);
	n_settings = n_problems = 0;
	gp_config_files_read(directory, true, &process, &lines);
	ck_assert_uint_eq(n_settings, 0);
	ck_assert_uint_ge(n_problems, 1);
}
END_TEST

START_TEST(a_file_of_another_user_is_refused_in_a_directory_that_the_user_has_named)
{
	if (geteuid() != 0)
		return; /* only root can make one */
	put("gpupool.conf", "GPUPOOL_LIMIT=1GiB\n");
	ck_assert_int_eq(chown(path_of("gpupool.conf"), 65534, 65534), 0);
	ck_assert_int_eq(load(NULL, NULL), 0);
	ck_assert(is_report(0, "gpupool.conf belongs neither to root nor to this user; it is ignored"));
	check_source(GP_OPTION_LIMIT, "default");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("config_file");
	TCase *tc = tcase_create("config_file");

	suite_add_tcase(suite, tc);
	tcase_add_checked_fixture(tc, make_directory, remove_directory);
	tcase_add_test(tc, a_directory_of_settings_that_does_not_exist_is_reported);
	tcase_add_test(tc, without_files_the_defaults_hold_and_nothing_is_reported);
	tcase_add_test(tc, later_files_win_over_earlier_ones_and_the_environment_over_all);
	tcase_add_test(tc, the_limit_of_a_scheduler_wins_over_that_of_a_file);
	ADD_ROWS(tc, sections, a_section_is_for_the_processes_that_it_names);
	ADD_ROWS(tc, bad_lines, a_bad_line_is_reported_once_with_its_place_and_the_rest_holds);
	ADD_ROWS(tc, bad_limits,
		a_limit_in_a_file_that_cannot_be_read_is_a_limit_of_zero_unless_the_environment_has_one);
	tcase_add_test(tc, a_line_that_is_too_long_is_ignored_as_a_whole);
	tcase_add_test(tc, lines_below_a_section_whose_name_is_too_long_are_ignored);
	tcase_add_test(tc, a_cancelled_thread_reads_the_files_to_their_end);
	tcase_add_test(tc, a_last_line_without_its_end_counts);
	ADD_ROWS(tc, refusals, a_file_that_other_users_may_have_written_is_refused);
	tcase_add_test(tc, by_default_the_files_must_be_those_of_root);
	tcase_add_test(tc, a_file_of_another_user_is_refused_in_a_directory_that_the_user_has_named);
	return suite_run(suite);
}
