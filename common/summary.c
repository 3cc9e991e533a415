/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "summary.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "clean.h"
#include "own_pools.h"
#include "size.h"

#define SECOND_NS UINT64_C(1000000000)

static uint64_t sum_of(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

void gp_summary_add(struct gp_summary *sum, const struct gp_summary *more)
{
	uint64_t stage;

	sum->allocations = sum_of(sum->allocations, more->allocations);
	sum->hits = sum_of(sum->hits, more->hits);
	sum->calls_made = sum_of(sum->calls_made, more->calls_made);
	sum->calls_saved = sum_of(sum->calls_saved, more->calls_saved);
	sum->cold_allocs = sum_of(sum->cold_allocs, more->cold_allocs);
	sum->saved_ns = sum_of(sum->saved_ns, more->saved_ns);
	sum->ooms = sum_of(sum->ooms, more->ooms);
	sum->is_vmm_better |= more->is_vmm_better;
	sum->devices = most(sum->devices, more->devices);
	if (more->peak_bytes >= sum->peak_bytes) {
		sum->peak_bytes = more->peak_bytes;
		sum->limit_bytes = more->limit_bytes;
		sum->device = more->device;
	}
	sum->pinned_peak_bytes = most(sum->pinned_peak_bytes, more->pinned_peak_bytes);
	if (more->own_pool[0])
		memcpy(sum->own_pool, more->own_pool, sizeof(sum->own_pool));
	/* Before an exec no exit handler runs, so the last image decides whether the figures are final. */
	stage = most(sum->stage, more->stage);
	if (stage == GP_SUMMARY_FINAL && (more->written_ns >= sum->written_ns ? more : sum)->stage != GP_SUMMARY_FINAL)
		stage = GP_SUMMARY_ALLOCATED;
	sum->stage = stage;
	sum->written_ns = most(sum->written_ns, more->written_ns);
}

void gp_summary_line(struct gp_summary_lines *lines, const char *format, ...)
{
	va_list args;

	if (lines->n == GP_SUMMARY_LINES_MAX)
		return;
	va_start(args, format);
	vsnprintf(lines->text[lines->n++], GP_SUMMARY_LINE_SIZE, format, args);
	va_end(args);
}

const char *gp_grouped_text(char text[static GP_GROUPED_TEXT_MAX], uint64_t number)
{
	char digits[24];
	size_t length = (size_t)snprintf(digits, sizeof(digits), "%" PRIu64, number), n = 0;

	for (size_t i = 0; i < length; i++) {
		if (i && (length - i) % 3 == 0)
			text[n++] = ' ';
		text[n++] = digits[i];
	}
	text[n] = '\0';
	return text;
}

/* Returns a time in parts of a unit, rounded. */
static uint64_t parts_of(uint64_t ns, uint64_t unit_ns, uint64_t parts)
{
	return ns / unit_ns * parts + (ns % unit_ns * parts + unit_ns / 2) / unit_ns;
}

/* Writes three digits without floating point, whose decimal sign depends on the locale. */
const char *gp_span_text(char text[static GP_SPAN_TEXT_MAX], uint64_t ns)
{
	static const char *const units[] = {"ns", "us", "ms", "s"};
	uint64_t unit_ns = 1, hundredths, tenths;
	unsigned unit = 0;

	/* A value that would be rounded to 1000 becomes 1 of the next unit. */
	for (; unit < 3 && parts_of(ns, unit_ns, 1) >= 1000; unit++)
		unit_ns *= 1000;
	hundredths = parts_of(ns, unit_ns, 100);
	tenths = parts_of(ns, unit_ns, 10);
	if (!unit || tenths >= 1000)
		snprintf(text, GP_SPAN_TEXT_MAX, "%" PRIu64 " %s", parts_of(ns, unit_ns, 1), units[unit]);
	else if (hundredths >= 1000)
		snprintf(text, GP_SPAN_TEXT_MAX, "%" PRIu64 ".%" PRIu64 " %s", tenths / 10, tenths % 10, units[unit]);
	else
		snprintf(text, GP_SPAN_TEXT_MAX, "%" PRIu64 ".%02" PRIu64 " %s", hundredths / 100, hundredths % 100,
			units[unit]);
	return text;
}

/* Writes a share in per cent. It is rounded down, so that 100 % means all. */
enum { SHARE_TEXT_MAX = 16 };
static const char *share_text(char text[static SHARE_TEXT_MAX], uint64_t part, uint64_t whole)
{
	double exact = whole ? (double)least(part, whole) / (double)whole * 1000 : 0;
	unsigned permille = (unsigned)exact;

	if (permille == 1000 && part < whole)
		permille = 999;
	snprintf(text, SHARE_TEXT_MAX, "%u.%u %%", permille / 10, permille % 10);
	return text;
}

static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

static void add_allocations(struct gp_summary_lines *lines, const struct gp_summary *summary)
{
	char all[GP_GROUPED_TEXT_MAX], share[SHARE_TEXT_MAX];

	gp_summary_line(lines, "  allocations     %s, %s of them served without the driver",
		gp_grouped_text(all, summary->allocations), share_text(share, summary->hits, summary->allocations));
}

static void add_calls(struct gp_summary_lines *lines, const struct gp_summary *summary)
{
	char made[GP_GROUPED_TEXT_MAX], saved[GP_GROUPED_TEXT_MAX], span[GP_SPAN_TEXT_MAX];

	gp_summary_line(lines, "  driver calls    %s saved, %s made", gp_grouped_text(saved, summary->calls_saved),
		gp_grouped_text(made, summary->calls_made));
	if (summary->cold_allocs >= GP_SUMMARY_COLD_MIN && summary->saved_ns)
		gp_summary_line(lines, "  waiting saved   about %s in allocations, by its fastest cold one",
			gp_span_text(span, summary->saved_ns));
}

static void add_peak(struct gp_summary_lines *lines, const struct gp_summary *summary)
{
	char peak[GP_AMOUNT_TEXT_MAX], limit[GP_AMOUNT_TEXT_MAX], pinned[GP_AMOUNT_TEXT_MAX];
	char device[32] = "", bound[64] = ", no limit", host[64] = "";

	if (summary->devices > 1)
		snprintf(device, sizeof(device), " on device %" PRIu64, summary->device);
	if (summary->limit_bytes != UINT64_MAX)
		snprintf(bound, sizeof(bound), " of a limit of %s", gp_amount_text(limit, summary->limit_bytes));
	if (summary->pinned_peak_bytes)
		snprintf(host, sizeof(host), "; pinned memory %s", gp_amount_text(pinned, summary->pinned_peak_bytes));
	gp_summary_line(
		lines, "  peak            %s%s%s%s", gp_amount_text(peak, summary->peak_bytes), device, bound, host);
}

static void add_ooms(struct gp_summary_lines *lines, const struct gp_summary *summary)
{
	char n[GP_GROUPED_TEXT_MAX];

	gp_summary_line(
		lines, "  out of memory   %s error%s", gp_grouped_text(n, summary->ooms), plural(summary->ooms));
}

void gp_summary_figures(struct gp_summary_lines *lines, const struct gp_summary *summary, bool is_past, uint64_t now_ns)
{
	char age[GP_SPAN_TEXT_MAX];

	add_allocations(lines, summary);
	add_calls(lines, summary);
	add_peak(lines, summary);
	add_ooms(lines, summary);
	if (!is_past || summary->stage == GP_SUMMARY_FINAL)
		return;
	gp_summary_line(lines, "  as of           %s before its end: it ran no exit handlers",
		gp_span_text(age, now_ns > summary->written_ns ? now_ns - summary->written_ns : 0));
}

void gp_summary_children(struct gp_summary_lines *lines, uint64_t processes, const struct gp_summary *sum)
{
	char n[GP_GROUPED_TEXT_MAX], all[GP_GROUPED_TEXT_MAX], share[SHARE_TEXT_MAX], ooms[GP_GROUPED_TEXT_MAX];
	char label[GP_GROUPED_TEXT_MAX + 16], peak[GP_AMOUNT_TEXT_MAX];

	if (!processes)
		return;
	snprintf(label, sizeof(label), "%s %s", gp_grouped_text(n, processes), processes == 1 ? "child" : "children");
	if (sum->allocations)
		gp_summary_line(lines, "  %-15s %s allocation%s, %s without the driver, peak %s, %s OOM%s", label,
			gp_grouped_text(all, sum->allocations), plural(sum->allocations),
			share_text(share, sum->hits, sum->allocations), gp_amount_text(peak, sum->peak_bytes),
			gp_grouped_text(ooms, sum->ooms), plural(sum->ooms));
	else
		gp_summary_line(lines, "  %-15s used CUDA, but allocated no memory that gpupool serves", label);
}

void gp_summary_advice(struct gp_summary_lines *lines, const struct gp_summary *summary, uint64_t pid)
{
	char name[GP_SUMMARY_NAME_SIZE];

	/* The name is from another process, and may lack its NUL. */
	snprintf(name, sizeof(name), "%.*s", GP_SUMMARY_NAME_SIZE - 1, summary->own_pool);
	gp_clean(name, sizeof(name), name);
	if (summary->ooms && summary->is_vmm_better)
		gp_summary_line(lines, "  advice          --pool=vmm combines scattered unused memory, and would have "
				       "served the last error");
	else if (summary->ooms && pid)
		gp_summary_line(lines, "  advice          gpupool-stat oom %" PRIu64 " explains the last error", pid);
	else if (summary->ooms)
		gp_summary_line(lines, "  advice          gpupool-stat oom PID explains the last error of a process");
	else if (*name)
		gp_summary_line(lines, "  advice          %s's own pool was in front of gpupool%s", name,
			gp_own_pool_remedy(name));
}
