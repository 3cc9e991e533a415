/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "debug_answer.h"

#include <string.h>
#include <unistd.h>

#include "shim/debug/debug.h"
#include "shim/debug/debug_report.h"

static void write_setting(struct gp_json *out)
{
	const struct gp_config_debug *debug = &gp_state.config.debug;
	struct gp_debug_stats stats;

	gp_debug_stats(&stats);
	gp_json_bool(out, "poison", debug->poison);
	gp_json_bool(out, "guard", debug->guard);
	gp_json_bool(out, "full", debug->full);
	gp_json_u64(out, "errors", stats.errors);
	gp_json_u64(out, "checks", stats.checks);
	gp_json_u64(out, "skipped", stats.skipped);
	gp_json_u64(out, "ns", stats.ns);
}

void gp_debug_write_status(struct gp_json *out)
{
	if (!gp_debug_is_on()) {
		gp_json_null(out, "debug");
		return;
	}
	gp_json_object_begin(out, "debug");
	write_setting(out);
	gp_json_object_end(out);
}

static void write_survey(struct gp_json *out, const struct gp_debug_survey *survey)
{
	gp_json_object_begin(out, "check");
	gp_json_u64(out, "blocks", survey->blocks);
	gp_json_u64(out, "skipped", survey->skipped);
	gp_json_u64(out, "errors", survey->errors);
	gp_json_u64(out, "ns", survey->ns);
	gp_json_bool(out, "truncated", survey->is_truncated);
	gp_json_object_end(out);
}

static void write_answer(struct gp_json *out, struct gp_stack_json *stacks, const struct gp_debug_survey *survey)
{
	struct gp_zones_count count;

	gp_zones_count(&count);
	gp_ctl_answer_begin(out, GP_CTL_debug);
	gp_json_i64(out, "pid", getpid());
	gp_json_bool(out, "is_on", gp_debug_is_on());
	write_setting(out);
	gp_json_u64(out, "held_blocks", count.n_held);
	gp_json_u64(out, "guarded_blocks", count.n_guarded);
	gp_json_u64(out, "poisoned_pieces", count.n_filled);
	gp_json_u64(out, "poisoned_bytes", count.filled_bytes);
	if (survey)
		write_survey(out, survey);
	else
		gp_json_null(out, "check");
	gp_findings_write(out, stacks);
	gp_stack_json_objects(out, stacks);
	gp_json_object_end(out);
}

int gp_debug_answer(int argc, char **argv, struct gp_json *out)
{
	struct gp_debug_survey survey;
	struct gp_stack_json stacks;
	bool is_check = argc > 1;

	if (is_check && strcmp(argv[1], "check") != 0)
		return gp_ctl_error(out, GP_CTL_USAGE, "usage: debug [check]");
	if (!gp_stack_json_init(&stacks))
		return gp_ctl_error(out, GP_CTL_FAILED, "not enough host memory for the answer");
	if (is_check)
		gp_debug_check_all(&survey);
	write_answer(out, &stacks, is_check ? &survey : NULL);
	gp_stack_json_deinit(&stacks);
	return 0;
}
