/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "common/summary.h"
#include "tests/suite.h"

static const struct {
	uint64_t ns;
	const char *text;
} spans[] = {
	{0, "0 ns"},
	{999, "999 ns"},
	{1000, "1.00 us"},
	{1234, "1.23 us"},
	{9996, "10.0 us"},
	{99949, "99.9 us"},
	{99960, "100 us"},
	{999400, "999 us"},
	{999999, "1.00 ms"},
	{1500000000, "1.50 s"},
	{86400000000000, "86400 s"},
	{UINT64_MAX, "18446744074 s"},
};

START_TEST(a_span_is_written_with_three_digits)
{
	char text[GP_SPAN_TEXT_MAX];

	ck_assert_str_eq(gp_span_text(text, spans[_i].ns), spans[_i].text);
}
END_TEST

START_TEST(a_number_is_written_in_groups_of_three_digits)
{
	char text[GP_GROUPED_TEXT_MAX];

	ck_assert_str_eq(gp_grouped_text(text, 0), "0");
	ck_assert_str_eq(gp_grouped_text(text, 999), "999");
	ck_assert_str_eq(gp_grouped_text(text, 1000), "1 000");
	ck_assert_str_eq(gp_grouped_text(text, UINT64_MAX), "18 446 744 073 709 551 615");
}
END_TEST

static const struct gp_summary busy = {
	.stage = GP_SUMMARY_FINAL,
	.allocations = 12345,
	.hits = 12344,
	.calls_made = 20,
	.calls_saved = 24000,
	.cold_allocs = GP_SUMMARY_COLD_MIN,
	.saved_ns = 2400000000,
	.devices = 1,
	.peak_bytes = UINT64_C(3) << 30,
	.limit_bytes = UINT64_MAX,
};

static void keep(struct gp_summary *summary)
{
}

static void take_cold(struct gp_summary *summary)
{
	summary->cold_allocs--;
}

static void limit(struct gp_summary *summary)
{
	summary->limit_bytes = UINT64_C(4) << 30;
	summary->devices = 2;
	summary->device = 1;
	summary->pinned_peak_bytes = 1 << 20;
}

static void lie(struct gp_summary *summary)
{
	memset(summary, 0xff, sizeof(*summary));
	summary->stage = GP_SUMMARY_FINAL;
}

static void end_abruptly(struct gp_summary *summary)
{
	summary->stage = GP_SUMMARY_ALLOCATED;
	summary->written_ns = 500000000;
}

static void fail_once(struct gp_summary *summary)
{
	summary->ooms = 1;
}

static void fragment(struct gp_summary *summary)
{
	summary->ooms = 2;
	summary->is_vmm_better = 1;
}

static void put_pool_in_front(struct gp_summary *summary)
{
	strcpy(summary->own_pool, "PyTorch");
}

static void put_hostile_pool_in_front(struct gp_summary *summary)
{
	memset(summary->own_pool, '\033', sizeof(summary->own_pool));
}

static const struct {
	const char *part;   /* of one line */
	const char *absent; /* in every line */
	void (*change)(struct gp_summary *summary);
} rows[] = {
	{"  allocations     12 345, 99.9 % of them served without the driver", "advice", keep},
	{"  driver calls    24 000 saved, 20 made", "as of", keep},
	{"  waiting saved   about 2.40 s in allocations, by its fastest cold one", "advice", keep},
	{"  peak            3.00 GiB, no limit", "device", keep},
	{"  out of memory   0 errors", "advice", keep},
	{"  driver calls    24 000 saved, 20 made", "waiting saved", take_cold},
	{"  peak            3.00 GiB on device 1 of a limit of 4.00 GiB; pinned memory 1.00 MiB", "no limit", limit},
	{", 100.0 % of them", "101", lie},
	{"  as of           500 ms before its end: it ran no exit handlers", "advice", end_abruptly},
	{"  advice          gpupool-stat oom 77 explains the last error", "vmm", fail_once},
	{"  advice          --pool=vmm combines scattered unused memory", "oom 77", fragment},
	{"  advice          PyTorch's own pool was in front of gpupool (gpupool-run --own-pools=off turns it off)",
		"oom", put_pool_in_front},
	{"?'s own pool was in front", "\033", put_hostile_pool_in_front},
};

