/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* gpupool-stat report and convert with -o: a file is written as a whole, or stays as it was. */

#include "stat_peer.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/emulator.h"

/* A message fits into this size, a report does not. */
enum { FILE_LIMIT = 8192 };

static char path[128];

static void name_file(const char *name)
{
	snprintf(path, sizeof(path), "%s/%s", peer_dir, name);
}

static void write_file(const char *text, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	ck_assert_int_eq(chmod(path, mode), 0);
}

static const char *read_file(void)
{
	static char text[256];
	FILE *file = fopen(path, "re");

	ck_assert_ptr_nonnull(file);
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	return text;
}

static void check_nothing_is_beside(int n_expected)
{
	char command[160];

	snprintf(command, sizeof(command), "test $(ls -A '%s' | grep -c -v sock) = %d", peer_dir, n_expected);
	ck_assert_msg(system(command) == 0, "expected no files left behind in %s", peer_dir);
}

static void limit_files(void)
{
	struct rlimit limit = {FILE_LIMIT, FILE_LIMIT};

	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

START_TEST(an_existing_report_stays_if_the_new_one_cannot_be_written)
{
	pid_t pid = peer_start(PEER_ANSWERS, NULL);

	name_file("page.html");
	write_file("precious", 0640);
	limit_files();
	ck_assert_int_eq(STAT("report", stat_word(pid), "-o", path), 1);
	stat_check_in(stat_err, "gpupool-stat: cannot write ");
	stat_check_in(stat_err, "File too large");
	ck_assert_str_eq(read_file(), "precious");
	check_nothing_is_beside(1);
}
END_TEST

START_TEST(a_new_report_that_cannot_be_written_leaves_no_file)
{
	pid_t pid = peer_start(PEER_ANSWERS, NULL);

	name_file("page.html");
	limit_files();
	ck_assert_int_eq(STAT("report", stat_word(pid), "-o", path), 1);
	check_nothing_is_beside(0);
}
END_TEST

START_TEST(output_beyond_the_file_size_limit_is_an_error_without_a_signal)
{
	char command[512];
	pid_t pid = peer_start(PEER_ANSWERS, NULL);
	int status;

	name_file("page.html");
	limit_files();
	snprintf(command, sizeof(command), "exec $" EMULATOR " '%s' report %d >'%s' 2>/dev/null", stat_path, (int)pid,
		path);
	status = system(command);
	ck_assert_msg(WIFEXITED(status), "expected a normal exit, got a signal");
	ck_assert_int_eq(WEXITSTATUS(status), 1);
}
END_TEST

START_TEST(an_existing_output_file_keeps_its_mode_and_the_symlink_to_it)
{
	pid_t pid = peer_start(PEER_ANSWERS, NULL);
	char target[128];
	struct stat st;

	name_file("real");
	write_file("old", 0640);
	strcpy(target, path);
	name_file("link");
	ck_assert_int_eq(symlink(target, path), 0);
	ck_assert_int_eq(STAT("convert", stat_word(pid), "--to=folded", "-o", path), 0);
	ck_assert_int_eq(lstat(path, &st), 0);
	ck_assert(S_ISLNK(st.st_mode));
	ck_assert_int_eq(lstat(target, &st), 0);
	ck_assert_int_eq(st.st_mode & 07777, 0640);
	stat_check_in(read_file(), "solver+0x1000");
	check_nothing_is_beside(2);
}
END_TEST

START_TEST(an_output_file_with_two_names_keeps_both)
{
	pid_t pid = peer_start(PEER_ANSWERS, NULL);
	char other[128];

	name_file("one");
	write_file("old", 0600);
	strcpy(other, path);
	name_file("other");
	ck_assert_int_eq(link(other, path), 0);
	ck_assert_int_eq(STAT("convert", stat_word(pid), "--to=folded", "-o", other), 0);
	stat_check_in(read_file(), "solver+0x1000");
}
END_TEST

/* Returns false if that is not permitted here. */
static bool make_tmp_read_only(void)
{
	return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("/tmp", "/tmp", NULL, MS_BIND, NULL) == 0 &&
	       mount(NULL, "/tmp", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) == 0;
}

START_TEST(convert_reads_a_pipe_even_if_tmp_is_read_only)
{
	char command[1024];
	FILE *out;

	snprintf(path, sizeof(path), "/dev/shm/gpupool-test-%d", (int)getpid());
	write_file(peer_leaks, 0600);
	if (!make_tmp_read_only()) {
		stat_skip("a private mount is not permitted");
		unlink(path);
		return;
	}
	snprintf(command, sizeof(command), "cat '%s' | $" EMULATOR " '%s' convert - --to=folded", path, stat_path);
	out = popen(command, "r");
	ck_assert_ptr_nonnull(out);
	stat_out[fread(stat_out, 1, sizeof(stat_out) - 1, out)] = '\0';
	ck_assert_int_eq(pclose(out), 0);
	stat_check_in(stat_out, "solver+0x1000");
	unlink(path);
	ck_assert_int_eq(umount("/tmp"), 0);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, an_existing_report_stays_if_the_new_one_cannot_be_written);
	tcase_add_test(tc, a_new_report_that_cannot_be_written_leaves_no_file);
	tcase_add_test(tc, output_beyond_the_file_size_limit_is_an_error_without_a_signal);
	tcase_add_test(tc, an_existing_output_file_keeps_its_mode_and_the_symlink_to_it);
	tcase_add_test(tc, an_output_file_with_two_names_keeps_both);
	tcase_add_test(tc, convert_reads_a_pipe_even_if_tmp_is_read_only);
}

int main(int argc, char **argv)
{
	return stat_main(argc, argv, "stat_output", add);
}
