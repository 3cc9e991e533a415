/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Each command reports processes that were left out, in its own output format. */

#include "stat_peer.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { STRANGER = 65533, N_NAMES = 1100 };

/* Makes more names than root reads in the directory of another user. */
static void leave_names(void)
{
	char path[128];
	int fd;

	for (int i = 0; i < N_NAMES; i++) {
		snprintf(path, sizeof(path), "%s/%d.%d.sock", peer_dir, 2000000 + i, 1 + i);
		fd = open(path, O_CREAT | O_WRONLY, 0600);
		ck_assert_int_ge(fd, 0);
		close(fd);
	}
	ck_assert_int_eq(chown(peer_dir, STRANGER, (gid_t)-1), 0);
}

#define LEFT_OUT "processes beyond the share of their user (768), directories with too many entries (1)"

static const struct {
	const char *words[STAT_WORDS];
	int exit;
	bool is_on_stderr;
	const char *part;
} incomplete[] = {
	{{"list"}, 1, true, "gpupool-stat: not all processes were asked; left out: " LEFT_OUT ".\n"},
	{{"list", "--json"}, 1, false, "],\"incomplete\":\"" LEFT_OUT "\"}\n"},
	{{"status", "--json"}, 1, false, "],\"incomplete\":\"" LEFT_OUT "\"}\n"},
	{{"metrics"}, 0, false, "\ngpupool_incomplete 1\n"},
	{{"metrics"}, 0, true, "left out: " LEFT_OUT ".\n"},
	{{"reclaim"}, 2, true,
		"there may be more processes than these (left out: " LEFT_OUT "); name the one to change:\n"},
	{{"check"}, 3, false, "not all processes were asked; left out: " LEFT_OUT},
};

START_TEST(processes_that_were_left_out_are_reported_in_every_format)
{
	leave_names();
	ck_assert_int_eq(stat_execute(geteuid(), incomplete[_i].words), incomplete[_i].exit);
	stat_check_in(incomplete[_i].is_on_stderr ? stat_err : stat_out, incomplete[_i].part);
}
END_TEST

static const char *const complete[][STAT_WORDS] = {
	{"list"}, {"list", "--json"}, {"metrics"}, {"check", "--warn=ooms=1000"}};

START_TEST(a_complete_survey_reports_nothing_as_left_out)
{
	peer_start(PEER_ANSWERS, NULL);
	ck_assert_int_eq(stat_execute(geteuid(), complete[_i]), 0);
	ck_assert_str_eq(stat_err, "");
	ck_assert_ptr_null(strstr(stat_out, "\"incomplete\""));
	ck_assert_ptr_null(strstr(stat_out, "\ngpupool_incomplete 1\n"));
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, a_complete_survey_reports_nothing_as_left_out, 0, LENGTH(complete));
	if (geteuid() == 0)
		tcase_add_loop_test(
			tc, processes_that_were_left_out_are_reported_in_every_format, 0, LENGTH(incomplete));
	else
		stat_skip("directories of other users need root");
}

int main(int argc, char **argv)
{
	return stat_main(argc, argv, "stat_incomplete", add);
}
