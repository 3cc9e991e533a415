/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "async_left.h"

#include <stdatomic.h>

#include "shim/base/state.h"

static _Atomic uint64_t counts[GP_N_ASYNC_LEFT];

static const struct {
	const char *name, *words;
} reasons[GP_N_ASYNC_LEFT] = {
#define GP_ASYNC_LEFT(id, name, words) [GP_ASYNC_LEFT_##id] = {name, words},
#include "common/async_left.def"
};

void gp_async_left_note(enum gp_async_left why)
{
	atomic_fetch_add_explicit(&counts[why], 1, memory_order_relaxed);
}

uint64_t gp_async_left_count(enum gp_async_left why)
{
	uint64_t sum = 0;

	for (int i = GP_ASYNC_LEFT_NONE + 1; i < GP_N_ASYNC_LEFT; i++)
		if (why == GP_ASYNC_LEFT_NONE || (int)why == i)
			sum += atomic_load_explicit(&counts[i], memory_order_relaxed);
	return sum;
}

const char *gp_async_left_words(enum gp_async_left why)
{
	return reasons[why].words;
}

void gp_async_left_write(struct gp_json *out)
{
	gp_json_object_begin(out, "async");
	gp_json_bool(out, "on", gp_state.config.is_async_pooled);
	gp_json_array_begin(out, "left");
	for (int i = GP_ASYNC_LEFT_NONE + 1; i < GP_N_ASYNC_LEFT; i++) {
		gp_json_object_begin(out, NULL);
		gp_json_string(out, "name", reasons[i].name);
		gp_json_u64(out, "count", gp_async_left_count((enum gp_async_left)i));
		gp_json_object_end(out);
	}
	gp_json_array_end(out);
	gp_json_object_end(out);
}
