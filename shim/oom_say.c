/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* An out-of-memory error in a few lines on stderr. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "caller.h"
#include "log.h"
#include "oom_file.h"
#include "origin.h"
#include "stack_text.h"
#include "state.h"

enum { CALLERS_SHOWN = 4, WHERE_MAX = 1024 };

typedef char amount[GP_AMOUNT_TEXT_MAX];

static const char *or_unknown(amount text, uint64_t bytes, const char *unknown)
{
	return bytes == UINT64_MAX ? unknown : gp_amount_text(text, bytes);
}

static const char *what_of(const struct gp_oom *oom, char text[static 64])
{
	if (oom->what == GP_OOM_PINNED)
		return "pinned memory";
	snprintf(text, 64, "device %d%s", oom->device,
		oom->what == GP_OOM_UNPOOLED ? ", memory that is not pooled" : "");
	return text;
}

static void say_process(const struct gp_oom *oom)
{
	amount used, cached, pending, largest, limit, unpooled;

	gp_log(GP_LOG_WARN,
		"  process: used %s, cached %s (largest free block %s), pending %s, not pooled %s, limit %s",
		gp_amount_text(used, oom->stats.used_bytes), gp_amount_text(cached, oom->stats.cached_bytes),
		gp_amount_text(largest, oom->largest_free_bytes), gp_amount_text(pending, oom->stats.pending_bytes),
		gp_amount_text(unpooled, oom->unpooled_bytes), or_unknown(limit, oom->limit_bytes, "none"));
}

static void say_device(const struct gp_oom *oom)
{
	uint64_t taken = oom->device_total_bytes - gp_min(oom->device_free_bytes, oom->device_total_bytes);
	amount total, available, outside;

	if (oom->what == GP_OOM_PINNED || oom->device_free_bytes == UINT64_MAX)
		return;
	gp_log(GP_LOG_WARN, "  device: %s in all, %s free in the driver, %s outside gpupool",
		gp_amount_text(total, oom->device_total_bytes), gp_amount_text(available, oom->device_free_bytes),
		gp_amount_text(outside, taken - gp_min(oom->stats.total_bytes, taken)));
}

static void say_rounds(const struct gp_oom *oom)
{
	char line[512] = "";
	size_t used = 0;

	for (int i = 0; i < GP_N_ROUNDS; i++) {
		const struct gp_round_stats *round = &oom->failure.rounds[i];
		amount yielded;
		int n = 0;

		if (round->count && i != GP_ROUND_fail)
			n = snprintf(line + used, sizeof(line) - used, "%s%s %s in %" PRIu64 " us", used ? ", " : "",
				gp_round_name((enum gp_round)i), gp_yield_text(yielded, round->yielded_bytes),
				round->ns / 1000);
		used = gp_min(used + (size_t)n, sizeof(line) - 1);
	}
	if (used)
		gp_log(GP_LOG_WARN, "  tried: %s", line);
}

static void say_peers(const struct gp_peers *peers)
{
	char line[512] = "";
	size_t used = 0;
	amount bytes;

	for (unsigned i = 0; i < gp_min(peers->n, GP_PEERS_SHOWN); i++) {
		const struct gp_peer *peer = &peers->shown[i];
		const char *refusal = peer->error == -EPERM ? "did not want to" : "did not answer";
		char user[32] = "";
		int n;

		if (peer->uid != geteuid())
			snprintf(user, sizeof(user), " of user %u", (unsigned)peer->uid);
		n = snprintf(line + used, sizeof(line) - used, "%sprocess %d%s %s%s", used ? ", " : "",
			(int)peer->pid, user, peer->error ? refusal : "gave ",
			peer->error ? "" : gp_amount_text(bytes, peer->bytes));
		used = gp_min(used + (size_t)n, sizeof(line) - 1);
	}
	if (used)
		gp_log(GP_LOG_WARN, "  asked: %s", line);
}

/* Who holds most of it. */
static void say_callers(const struct gp_oom *oom)
{
	char line[512] = "";
	size_t used = 0;

	for (unsigned i = 0; i < gp_min(oom->n_callers, CALLERS_SHOWN); i++) {
		const struct gp_holders *caller = &oom->callers[i];
		const char *name = gp_caller_name(caller->number);
		amount bytes;
		int n = snprintf(line + used, sizeof(line) - used, "%s%.80s %s", used ? ", " : "",
			name ? name : "unknown", gp_amount_text(bytes, caller->bytes));

		used = gp_min(used + (size_t)n, sizeof(line) - 1);
	}
	if (used)
		gp_log(GP_LOG_WARN, "  holders: %s%s", line, oom->n_callers > CALLERS_SHOWN ? ", and others" : "");
}

/* Names the largest holder: the call site where stacks are known, else the library. */
static void write_largest(char *text, size_t size, const struct gp_oom *oom)
{
	bool is_site = oom->n_holders && oom->holders[0].number;
	const struct gp_holders *largest = is_site ? &oom->holders[0] : &oom->callers[0];
	const char *name = gp_caller_name(largest->number);
	char stack[GP_STACK_TEXT_MAX];
	amount bytes;

	*text = '\0';
	if (is_site || oom->n_callers)
		snprintf(text, size, "; the largest holder has %s: %s", gp_amount_text(bytes, largest->bytes),
			is_site	? gp_stack_text(stack, largest->number)
			: name	? name
				: "unknown");
}

static const char *name_of_shortage(const struct gp_oom *oom)
{
	if (oom->cause == GP_OOM_LIMITED)
		return "the limit is reached";
	return oom->what == GP_OOM_PINNED ? "there is no more pinned memory" : "the device is full";
}

