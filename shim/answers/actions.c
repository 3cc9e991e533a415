/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "actions.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "common/uuid.h"
#include "debug_answer.h"
#include "map.h"
#include "pool/pool_control.h"
#include "pool/pool_query.h"
#include "region_answer.h"
#include "sleep_answer.h"
#include "shim/backend/async_left.h"
#include "shim/backend/backend_supply.h"
#include "shim/backend/deep.h"
#include "shim/backend/sleep.h"
#include "shim/backend/sleep_policy.h"
#include "shim/backend/spill.h"
#include "shim/base/clock.h"
#include "shim/base/slow_path.h"
#include "shim/context/group.h"
#include "shim/context/kept.h"
#include "shim/context/limit.h"
#include "shim/context/region.h"
#include "shim/context/scope.h"
#include "shim/debug/debug.h"
#include "shim/ipc/ipc.h"
#include "shim/oom/oom_json.h"
#include "shim/reclaim/reclaim.h"
#include "shim/record/record.h"
#include "shim/trace/module.h"
#include "shim/usage/frameworks.h"
#include "shim/usage/leaks.h"
#include "shim/usage/round_json.h"
#include "shim/usage/totals.h"

enum { BLOCKS_MAX = 10000, BLOCK_JSON_BYTES = 256, END_JSON_BYTES = 64 };

/* Writes how many requests each step of the ladder (pool/ladder.def) served, and how long that took. */
static void write_steps(struct gp_json *out, const struct gp_stats *stats)
{
	gp_json_array_begin(out, "steps");
	for (int i = 0; i < GP_N_STEPS; i++) {
		gp_json_object_begin(out, NULL);
		gp_json_string(out, "name", gp_step_name((enum gp_step)i));
		gp_json_u64(out, "count", stats->steps[i].count);
		gp_json_u64(out, "ns", stats->steps[i].ns);
		gp_json_object_end(out);
	}
	gp_json_array_end(out);
}

static void write_stats(struct gp_json *out, const struct gp_stats *stats, const struct gp_budget *budget)
{
#define STAT(name, ...) gp_json_u64(out, #name, stats->name);
#include "pool/stats.def"
	gp_json_amount(out, "limit_bytes", atomic_load(&budget->limit_bytes));
	write_steps(out, stats);
	gp_round_json(out, "retries", stats->rounds, true);
}

static void write_device(struct gp_json *out, const struct gp_device *device)
{
	char uuid[GP_UUID_TEXT_MAX];
	struct gp_group_report group;
	struct gp_totals totals;
	uint64_t outside = UINT64_MAX, asleep = gp_sleep_bytes_of(device->index), held;
	int export_error = atomic_load(&device->export_error);

	gp_totals_device(&totals, device->index, true);
	held = totals.stats.total_bytes - totals.stats.spilled_bytes;
	if (totals.available_bytes != UINT64_MAX) {
		outside = device->total_bytes - gp_min(totals.available_bytes, device->total_bytes);
		outside -= gp_min(held - gp_min(asleep, held), outside);
	}
	gp_json_object_begin(out, NULL);
	gp_json_i64(out, "index", device->index);
	gp_json_string(out, "uuid", device->has_uuid ? gp_uuid_format(uuid, device->uuid, GP_UUID_SHOWN) : NULL);
	gp_json_string(out, "pool", gp_kind_name(atomic_load(&device->kind)));
	gp_json_string(out, "pool_reason", atomic_load(&device->why_kind));
	gp_json_amount(out, "export_error", export_error ? (uint64_t)export_error : UINT64_MAX);
	gp_json_string(out, "backend", gp_backend_name(atomic_load(&device->backend)));
	gp_json_u64(out, "contexts", totals.n_contexts);
	gp_json_u64(out, "broken_contexts", totals.n_broken);
	gp_json_amount(out, "broken_by", totals.n_broken ? (uint64_t)totals.broken_by : UINT64_MAX);
	gp_json_u64(out, "device_total_bytes", device->total_bytes);
	gp_json_amount(out, "device_free_bytes", totals.available_bytes);
	gp_json_amount(out, "outside_bytes", outside);
	gp_json_u64(out, "unpooled_bytes", gp_device_unpooled_bytes(device));
	gp_json_u64(out, "unpooled_cached_bytes", gp_kept_unused(device));
	gp_json_u64(out, "unpooled_reuses", atomic_load(&device->n_kept_reuses));
	gp_json_u64(out, "yields", atomic_load(&device->n_yields));
	gp_json_u64(out, "yielded_bytes", atomic_load(&device->yielded_bytes));
	gp_json_u64(out, "asleep_bytes", asleep);
	gp_json_amount(out, "deep_bytes", gp_deep_is() ? gp_deep_bytes_of(device->index) : 0);
	write_stats(out, &totals.stats, &device->budget);
	gp_group_report(device, &group);
	gp_group_json(out, &group);
	gp_region_write_device(out, device->index);
	gp_json_object_end(out);
}

