/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Commands that --watch repeats, their output each time, and their exit code. */

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "stat_running.h"

/* Commands that are not repeated, and why. */
static const struct {
	const char *words[STAT_WORDS];
	const char *why;
} once[] = {
	{{"reclaim", "--watch=1"}, "reclaim does not take --watch: it changes a process.\n"},
	{{"reclaim", "--count=2"}, "reclaim does not take --count: it changes a process.\n"},
	{{"sleep", "--watch=1"}, "sleep does not take --watch: it changes a process.\n"},
	{{"wake", "--watch=1"}, "wake does not take --watch: it changes a process.\n"},
	{{"defer", "on", "--watch=1"}, "defer on does not take --watch: it changes a process.\n"},
	{{"limit", "set", "8GiB", "--watch=1"}, "limit set does not take --watch: it changes a process.\n"},
	{{"limit", "set", "8GiB", "--count=2"}, "limit set does not take --count: it changes a process.\n"},
	{{"region", "invalidate", "a", "--watch=1"},
		"region invalidate does not take --watch: it changes a process.\n"},
	{{"stacks", "1", "on", "--watch=1"}, "stacks on does not take --watch: it changes a process.\n"},
	{{"stacks", "1", "on", "8", "--watch=1"}, "stacks on does not take --watch: it changes a process.\n"},
	{{"stacks", "1", "off", "--watch=1"}, "stacks off does not take --watch: it changes a process.\n"},
	{{"leaks", "--from=x", "--watch=1"},
		"leaks --from does not take --watch: it reads a file, which does not change.\n"},
	{{"convert", "1", "--to=folded", "--watch=1"}, "convert does not take --watch: it writes one file.\n"},
	{{"report", "1", "--watch=1"}, "report does not take --watch: it writes one file.\n"},
	{{"export", "--watch=1"}, "export does not take --watch: it asks the processes at each HTTP request.\n"},
	{{"help", "--watch=1"}, "help does not take --watch: it only prints a text.\n"},
	{{"replay", "x", "--watch=1"}, "replay does not take --watch: it reads a file, which does not change.\n"},
	{{"advise", "x", "--watch=1"},
		"advise does not take --watch: it advises once, on a file or on the counters so far.\n"},
};

/* There is no process to ask, which would give another exit code. */
START_TEST(a_command_that_does_not_take_watch_says_why)
{
	stat_check_refused(once[_i].words, once[_i].why);
}
END_TEST

static bool is_once(const char *command)
{
	for (int i = 0; i < LENGTH(once); i++)
		if (!strcmp(once[i].words[0], command))
			return true;
	return false;
}

/* Checks that the line is one object whose schema begins so; the version follows. */
static void check_object(const char *line, const char *schema)
{
	json_t *object = json_loads(line, 0, NULL);

	ck_assert_msg(json_is_object(object), "%s: %s", schema, line);
	ck_assert_int_eq(strncmp(json_string_value(json_object_get(object, "schema")), schema, strlen(schema)), 0);
	ck_assert_ptr_eq(strchr(line, '\n'), line + strlen(line) - 1);
	json_decref(object);
}

/*
 * Reads three objects while the process lives. Then the process ends or, if it was not named, the user
 * interrupts gpupool-stat.
 */
static void follow(const char *command, const char *schema, bool is_named)
{
	pid_t pid = peer_start(PEER_ANSWERS, NULL);
	struct stat_running running;
	int status;

	STAT_START(&running, command, "--watch=0.02", "--json", is_named ? stat_word(pid) : NULL);
	for (int n = 0; n < 3; n++) {
		ck_assert_msg(stat_next_line(&running), "expected another line before the end of %s", command);
		check_object(running.line, schema);
	}
	if (!is_named)
		ck_assert_int_eq(kill(running.pid, SIGINT), 0);
	peer_kill(pid);
	while (stat_next_line(&running))
		if (running.line[0] == '{')
			check_object(running.line, schema);
	status = stat_finish(&running);
	if (is_named)
		ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 3,
			"%s: expected exit status 3, got wait status %x", command, (unsigned)status);
	else
		ck_assert_int_eq(WTERMSIG(status), SIGINT);
}

/*
 * Follows the command with and without a process id, as the first line of its help allows: 'PID', '[PID]', or
 * neither.
 */
static void follow_both_ways(const char *command, const char *usage)
{
	bool is_own_list = !strcmp(command, "list") || !strcmp(command, "check");
	char schema[64];

	if (strstr(usage, "PID")) {
		snprintf(schema, sizeof(schema), "gpupool.%.15s/", command);
		follow(command, schema, true);
	}
	if (!strstr(usage, " PID")) {
		snprintf(schema, sizeof(schema), "gpupool.%.15s%s/", command, is_own_list ? "" : "-list");
		follow(command, schema, false);
	}
}