/* The limit or the device has no more, or others have it. */
static void say_shortage(const struct gp_oom *oom)
{
	uint64_t permille = oom->held_bytes / gp_max(oom->usable_bytes / 1000, 1);
	char largest[GP_STACK_TEXT_MAX + 64];
	amount held, usable, missing, others;

	write_largest(largest, sizeof(largest), oom);
	gp_amount_text(held, oom->held_bytes);
	if (oom->cause == GP_OOM_OTHERS)
		gp_log(GP_LOG_WARN,
			"  cause: the device is full: other processes, or CUDA itself, use %s of it; "
			"the program holds %s",
			gp_amount_text(others, gp_oom_others_bytes(oom)), held);
	else if (gp_oom_is_full(oom))
		gp_log(GP_LOG_WARN, "  cause: %s: the program itself holds %s of %s, %" PRIu64 ".%" PRIu64 " %%%s",
			name_of_shortage(oom), held, gp_amount_text(usable, oom->usable_bytes), permille / 10,
			permille % 10, largest);
	else
		gp_log(GP_LOG_WARN, "  cause: %s: %s short even if all free memory were in one piece%s",
			name_of_shortage(oom), gp_amount_text(missing, oom->missing_bytes), largest);
}

/* Small blocks and large ones do not share memory, so the largest piece may be large enough. */
static void say_fragmentation(const struct gp_oom *oom)
{
	uint64_t short_by = oom->bytes - gp_min(oom->bytes, oom->largest_free_bytes);
	amount all, largest, lacking;

	gp_log(GP_LOG_WARN,
		"  cause: fragmentation: %s are free between blocks that the program holds, "
		"at most %s in one piece, %s%s",
		gp_amount_text(all, oom->stats.cached_bytes), gp_amount_text(largest, oom->largest_free_bytes),
		short_by ? gp_amount_text(lacking, short_by) : "",
		short_by ? " too small" : "which is kept for blocks of other sizes");
}

static void say_cause(const struct gp_oom *oom)
{
	uint64_t rounding = oom->stats.used_bytes - gp_min(oom->least_bytes, oom->stats.used_bytes);
	amount one;

	switch (oom->cause) {
	case GP_OOM_BEYOND_DEVICE:
		gp_log(GP_LOG_WARN, "  cause: the request is larger than %s",
			oom->what == GP_OOM_PINNED ? "the machine's memory" : "the device");
		break;
	case GP_OOM_BEYOND_LIMIT:
		gp_log(GP_LOG_WARN, "  cause: the request is larger than the limit");
		break;
	case GP_OOM_FRAGMENTED:
		say_fragmentation(oom);
		break;
	case GP_OOM_REFUSED:
		gp_log(GP_LOG_WARN, "  cause: the driver refused, though it has %s free",
			gp_amount_text(one, oom->device_free_bytes));
		break;
	case GP_OOM_PENDING:
		gp_log(GP_LOG_WARN, "  cause: the GPU may still use %s that the program has freed",
			gp_amount_text(one, oom->stats.pending_bytes));
		break;
	case GP_OOM_ROUNDED:
		gp_log(GP_LOG_WARN, "  cause: rounding: the pool type %s takes %s more than the program asked for",
			gp_kind_name(oom->kind), gp_amount_text(one, rounding));
		break;
	default:
		say_shortage(oom);
		break;
	}
}

static bool is_limit_in_the_way(const struct gp_oom *oom)
{
	return oom->cause == GP_OOM_LIMITED || oom->cause == GP_OOM_BEYOND_LIMIT;
}

/* Tells the reader what to do next, after the command that shows more. */
static const char *advice_of(const struct gp_oom *oom)
{
	if (oom->is_vmm_better)
		return " shows the blocks in the way; GPUPOOL_POOL=vmm can move free memory together";
	if (oom->cause == GP_OOM_FRAGMENTED)
		return " shows the blocks in the way";
	if (oom->cause == GP_OOM_ROUNDED && oom->what != GP_OOM_PINNED)
		return " tells more; GPUPOOL_RECORD=FILE and gpupool-stat replay FILE compare the pool types";
	if (oom->cause == GP_OOM_PENDING)
		return " tells more; synchronize before the allocation, or let it wait with GPUPOOL_OOM_WAIT";
	if (oom->cause == GP_OOM_OTHERS)
		return " tells more; nvidia-smi lists the processes on the device";
	if (is_limit_in_the_way(oom))
		return oom->what == GP_OOM_PINNED ? " tells more; GPUPOOL_PINNED_LIMIT sets the limit"
						  : " tells more; GPUPOOL_LIMIT sets the limit";
	if (!(atomic_load(&gp_origin_mode) & GP_ORIGIN_STACKS))
		return " tells more; with GPUPOOL_STACKS=16 also where that was allocated";
	return " shows who holds the memory";
}

void gp_oom_say(const struct gp_oom *oom)
{
	char what[64], stack[GP_STACK_TEXT_MAX], where[WHERE_MAX];
	amount asked;

	if (oom->n == 1)
		gp_log(GP_LOG_WARN, "out of memory on %s: asked for %s", what_of(oom, what),
			gp_amount_text(asked, oom->bytes));
	else
		gp_log(GP_LOG_WARN, "out of memory on %s, time %" PRIu64 ": asked for %s", what_of(oom, what), oom->n,
			gp_amount_text(asked, oom->bytes));
	say_process(oom);
	say_device(oom);
	say_rounds(oom);
	say_peers(&oom->peers);
	say_callers(oom);
	say_cause(oom);
	if (oom->site)
		gp_log(GP_LOG_WARN, "  asked at: %s", gp_stack_text(stack, oom->site));
	gp_log(GP_LOG_WARN, "  next: gpupool-stat oom %s%s", gp_oom_where(where, sizeof(where)), advice_of(oom));
}
