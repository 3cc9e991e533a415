/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Logs an out-of-memory error in a few lines. gpupool-stat oom uses the same words (common/oom_words.h). */

#include "oom_say.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/clean.h"
#include "common/oom_words.h"
#include "oom_cause.h"
#include "oom_file.h"
#include "shim/base/log.h"
#include "shim/trace/alloc_info.h"
#include "shim/trace/module.h"
#include "shim/trace/stack_text.h"

enum { CALLERS_SHOWN = 4, WHERE_MAX = 1024 };

typedef char amount[GP_AMOUNT_TEXT_MAX];

static const char *amount_or(amount text, uint64_t bytes, const char *unknown)
{
	return bytes == UINT64_MAX ? unknown : gp_amount_text(text, bytes);
}

static const char *memory_text(const struct gp_oom *oom, char text[static 64])
{
	if (oom->what == GP_OOM_PINNED)
		return "pinned memory";
	snprintf(text, 64, "memory on device %d", oom->device);
	return text;
}

static void log_process(const struct gp_oom *oom)
{
	amount used, cached, pending, largest, limit, unpooled;

	gp_log(GP_LOG_WARN,
		"  process: used %s, cached %s (largest unused block %s), pending %s, not pooled %s, limit %s",
		gp_amount_text(used, oom->stats.used_bytes), gp_amount_text(cached, oom->stats.cached_bytes),
		gp_amount_text(largest, oom->largest_unused_bytes), gp_amount_text(pending, oom->stats.pending_bytes),
		gp_amount_text(unpooled, oom->unpooled_bytes), amount_or(limit, oom->limit_bytes, "none"));
}

static void log_spilled(const struct gp_oom *oom)
{
	amount spilled;

	if (oom->stats.spilled_bytes)
		gp_log(GP_LOG_WARN, "  in host memory: %s of what is used (GPUPOOL_SPILL)",
			gp_amount_text(spilled, oom->stats.spilled_bytes));
}

static void log_device(const struct gp_oom *oom)
{
	uint64_t taken = oom->device_total_bytes - gp_min(oom->device_free_bytes, oom->device_total_bytes);
	amount total, available, outside;

	if (oom->what == GP_OOM_PINNED || oom->device_free_bytes == UINT64_MAX)
		return;
	gp_log(GP_LOG_WARN, "  device: total %s, free %s, outside gpupool %s",
		gp_amount_text(total, oom->device_total_bytes), gp_amount_text(available, oom->device_free_bytes),
		gp_amount_text(outside, taken - gp_min(oom->stats.total_bytes - oom->stats.spilled_bytes, taken)));
}

static void log_rounds(const struct gp_oom *oom)
{
	char line[512] = "";
	size_t used = 0;

	for (int i = 0; i < GP_N_ROUNDS; i++) {
		const struct gp_round_stats *round = &oom->failure.rounds[i];
		amount yielded;
		int n = 0;

		if (round->count && i != GP_ROUND_fail)
			n = snprintf(line + used, sizeof(line) - used, "%s%s gained %s in %" PRIu64 " us",
				used ? ", " : "", gp_round_doing((enum gp_round)i),
				gp_yield_text(yielded, round->gained_bytes), round->ns / 1000);
		used = gp_min(used + (size_t)n, sizeof(line) - 1);
	}
	if (used)
		gp_log(GP_LOG_WARN, "  tried: %s", line);
}

static void log_processes(const struct gp_processes *processes)
{
	char line[512] = "";
	size_t used = 0;
	amount bytes;

	for (unsigned i = 0; i < gp_min(processes->n, GP_PROCESSES_SHOWN); i++) {
		const struct gp_process *other = &processes->shown[i];
		const char *refusal = other->error == -EPERM ? "refused" : "did not answer";
		char user[32] = "";
		int n;

		if (other->uid != geteuid())
			snprintf(user, sizeof(user), " of user %u", (unsigned)other->uid);
		n = snprintf(line + used, sizeof(line) - used, "%sprocess %d%s %s%s", used ? ", " : "", (int)other->pid,
			user, other->error ? refusal : "released ",
			other->error ? "" : gp_amount_text(bytes, other->bytes));
		used = gp_min(used + (size_t)n, sizeof(line) - 1);
	}
	if (used)
		gp_log(GP_LOG_WARN, "  asked: %s", line);
}

