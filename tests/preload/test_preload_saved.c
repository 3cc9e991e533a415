/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The report of an out-of-memory that outlives its process, and gpupool-stat, which reads it. */

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "play.h"
#include "shim/oom_name.h"

enum { KEPT = 64 };

static char said[64 * 1024];

static int stat_says(const char *words)
{
	return play_stat_says(words, said, sizeof(said));
}

static void check_in(const char *text, const char *part)
{
	ck_assert_msg(strstr(text, part), "'%s' is not in %s", part, text);
}

static void play(const char *program, const char *scenario, const char *const *env)
{
	play_run(&(struct play){.program = program, .words = {scenario}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
}

/* The names in the socket directory that end so; the last of them. */
static unsigned count_files(const char *end, char last[static 256])
{
	DIR *dir = opendir(play_dir);
	const struct dirent *entry;
	unsigned n = 0;

	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir))) {
		size_t length = strlen(entry->d_name);

		if (length < strlen(end) || strcmp(entry->d_name + length - strlen(end), end))
			continue;
		snprintf(last, 256, "%s", entry->d_name);
		n++;
	}
	closedir(dir);
	return n;
}

static const char *const limited[] = {"GPUPOOL_LIMIT=200MiB", "GPUPOOL_OOM_FILE=AUTO", NULL};

START_TEST(the_report_of_an_out_of_memory_outlives_its_process)
{
	char name[256], words[300];
	struct stat st;
	uint64_t start;
	pid_t pid;

	play("app_short", "leak", limited);
	ck_assert_uint_eq(count_files(".oom", name), 1);
	ck_assert(gp_oom_name_parse(name, &pid, &start));
	ck_assert_int_eq(stat(name, &st), 0);
	ck_assert_int_eq(st.st_mode & 07777, 0600);
	ck_assert_int_le(st.st_size, GP_OOM_FILE_MAX);
	snprintf(words, sizeof(words), "next: gpupool-stat oom %d shows the blocks in the way", (int)pid);
	check_in(play_err, words);
	snprintf(words, sizeof(words), "oom %d", (int)pid);
	ck_assert_int_eq(stat_says(words), 0);
	check_in(said, " has ended: ");
	check_in(said, "/app_short leak\n1 out-of-memory error; the last ");
	check_in(said, " on device 0: asked for 3.00 MiB\n");
	check_in(said, "advice   GPUPOOL_POOL=vmm can move free memory together\n");
	snprintf(words, sizeof(words), "oom ./%s", name);
	ck_assert_int_eq(stat_says(words), 0);
	check_in(said, " on device 0: asked for 3.00 MiB\n");
	snprintf(words, sizeof(words), "oom --json %d", (int)pid);
	ck_assert_int_eq(stat_says(words), 0);
	check_in(said, "\"is_saved\":true");
	ck_assert_int_eq(stat_says("oom"), 0);
	check_in(said, "Ended after an out-of-memory error");
	check_in(said, "3.00 MiB  fragmented  ");
	ck_assert_int_eq(stat_says("list"), 3);
}
END_TEST

START_TEST(the_report_is_of_the_last_error_and_names_call_sites)
{
	const char *const env[] = {"GPUPOOL_LIMIT=256MiB", "GPUPOOL_PINNED_LIMIT=16MiB", "GPUPOOL_STACKS=8", NULL};
	char name[256], words[300];

	play("app_sites", "limited", env);
	ck_assert_uint_eq(count_files(".oom", name), 1);
	snprintf(words, sizeof(words), "oom ./%s", name);
	ck_assert_int_eq(stat_says(words), 0);
	check_in(said, "4 out-of-memory errors; the last ");
	check_in(said, " on pinned memory: asked for 64.0 MiB\n");
	check_in(said, "asked at: ");
}
END_TEST

START_TEST(the_setting_chooses_the_file_or_none)
{
	const char *const off[] = {"GPUPOOL_LIMIT=200MiB", "GPUPOOL_OOM_FILE=Off", NULL};
	const char *const named[] = {"GPUPOOL_LIMIT=200MiB", "GPUPOOL_OOM_FILE=report-%p.json", NULL};
	char name[256], words[300];

	play("app_short", "leak", off);
	ck_assert_uint_eq(count_files(".oom", name), 0);
	check_in(play_err, "next: gpupool-stat oom ");
	play("app_short", "leak", named);
	ck_assert_uint_eq(count_files(".oom", name), 0);
	ck_assert_uint_eq(count_files(".json", name), 1);
	snprintf(words, sizeof(words), "next: gpupool-stat oom %s shows ", name);
	check_in(play_err, words);
	snprintf(words, sizeof(words), "oom %s", name);
	ck_assert_int_eq(stat_says(words), 0);
	check_in(said, " on device 0: asked for 3.00 MiB\n");
}
END_TEST

