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

#include "shim/oom_name.h"
#include "stat_peer.h"
#include "tests/suite.h"

#define REPORT(command, asked)                                                                                         \
	"{\"schema\":\"gpupool.oom/1\",\"pid\":1,\"command\":\"" command "\",\"n_ooms\":2,\"last\":{\"age_ns\":0,"     \
	"\"time\":1000000000,\"kind\":\"device\",\"device\":0,\"asked_bytes\":" asked ",\"cause\":\"full\"}}"

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

/* A number that no process has any more. */
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
	pid_t pid; /* 0: it is another file's name */
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

START_TEST(a_report_is_known_by_its_name)
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

START_TEST(the_newest_report_of_a_number_is_shown)
{
	pid_t pid = ended();

	put_in(name_of(pid, 7), REPORT("old", "1024"), 1000);
	put_in(name_of(pid, 5), REPORT("new", "2048"), 2000);
	ck_assert_int_eq(STAT("oom", stat_word(pid)), 0);
	stat_check_in(stat_out, " has ended: new\n2 out-of-memory errors; the last ");
	stat_check_in(stat_out, "h ago on device 0: asked for 2.00 KiB\n");
	ck_assert_str_eq(stat_err, "");
	ck_assert_int_eq(STAT("oom"), 0);
	stat_check_in(stat_out, "2.00 KiB  full   new\n");
	stat_check_in(stat_out, "1.00 KiB  full   old\n");
	ck_assert_ptr_null(strstr(strstr(stat_out, "old"), "new"));
	ck_assert_int_eq(STAT("list"), 3);
}
END_TEST

START_TEST(a_process_that_answers_is_asked_and_reports_of_others_with_its_number_are_not_its_own)
{
	pid_t pid = peer_start(PEER_ANSWERS, NULL);

	put_in(name_of(pid, 1), REPORT("before", "2048"), 1000);
	ck_assert_int_eq(STAT("oom", stat_word(pid)), 0);
	stat_check_in(stat_out, "asked for 1.00 GiB\n");
	ck_assert_ptr_null(strstr(stat_out, "before"));
	ck_assert_int_eq(STAT("oom"), 0);
	stat_check_in(stat_out, "asked for 1.00 GiB\n");
	stat_check_in(stat_out, "\nEnded after an out-of-memory error; gpupool-stat oom PID shows it:\n");
	stat_check_in(stat_out, "2.00 KiB  full   before\n");
}
END_TEST

START_TEST(a_process_without_a_socket_has_what_it_has_saved)
{
	pid_t pid = peer_start(PEER_NO_SOCKET, NULL);
	uint64_t start;
	char state;

	ck_assert_int_eq(gp_ctl_process_stat(pid, &start, &state), 0);
	put_in(name_of(pid, start), REPORT("mute", "2048"), 1000);
	ck_assert_int_eq(STAT("oom", stat_word(pid)), 0);
	stat_check_in(stat_out, " cannot be asked; this is what it has saved: mute\n");
	ck_assert_int_eq(STAT("oom"), 3);
}
END_TEST

START_TEST(of_several_processes_each_is_shown)
{
	pid_t gone = ended(), pid = peer_start(PEER_ANSWERS, NULL), missing;

	put_in(name_of(gone, 5), REPORT("gone", "2048"), 1000);
	missing = ended();
	ck_assert_int_eq(STAT("oom", stat_word(gone), stat_word(pid), stat_word(missing)), 3);
	stat_check_in(stat_out, "asked for 1.00 GiB\n");
	stat_check_in(stat_out, " has ended: gone\n");
	stat_check_in(stat_err, " does not exist.\n");
	ck_assert_int_eq(STAT("oom", "--json", stat_word(gone), stat_word(pid)), 0);
	stat_check_in(stat_out, "{\"schema\":\"gpupool.oom-list/1\",\"processes\":[{");
	stat_check_in(stat_out, "\"is_saved\":true");
}
END_TEST

static char hostile_text[GP_OOM_FILE_MAX + 2];

static const char *const hostile[] = {
	"", "{", "[]", "{}", "{\"schema\":\"gpupool.status/1\"}", "{\"schema\":\"gpupool.oom/9\"}",
	"{\"schema\":\"gpupool.oom/1\",\"last\":{\"time\":1}} {}", hostile_text,
};

START_TEST(what_is_no_report_is_as_if_it_were_not_there)
{
	pid_t pid = ended();

	memset(hostile_text, ' ', sizeof(hostile_text) - 1);
	put_in(name_of(pid, 5), hostile[_i], 1000);
	ck_assert_int_eq(STAT("oom", stat_word(pid)), 3);
	stat_check_in(stat_err, " does not exist.\n");
	ck_assert_int_eq(STAT("oom"), 3);
}
END_TEST

START_TEST(neither_links_nor_pipes_are_read)
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
	/* As the user's own choice it may be a link. */
	ck_assert_int_eq(STAT("oom", target), 0);
	stat_check_in(stat_out, "asked for 2.00 KiB\n");
}
END_TEST

START_TEST(what_a_report_says_moves_no_cursor)
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
	{{"oom", "2", "one"}, "'one' is neither a command nor a process id.\n", 2},
	{{"oom", "one", "--watch=1"}, "oom FILE does not take --watch: it asks no process.\n", 2},
	{{"oom", "/dev/null"}, "/dev/null ", 1},
};

START_TEST(a_file_that_is_no_report_is_refused)
{
	ck_assert_int_eq(stat_execute(geteuid(), mistakes[_i].words), mistakes[_i].exit);
	stat_check_in(stat_err, mistakes[_i].err);
	ck_assert_str_eq(stat_out, "");
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, a_report_is_known_by_its_name, 0, LENGTH(names));
	tcase_add_test(tc, the_newest_report_of_a_number_is_shown);
	tcase_add_test(tc, a_process_that_answers_is_asked_and_reports_of_others_with_its_number_are_not_its_own);
	tcase_add_test(tc, a_process_without_a_socket_has_what_it_has_saved);
	tcase_add_test(tc, of_several_processes_each_is_shown);
	tcase_add_loop_test(tc, what_is_no_report_is_as_if_it_were_not_there, 0, LENGTH(hostile));
	tcase_add_test(tc, neither_links_nor_pipes_are_read);
	tcase_add_test(tc, what_a_report_says_moves_no_cursor);
	tcase_add_loop_test(tc, a_file_that_is_no_report_is_refused, 0, LENGTH(mistakes));
}

int main(int argc, char **argv)
{
	return stat_main(argc, argv, "stat_saved", add);
}