/*
 * Covers all commands. The table above lists the commands that do not take --watch. Other tests cover the
 * commands that print no JSON.
 */
START_TEST(every_watched_command_prints_one_json_object_each_time)
{
	char names[STAT_COMMANDS_MAX][16], usage[STAT_CATCH_SIZE];
	int n = stat_find_commands(names), n_followed = 0;

	for (int i = 0; i < n; i++) {
		ck_assert_int_eq(STAT(names[i], "--help"), 0);
		if (!strstr(stat_out, "\n  --watch=SEC ")) {
			ck_assert_msg(is_once(names[i]),
				"%s has to accept --watch, or to be in the table of exceptions", names[i]);
			continue;
		}
		stat_check_in(stat_out, "\n  --count=N ");
		if (!strcmp(names[i], "metrics") || !strcmp(names[i], "top"))
			continue;
		snprintf(usage, sizeof(usage), "%.*s", (int)strcspn(stat_out, "\n"), stat_out);
		follow_both_ways(names[i], usage);
		n_followed++;
	}
	ck_assert_int_ge(n_followed, 12);
}
END_TEST

/* A reader of OpenMetrics starts again after each end mark, so nothing may stand between two outputs. */
START_TEST(every_repetition_of_openmetrics_is_complete)
{
	struct stat_running running;
	pid_t pid = peer_start(PEER_ANSWERS, NULL);

	STAT_START(&running, "metrics", "--watch=0.02", stat_word(pid));
	for (int n = 0; n < 3; n++) {
		ck_assert(stat_next_line(&running));
		ck_assert_str_eq(running.line, "# TYPE gpupool_processes gauge\n");
		stat_await(&running, "gpupool_used_bytes{");
		stat_await(&running, "# EOF\n");
	}
	peer_kill(pid);
	stat_await(&running, "gpupool_processes 0\n");
	stat_await(&running, "# EOF\n");
	while (stat_next_line(&running))
		ck_assert(running.line[0] != '#');
	ck_assert_int_eq(WEXITSTATUS(stat_finish(&running)), 3);
}
END_TEST

/* The Prometheus format has no end mark, and allows empty lines. */
START_TEST(repetitions_of_the_prometheus_format_are_separated_by_an_empty_line)
{
	const char *second;

	peer_start(PEER_ANSWERS, NULL);
	ck_assert_int_eq(STAT("metrics", "--to=prometheus", "--watch=0.01", "--count=2"), 0);
	ck_assert_ptr_eq(strstr(stat_out, "# TYPE gpupool_processes gauge\n"), stat_out);
	second = strstr(stat_out, "\n\n");
	ck_assert_ptr_nonnull(second);
	ck_assert_ptr_eq(strstr(second, "# TYPE gpupool_processes gauge\n"), second + 2);
	ck_assert_ptr_null(strstr(second + 2, "\n\n"));
}
END_TEST

static const struct {
	const char *words[STAT_WORDS];
	const char *out; /* each time */
	int exit;
} checks[] = {
	{{"check", "--watch=0.01", "--count=3", "--warn=ooms=3"}, "GPUPOOL OK - 1 process | '", 0},
	{{"check", "--watch=0.01", "--count=3", "--warn=1%"}, "GPUPOOL WARNING - pid ", 1},
	{{"check", "--watch=0.01", "--count=3", "--crit=1%"}, "GPUPOOL CRITICAL - pid ", 2},
	{{"check", "--watch=0.01", "--count=3", "--json", "--warn=ooms=3"},
		"{\"schema\":\"gpupool.check/1\",\"state\":\"OK\"", 0},
	{{"check", "--watch=0.01", "--count=3", "--json", "--crit=1%"},
		"{\"schema\":\"gpupool.check/1\",\"state\":\"CRITICAL\"", 2},
};

START_TEST(a_watched_check_prints_a_line_each_time_and_exits_with_the_last_state)
{
	int n = 0;

	peer_start(PEER_ANSWERS, NULL);
	ck_assert_int_eq(stat_execute(geteuid(), checks[_i].words), checks[_i].exit);
	for (const char *line = stat_out; *line; line += strcspn(line, "\n") + 1, n++)
		ck_assert_msg(!strncmp(line, checks[_i].out, strlen(checks[_i].out)),
			"expected a line that begins with '%s', got: %s", checks[_i].out, line);
	ck_assert_int_eq(n, 3);
}
END_TEST