/* A segment of the pool's is larger than what was asked for, and the driver is not asked for what a limit forbids. */
START_TEST(the_message_the_screen_and_the_report_of_a_recording_say_the_same)
{
	static const char *const env[][3] = {
		{"GPUPOOL_RECORD=recording", "GPUPOOL_LIMIT=200MiB"},
		{"GPUPOOL_RECORD=recording", "SIMGPU_MEMORY=204MiB"}};
	static char page[1 << 20];
	char name[256], words[300];
	FILE *file;

	play("app_short", "sieve", env[_i]);
	check_in(play_err, "out of memory on device 0: asked for 4.00 MiB\n");
	ck_assert_uint_eq(count_files(".oom", name), 1);
	snprintf(words, sizeof(words), "oom ./%s", name);
	ck_assert_int_eq(stat_says(words), 0);
	check_in(said, " on device 0: asked for 4.00 MiB\n");
	ck_assert_int_eq(stat_says("report recording -o page.html"), 0);
	file = fopen("page.html", "r");
	ck_assert_ptr_nonnull(file);
	page[fread(page, 1, sizeof(page) - 1, file)] = '\0';
	fclose(file);
	check_in(page, "\"episodes\":[{");
	ck_assert_uint_eq(play_number(strstr(page, "\"episodes\":[{"), "asked_bytes"), 4 * MIB);
	check_in(strstr(page, "\"episodes\":[{"), "\"is_served\":false");
	ck_assert_uint_eq(play_number(strstr(page, "\"refused\":[{"), "asked_bytes"), 4 * MIB);
}
END_TEST

static void put(const char *name, const char *text)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

START_TEST(no_link_is_followed)
{
	const char *const env[] = {"GPUPOOL_LIMIT=200MiB", "GPUPOOL_OOM_FILE=report", NULL};
	struct stat st;

	put("victim", "precious");
	ck_assert_int_eq(symlink("victim", "report"), 0);
	ck_assert_int_eq(symlink("victim", "report.new"), 0);
	play("app_short", "leak", env);
	ck_assert_int_eq(stat("victim", &st), 0);
	ck_assert_int_eq(st.st_size, 8);
	ck_assert_int_eq(lstat("report", &st), 0);
	ck_assert(S_ISREG(st.st_mode));
	ck_assert_int_eq(st.st_mode & 07777, 0600);
	ck_assert_int_eq(lstat("report.new", &st), -1);
}
END_TEST

START_TEST(where_no_directory_is_usable_there_is_no_file_and_one_line_for_who_wants_to_know)
{
	const char *const quiet[] = {"GPUPOOL_LIMIT=200MiB", "TMPDIR=/proc", NULL};
	const char *const loud[] = {"GPUPOOL_LIMIT=200MiB", "TMPDIR=/proc", "GPUPOOL_LOG=info", NULL};
	char name[256];

	ck_assert_int_eq(chmod(play_dir, 0755), 0);
	play("app_short", "leak", quiet);
	ck_assert_uint_eq(count_files(".oom", name), 0);
	ck_assert_ptr_null(strstr(play_err, "not saved"));
	check_in(play_err, "cause: fragmentation");
	play("app_short", "leak", loud);
	ck_assert_uint_eq(count_files(".oom", name), 0);
	check_in(play_err, "info: the report of the out-of-memory is not saved (error ");
	ck_assert_int_eq(chmod(play_dir, 0700), 0);
}
END_TEST

/* 70 of them, the first the oldest. */
static void put_old_reports(void)
{
	for (int i = 0; i < 70; i++) {
		struct timespec times[2] = {{.tv_sec = 1000000 + i}, {.tv_sec = 1000000 + i}};
		char name[64];

		snprintf(name, sizeof(name), "%d.%d.oom", 4000001 + i, i + 1);
		put(name, "{}");
		ck_assert_int_eq(utimensat(AT_FDCWD, name, times, 0), 0);
	}
}

START_TEST(the_newest_reports_stay_and_other_files_are_left_alone)
{
	char name[256];

	put_old_reports();
	put("notes.oom", "mine");
	put("07.1.oom", "mine");
	put("4000001.1.oom.new", "half");
	play("app_short", "leak", limited);
	ck_assert_uint_eq(count_files(".oom", name), KEPT + 2);
	ck_assert_int_eq(access("4000007.7.oom", F_OK), -1);
	ck_assert_int_eq(access("4000008.8.oom", F_OK), 0);
	ck_assert_int_eq(access("notes.oom", F_OK), 0);
	ck_assert_int_eq(access("07.1.oom", F_OK), 0);
	ck_assert_int_eq(access("4000001.1.oom.new", F_OK), -1);
	play("app_short", "leak", limited);
	ck_assert_uint_eq(count_files(".oom", name), KEPT + 2);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, the_report_of_an_out_of_memory_outlives_its_process);
	tcase_add_test(tc, the_report_is_of_the_last_error_and_names_call_sites);
	tcase_add_test(tc, the_setting_chooses_the_file_or_none);
	tcase_add_loop_test(tc, the_message_the_screen_and_the_report_of_a_recording_say_the_same, 0, 2);
	tcase_add_test(tc, no_link_is_followed);
	tcase_add_test(tc, where_no_directory_is_usable_there_is_no_file_and_one_line_for_who_wants_to_know);
	tcase_add_test(tc, the_newest_reports_stay_and_other_files_are_left_alone);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"saved", add}, 1);
}