static void write_spill(struct gp_json *out)
{
	struct gp_spill_status status = gp_spill_status();

	gp_json_object_begin(out, "spill");
	gp_json_u64(out, "allowed_bytes", gp_state.config.spill_bytes);
	gp_json_u64(out, "host_bytes", status.host_bytes);
	gp_json_u64(out, "spilled_ns", status.since_ns);
	gp_json_u64(out, "out_bytes", status.out_bytes);
	gp_json_u64(out, "back_bytes", status.back_bytes);
	gp_json_u64(out, "held_ns", status.moving_ns);
	gp_json_u64(out, "copied_bytes", status.copied_bytes);
	gp_json_u64(out, "copied_ns", status.copied_ns);
	gp_json_u64(out, "refusals", status.n_refusals);
	gp_json_string(out, "refusal", *status.whys[GP_SPILL_OUT] ? status.whys[GP_SPILL_OUT] : NULL);
	gp_json_string(out, "no_effect", gp_spill_why_not(gp_device_first_kind()));
	gp_json_string(out, "stays", *status.whys[GP_SPILL_BACK] ? status.whys[GP_SPILL_BACK] : NULL);
	gp_json_object_end(out);
}

/* Takes the live-block snapshot for `status callers`. A plain `status` only reads counters, which is far cheaper. */
static int take_callers(int argc, char **argv, struct gp_leaks *leaks, struct gp_json *out)
{
	if (argc > 1 && strcmp(argv[1], "callers") != 0)
		return gp_ctl_error(out, GP_CTL_USAGE, "usage: status [callers]");
	if (argc > 1 && !gp_leaks_take(leaks, 0))
		return gp_ctl_error(out, GP_CTL_FAILED, "not enough host memory for the list");
	return 0;
}

/* True if reuse waits for completion: in the whole process, or on a device whose pools consist of managed memory. */
static bool is_completion_needed(void)
{
	bool is_needed = atomic_load(&gp_state.needs_completion);

	for (int i = 0; i < GP_DEVICES_MAX && gp_state.config.reuse == GP_CONFIG_REUSE_AUTO; i++) {
		const struct gp_device *device = gp_device_if_used(i);

		is_needed |= device && atomic_load(&device->backend) == GP_CONFIG_BACKEND_MANAGED;
	}
	return is_needed;
}

/* Returns the variables of schedulers whose limit is in force. NULL: none, or another limit was set since. */
static const char *limit_variables(void)
{
	for (int i = 0; i < GP_DEVICES_MAX; i++) {
		const struct gp_device *device = gp_device_if_used(i);
		uint64_t wanted;

		if (!device)
			continue;
		gp_config_limit_for(&gp_state.config.limit, i, device->total_bytes, &wanted);
		if (wanted != atomic_load(&device->budget.limit_bytes))
			return NULL;
	}
	return *gp_state.config.limit_variables ? gp_state.config.limit_variables : NULL;
}

