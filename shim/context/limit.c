/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "limit.h"

#include <string.h>

#include "context.h"
#include "kept.h"
#include "pool/pool_control.h"
#include "shim/ctl/ctl_request.h"
#include "shim/record/record.h"

/* Applies a new limit to a pool. */
static void apply(struct gp_pool *pool, uint64_t total_bytes, const struct gp_budget *budget, uint64_t *released)
{
	uint64_t pending_max = gp_state_pending_max(total_bytes, budget), over;

	gp_record(pool, LIMIT, atomic_load(&budget->limit_bytes), pending_max);
	gp_pool_set_pending_max(pool, pending_max);
	over = gp_budget_over(budget);
	if (over)
		*released += gp_pool_trim(pool, over);
}

struct limited {
	struct gp_device *device;
	uint64_t *released;
};

static void apply_to_pool(void *arg, struct gp_pool *pool)
{
	const struct limited *limited = arg;

	apply(pool, limited->device->total_bytes, &limited->device->budget, limited->released);
}

static void apply_to_device(void *arg, struct gp_context *context)
{
	gp_context_each_pool(context, apply_to_pool, &(struct limited){context->device, arg});
}

static void apply_to_pinned(void *arg, struct gp_pool *pool)
{
	apply(pool, gp_state_machine_bytes(), &gp_state.pinned_budget, arg);
}

static void apply_to_pinned_of(void *arg, struct gp_context *context)
{
	gp_context_each_pinned(context, apply_to_pinned, arg);
}

/* Memory that the program has unmapped goes back before cached blocks. */
static uint64_t trim_kept(void)
{
	uint64_t released = 0;

	for (int i = 0; i < GP_DEVICES_MAX; i++) {
		const struct gp_device *device = gp_device_if_used(i);
		uint64_t over = device ? gp_budget_over(&device->budget) : 0;

		if (over)
			released += gp_kept_trim(i, over);
	}
	return released;
}

uint64_t gp_limit_set(const struct gp_limit_list *list)
{
	uint64_t released;

	gp_device_set_limits(list);
	released = trim_kept();
	gp_context_each(apply_to_device, &released);
	return released;
}

uint64_t gp_limit_set_pinned(const struct gp_limit *limit)
{
	uint64_t released = 0;

	atomic_store(&gp_state.pinned_budget.limit_bytes, gp_limit_bytes(limit, gp_state_machine_bytes()));
	gp_context_each(apply_to_pinned_of, &released);
	return released;
}

static void write_budget(struct gp_json *out, const struct gp_budget *budget)
{
	gp_json_amount(out, "limit_bytes", atomic_load(&budget->limit_bytes));
	gp_json_u64(out, "counted_bytes", atomic_load(&budget->charged_bytes));
}

static int answer(struct gp_json *out, const uint64_t *released)
{
	gp_ctl_answer_begin(out, GP_CTL_limit);
	if (released)
		gp_json_u64(out, "released_bytes", *released);
	gp_json_array_begin(out, "devices");
	for (int i = 0; i < GP_DEVICES_MAX; i++) {
		const struct gp_device *device = gp_device_if_used(i);

		if (!device)
			continue;
		gp_json_object_begin(out, NULL);
		gp_json_i64(out, "index", i);
		write_budget(out, &device->budget);
		gp_json_object_end(out);
	}
	gp_json_array_end(out);
	gp_json_object_begin(out, "pinned");
	write_budget(out, &gp_state.pinned_budget);
	gp_json_object_end(out);
	gp_json_object_end(out);
	return 0;
}

static int refuse(struct gp_json *out, const char *text, const struct gp_text_error *error)
{
	return gp_ctl_error(out, GP_CTL_USAGE, "'%.64s' %s%s%s", text, error->why, error->next ? "; try: " : "",
		error->next ? error->next : "");
}

int gp_limit_answer(int argc, char **argv, struct gp_json *out)
{
	bool is_pinned = argc == 4 && strcmp(argv[2], "pinned") == 0;
	const char *text = argv[argc - 1];
	struct gp_limit_list list;
	struct gp_text_error error;
	struct gp_limit limit;
	uint64_t released;

	if (argc == 1 || (argc == 2 && strcmp(argv[1], "get") == 0))
		return answer(out, NULL);
	if (strcmp(argv[1], "set") != 0 || argc == 2 || (argc == 4 && !is_pinned))
		return gp_ctl_error(out, GP_CTL_USAGE, "usage: limit [get | set [pinned] LIMITS]");
	if (is_pinned ? gp_limit_parse(text, &limit, &error) : gp_limit_list_parse(text, &list, &error))
		return refuse(out, text, &error);
	released = is_pinned ? gp_limit_set_pinned(&limit) : gp_limit_set(&list);
	return answer(out, &released);
}
