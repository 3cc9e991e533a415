/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* gpupool-stat oom: reports that processes have left behind, good or bad. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/oom_name.h"
#include "stat_peer.h"
#include "tests/suite.h"

#define REPORT(command, asked)                                                                                     \
	"{\"schema\":\"gpupool.oom/2\",\"pid\":1,\"command\":\"" command "\",\"n_ooms\":2,\"last\":{\"age_ns\":0," \
	"\"time\":1000000000,\"kind\":\"device\",\"device\":0,\"requested_bytes\":" asked ",\"cause\":\"full\"}}"

static void put_in(const char *name, const char *text, long seconds)
{
	const struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", peer_dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	ck_assert_int_eq(futimens(fd, times), 0);
	close(fd);
}

/* Returns the id of a process that has ended. */
static pid_t ended(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	ck_assert_int_gt(pid, 0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	return pid;
}

static const char *name_of(pid_t pid, uint64_t start)
{
	static char name[GP_CTL_NAME_MAX];

	gp_oom_name_format(name, pid, start);
	return name;
}

static const struct {
	const char *name;
	pid_t pid; /* 0: not the name of a report */
	uint64_t start;
} names[] = {
	{"1.2.oom", 1, 2},
	{"2147483647.18446744073709551615.oom", 2147483647, UINT64_MAX},
	{"1.2.sock", 0, 0},
	{"1.2.oom.new", 0, 0},
	{".oom", 0, 0},
	{"oom", 0, 0},
	{"", 0, 0},
	{"1.oom", 0, 0},
	{"01.2.oom", 0, 0},
	{"0.2.oom", 0, 0},
	{"-1.2.oom", 0, 0},
	{"1.2.3.oom", 0, 0},
	{"2147483648.1.oom", 0, 0},
	{"1.000000000000000000000000000000000000000000000000000000000000000002.oom", 0, 0},
};

START_TEST(an_oom_report_is_recognised_by_its_file_name)
{
	uint64_t start = 0;
	pid_t pid = 0;

	ck_assert_int_eq(gp_oom_name_parse(names[_i].name, &pid, &start), names[_i].pid != 0);
	ck_assert_int_eq(pid, names[_i].pid);
	ck_assert_uint_eq(start, names[_i].start);
	if (names[_i].pid)
		ck_assert_str_eq(name_of(pid, start), names[_i].name);
}
END_TEST

START_TEST(the_newest_oom_report_of_a_process_id_is_shown)
{
	pid_t pid = ended();

	put_in(name_of(pid, 7), REPORT("old", "1024"), 1000);
	put_in(name_of(pid, 5), REPORT("new", "2048"), 2000);
	ck_assert_int_eq(STAT("oom", stat_word(pid)), 0);
	stat_check_in(stat_out, " has ended: new\n2 out-of-memory errors; the last ");
	stat_check_in(stat_out, "h ago on device 0: a request for 2.00 KiB failed\n");
	ck_assert_str_eq(stat_err, "");
	ck_assert_int_eq(STAT("oom"), 0);
	stat_check_in(stat_out, "2.00 KiB  full   new\n");
	stat_check_in(stat_out, "1.00 KiB  full   old\n");
	ck_assert_ptr_null(strstr(strstr(stat_out, "old"), "new"));
	ck_assert_int_eq(STAT("list"), 3);
}
END_TEST

START_TEST(oom_shows_the_memory_of_other_processes_and_the_reason_for_no_wait)
{
	pid_t pid = peer_start(PEER_ANSWERS, NULL);

	ck_assert_int_eq(STAT("oom", stat_word(pid)), 0);
	stat_check_in(stat_out, "process 8 was asked and released 0 B, and holds 1.00 MiB\n");
	stat_check_in(stat_out, "process 9 was asked and released 512 B\n");
	stat_check_in(stat_out, "no wait for other processes: not even all that they hold would have been enough\n");
}
END_TEST

static const struct {
	const char *exporter, *line;
} exporters[] = {
	{"{\"answer\":\"answered\",\"released_bytes\":512,\"held_bytes\":1048576}",
		"the exporter was asked: processes of other users and containers released 512 B; all processes but "
		"this "
		"one hold 1.00 MiB\n"},
	{"{\"answer\":\"answered\",\"released_bytes\":0,\"held_bytes\":0}",
		"the exporter was asked: processes of other users and containers released 0 B\n"},
	{"{\"answer\":\"refused\"}",
		"the exporter was asked: it refused to ask processes of other users and containers\n"},
	{"{\"answer\":\"busy\"}",
		"the exporter was asked: it was busy, or this user has asked too much within the last minute\n"},
	{"{\"answer\":\"silent\"}", "the exporter was asked: it did not answer\n"},
	{"{\"answer\":\"invalid\"}", "the exporter was asked: it gave an invalid answer\n"},
	{"{\"answer\":\"\\u001b\"}", NULL},
	{"[1]", NULL},
	{"null", NULL},
};

START_TEST(oom_shows_the_answer_of_an_exporter_that_passes_yields_on)
{
	char answer[1024];

	snprintf(answer, sizeof(answer),
		"{\"schema\":\"gpupool.oom/2\",\"pid\":7,\"n_ooms\":1,\"last\":{\"kind\":\"device\",\"device\":0,"
		"\"requested_bytes\":1024,\"cause\":\"full\",\"exporter\":%s}}",
		exporters[_i].exporter);
	ck_assert_int_eq(STAT("oom", stat_word(peer_start(PEER_ANSWERS, answer))), 0);
	if (exporters[_i].line)
		stat_check_in(stat_out, exporters[_i].line);
	else
		ck_assert_ptr_null(strstr(stat_out, "exporter"));
}
END_TEST

START_TEST(oom_asks_a_live_process_and_ignores_reports_of_earlier_ones_with_its_pid)
{
	pid_t pid = peer_start(PEER_ANSWERS, NULL);

	put_in(name_of(pid, 1), REPORT("before", "2048"), 1000);
	ck_assert_int_eq(STAT("oom", stat_word(pid)), 0);
	stat_check_in(stat_out, "a request for 1.00 GiB failed\n");
	ck_assert_ptr_null(strstr(stat_out, "before"));
	ck_assert_int_eq(STAT("oom"), 0);
	stat_check_in(stat_out, "a request for 1.00 GiB failed\n");
	stat_check_in(
		stat_out, "\nProcesses that ended after an out-of-memory error (gpupool-stat oom PID shows it):\n");
	stat_check_in(stat_out, "2.00 KiB  full   before\n");
}
END_TEST

START_TEST(oom_shows_the_saved_report_of_a_process_without_a_socket)
{
	pid_t pid = peer_start(PEER_NO_SOCKET, NULL);
	uint64_t start;
	char state;

	ck_assert_int_eq(gp_ctl_process_stat(pid, &start, &state), 0);
	put_in(name_of(pid, start), REPORT("mute", "2048"), 1000);
	ck_assert_int_eq(STAT("oom", stat_word(pid)), 0);
	stat_check_in(stat_out, " cannot be asked; this is its saved report: mute\n");
	ck_assert_int_eq(STAT("oom"), 3);
}
END_TEST

/* An earlier process had the id on this machine, or a process has it in another container. */
START_TEST(oom_shows_the_report_of_the_process_that_runs_not_a_later_one_with_its_pid)
{
	pid_t pid = peer_start(PEER_NO_SOCKET, NULL);
	uint64_t start;
	char state;

	ck_assert_int_eq(gp_ctl_process_stat(pid, &start, &state), 0);
	put_in(name_of(pid, start - 1), REPORT("earlier", "1024"), 2000);
	put_in(name_of(pid, start), REPORT("running", "2048"), 1000);
	put_in(name_of(pid, start + 1), REPORT("elsewhere", "4096"), 3000);
	ck_assert_int_eq(STAT("oom", stat_word(pid)), 0);
	stat_check_in(stat_out, " cannot be asked; this is its saved report: running\n");
	ck_assert_ptr_null(strstr(stat_out, "earlier"));
	ck_assert_ptr_null(strstr(stat_out, "elsewhere"));
}
END_TEST

START_TEST(oom_shows_each_of_several_processes)
{
	pid_t ended_pid = ended(), pid = peer_start(PEER_ANSWERS, NULL), missing;

	put_in(name_of(ended_pid, 5), REPORT("gone", "2048"), 1000);
	missing = ended();
	ck_assert_int_eq(STAT("oom", stat_word(ended_pid), stat_word(pid), stat_word(missing)), 3);
	stat_check_in(stat_out, "a request for 1.00 GiB failed\n");
	stat_check_in(stat_out, " has ended: gone\n");
	stat_check_in(stat_err, " does not exist.\n");
	ck_assert_int_eq(STAT("oom", "--json", stat_word(ended_pid), stat_word(pid)), 0);
	stat_check_in(stat_out, "{\"schema\":\"gpupool.oom-list/2\",\"processes\":[{");
	stat_check_in(stat_out, "\"is_saved\":true");
}
END_TEST

static char hostile_text[GP_OOM_FILE_MAX + 2];

static const char *const hostile[] = {
	"",
	"{",
	"[]",
	"{}",
	"{\"schema\":\"gpupool.status/2\"}",
	"{\"schema\":\"gpupool.oom/9\"}",
	"{\"schema\":\"gpupool.oom/2\",\"last\":{\"time\":1}} {}",
	hostile_text,
};

START_TEST(a_malformed_saved_oom_report_is_ignored)
{
	pid_t pid = ended();

	memset(hostile_text, ' ', sizeof(hostile_text) - 1);
	put_in(name_of(pid, 5), hostile[_i], 1000);
	ck_assert_int_eq(STAT("oom", stat_word(pid)), 3);
	stat_check_in(stat_err, " does not exist.\n");
	ck_assert_int_eq(STAT("oom"), 3);
}
END_TEST

START_TEST(symlinks_and_fifos_are_not_read_as_oom_reports)
{
	pid_t pid = ended(), other = ended();
	char path[256], target[256];

	put_in("report", REPORT("linked", "2048"), 1000);
	snprintf(target, sizeof(target), "%s/report", peer_dir);
	snprintf(path, sizeof(path), "%s/%s", peer_dir, name_of(pid, 5));
	ck_assert_int_eq(symlink(target, path), 0);
	snprintf(path, sizeof(path), "%s/%s", peer_dir, name_of(other, 5));
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(STAT("oom", stat_word(pid)), 3);
	ck_assert_int_eq(STAT("oom", stat_word(other)), 3);
	/* A file that the user names is read under any name. */
	ck_assert_int_eq(STAT("oom", target), 0);
	stat_check_in(stat_out, "a request for 2.00 KiB failed\n");
}
END_TEST

START_TEST(control_characters_in_an_oom_report_never_reach_the_terminal)
{
	pid_t pid = ended();

	put_in(name_of(pid, 5), REPORT("a\\u001b[2J\\nb", "9223372036854775807"), 1000);
	ck_assert_int_eq(STAT("oom", stat_word(pid)), 0);
	ck_assert_ptr_null(strchr(stat_out, '\033'));
	stat_check_in(stat_out, " has ended: a?[2J?b\n");
	ck_assert_int_eq(STAT("oom"), 0);
	ck_assert_ptr_null(strchr(stat_out, '\033'));
}
END_TEST

static const struct {
	const char *words[STAT_WORDS], *err;
	int exit;
} mistakes[] = {
	{{"oom", "nowhere"}, "nowhere cannot be read: No such file or directory.\n", 1},
	{{"oom", "one", "two"}, "oom takes process ids, or one file.\n", 2},
	{{"oom", "one", "2"}, "oom takes process ids, or one file.\n", 2},
	{{"oom", "2", "one"}, "'one' is not a process id.\n", 2},
	{{"oom", "one", "--watch=1"}, "oom FILE does not take --watch: it reads a file, which does not change.\n", 2},
	{{"oom", "/dev/null"}, "/dev/null ", 1},
};

START_TEST(a_file_that_is_not_an_oom_report_is_refused)
{
	ck_assert_int_eq(stat_execute(geteuid(), mistakes[_i].words), mistakes[_i].exit);
	stat_check_in(stat_err, mistakes[_i].err);
	ck_assert_str_eq(stat_out, "");
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, an_oom_report_is_recognised_by_its_file_name, 0, LENGTH(names));
	tcase_add_test(tc, the_newest_oom_report_of_a_process_id_is_shown);
	tcase_add_test(tc, oom_shows_the_memory_of_other_processes_and_the_reason_for_no_wait);
	tcase_add_loop_test(tc, oom_shows_the_answer_of_an_exporter_that_passes_yields_on, 0, LENGTH(exporters));
	tcase_add_test(tc, oom_asks_a_live_process_and_ignores_reports_of_earlier_ones_with_its_pid);
	tcase_add_test(tc, oom_shows_the_saved_report_of_a_process_without_a_socket);
	tcase_add_test(tc, oom_shows_the_report_of_the_process_that_runs_not_a_later_one_with_its_pid);
	tcase_add_test(tc, oom_shows_each_of_several_processes);
	tcase_add_loop_test(tc, a_malformed_saved_oom_report_is_ignored, 0, LENGTH(hostile));
	tcase_add_test(tc, symlinks_and_fifos_are_not_read_as_oom_reports);
	tcase_add_test(tc, control_characters_in_an_oom_report_never_reach_the_terminal);
	tcase_add_loop_test(tc, a_file_that_is_not_an_oom_report_is_refused, 0, LENGTH(mistakes));
}

int main(int argc, char **argv)
{
	return stat_main(argc, argv, "stat_saved", add);
}