START_TEST(a_watched_check_goes_on_from_state_to_state)
{
	struct stat_running running;
	pid_t pid;

	STAT_START(&running, "check", "--watch=0.01", "--warn=ooms=3");
	ck_assert(stat_next_line(&running));
	ck_assert_str_eq(running.line, "GPUPOOL UNKNOWN - no process with gpupool\n");
	pid = peer_start(PEER_ANSWERS, NULL);
	stat_await(&running, "GPUPOOL OK - 1 process | '");
	peer_kill(pid);
	stat_await(&running, "GPUPOOL UNKNOWN - no process with gpupool\n");
	kill(running.pid, SIGTERM);
	stat_finish(&running);
}
END_TEST

START_TEST(a_watched_check_of_a_process_that_ends_is_unknown_at_the_end)
{
	struct stat_running running;
	pid_t pid = peer_start(PEER_ANSWERS, NULL);
	char last[sizeof(running.line)] = "", expected[128];

	STAT_START(&running, "check", "--watch=0.01", "--warn=ooms=3", stat_word(pid));
	stat_await(&running, "GPUPOOL OK - 1 process | '");
	peer_kill(pid);
	while (stat_next_line(&running))
		strcpy(last, running.line);
	snprintf(expected, sizeof(expected), "GPUPOOL UNKNOWN - pid %d does not exist.\n", (int)pid);
	ck_assert_str_eq(last, expected);
	ck_assert_int_eq(WEXITSTATUS(stat_finish(&running)), 3);
}
END_TEST

/* PID stands for the process id. */
static const struct {
	const char *words[STAT_WORDS];
	const char *out; /* the whole output, or its beginning */
} screens[] = {
	{{"stacks", "PID", "--watch=0.01", "--count=3"},
		"call stacks are off\n\ncall stacks are off\n\ncall stacks are off\n"},
	{{"config", "PID", "--watch=0.01", "--count=3"}, "SETTING              SOURCE       VALUE\n"},
	{{"limit", "get", "--watch=0.01", "--count=3"}, "DEVICE     LIMIT   COUNTED\n"},
	{{"region", "list", "--watch=0.01", "--count=3"}, "DEVICE   USED    CACHED  PENDING"},
};

START_TEST(watched_screens_are_separated_by_an_empty_line)
{
	const char *pid = stat_word(peer_start(PEER_ANSWERS, NULL)), *at = stat_out;
	const char *words[STAT_WORDS];
	int n = 0;

	for (int i = 0; i < STAT_WORDS; i++) {
		words[i] = screens[_i].words[i];
		if (words[i] && !strcmp(words[i], "PID"))
			words[i] = pid;
	}
	ck_assert_int_eq(stat_execute(geteuid(), words), 0);
	ck_assert_ptr_eq(strstr(stat_out, screens[_i].out), stat_out);
	for (; (at = strstr(at, "\n\n")) != NULL; at += 2)
		n++;
	ck_assert_int_eq(n, 2);
	ck_assert_str_eq(stat_err, "");
}
END_TEST

static const char *const no_seconds[] = {"", "0", "-1", "0.001", "86401", "1e9", "x", "1s", "1,5", "1 2", "nan", "inf"};

START_TEST(a_watch_interval_that_is_not_a_number_of_seconds_is_refused)
{
	char option[32], why[96];
	const char *words[STAT_WORDS] = {"config", option};

	snprintf(option, sizeof(option), "--watch=%s", no_seconds[_i]);
	snprintf(why, sizeof(why), "--watch: '%s' is not a number of seconds from 0.01 to 86400.\n", no_seconds[_i]);
	stat_check_refused(words, why);
	ck_assert_int_eq(STAT("check", option), 3);
	stat_check_in(stat_err, why);
	ck_assert_str_eq(stat_out, "");
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, a_command_that_does_not_take_watch_says_why, 0, LENGTH(once));
	tcase_add_test(tc, every_watched_command_prints_one_json_object_each_time);
	tcase_add_test(tc, every_repetition_of_openmetrics_is_complete);
	tcase_add_test(tc, repetitions_of_the_prometheus_format_are_separated_by_an_empty_line);
	tcase_add_loop_test(
		tc, a_watched_check_prints_a_line_each_time_and_exits_with_the_last_state, 0, LENGTH(checks));
	tcase_add_test(tc, a_watched_check_goes_on_from_state_to_state);
	tcase_add_test(tc, a_watched_check_of_a_process_that_ends_is_unknown_at_the_end);
	tcase_add_loop_test(tc, watched_screens_are_separated_by_an_empty_line, 0, LENGTH(screens));
	tcase_add_loop_test(tc, a_watch_interval_that_is_not_a_number_of_seconds_is_refused, 0, LENGTH(no_seconds));
}

int main(int argc, char **argv)
{
	return stat_main(argc, argv, "stat_repeat", add);
}