static void log_broker(const struct gp_broker_answer *broker)
{
	static const char *const failures[] = {
		[GP_BROKER_REFUSED] = GP_OOM_BROKER_REFUSED_WORDS,
		[GP_BROKER_IS_BUSY] = GP_OOM_BROKER_BUSY_WORDS,
		[GP_BROKER_SILENT] = GP_OOM_BROKER_SILENT_WORDS,
		[GP_BROKER_INVALID] = GP_OOM_BROKER_INVALID_WORDS,
	};
	amount bytes;

	if (broker->state == GP_BROKER_ANSWERED)
		gp_log(GP_LOG_WARN, "  asked the exporter: " GP_OOM_BROKER_WORDS " released %s",
			gp_amount_text(bytes, broker->bytes));
	else if (broker->state != GP_BROKER_NONE)
		gp_log(GP_LOG_WARN, "  asked the exporter: it %s", failures[broker->state]);
}

/* Logs the group and its members. Their commands are texts of other processes. */
static void log_group(const struct gp_group_report *group)
{
	const struct gp_group_view *view = &group->view;
	char line[1024] = "", command[GP_GROUP_COMMAND];
	size_t used = 0;
	amount sum, limit, bytes;

	if (!group->is_on)
		return;
	for (unsigned i = 0; i < gp_min(view->n_members, (unsigned)GP_GROUP_SHOWN); i++) {
		const struct gp_group_holder *holder = &view->holders[i];
		int n;

		gp_clean(command, sizeof(command), holder->command);
		n = snprintf(line + used, sizeof(line) - used, "%sprocess %d%s (%s) %s", used ? ", " : "",
			(int)holder->pid, holder->is_self ? ", this one" : "", command,
			gp_amount_text(bytes, holder->bytes));
		used = gp_min(used + (size_t)n, sizeof(line) - 1);
	}
	if (group->problem)
		gp_log(GP_LOG_WARN, "  group: cannot join %s '%s': %s", group->kind, group->name, group->problem);
	else
		gp_log(GP_LOG_WARN, "  group: %s '%s' holds %s of %s: %s%s", group->kind, group->name,
			gp_amount_text(sum, view->reserved_bytes), gp_amount_text(limit, view->limit_bytes), line,
			view->n_members > GP_GROUP_SHOWN ? ", and others" : "");
}

/* Logs how long the request has waited and for which processes, or why it has not. */
static void log_wait(const struct gp_oom *oom)
{
	static const char *const reasons[] = {
		[GP_PROCESSES_TOO_LITTLE] = GP_OOM_NO_WAIT_TOO_LITTLE_WORDS,
		[GP_PROCESSES_CAPTURE] = GP_OOM_NO_WAIT_CAPTURE_WORDS,
		[GP_PROCESSES_SPENT] = GP_OOM_NO_WAIT_SPENT_WORDS,
	};
	const struct gp_processes *processes = &oom->processes;
	uint64_t elsewhere = processes->broker.held_bytes - gp_min(processes->held_bytes, processes->broker.held_bytes);
	char line[512] = "";
	size_t used = 0;
	amount bytes;

	if (processes->wait == GP_PROCESSES_NONE)
		return;
	if (processes->wait != GP_PROCESSES_WAITED) {
		gp_log(GP_LOG_WARN, "  " GP_OOM_NO_WAIT_WORDS "%s", reasons[processes->wait]);
		return;
	}
	if (elsewhere)
		used = (size_t)snprintf(
			line, sizeof(line), GP_OOM_BROKER_WORDS ", which hold %s", gp_amount_text(bytes, elsewhere));
	for (unsigned i = 0; i < gp_min(processes->n, GP_PROCESSES_SHOWN); i++) {
		const struct gp_process *other = &processes->shown[i];
		int n = 0;

		if (other->held_bytes)
			n = snprintf(line + used, sizeof(line) - used, "%sprocess %d, which holds %s",
				used ? ", and " : "", (int)other->pid, gp_amount_text(bytes, other->held_bytes));
		used = gp_min(used + (size_t)n, sizeof(line) - 1);
	}
	gp_log(GP_LOG_WARN, "  waited: %" PRIu64 " ms for %s", oom->failure.rounds[GP_ROUND_neighbours].ns / 1000000,
		used ? line : "other processes");
}

