/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The report of an out-of-memory, which outlives its process, and gpupool-stat, which reads it. */

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "play.h"
#include "common/oom_name.h"

enum { KEPT = 64 };

static char output[64 * 1024];

static int run_stat(const char *words)
{
	return play_run_stat(words, output, sizeof(output));
}

static void check_in(const char *text, const char *part)
{
	ck_assert_msg(strstr(text, part), "expected '%s' in: %s", part, text);
}

static void play(const char *program, const char *scenario, const char *const *env)
{
	play_run(&(struct play){.program = program, .words = {scenario}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
}

/* Counts the names in the socket directory that end with end, and stores the last of them. */
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

START_TEST(an_out_of_memory_report_can_be_read_after_its_process_has_ended)
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
	snprintf(words, sizeof(words), "next: run gpupool-stat oom %d to see the blocks in the way", (int)pid);
	check_in(play_err, words);
	snprintf(words, sizeof(words), "oom %d", (int)pid);
	ck_assert_int_eq(run_stat(words), 0);
	check_in(output, " has ended: ");
	check_in(output, "/app_short leak\n1 out-of-memory error; the last ");
	check_in(output, " on device 0: a request for 3.00 MiB failed\n");
	check_in(output, "advice   GPUPOOL_POOL=vmm can combine scattered unused memory\n");
	snprintf(words, sizeof(words), "oom ./%s", name);
	ck_assert_int_eq(run_stat(words), 0);
	check_in(output, " on device 0: a request for 3.00 MiB failed\n");
	snprintf(words, sizeof(words), "oom --json %d", (int)pid);
	ck_assert_int_eq(run_stat(words), 0);
	check_in(output, "\"is_saved\":true");
	ck_assert_int_eq(run_stat("oom"), 0);
	check_in(output, "Processes that ended after an out-of-memory error");
	check_in(output, "3.00 MiB  fragmented  ");
	ck_assert_int_eq(run_stat("list"), 3);
}
END_TEST

START_TEST(a_saved_report_is_found_by_the_job_that_its_process_belonged_to)
{
	const char *const env[] = {"GPUPOOL_LIMIT=200MiB", "GPUPOOL_OOM_FILE=AUTO", "SLURM_JOB_ID=8812",
		"SLURM_PROCID=3", "POD_NAME=\"\n", NULL};

	play("app_short", "leak", env);
	ck_assert_int_eq(run_stat("oom --job=8812 --json"), 0);
	check_in(output, "\"labels\":{\"job\":\"8812\",\"rank\":\"3\",\"pod\":\"\\\"\\n\"},");
	ck_assert_int_eq(run_stat("oom --job=8812"), 0);
	check_in(output, " has ended: ");
	ck_assert_int_eq(run_stat("oom --job=881"), 3);
}
END_TEST

START_TEST(the_saved_report_is_of_the_last_out_of_memory_and_names_call_sites)
{
	const char *const env[] = {"GPUPOOL_LIMIT=256MiB", "GPUPOOL_PINNED_LIMIT=16MiB", "GPUPOOL_STACKS=8", NULL};
	char name[256], words[300];

	play("app_sites", "limited", env);
	ck_assert_uint_eq(count_files(".oom", name), 1);
	snprintf(words, sizeof(words), "oom ./%s", name);
	ck_assert_int_eq(run_stat(words), 0);
	check_in(output, "4 out-of-memory errors; the last ");
	check_in(output, " for pinned memory: a request for 64.0 MiB failed\n");
	check_in(output, "requested at: ");
}
END_TEST

START_TEST(GPUPOOL_OOM_FILE_names_the_report_file_or_switches_it_off)
{
	const char *const off[] = {"GPUPOOL_LIMIT=200MiB", "GPUPOOL_OOM_FILE=Off", NULL};
	const char *const named[] = {"GPUPOOL_LIMIT=200MiB", "GPUPOOL_OOM_FILE=report-%p.json", NULL};
	char name[256], words[300];

	play("app_short", "leak", off);
	ck_assert_uint_eq(count_files(".oom", name), 0);
	check_in(play_err, "next: run gpupool-stat oom ");
	play("app_short", "leak", named);
	ck_assert_uint_eq(count_files(".oom", name), 0);
	ck_assert_uint_eq(count_files(".json", name), 1);
	snprintf(words, sizeof(words), "next: run gpupool-stat oom %s to see ", name);
	check_in(play_err, words);
	snprintf(words, sizeof(words), "oom %s", name);
	ck_assert_int_eq(run_stat(words), 0);
	check_in(output, " on device 0: a request for 3.00 MiB failed\n");
}
END_TEST

/* The figures could differ: a segment is larger than the request, and under a limit the driver gets no request. */
START_TEST(message_screen_and_recording_agree_about_an_out_of_memory)
{
	static const char *const env[][3] = {{"GPUPOOL_RECORD=recording", "GPUPOOL_LIMIT=200MiB"},
		{"GPUPOOL_RECORD=recording", "SIMGPU_MEMORY=204MiB"}};
	static char page[1 << 20];
	char name[256], words[300];
	FILE *file;

	play("app_short", "sieve", env[_i]);
	check_in(play_err, "out of memory on device 0: a request for 4.00 MiB failed\n");
	ck_assert_uint_eq(count_files(".oom", name), 1);
	snprintf(words, sizeof(words), "oom ./%s", name);
	ck_assert_int_eq(run_stat(words), 0);
	check_in(output, " on device 0: a request for 4.00 MiB failed\n");
	ck_assert_int_eq(run_stat("report recording -o page.html"), 0);
	file = fopen("page.html", "r");
	ck_assert_ptr_nonnull(file);
	page[fread(page, 1, sizeof(page) - 1, file)] = '\0';
	fclose(file);
	check_in(page, "\"episodes\":[{");
	ck_assert_uint_eq(play_number(strstr(page, "\"episodes\":[{"), "requested_bytes"), 4 * MIB);
	check_in(strstr(page, "\"episodes\":[{"), "\"is_served\":false");
	ck_assert_uint_eq(play_number(strstr(page, "\"refused\":[{"), "requested_bytes"), 4 * MIB);
}
END_TEST

static void put(const char *name, const char *text)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

START_TEST(the_report_file_replaces_a_link_and_does_not_follow_it)
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

START_TEST(without_a_usable_directory_no_report_is_saved_and_only_log_level_info_says_so)
{
	const char *const quiet[] = {"GPUPOOL_LIMIT=200MiB", "TMPDIR=/proc", NULL};
	const char *const loud[] = {"GPUPOOL_LIMIT=200MiB", "TMPDIR=/proc", "GPUPOOL_LOG=info", NULL};
	char name[256];

	ck_assert_int_eq(chmod(play_dir, 0755), 0);
	play("app_short", "leak", quiet);
	ck_assert_uint_eq(count_files(".oom", name), 0);
	ck_assert_ptr_null(strstr(play_err, "cannot save"));
	check_in(play_err, "cause: fragmentation");
	play("app_short", "leak", loud);
	ck_assert_uint_eq(count_files(".oom", name), 0);
	check_in(play_err, "info: cannot save the out-of-memory report (error ");
	ck_assert_int_eq(chmod(play_dir, 0700), 0);
}
END_TEST

START_TEST(a_report_that_cannot_be_saved_in_the_named_file_is_said_at_once)
{
	const char *const settings[] = {"GPUPOOL_LIMIT=200MiB", "GPUPOOL_OOM_FILE=/dev/null/x", NULL};

	play("app_short", "leak", settings);
	check_in(play_err, "warn: cannot save the out-of-memory report to /dev/null/x (error 20): ");
}
END_TEST

/* Writes 70 reports, the oldest first. */
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

START_TEST(only_the_64_newest_reports_stay_and_other_files_are_untouched)
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
	tcase_add_test(tc, an_out_of_memory_report_can_be_read_after_its_process_has_ended);
	tcase_add_test(tc, a_saved_report_is_found_by_the_job_that_its_process_belonged_to);
	tcase_add_test(tc, the_saved_report_is_of_the_last_out_of_memory_and_names_call_sites);
	tcase_add_test(tc, GPUPOOL_OOM_FILE_names_the_report_file_or_switches_it_off);
	tcase_add_loop_test(tc, message_screen_and_recording_agree_about_an_out_of_memory, 0, 2);
	tcase_add_test(tc, the_report_file_replaces_a_link_and_does_not_follow_it);
	tcase_add_test(tc, without_a_usable_directory_no_report_is_saved_and_only_log_level_info_says_so);
	tcase_add_test(tc, a_report_that_cannot_be_saved_in_the_named_file_is_said_at_once);
	tcase_add_test(tc, only_the_64_newest_reports_stay_and_other_files_are_untouched);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"saved", add}, 1);
}
