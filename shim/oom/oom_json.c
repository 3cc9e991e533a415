/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The answer to the request "oom". */

#include "oom_json.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "common/config.h"
#include "common/file.h"
#include "common/job.h"
#include "oom_cause.h"
#include "shim/base/clock.h"
#include "shim/trace/alloc_info.h"
#include "shim/trace/stack_json.h"
#include "shim/usage/round_json.h"

enum { LABELS_MAX = 8 };

static const char *kind_text(enum gp_oom_what what)
{
	static const char *const names[] = {"device", "pinned", "unpooled"};

	return names[what];
}

static const char *cause_text(enum gp_oom_cause cause)
{
	static const char *const names[GP_OOM_N_CAUSES] = {
#define GP_OOM_CAUSE(id, name, words, pinned) [GP_OOM_##id] = (name),
#include "common/oom_cause.def"
	};

	return names[cause];
}

/* NULL: there was no other process to wait for. */
static const char *wait_text(enum gp_processes_wait wait)
{
	static const char *const names[] = {
		[GP_PROCESSES_TOO_LITTLE] = "too-little",
		[GP_PROCESSES_CAPTURE] = "capture",
		[GP_PROCESSES_SPENT] = "spent",
		[GP_PROCESSES_WAITED] = "waited",
	};

	return names[wait];
}

static void write_processes(struct gp_json *out, const struct gp_processes *processes)
{
	gp_json_array_begin(out, "processes");
	for (unsigned i = 0; i < gp_min(processes->n, GP_PROCESSES_SHOWN); i++) {
		gp_json_object_begin(out, NULL);
		gp_json_i64(out, "pid", processes->shown[i].pid);
		gp_json_u64(out, "uid", processes->shown[i].uid);
		gp_json_bool(out, "answered", !processes->shown[i].error);
		gp_json_u64(out, "released_bytes", processes->shown[i].bytes);
		gp_json_u64(out, "held_bytes", processes->shown[i].held_bytes);
		gp_json_object_end(out);
	}
	gp_json_array_end(out);
}

/* null: there is no broker, or it was not asked. */
static void write_broker(struct gp_json *out, const struct gp_broker_answer *broker)
{
	static const char *const names[] = {
		[GP_BROKER_ANSWERED] = "answered",
		[GP_BROKER_REFUSED] = "refused",
		[GP_BROKER_IS_BUSY] = "busy",
		[GP_BROKER_SILENT] = "silent",
		[GP_BROKER_INVALID] = "invalid",
	};

	if (broker->state == GP_BROKER_NONE) {
		gp_json_null(out, "exporter");
		return;
	}
	gp_json_object_begin(out, "exporter");
	gp_json_string(out, "answer", names[broker->state]);
	gp_json_u64(out, "released_bytes", broker->bytes);
	gp_json_u64(out, "held_bytes", broker->held_bytes);
	gp_json_object_end(out);
}

static void write_segment(struct gp_json *out, struct gp_stack_json *stacks, const struct gp_oom_segment *segment)
{
	gp_json_object_begin(out, NULL);
	gp_json_address(out, "address", segment->base);
	gp_json_u64(out, "size_bytes", segment->bytes);
	gp_json_u64(out, "unused_bytes", segment->unused_bytes);
	gp_json_u64(out, "largest_unused_bytes", segment->largest_unused_bytes);
	gp_json_u64(out, "used_bytes", segment->used_bytes);
	gp_json_u64(out, "n_used_blocks", segment->n_used);
	gp_json_array_begin(out, "blocks");
	for (unsigned i = 0; i < gp_min(segment->n_used, GP_OOM_SEGMENT_BLOCKS); i++) {
		gp_json_object_begin(out, NULL);
		gp_json_address(out, "address", segment->blocks[i].addr);
		gp_json_u64(out, "size_bytes", segment->blocks[i].bytes);
		gp_stack_json_site(out, stacks, "frames", segment->blocks[i].site);
		gp_json_object_end(out);
	}
	gp_json_array_end(out);
	gp_json_object_end(out);
}

static void write_holders(struct gp_json *out, struct gp_stack_json *stacks, const struct gp_holders *holders)
{
	gp_json_object_begin(out, NULL);
	gp_json_u64(out, "blocks", holders->blocks);
	gp_json_u64(out, "bytes", holders->bytes);
	gp_stack_json_site(out, stacks, "frames", holders->number);
	gp_json_object_end(out);
}