static int answer_status(int argc, char **argv, struct gp_json *out)
{
	struct gp_totals pinned;
	struct gp_leaks leaks;
	char command[1024];
	int r = take_callers(argc, argv, &leaks, out);

	if (r)
		return r;
	gp_file_read_command(command, sizeof(command));
	gp_ctl_answer_begin(out, GP_CTL_status);
	gp_json_string(out, "version", GPUPOOL_VERSION);
	gp_json_i64(out, "pid", getpid());
	gp_json_string(out, "command", command);
	gp_json_u64(out, "uptime_ns", gp_clock_now_ns(NULL) - gp_state.start_ns);
	gp_json_string(out, "pool", gp_kind_name(gp_device_first_kind()));
	gp_json_string(out, "backend", gp_backend_name(gp_state.config.backend));
	gp_json_string(out, "limit_variables", limit_variables());
	gp_json_string(out, "reuse", is_completion_needed() ? "completed" : "ordered");
	gp_json_u64(out, "defer_scopes", atomic_load(&gp_scope_defers));
	gp_json_i64(out, "regions", gp_region_count());
	gp_json_string(out, "bypass", gp_slow_path_is_any(GP_SLOW_PATH_BYPASS) ? "the driver has shut down" : NULL);
	gp_sleep_write_status(out);
	write_spill(out);
	gp_async_left_write(out);
	gp_frameworks_write(out);
	gp_debug_write_status(out);
	gp_json_array_begin(out, "devices");
	for (int i = 0; i < GP_DEVICES_MAX; i++)
		if (gp_device_if_used(i))
			write_device(out, gp_device_if_used(i));
	gp_json_array_end(out);
	gp_totals_pinned(&pinned);
	gp_json_object_begin(out, "pinned");
	write_stats(out, &pinned.stats, &gp_state.pinned_budget);
	gp_json_object_end(out);
	if (argc > 1) {
		gp_leaks_write_callers(out, leaks.callers, leaks.n_callers, leaks.now_ns);
		gp_leaks_free(&leaks);
	}
	gp_json_object_end(out);
	return 0;
}

/* The blocks are copied into a list first, so that no pool lock is held while JSON is written. */
struct blocks {
	struct note {
		struct gp_block_info info;
		int device; /* -1: pinned memory */
		int region; /* GP_REGION_NONE: in no region */
	} * list;
	size_t n, room, n_all;
	struct gp_context *context; /* being walked */
	int device, region;         /* of the pool being walked */
};

static bool note_block(void *arg, const struct gp_block_info *info)
{
	struct blocks *blocks = arg;

	if (blocks->n < blocks->room) {
		blocks->list[blocks->n] = (struct note){*info, blocks->device, blocks->region};
		gp_debug_adjust(&blocks->list[blocks->n++].info);
	}
	blocks->n_all++;
	return true;
}

static void note_pool(void *arg, struct gp_pool *pool)
{
	struct blocks *blocks = arg;

	blocks->region = gp_region_of(blocks->context, pool);
	gp_pool_each_used(pool, note_block, arg);
}

static void note_context(void *arg, struct gp_context *context)
{
	struct blocks *blocks = arg;

	blocks->context = context;
	blocks->device = context->device->index;
	gp_context_each_pool(context, note_pool, blocks);
	blocks->device = -1;
	gp_context_each_pinned(context, note_pool, blocks);
}

/* Returns false if the block does not fit into the answer. */
static bool write_block(struct gp_json *out, const struct note *note)
{
	const struct gp_block_info *info = &note->info;
	const char *module = gp_module_name(info->module);
	const char *region = note->region ? gp_region_name(note->region) : NULL;
	size_t names = (module ? strlen(module) : 0) + (region ? strlen(region) : 0);

	/* Escaping turns a byte of a name into at most six. */
	if (gp_json_room(out) < BLOCK_JSON_BYTES + END_JSON_BYTES + 6 * names)
		return false;
	gp_json_object_begin(out, NULL);
	gp_json_address(out, "address", info->addr);
	gp_json_u64(out, "size_bytes", info->rounded);
	gp_json_u64(out, "requested_bytes", info->size);
	gp_json_device(out, "device", note->device);
	gp_json_string(out, "kind", note->device < 0 ? "pinned" : "device");
	gp_json_u64(out, "serial", info->serial);
	gp_json_string(out, "region", region);
	gp_json_string(out, "caller", module);
	gp_json_object_end(out);
	return true;
}