/* Logs the libraries that hold the most memory. */
static void log_callers(const struct gp_oom *oom)
{
	char line[512] = "";
	size_t used = 0;

	for (unsigned i = 0; i < gp_min(oom->n_callers, CALLERS_SHOWN); i++) {
		const struct gp_holders *caller = &oom->callers[i];
		const char *name = gp_module_name(caller->number);
		amount bytes;
		int n = snprintf(line + used, sizeof(line) - used, "%s%.80s %s", used ? ", " : "",
			name ? name : "unknown", gp_amount_text(bytes, caller->bytes));

		used = gp_min(used + (size_t)n, sizeof(line) - 1);
	}
	if (used)
		gp_log(GP_LOG_WARN, "  held by: %s%s", line, oom->n_callers > CALLERS_SHOWN ? ", and others" : "");
}

/* Names the call site that holds the most memory. Without call sites, names the library that does. */
static void write_largest(char *text, size_t size, const struct gp_oom *oom)
{
	bool is_site = oom->n_holders && oom->holders[0].number;
	const struct gp_holders *largest = is_site ? &oom->holders[0] : &oom->callers[0];
	const char *name = gp_module_name(largest->number);
	char stack[GP_STACK_TEXT_MAX];
	amount bytes;

	*text = '\0';
	if (is_site || oom->n_callers)
		snprintf(text, size, "; the largest %s, with %s, is %s", is_site ? "call site" : "holder",
			gp_amount_text(bytes, largest->bytes),
			is_site ? gp_stack_text(stack, largest->number)
			: name  ? name
				: "unknown");
}

static const char *shortage_text(const struct gp_oom *oom)
{
	if (oom->cause == GP_OOM_GROUP)
		return GP_OOM_GROUP_WORDS;
	if (oom->cause == GP_OOM_LIMITED)
		return GP_OOM_LIMITED_WORDS;
	return oom->what == GP_OOM_PINNED ? GP_OOM_FULL_PINNED_WORDS : GP_OOM_FULL_WORDS;
}

/* Logs a cause that is a lack of memory: the limit is reached, or the device is full. */
static void log_shortage(const struct gp_oom *oom)
{
	uint64_t permille = oom->held_bytes / gp_max(oom->usable_bytes / 1000, 1);
	char largest[GP_STACK_TEXT_MAX + 64];
	amount held, usable, missing, others;

	write_largest(largest, sizeof(largest), oom);
	gp_amount_text(held, oom->held_bytes);
	if (oom->cause == GP_OOM_OTHERS)
		gp_log(GP_LOG_WARN, "  cause: " GP_OOM_OTHERS_WORDS("%s") "; the program holds %s",
			gp_amount_text(others, gp_oom_other_processes_bytes(oom)), held);
	else if (gp_oom_is_full(oom))
		gp_log(GP_LOG_WARN,
			"  cause: %s: the program itself holds %s of the %s that it may use (%" PRIu64 ".%" PRIu64
			" %%)%s",
			shortage_text(oom), held, gp_amount_text(usable, oom->usable_bytes), permille / 10,
			permille % 10, largest);
	else
		gp_log(GP_LOG_WARN, "  cause: %s: %s short even if all available memory were contiguous%s",
			shortage_text(oom), gp_amount_text(missing, oom->missing_bytes), largest);
}

/* Even a free block that is large enough may not serve the request: small and large blocks do not share memory. */
static void log_fragmentation(const struct gp_oom *oom)
{
	uint64_t short_by = oom->bytes - gp_min(oom->bytes, oom->largest_unused_bytes);
	amount all, largest, lacking;

	gp_log(GP_LOG_WARN, "  cause: " GP_OOM_FRAGMENTED_WORDS("%s are") ", but the largest unused block has %s, %s%s",
		gp_amount_text(all, oom->stats.cached_bytes), gp_amount_text(largest, oom->largest_unused_bytes),
		short_by ? gp_amount_text(lacking, short_by) : "",
		short_by ? " too little" : "and is reserved for other sizes");
}