static void write_numbers(struct gp_json *out, const struct gp_oom *oom)
{
	uint64_t taken = oom->device_total_bytes - gp_min(oom->device_free_bytes, oom->device_total_bytes);
	uint64_t held = oom->stats.total_bytes - oom->stats.spilled_bytes;
	bool is_known = oom->what != GP_OOM_PINNED && oom->device_free_bytes != UINT64_MAX;

	gp_json_u64(out, "age_ns", gp_clock_now_ns(NULL) - oom->time_ns);
	gp_json_i64(out, "time", (int64_t)oom->time);
	gp_json_string(out, "kind", kind_text(oom->what));
	gp_json_device(out, "device", oom->device);
	gp_json_u64(out, "requested_bytes", oom->bytes);
	gp_json_string(out, "cause", cause_text(oom->cause));
	gp_json_u64(out, "missing_bytes", oom->missing_bytes);
	gp_json_string(out, "pool", gp_kind_name(oom->kind));
	gp_json_string(out, "better_pool", oom->is_vmm_better ? gp_kind_name(GP_KIND_VMM) : NULL);
	gp_json_u64(out, "held_bytes", oom->held_bytes);
	gp_json_amount(out, "usable_bytes", oom->usable_bytes);
	gp_json_bool(out, "is_full", gp_oom_is_full(oom));
	gp_json_u64(out, "movable_bytes", oom->movable_bytes);
	gp_json_amount(out, "limit_bytes", oom->limit_bytes);
	gp_json_u64(out, "counted_bytes", oom->charged_bytes);
	gp_group_json(out, &oom->group);
	gp_json_amount(out, "device_total_bytes", is_known ? oom->device_total_bytes : UINT64_MAX);
	gp_json_amount(out, "device_free_bytes", is_known ? oom->device_free_bytes : UINT64_MAX);
	gp_json_amount(out, "outside_bytes", is_known ? taken - gp_min(held, taken) : UINT64_MAX);
	gp_json_u64(out, "unpooled_bytes", oom->unpooled_bytes);
	gp_json_u64(out, "used_bytes", oom->stats.used_bytes);
	gp_json_u64(out, "cached_bytes", oom->stats.cached_bytes);
	gp_json_u64(out, "pending_bytes", oom->stats.pending_bytes);
	gp_json_u64(out, "returning_bytes", oom->stats.returning_bytes);
	gp_json_u64(out, "total_bytes", oom->stats.total_bytes);
	gp_json_u64(out, "spilled_bytes", oom->stats.spilled_bytes);
	gp_json_u64(out, "largest_unused_bytes", oom->largest_unused_bytes);
}

static void write_last(struct gp_json *out, struct gp_stack_json *stacks, const struct gp_oom *oom)
{
	gp_json_object_begin(out, "last");
	write_numbers(out, oom);
	gp_round_json(out, "rounds", oom->failure.rounds, false);
	write_processes(out, &oom->processes);
	write_broker(out, &oom->processes.broker);
	gp_json_string(out, "wait", wait_text(oom->processes.wait));
	gp_stack_json_site(out, stacks, "frames", oom->site);
	gp_json_u64(out, "n_partly_used_segments", oom->n_partly_used);
	gp_json_u64(out, "partly_used_unused_bytes", oom->partly_used_unused_bytes);
	gp_json_array_begin(out, "segments");
	for (unsigned i = 0; i < oom->n_segments; i++)
		write_segment(out, stacks, &oom->segments[i]);
	gp_json_array_end(out);
	gp_json_array_begin(out, "holders");
	for (unsigned i = 0; i < oom->n_holders; i++)
		write_holders(out, stacks, &oom->holders[i]);
	if (oom->without.blocks)
		write_holders(out, stacks, &oom->without);
	gp_json_array_end(out);
	gp_leaks_write_callers(out, oom->callers, oom->n_callers, oom->time_ns);
	gp_json_object_end(out);
}

/*
 * The job, rank and so on of the process, in the order of gp_job_labels; "": unknown. They are read once, because
 * another thread may change the environment while this one runs out of memory.
 */
static char labels[LABELS_MAX][64];

static const char *find_variable(const void *unused, const char *name)
{
	return gp_config_variable(name);
}

void gp_oom_labels_start(void)
{
	for (int i = 0; i < LABELS_MAX && gp_job_labels[i]; i++) {
		const char *value = gp_job_value(gp_job_labels[i], find_variable, NULL);

		snprintf(labels[i], sizeof(labels[i]), "%s", value ? value : "");
	}
}

static void write_labels(struct gp_json *out)
{
	gp_json_object_begin(out, "labels");
	for (int i = 0; i < LABELS_MAX && gp_job_labels[i]; i++)
		if (*labels[i])
			gp_json_string(out, gp_job_labels[i], labels[i]);
	gp_json_object_end(out);
}

static void write_answer(struct gp_json *out, struct gp_stack_json *stacks, const struct gp_oom *oom)
{
	char command[1024];

	gp_file_read_command(command, sizeof(command));
	gp_ctl_answer_begin(out, GP_CTL_oom);
	gp_json_i64(out, "pid", getpid());
	gp_json_string(out, "command", command);
	write_labels(out);
	gp_json_string(out, "version", GPUPOOL_VERSION);
	gp_json_u64(out, "n_ooms", oom->n);
	if (oom->n)
		write_last(out, stacks, oom);
	else
		gp_json_null(out, "last");
	gp_stack_json_objects(out, stacks);
	gp_json_object_end(out);
}

/* Only with stacks may the loader be asked: this thread may have run out of memory inside a call of the loader. */
static bool has_stacks(const struct gp_oom *oom)
{
	return oom->site || atomic_load(&gp_alloc_info_mode);
}

int gp_oom_write(struct gp_json *out, const struct gp_oom *oom)
{
	struct gp_stack_json stacks = {0};

	if (has_stacks(oom) && !gp_stack_json_init(&stacks))
		return -ENOMEM;
	write_answer(out, &stacks, oom);
	gp_stack_json_deinit(&stacks);
	return 0;
}

int gp_oom_answer(int argc, char **argv, struct gp_json *out)
{
	static struct gp_oom oom; /* the server answers one request at a time */

	gp_oom_last(&oom);
	if (gp_oom_write(out, &oom))
		return gp_ctl_error(out, GP_CTL_FAILED, "not enough host memory for the report");
	return 0;
}