static void write_blocks(struct gp_json *out, const struct blocks *blocks)
{
	size_t n = 0;

	gp_ctl_answer_begin(out, GP_CTL_blocks);
	gp_json_i64(out, "pid", getpid());
	gp_json_u64(out, "n_blocks", blocks->n_all);
	gp_json_array_begin(out, "blocks");
	while (n < blocks->n && write_block(out, &blocks->list[n]))
		n++;
	gp_json_array_end(out);
	gp_json_bool(out, "truncated", n < blocks->n_all);
	gp_json_object_end(out);
}

/* Parses a whole word as a number from 0 to max. Returns false if it is not one. */
static bool read_number(const char *word, long max, long *ret_number)
{
	char *end;
	long number;

	errno = 0;
	number = strtol(word, &end, 10);
	if (errno || end == word || *end || number < 0 || number > max)
		return false;
	*ret_number = number;
	return true;
}

static int answer_blocks(int argc, char **argv, struct gp_json *out)
{
	struct blocks blocks = {.room = BLOCKS_MAX};
	long max = BLOCKS_MAX;

	if (argc > 1 && !read_number(argv[1], LONG_MAX, &max))
		return gp_ctl_error(out, GP_CTL_USAGE, "'%s' is not a number of blocks", argv[1]);
	blocks.room = gp_min((uint64_t)max, BLOCKS_MAX);
	blocks.list = calloc(blocks.room + 1, sizeof(*blocks.list));
	if (blocks.list) {
		gp_context_each(note_context, &blocks);
		write_blocks(out, &blocks);
	}
	free(blocks.list);
	return blocks.list ? 0 : gp_ctl_error(out, GP_CTL_FAILED, "not enough host memory for the list");
}

struct reclaim {
	int device; /* -1: all devices */
	bool is_pinned;
	uint64_t released_bytes;
	struct gp_stats left; /* of these pools, afterwards */
};

static void reclaim_pool(void *arg, struct gp_pool *pool)
{
	struct reclaim *reclaim = arg;

	struct gp_stats stats;

	gp_record(pool, RECLAIM, 0);
	reclaim->released_bytes += gp_pool_reclaim(pool);
	gp_pool_stats(pool, &stats);
	gp_stats_add(&reclaim->left, &stats);
}

static void reclaim_context(void *arg, struct gp_context *context)
{
	struct reclaim *reclaim = arg;

	if (reclaim->device >= 0 && context->device->index != reclaim->device)
		return;
	if (reclaim->is_pinned)
		gp_context_each_pinned(context, reclaim_pool, reclaim);
	else
		gp_context_each_pool(context, reclaim_pool, reclaim);
}

static int answer_reclaim(int argc, char **argv, struct gp_json *out)
{
	struct reclaim reclaim = {.device = -1};
	long device;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "pinned") == 0)
			reclaim.is_pinned = true;
		else if (read_number(argv[i], GP_DEVICES_MAX - 1, &device) && gp_device_if_used((int)device))
			reclaim.device = (int)device;
		else
			return gp_ctl_error(out, GP_CTL_USAGE, "'%s' is not a device that this process uses", argv[i]);
	}
	gp_context_each(reclaim_context, &reclaim);
	if (!reclaim.is_pinned)
		reclaim.released_bytes += gp_kept_trim(reclaim.device, UINT64_MAX);
	gp_ctl_answer_begin(out, GP_CTL_reclaim);
	gp_json_u64(out, "released_bytes", reclaim.released_bytes);
	gp_json_u64(out, "used_bytes", reclaim.left.used_bytes);
	gp_json_u64(out, "cached_bytes", reclaim.left.cached_bytes);
	gp_json_u64(out, "pending_bytes", reclaim.left.pending_bytes);
	gp_json_u64(out, "returning_bytes", reclaim.left.returning_bytes);
	gp_json_object_end(out);
	return 0;
}