static void log_cause(const struct gp_oom *oom)
{
	uint64_t rounding = oom->stats.used_bytes - gp_min(oom->least_bytes, oom->stats.used_bytes);
	amount one;

	switch (oom->cause) {
	case GP_OOM_BEYOND_DEVICE:
		gp_log(GP_LOG_WARN, "  cause: %s",
			oom->what == GP_OOM_PINNED ? GP_OOM_BEYOND_MACHINE_WORDS : GP_OOM_BEYOND_DEVICE_WORDS);
		break;
	case GP_OOM_BEYOND_LIMIT:
		gp_log(GP_LOG_WARN, "  cause: " GP_OOM_BEYOND_LIMIT_WORDS);
		break;
	case GP_OOM_GROUP:
		if (oom->group.problem)
			gp_log(GP_LOG_WARN, "  cause: the process cannot join its group, so it gets no device memory");
		else if (oom->bytes > oom->group.view.limit_bytes)
			gp_log(GP_LOG_WARN, "  cause: the request is larger than the limit of the group");
		else
			log_shortage(oom);
		break;
	case GP_OOM_FRAGMENTED:
		log_fragmentation(oom);
		break;
	case GP_OOM_REFUSED:
		gp_log(GP_LOG_WARN, "  cause: " GP_OOM_REFUSED_WORDS("%s are"),
			gp_amount_text(one, oom->device_free_bytes));
		break;
	case GP_OOM_PENDING:
		gp_log(GP_LOG_WARN, "  cause: " GP_OOM_PENDING_WORDS("%s"),
			gp_amount_text(one, oom->stats.pending_bytes));
		if (oom->stats.retained_bytes)
			gp_log(GP_LOG_WARN, "  of these, %s stay reserved until captured graphs are destroyed",
				gp_amount_text(one, oom->stats.retained_bytes));
		break;
	case GP_OOM_ROUNDED:
		gp_log(GP_LOG_WARN, "  cause: " GP_OOM_ROUNDED_WORDS("pool type %s uses %s"), gp_kind_name(oom->kind),
			gp_amount_text(one, rounding));
		break;
	default:
		log_shortage(oom);
		break;
	}
}

static bool is_limit_the_cause(const struct gp_oom *oom)
{
	return oom->cause == GP_OOM_LIMITED || oom->cause == GP_OOM_BEYOND_LIMIT;
}

/* Returns the end of the line "next: run gpupool-stat oom PID": what the command shows, and what else helps. */
static const char *advice_of(const struct gp_oom *oom)
{
	if (oom->is_vmm_better)
		return " to see the blocks in the way; GPUPOOL_POOL=vmm can combine scattered unused memory";
	if (oom->cause == GP_OOM_FRAGMENTED)
		return " to see the blocks in the way";
	if (oom->cause == GP_OOM_ROUNDED && oom->what != GP_OOM_PINNED)
		return " for details; to compare the pool types, record a run with GPUPOOL_RECORD=FILE and run "
		       "gpupool-stat replay FILE";
	if (oom->cause == GP_OOM_PENDING)
		return " for details; synchronize before the allocation, or set GPUPOOL_OOM_WAIT so that it waits";
	if (oom->cause == GP_OOM_OTHERS)
		return " for details; nvidia-smi lists the processes on the device";
	if (oom->cause == GP_OOM_GROUP)
		return " for details; GPUPOOL_LIMIT_GROUP sets the limit of the group";
	if (is_limit_the_cause(oom))
		return oom->what == GP_OOM_PINNED ? " for details; GPUPOOL_PINNED_LIMIT sets the limit"
						  : " for details; GPUPOOL_LIMIT sets the limit";
	if (!(atomic_load(&gp_alloc_info_mode) & GP_ALLOC_INFO_STACKS))
		return " for details; start the program with GPUPOOL_STACKS=16 to see where it allocates";
	return " to see which call sites hold the memory";
}

void gp_oom_say(const struct gp_oom *oom)
{
	const char *unpooled = oom->what == GP_OOM_UNPOOLED ? " (not pooled)" : "";
	char memory[64], stack[GP_STACK_TEXT_MAX], where[WHERE_MAX];
	amount requested;

	if (oom->n == 1)
		gp_log(GP_LOG_WARN, "out of %s: a request for %s%s failed", memory_text(oom, memory),
			gp_amount_text(requested, oom->bytes), unpooled);
	else
		gp_log(GP_LOG_WARN, "out of %s (error %" PRIu64 " of this process): a request for %s%s failed",
			memory_text(oom, memory), oom->n, gp_amount_text(requested, oom->bytes), unpooled);
	log_process(oom);
	log_spilled(oom);
	log_device(oom);
	log_rounds(oom);
	log_group(&oom->group);
	log_processes(&oom->processes);
	log_broker(&oom->processes.broker);
	log_wait(oom);
	log_callers(oom);
	log_cause(oom);
	if (oom->site)
		gp_log(GP_LOG_WARN, "  requested at: %s", gp_stack_text(stack, oom->site));
	gp_log(GP_LOG_WARN, "  next: run gpupool-stat oom %s%s", gp_oom_where(where, sizeof(where)), advice_of(oom));
}
