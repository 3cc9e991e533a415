/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The summary of gpupool-run --summary and of GPUPOOL_REPORT=summary, and gpupool-run --compare. The fourth path of the
 * test program is that of gpupool-run.
 */

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/summary.h"
#include "play.h"

static void check_in(const char *text, const char *part)
{
	ck_assert_msg(strstr(text, part), "expected '%s' in: %s", part, text);
}

static void check_not_in(const char *text, const char *part)
{
	ck_assert_msg(!strstr(text, part), "expected no '%s' in: %s", part, text);
}

static unsigned count_lines(const char *text)
{
	unsigned n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

static void run_summary(const char *scenario, const char *const *env)
{
	char library[PATH_MAX + 16], program[PATH_MAX];

	snprintf(library, sizeof(library), "--library=%s", play_library);
	snprintf(program, sizeof(program), "%s/app_summary", play_app_dir);
	play_run(&(struct play){.program = play_stat, .words = {"--summary", library, program, scenario}, .env = env});
	ck_assert_uint_le(count_lines(play_err), GP_SUMMARY_LINES_MAX);
}

START_TEST(the_summary_has_the_figures_of_the_process)
{
	run_summary("figures", (const char *[]){"GPUPOOL_LIMIT=1GiB", NULL});
	ck_assert_int_eq(play_status, 0);
	ck_assert_int_eq(strncmp(play_err, "gpupool served app_summary (process ", 36), 0);
	check_in(play_err, "\n  allocations     51, 96.0 % of them served without the driver\n");
	check_in(play_err, " saved, ");
	check_in(play_err, " of a limit of 1.00 GiB; pinned memory ");
	check_in(play_err, "\n  out of memory   0 errors\n");
	/* Two cold allocations say nothing about others. */
	check_not_in(play_err, "waiting saved");
	check_not_in(play_err, "as of");
	check_not_in(play_err, "advice");
	check_not_in(play_err, "child");
}
END_TEST

START_TEST(the_counters_of_an_ended_context_are_in_the_summary)
{
	run_summary("reset", NULL);
	ck_assert_int_eq(play_status, 0);
	check_in(play_err, "\n  allocations     51, 96.0 % of them served without the driver\n");
	check_in(play_err, ", no limit; pinned memory ");
	check_not_in(play_err, "peak            0 B");
}
END_TEST

START_TEST(an_out_of_memory_error_is_counted_and_gets_advice)
{
	char advice[64];
	unsigned pid;

	run_summary("fails", (const char *[]){"GPUPOOL_LIMIT=32MiB", "GPUPOOL_LOG=off", NULL});
	ck_assert_int_eq(play_status, 0);
	check_in(play_err, "\n  out of memory   1 error\n");
	ck_assert_int_eq(sscanf(play_err, "gpupool served app_summary (process %u)", &pid), 1);
	snprintf(advice, sizeof(advice), "\n  advice          gpupool-stat oom %u explains the last error\n", pid);
	check_in(play_err, advice);
}
END_TEST

static const struct {
	const char *scenario;
	int status;
	const char *allocations;
	bool is_final;
} ends[] = {
	{"killed", 128 + SIGKILL, "\n  allocations     50, ", false},
	{"at-once", 5, "\n  allocations     50, ", false},
	{"exec", 0, "\n  allocations     101, ", true},
	{"forked", 0, "\n  allocations     51, ", true},
};

START_TEST(the_summary_has_the_last_known_figures_after_each_kind_of_end)
{
	run_summary(ends[_i].scenario, NULL);
	ck_assert_int_eq(play_status, ends[_i].status);
	check_in(play_err, ends[_i].allocations);
	(ends[_i].is_final ? check_not_in : check_in)(play_err, " before its end: it ran no exit handlers\n");
	check_not_in(play_err, "child");
}
END_TEST

START_TEST(a_process_with_cuda_but_without_allocations_gets_one_line)
{
	run_summary("no-allocation", NULL);
	ck_assert_int_eq(play_status, 0);
	check_in(play_err, ", which used CUDA but allocated no memory from it\n");
	ck_assert_uint_eq(count_lines(play_err), 1);
}
END_TEST

START_TEST(a_hundred_children_get_one_line_together)
{
	run_summary("children", NULL);
	ck_assert_int_eq(play_status, 0);
	check_in(play_err, "gpupool was loaded into app_summary (process ");
	check_in(play_err, ") but saw no CUDA\n  100 children    200 allocations, 50.0 % without the driver, peak ");
	ck_assert_uint_eq(count_lines(play_err), 2);
}
END_TEST

static const char *const lies[][2] = {
	{"lie-plausibly", "\n  1 child         18 446 744 073 709 551 615 allocations, 100.0 % without the driver, "},
	{"lie-wildly", ") but saw no CUDA\n  not counted     "},
};

START_TEST(untrue_figures_of_a_process_are_printed_within_bounds)
{
	run_summary(lies[_i][0], NULL);
	ck_assert_int_eq(play_status, 0);
	check_in(play_err, lies[_i][1]);
	for (const char *c = play_err; *c; c++)
		ck_assert_msg(*c == '\n' || (*c >= ' ' && *c <= '~'), "character %d in: %s", *c, play_err);
}
END_TEST

static void compare(const char *types, const char *scenario, const char *devices)
{
	char option[32], library[PATH_MAX + 16], program[PATH_MAX], libraries[2 * PATH_MAX + 32];
	const char *env[] = {libraries, "SIMGPU_SHARED=ledger", "SIMGPU_DEVICES=2", devices, NULL};

	snprintf(option, sizeof(option), "--compare=%s", types);
	snprintf(library, sizeof(library), "--library=%s", play_library);
	snprintf(program, sizeof(program), "%s/app_summary", play_app_dir);
	snprintf(libraries, sizeof(libraries), "LD_LIBRARY_PATH=%s:%s/nvml", play_sim_dir, play_sim_dir);
	play_run(&(struct play){.program = play_stat, .words = {option, library, program, scenario}, .env = env});
	ck_assert_str_eq(play_err, "");
	ck_assert_int_eq(play_status, 0);
}

static void check_width(const char *text)
{
	size_t width;

	for (const char *line = text; *line; line += width + (line[width] == '\n')) {
		width = strcspn(line, "\n");
		ck_assert_msg(width <= 80, "%zu columns: %.*s", width, (int)width, line);
	}
}

START_TEST(a_comparison_has_the_figures_of_all_processes_of_each_run)
{
	compare("split,none", "children", NULL);
	check_in(play_out, "\nallocations                           -             200             200\n");
	check_in(play_out, "\n  served by the pool                  -         50.00 %          0.00 %\n");
	check_in(play_out, "\noutput                          0 bytes        the same        the same\n");
}
END_TEST

/* The context takes 4 MiB of the simulated device. */
START_TEST(a_comparison_has_the_peak_that_the_driver_counts)
{
	compare("vmm", "held", NULL);
	check_in(play_out, "\npeak device memory             68.0 MiB        68.0 MiB\n");
	check_in(play_out, "from NVML");
	check_width(play_out);
	compare("vmm", "held", "CUDA_VISIBLE_DEVICES=0,1");
	check_in(play_out, "\npeak device memory             68.0 MiB        68.0 MiB\n");
}
END_TEST

static const char *const strange_devices[] = {"CUDA_VISIBLE_DEVICES=GPU-00000000", "CUDA_VISIBLE_DEVICES=0,9"};

START_TEST(a_comparison_has_no_peak_if_the_devices_are_not_those_of_nvml)
{
	compare("vmm", "figures", strange_devices[_i]);
	check_in(play_out, "\npeak device memory                    -               -\n");
	check_in(play_out, "\nThere is no peak: NVML knows no device.\n");
}
END_TEST

static void play_alone(const char *const *env)
{
	play_run(&(struct play){.program = "app_summary", .words = {"figures"}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
}

START_TEST(a_library_that_was_preloaded_by_hand_prints_a_summary_only_if_asked)
{
	char text[PLAY_OUTPUT_MAX] = "";
	int fd;

	play_alone(NULL);
	ck_assert_str_eq(play_err, "");
	play_alone((const char *[]){"GPUPOOL_REPORT=summary", NULL});
	check_in(play_err, ": summary of this process, pool type split\n");
	check_in(play_err, ":   allocations     51, 96.0 % of them served without the driver\n");
	play_alone((const char *[]){"GPUPOOL_REPORT=summary:file", NULL});
	ck_assert_str_eq(play_err, "");
	fd = open("file", O_RDONLY);
	ck_assert_int_gt(read(fd, text, sizeof(text) - 1), 0);
	close(fd);
	check_in(text, "summary of this process, pool type split\n  allocations     51, ");
}
END_TEST

/* Makes a file like the page of gpupool-run, with one thing wrong. Returns its descriptor. */
static int make_page(uint64_t magic, uint64_t version, uint64_t bytes, int seals)
{
	const uint64_t head[4] = {magic, version, bytes, 1};
	int fd = memfd_create("gpupool-run", MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
	ck_assert_int_eq(pwrite(fd, head, sizeof(head), 0), (ssize_t)sizeof(head));
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static const struct {
	uint64_t magic, version, bytes;
	int seals;
	uint64_t key;
} wrong_pages[] = {
	{GP_SUMMARY_MAGIC + 1, GP_SUMMARY_VERSION, sizeof(struct gp_summary_page), F_SEAL_SHRINK, 1},
	{GP_SUMMARY_MAGIC, GP_SUMMARY_VERSION + 1, sizeof(struct gp_summary_page), F_SEAL_SHRINK, 1},
	{GP_SUMMARY_MAGIC, GP_SUMMARY_VERSION, sizeof(struct gp_summary_page) - 8, F_SEAL_SHRINK, 1},
	{GP_SUMMARY_MAGIC, GP_SUMMARY_VERSION, sizeof(struct gp_summary_page), F_SEAL_GROW, 1},
	{GP_SUMMARY_MAGIC, GP_SUMMARY_VERSION, sizeof(struct gp_summary_page), F_SEAL_SHRINK, 2},
};

static uint64_t claimed(int fd)
{
	uint64_t n = 0;

	ck_assert_int_eq(pread(fd, &n, sizeof(n), offsetof(struct gp_summary_page, n_claimed)), (ssize_t)sizeof(n));
	return n;
}

START_TEST(a_page_that_is_not_that_of_gpupool_run_is_not_used)
{
	int fd =
		make_page(wrong_pages[_i].magic, wrong_pages[_i].version, wrong_pages[_i].bytes, wrong_pages[_i].seals);
	char variable[128];

	snprintf(variable, sizeof(variable), GP_SUMMARY_VARIABLE "=%d.%d.%" PRIu64, (int)getpid(), fd,
		wrong_pages[_i].key);
	play_alone((const char *[]){variable, NULL});
	ck_assert_str_eq(play_err, "");
	ck_assert_uint_eq(claimed(fd), 0);
}
END_TEST

START_TEST(a_page_without_a_free_slot_is_counted_in_and_left_alone)
{
	int fd = make_page(GP_SUMMARY_MAGIC, GP_SUMMARY_VERSION, sizeof(struct gp_summary_page), F_SEAL_SHRINK);
	uint64_t n = GP_SUMMARY_SLOTS;
	char variable[128];

	ck_assert_int_eq(pwrite(fd, &n, sizeof(n), offsetof(struct gp_summary_page, n_claimed)), (ssize_t)sizeof(n));
	snprintf(variable, sizeof(variable), GP_SUMMARY_VARIABLE "=%d.%d.1", (int)getpid(), fd);
	play_alone((const char *[]){variable, NULL});
	ck_assert_str_eq(play_err, "");
	ck_assert_uint_ge(claimed(fd), GP_SUMMARY_SLOTS + 1);
}
END_TEST

static const char *const wrong_names[] = {
	"x", "1.2", "1.2.3.4", "0.0.1", "-1.3.1", "99999999999.1.1", "1.99999999999.1", "1.1.99999999999999999999999"};

START_TEST(a_page_with_a_wrong_name_is_not_used)
{
	char variable[128];

	snprintf(variable, sizeof(variable), GP_SUMMARY_VARIABLE "=%s", wrong_names[_i]);
	play_alone((const char *[]){variable, NULL});
	ck_assert_str_eq(play_err, "");
}
END_TEST

/* Opening a fifo could wake its other end. */
START_TEST(a_fifo_in_the_place_of_the_page_is_not_opened)
{
	char variable[128];
	int fd;

	ck_assert_int_eq(mkfifo("fifo", 0600), 0);
	fd = open("fifo", O_RDWR | O_NONBLOCK);
	ck_assert_int_ge(fd, 0);
	snprintf(variable, sizeof(variable), GP_SUMMARY_VARIABLE "=%d.%d.1", (int)getpid(), fd);
	play_alone((const char *[]){variable, NULL});
	ck_assert_str_eq(play_err, "");
}
END_TEST

#define ADD_ROWS_OF(tc, rows, test) tcase_add_loop_test(tc, test, 0, (int)LENGTH(rows))

static void add_run(TCase *tc)
{
	/* gpupool-run starts its command without the emulator. */
	if (getenv(EMULATOR)) {
		printf("# skipped: the summary, not in an emulator\n");
		return;
	}
	tcase_add_test(tc, the_summary_has_the_figures_of_the_process);
	tcase_add_test(tc, the_counters_of_an_ended_context_are_in_the_summary);
	tcase_add_test(tc, an_out_of_memory_error_is_counted_and_gets_advice);
	ADD_ROWS_OF(tc, ends, the_summary_has_the_last_known_figures_after_each_kind_of_end);
	tcase_add_test(tc, a_process_with_cuda_but_without_allocations_gets_one_line);
	tcase_add_test(tc, a_hundred_children_get_one_line_together);
	ADD_ROWS_OF(tc, lies, untrue_figures_of_a_process_are_printed_within_bounds);
	tcase_add_test(tc, a_comparison_has_the_figures_of_all_processes_of_each_run);
	tcase_add_test(tc, a_comparison_has_the_peak_that_the_driver_counts);
	ADD_ROWS_OF(tc, strange_devices, a_comparison_has_no_peak_if_the_devices_are_not_those_of_nvml);
	tcase_add_test(tc, a_library_that_was_preloaded_by_hand_prints_a_summary_only_if_asked);
}

static void add_pages(TCase *tc)
{
	ADD_ROWS_OF(tc, wrong_pages, a_page_that_is_not_that_of_gpupool_run_is_not_used);
	tcase_add_test(tc, a_page_without_a_free_slot_is_counted_in_and_left_alone);
	ADD_ROWS_OF(tc, wrong_names, a_page_with_a_wrong_name_is_not_used);
	tcase_add_test(tc, a_fifo_in_the_place_of_the_page_is_not_opened);
}

int main(int argc, char **argv)
{
	static const struct play_tests tests[] = {{"run", add_run}, {"pages", add_pages}};

	return play_main(argc, argv, tests, LENGTH(tests));
}