static int answer_defer(int argc, char **argv, struct gp_json *out)
{
	bool is_on = argc > 1 && strcmp(argv[1], "on") == 0;

	if (argc > 1 && !is_on && strcmp(argv[1], "off") != 0)
		return gp_ctl_error(out, GP_CTL_USAGE, "usage: defer [on | off]");
	if (argc > 1)
		gp_scope_defer_explicitly(is_on);
	gp_ctl_answer_begin(out, GP_CTL_defer);
	gp_json_u64(out, "scopes", atomic_load(&gp_scope_defers));
	gp_json_object_end(out);
	return 0;
}

static int answer_config(int argc, char **argv, struct gp_json *out)
{
	char value[GP_CONFIG_VALUE_SIZE];

	gp_ctl_answer_begin(out, GP_CTL_config);
	gp_json_array_begin(out, "settings");
	for (int i = 0; i < GP_OPTION_COUNT; i++) {
		enum gp_option option = (enum gp_option)i;

		gp_config_value_text(&gp_state.config, option, value, sizeof(value));
		gp_json_object_begin(out, NULL);
		gp_json_string(out, "name", gp_config_options[i].variable);
		gp_json_string(out, "value", value);
		gp_json_string(out, "source", gp_config_source_text(&gp_state.config, option));
		gp_json_object_end(out);
	}
	gp_json_array_end(out);
	gp_json_object_end(out);
	return 0;
}

/* Requests that may call the driver: while the process is deep asleep they get an error. */
#define CALLS_DRIVER(function)                                                        \
	static int function##_unless_deep(int argc, char **argv, struct gp_json *out) \
	{                                                                             \
		int r = gp_deep_refuse(out);                                          \
                                                                                      \
		return r ? r : function(argc, argv, out);                             \
	}
CALLS_DRIVER(answer_reclaim)
CALLS_DRIVER(answer_defer)
CALLS_DRIVER(gp_limit_answer)
CALLS_DRIVER(gp_region_answer)
CALLS_DRIVER(gp_reclaim_answer)
CALLS_DRIVER(gp_reclaim_answer_wanted)
CALLS_DRIVER(gp_debug_answer)
CALLS_DRIVER(gp_ipc_answer)
CALLS_DRIVER(gp_ipc_answer_chunk)

const gp_ctl_handler_fn gp_actions[GP_CTL_N_COMMANDS] = {
	[GP_CTL_status] = answer_status,
	[GP_CTL_blocks] = answer_blocks,
	[GP_CTL_map] = gp_map_answer,
	[GP_CTL_reclaim] = answer_reclaim_unless_deep,
	[GP_CTL_limit] = gp_limit_answer_unless_deep,
	[GP_CTL_defer] = answer_defer_unless_deep,
	[GP_CTL_region] = gp_region_answer_unless_deep,
	[GP_CTL_yield] = gp_reclaim_answer_unless_deep,
	[GP_CTL_sleep] = gp_sleep_answer,
	[GP_CTL_rest] = gp_rest_answer,
	[GP_CTL_wake] = gp_wake_answer,
	[GP_CTL_deep] = gp_deep_answer,
	[GP_CTL_wanted] = gp_reclaim_answer_wanted_unless_deep,
	[GP_CTL_config] = answer_config,
	[GP_CTL_leaks] = gp_leaks_answer,
	[GP_CTL_stacks] = gp_stacks_answer,
	[GP_CTL_oom] = gp_oom_answer,
	[GP_CTL_debug] = gp_debug_answer_unless_deep,
	[GP_CTL_ipc] = gp_ipc_answer_unless_deep,
	[GP_CTL_chunk] = gp_ipc_answer_chunk_unless_deep,
};