START_TEST(a_figure_has_its_line_in_the_summary)
{
	struct gp_summary_lines lines = {0};
	struct gp_summary summary = busy;
	bool found = false;

	rows[_i].change(&summary);
	gp_summary_figures(&lines, &summary, true, 1000000000);
	gp_summary_children(&lines, 4, &busy);
	gp_summary_advice(&lines, &summary, 77);
	ck_assert_uint_lt(lines.n, GP_SUMMARY_LINES_MAX);
	for (unsigned i = 0; i < lines.n; i++) {
		found |= strstr(lines.text[i], rows[_i].part) != NULL;
		ck_assert_msg(!strstr(lines.text[i], rows[_i].absent), "'%s' has '%s'", lines.text[i], rows[_i].absent);
	}
	ck_assert_msg(found, "no line has '%s'", rows[_i].part);
}
END_TEST

START_TEST(children_get_one_line_together)
{
	struct gp_summary_lines lines = {0};
	const struct gp_summary idle = {.stage = GP_SUMMARY_CUDA};

	gp_summary_children(&lines, 0, &busy);
	ck_assert_uint_eq(lines.n, 0);
	gp_summary_children(&lines, 1, &busy);
	gp_summary_children(&lines, 1024, &busy);
	gp_summary_children(&lines, 2, &idle);
	ck_assert_uint_eq(lines.n, 3);
	ck_assert_str_eq(lines.text[0],
		"  1 child         12 345 allocations, 99.9 % without the driver, peak 3.00 GiB, 0 OOMs");
	ck_assert_str_eq(lines.text[1],
		"  1 024 children  12 345 allocations, 99.9 % without the driver, peak 3.00 GiB, 0 OOMs");
	ck_assert_str_eq(lines.text[2], "  2 children      used CUDA, but allocated no memory that gpupool serves");
}
END_TEST

START_TEST(a_line_beyond_the_tenth_is_dropped)
{
	struct gp_summary_lines lines = {0};

	for (int i = 0; i < 2 * GP_SUMMARY_LINES_MAX; i++)
		gp_summary_line(&lines, "line %d", i);
	ck_assert_uint_eq(lines.n, GP_SUMMARY_LINES_MAX);
	ck_assert_str_eq(lines.text[GP_SUMMARY_LINES_MAX - 1], "line 9");
}
END_TEST

START_TEST(figures_before_and_after_an_exec_are_added_up)
{
	struct gp_summary sum = {0}, first = busy, last = busy;

	first.stage = GP_SUMMARY_ALLOCATED;
	first.written_ns = 1;
	first.peak_bytes *= 2;
	first.limit_bytes = UINT64_C(8) << 30;
	last.written_ns = 2;
	gp_summary_add(&sum, &first);
	ck_assert_uint_eq(sum.stage, GP_SUMMARY_ALLOCATED);
	gp_summary_add(&sum, &last);
	ck_assert_uint_eq(sum.stage, GP_SUMMARY_FINAL);
	ck_assert_uint_eq(sum.allocations, 2 * busy.allocations);
	ck_assert_uint_eq(sum.peak_bytes, first.peak_bytes);
	ck_assert_uint_eq(sum.limit_bytes, first.limit_bytes);
	ck_assert_uint_eq(sum.written_ns, 2);
}
END_TEST

START_TEST(a_last_image_that_ended_abruptly_makes_the_figures_not_final)
{
	struct gp_summary sum = {0}, first = busy, last = busy;

	first.written_ns = 1;
	last.written_ns = 2;
	last.stage = GP_SUMMARY_CUDA;
	gp_summary_add(&sum, &first);
	gp_summary_add(&sum, &last);
	ck_assert_uint_eq(sum.stage, GP_SUMMARY_ALLOCATED);
}
END_TEST

START_TEST(sums_of_untrue_figures_do_not_wrap)
{
	struct gp_summary sum = {0}, hostile = busy;

	hostile.allocations = hostile.hits = hostile.ooms = UINT64_MAX;
	gp_summary_add(&sum, &hostile);
	gp_summary_add(&sum, &hostile);
	ck_assert_uint_eq(sum.allocations, UINT64_MAX);
	ck_assert_uint_eq(sum.ooms, UINT64_MAX);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("summary");
	TCase *tc = tcase_create("summary");

	ADD_ROWS(tc, spans, a_span_is_written_with_three_digits);
	tcase_add_test(tc, a_number_is_written_in_groups_of_three_digits);
	ADD_ROWS(tc, rows, a_figure_has_its_line_in_the_summary);
	tcase_add_test(tc, children_get_one_line_together);
	tcase_add_test(tc, a_line_beyond_the_tenth_is_dropped);
	tcase_add_test(tc, figures_before_and_after_an_exec_are_added_up);
	tcase_add_test(tc, a_last_image_that_ended_abruptly_makes_the_figures_not_final);
	tcase_add_test(tc, sums_of_untrue_figures_do_not_wrap);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
