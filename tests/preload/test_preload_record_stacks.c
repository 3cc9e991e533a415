/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Recordings with call stacks: what they have, and what they cost a recording without stacks. */

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "play.h"

#ifdef HAS_SYMBOLS
#define AT(function) function " (app_sites.c:"
#else
#define AT(function) "app_sites+0x"
#endif

enum { TITLE_LENGTH = 20 };

static char answer[256 * 1024]; /* output of gpupool-stat */

static void check_in(const char *text, const char *part)
{
	ck_assert_msg(strstr(text, part), "expected '%s' in: %s", part, text);
}

/* Records a scenario into the file "rec". setting: GPUPOOL_STACKS=..., or NULL. */
static void record(const char *program, const char *word, const char *setting)
{
	const char *const env[] = {"GPUPOOL_RECORD=rec", "GPUPOOL_LOG=off", setting, NULL};

	play_run(&(struct play){.program = program, .words = {word}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
}

static const char *says(const char *words)
{
	ck_assert_int_eq(play_run_stat(words, answer, sizeof(answer)), 0);
	return answer;
}

/* Returns the bytes at the end of the line that has this text; 0 if there is no such line. */
static unsigned long long bytes_of(const char *text)
{
	unsigned long long sum = 0;
	char *rest = NULL;
	static char lines[sizeof(answer)];

	strcpy(lines, answer);
	for (char *line = strtok_r(lines, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		const char *blank = strrchr(line, ' ');

		if (strstr(line, text) && blank)
			sum += strtoull(blank, NULL, 10);
	}
	return sum;
}

static void read_title(const char *name, char title[static TITLE_LENGTH + 1])
{
	FILE *file = fopen(name, "re");

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fread(title, 1, TITLE_LENGTH, file), TITLE_LENGTH);
	title[TITLE_LENGTH] = '\0';
	fclose(file);
}

START_TEST(a_recording_shows_after_its_process_which_code_held_memory_at_the_peak)
{
	char title[TITLE_LENGTH + 1];

	record("app_sites", "leaks", "GPUPOOL_STACKS=8");
	read_title("rec", title);
	ck_assert_str_eq(title, "gpupool-recording 2\n");
	says("convert --to=folded rec");
#ifdef HAS_SYMBOLS
	ck_assert_uint_eq(bytes_of(AT("keep_large")), 3 * MIB);
	ck_assert_uint_eq(bytes_of(AT("keep_many")), 5 * 4096);
	ck_assert_uint_eq(bytes_of(AT("keep_few")), 2 * 4096);
#endif
	ck_assert_uint_eq(bytes_of(AT("leaks")), 3 * MIB + 7 * 4096);
	check_in(says("convert --to=folded --pinned rec"), " 2097152\n");
	/* Everything has been freed at the end. */
	ck_assert_str_eq(says("convert --to=folded --at=end rec"), "");
	ck_assert_str_eq(says("convert --to=folded --at=0 rec"), "");
	ck_assert_str_eq(says("convert --to=folded --device=1 rec"), "");
}
END_TEST

START_TEST(a_recording_without_stacks_has_a_title_of_its_own)
{
	char title[TITLE_LENGTH + 1];
	struct stat plain, counted;
	char text[1024];

	record("app_sites", "leaks", NULL);
	read_title("rec", title);
	ck_assert_str_eq(title, "gpupool-recording 3\n");
	ck_assert_int_eq(stat("rec", &plain), 0);
	ck_assert_int_eq(play_run_stat("convert --to=folded rec", text, sizeof(text)), 1);
	check_in(says("replay --json --pool=split rec"), "\"has_end\":true");
	ck_assert_int_eq(unlink("rec"), 0);
	/* An event takes a few bytes more: the number of its stack. */
	record("app_sites", "leaks", "GPUPOOL_STACKS=1");
	ck_assert_int_eq(stat("rec", &counted), 0);
	ck_assert_int_gt(counted.st_size, plain.st_size);
	ck_assert_int_lt(counted.st_size, 2 * plain.st_size);
}
END_TEST

START_TEST(a_recording_has_the_command_line_of_its_process)
{
	record("app_sites", "leaks", _i ? "GPUPOOL_STACKS=1" : NULL);
	check_in(says("replay --pool=split rec"), "\n    gpupool-run --pool=split ");
	check_in(answer, "app_sites leaks\n");
}
END_TEST

START_TEST(each_distinct_stack_is_written_once)
{
	struct stat once, often;

	record("app_sites", "leaks", "GPUPOOL_STACKS=64");
	ck_assert_int_eq(stat("rec", &once), 0);
	ck_assert_int_eq(unlink("rec"), 0);
	/* Four threads with 405 allocations each, from three places. */
	record("app_sites", "threads", "GPUPOOL_STACKS=64");
	ck_assert_int_eq(stat("rec", &often), 0);
	says("replay --json --pool=split rec");
	ck_assert_uint_eq(play_number(answer, "n_allocs"), 1621);
	ck_assert_int_lt(often.st_size, once.st_size + 1621 * 40);
	says("convert --to=folded rec");
	ck_assert_uint_ge(bytes_of("app_sites"), 20 * 4096);
}
END_TEST

START_TEST(blocks_that_are_not_sampled_are_held_without_a_stack)
{
	record("app_sites", "leaks", "GPUPOOL_STACKS=8,sample=1000");
	says("convert --to=folded rec");
	ck_assert_uint_ge(bytes_of("(no stack)"), 6 * 4096);
	ck_assert_uint_eq(bytes_of("(no stack)") + bytes_of(AT("leaks")), 3 * MIB + 7 * 4096);
}
END_TEST

static uint64_t without_stack; /* blocks of the last program, while it held all of them */

static void count_leaks(const char *name)
{
	const char *leaks = strcmp(name, "held") ? NULL : strstr(play_ask("leaks"), "\"without_stack\"");

	if (leaks)
		without_stack = play_number(leaks, "blocks");
}

/* The allocation record and the recording share a stack, which is taken once and counts once for the sample. */
START_TEST(a_recording_does_not_change_which_blocks_have_a_stack)
{
	static const char *const settings[] = {"GPUPOOL_RECORD=", "GPUPOOL_RECORD=rec"};
	uint64_t counts[LENGTH(settings)];

	for (size_t i = 0; i < LENGTH(settings); i++) {
		play_run(&(struct play){.program = "app_sites",
			.words = {"leaks"},
			.env = (const char *const[]){"GPUPOOL_STACKS=8,sample=3", settings[i], NULL},
			.preload = play_library,
			.at_pause = count_leaks});
		ck_assert_int_eq(play_status, 0);
		counts[i] = without_stack;
	}
	ck_assert_uint_gt(counts[0], 0);
	ck_assert_uint_eq(counts[0], counts[1]);
}
END_TEST

START_TEST(a_failed_allocation_has_its_stack_in_the_recording)
{
	play_run(&(struct play){.program = "app_oom",
		.words = {"capacity"},
		.env = (const char *const[]){"GPUPOOL_RECORD=rec", "GPUPOOL_STACKS=8", "GPUPOOL_LOG=off", NULL},
		.preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_int_eq(play_run_stat("report rec", answer, sizeof(answer)), 0);
	check_in(answer, "\"requested_at\":\"");
#ifdef HAS_SYMBOLS
	check_in(answer, "\"requested_at\":\"capacity (app_oom.c:");
#endif
}
END_TEST

/* Both recordings, with and without stacks, have what the message says. */
static const char *const without_and_with[] = {"GPUPOOL_STACKS=off", "GPUPOOL_STACKS=8"};

START_TEST(a_report_tells_the_cause_of_a_failure_under_a_limit_in_the_words_of_the_message)
{
	char cause[512];
	const char *line;

	play_run(&(struct play){.program = "app_oom",
		.words = {"limit"},
		.env = (const char *const[]){"GPUPOOL_RECORD=rec", without_and_with[_i], "GPUPOOL_LIMIT=256MiB", NULL},
		.preload = play_library});
	ck_assert_int_eq(play_status, 0);
	line = strstr(play_err, "  cause: fragmentation: ");
	ck_assert_msg(line, "expected a cause in: %.200s", play_err);
	snprintf(cause, sizeof(cause), "%.*s", (int)strcspn(line, "\n"), line);
	ck_assert_int_eq(play_run_stat("report rec", answer, sizeof(answer)), 0);
	ck_assert_msg(strstr(answer, cause + strlen("  cause: ")), "expected '%s' in the report", cause);
}
END_TEST

/* The child has another file, which defines its stacks itself. */
START_TEST(parent_and_forked_child_record_their_own_stacks)
{
	DIR *dir;
	const struct dirent *entry;
	unsigned n = 0;

	play_run(&(struct play){.program = "app_process",
		.words = {"fork-before"},
		.env = (const char *const[]){"GPUPOOL_RECORD=rec.%p", "GPUPOOL_STACKS=8", "GPUPOOL_LOG=off", NULL},
		.preload = play_library});
	dir = opendir(play_dir);
	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir))) {
		char words[300];

		if (strncmp(entry->d_name, "rec.", 4) != 0)
			continue;
		n++;
		snprintf(words, sizeof(words), "convert --to=folded %s", entry->d_name);
		check_in(says(words), "use_memory");
		ck_assert_uint_eq(bytes_of("(no stack)"), 0);
	}
	closedir(dir);
	ck_assert_uint_eq(n, 2);
}
END_TEST

START_TEST(a_recording_with_stacks_that_is_cut_anywhere_can_be_read_up_to_the_cut)
{
	unsigned long long held, last = 0;
	struct stat file;

	record("app_sites", "leaks", "GPUPOOL_STACKS=8");
	ck_assert_int_eq(stat("rec", &file), 0);
	says("convert --to=folded rec");
	held = bytes_of("");
	for (off_t size = file.st_size - 1; size > 150; size -= 1 + size / 30) {
		ck_assert_int_eq(truncate("rec", size), 0);
		says("convert --to=folded rec");
		last = bytes_of("");
		ck_assert_uint_le(last, held);
		held = last;
	}
	ck_assert_uint_lt(last, 3 * MIB);
}
END_TEST

#ifdef PYTHON
START_TEST(a_recording_of_a_Python_program_has_its_functions_and_lines)
{
	play_run(&(struct play){.program = PYTHON,
		.words = {SCRIPT},
		.env = (const char *const[]){"GPUPOOL_RECORD=rec", "GPUPOOL_STACKS=32", "GPUPOOL_LOG=off", NULL},
		.preload = play_library});
	ck_assert_int_eq(play_status, 0);
	says("convert --to=folded rec");
	check_in(answer, "<module> (app_sites.py:47);generate (app_sites.py:29);Layer.forward (app_sites.py:24);alloc");
	check_in(answer, "größe (app_sites.py:36);alloc (app_sites.py:17)");
	check_in(answer, ";work (app_sites.py:41);alloc (app_sites.py:17)");
}
END_TEST
#endif

static void add(TCase *tc)
{
	tcase_add_test(tc, a_recording_shows_after_its_process_which_code_held_memory_at_the_peak);
	tcase_add_test(tc, a_recording_without_stacks_has_a_title_of_its_own);
	tcase_add_loop_test(tc, a_recording_has_the_command_line_of_its_process, 0, 2);
	tcase_add_test(tc, each_distinct_stack_is_written_once);
	tcase_add_test(tc, blocks_that_are_not_sampled_are_held_without_a_stack);
	tcase_add_test(tc, a_recording_does_not_change_which_blocks_have_a_stack);
	tcase_add_test(tc, a_failed_allocation_has_its_stack_in_the_recording);
	tcase_add_loop_test(tc, a_report_tells_the_cause_of_a_failure_under_a_limit_in_the_words_of_the_message, 0,
		(int)LENGTH(without_and_with));
	tcase_add_test(tc, parent_and_forked_child_record_their_own_stacks);
	tcase_add_test(tc, a_recording_with_stacks_that_is_cut_anywhere_can_be_read_up_to_the_cut);
#ifdef PYTHON
	tcase_add_test(tc, a_recording_of_a_Python_program_has_its_functions_and_lines);
#endif
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"record_stacks", add}, 1);
}
