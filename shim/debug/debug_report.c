/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A report has up to three log lines: the write, the allocation of the block, and its free. Findings with the same
 * call sites are logged once and counted. As for every log statement, at most GP_LOG_REPEATS reports are logged.
 */

#include "debug_report.h"

#include <inttypes.h>
#include <stdio.h>

#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/trace/stack_text.h"

enum { KEPT = 64 };

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static struct gp_finding kept[KEPT];
static uint64_t n_kept; /* reports so far; the last KEPT of them are kept */

static const char *const finding_names[] = {
	[GP_WRITE_AFTER_FREE] = "after-free",
	[GP_WRITE_PAST_END] = "past-end",
	[GP_WRITE_BEFORE_START] = "before-start",
};

static const char *const moment_names[] = {
	[GP_SEEN_AT_FREE] = "free",
	[GP_SEEN_AT_REUSE] = "reuse",
	[GP_SEEN_AT_RELEASE] = "release",
	[GP_SEEN_AT_CHECK] = "check",
};

/* Without stacks, only findings about the same block count as the same. */
static bool is_same(const struct gp_finding *a, const struct gp_finding *b)
{
	if (a->what != b->what || a->block.alloc_site != b->block.alloc_site ||
		a->block.free_site != b->block.free_site)
		return false;
	return a->block.alloc_site || (a->block.ptr == b->block.ptr && a->block.alloc_ns == b->block.alloc_ns);
}

/* Stores and counts a finding. Returns false if the same finding is stored already. */
static bool keep(const struct gp_finding *finding)
{
	bool is_new = true;

	gp_mutex_lock(&lock);
	for (uint64_t i = 0; i < gp_min(n_kept, KEPT) && is_new; i++) {
		is_new = !is_same(&kept[i], finding);
		kept[i].times += !is_new;
	}
	if (is_new)
		kept[n_kept++ % KEPT] = *finding;
	gp_mutex_unlock(&lock);
	return is_new;
}

static uint64_t since_ns(uint64_t now_ns, uint64_t time_ns)
{
	return now_ns - gp_min(time_ns, now_ns);
}

static uint64_t ms_since(const struct gp_finding *finding, uint64_t time_ns)
{
	return since_ns(finding->time_ns, time_ns) / 1000000;
}

static int64_t offset_of(const struct gp_finding *finding)
{
	return (int64_t)(finding->first - finding->block.ptr);
}

static void print_bytes(char text[static 3 * GP_FINDING_BYTES + 1], const struct gp_finding *finding, const char *gap)
{
	int n = 0;

	*text = '\0';
	for (unsigned i = 0; i < finding->n_bytes; i++)
		n += snprintf(text + n, 4, "%s%02x", i ? gap : "", finding->bytes[i]);
}

static void log_finding(const struct gp_finding *finding)
{
	static const char *const titles[] = {"a free", "the end", "the start"};
	static const char *const sides[] = {"after", "past", "before"};
	static const char *const moments[] = {
		"when it was freed", "before it was reused", "before it went back to the driver", "by a check"};
	const struct gp_zone_block *block = &finding->block;
	char bytes[3 * GP_FINDING_BYTES + 1], stack[GP_STACK_TEXT_MAX], where[32] = "pinned";

	if (!block->is_pinned)
		snprintf(where, sizeof(where), "device %d", finding->device);
	print_bytes(bytes, finding, " ");
	gp_log(GP_LOG_ERROR,
		"write %s %s of 0x%" PRIx64 " (%" PRIu64 " bytes, %s), found %s: %" PRIu64
		" wrong bytes, the first at %+" PRId64 ": %s",
		sides[finding->what], titles[finding->what], block->ptr, block->bytes, where, moments[finding->when],
		finding->n_wrong, offset_of(finding), bytes);
	gp_log(GP_LOG_ERROR, "  allocated %" PRIu64 " ms ago: %s", ms_since(finding, block->alloc_ns),
		block->alloc_site ? gp_stack_text(stack, block->alloc_site) : "no stack recorded");
	if (block->is_freed)
		gp_log(GP_LOG_ERROR, "  freed %" PRIu64 " ms ago: %s", ms_since(finding, block->free_ns),
			block->free_site ? gp_stack_text(stack, block->free_site) : "no stack recorded");
}

void gp_finding_report(const struct gp_finding *finding)
{
	if (keep(finding))
		log_finding(finding);
}

static void write_one(struct gp_json *out, struct gp_stack_json *stacks, const struct gp_finding *finding)
{
	const struct gp_zone_block *block = &finding->block;
	char bytes[3 * GP_FINDING_BYTES + 1];

	print_bytes(bytes, finding, "");
	gp_json_object_begin(out, NULL);
	gp_json_string(out, "what", finding_names[finding->what]);
	gp_json_string(out, "seen", moment_names[finding->when]);
	gp_json_u64(out, "age_ns", since_ns(gp_clock_now_ns(NULL), finding->time_ns));
	gp_json_u64(out, "times", finding->times);
	gp_json_address(out, "block", block->ptr);
	gp_json_u64(out, "requested_bytes", block->bytes);
	gp_json_device(out, "device", block->is_pinned ? -1 : finding->device);
	gp_json_string(out, "kind", block->is_pinned ? "pinned" : "device");
	gp_json_i64(out, "offset", offset_of(finding));
	gp_json_u64(out, "n_wrong", finding->n_wrong);
	gp_json_string(out, "bytes", bytes);
	/* Ages at the time of the finding. */
	gp_json_u64(out, "allocated_ns", since_ns(finding->time_ns, block->alloc_ns));
	if (block->is_freed)
		gp_json_u64(out, "freed_ns", since_ns(finding->time_ns, block->free_ns));
	else
		gp_json_null(out, "freed_ns");
	gp_stack_json_site(out, stacks, "allocated", block->alloc_site);
	gp_stack_json_site(out, stacks, "freed", block->free_site);
	gp_json_object_end(out);
}

void gp_findings_write(struct gp_json *out, struct gp_stack_json *stacks)
{
	static struct gp_finding list[KEPT]; /* one answer is written at a time */
	uint64_t n;

	gp_mutex_lock(&lock);
	n = n_kept;
	for (unsigned i = 0; i < KEPT; i++)
		list[i] = kept[i];
	gp_mutex_unlock(&lock);
	gp_json_u64(out, "n_reports", n);
	gp_json_array_begin(out, "reports");
	for (uint64_t i = n - gp_min(n, KEPT); i < n; i++)
		write_one(out, stacks, &list[i % KEPT]);
	gp_json_array_end(out);
}
