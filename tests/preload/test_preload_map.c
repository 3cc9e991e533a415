/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Compares the answer to the request "map" with the status of the same program. */

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "play.h"

static json_t *ask(const char *request)
{
	json_error_t where;
	json_t *answer = json_loads(play_ask(request), JSON_REJECT_DUPLICATES, &where);

	ck_assert_msg(json_is_object(answer), "%s", where.text);
	return answer;
}

static uint64_t number(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	ck_assert_msg(json_is_integer(value), "expected the number %s in the answer", key);
	return (uint64_t)json_integer_value(value);
}

struct sums {
	uint64_t used, n_used, requested, unused, n_blocks, n_segments, largest_cached, n_sited;
};

static uint64_t add_block(struct sums *sums, const json_t *block, uint64_t *cached_run)
{
	const char *state = json_string_value(json_array_get(block, 1));
	uint64_t bytes = (uint64_t)json_integer_value(json_array_get(block, 0));

	ck_assert_ptr_nonnull(state);
	ck_assert_uint_gt(bytes, 0);
	*cached_run = strcmp(state, "cached") ? 0 : *cached_run + bytes;
	sums->n_blocks++;
	if (strcmp(state, "used")) {
		ck_assert(!strcmp(state, "cached") || !strcmp(state, "pending"));
		sums->unused += bytes;
		return bytes;
	}
	sums->used += bytes;
	sums->n_used++;
	sums->requested += (uint64_t)json_integer_value(json_array_get(block, 2));
	sums->n_sited += json_array_size(block) == 4;
	return bytes;
}

static void add_pool(struct sums *sums, const json_t *pool)
{
	const json_t *segments = json_object_get(pool, "segments"), *segment;
	uint64_t end = 0, largest = 0;
	size_t i;

	ck_assert_uint_eq(json_array_size(segments), number(pool, "n_segments"));
	json_array_foreach(segments, i, segment) {
		const json_t *blocks = json_object_get(segment, "blocks"), *block;
		uint64_t cached_run = 0;
		size_t k;

		end = strtoull(json_string_value(json_object_get(segment, "address")), NULL, 16);
		ck_assert_uint_eq(end % 512, 0);
		ck_assert_uint_gt(json_array_size(blocks), 0);
		json_array_foreach(blocks, k, block) {
			end += add_block(sums, block, &cached_run);
			largest = cached_run > largest ? cached_run : largest;
		}
	}
	ck_assert_uint_eq(largest, number(pool, "largest_cached_bytes"));
	ck_assert_uint_ge(number(pool, "largest_unused_bytes"), largest);
	sums->n_segments += number(pool, "n_segments");
}

/* Adds up the pools of a kind. */
static struct sums sum(const json_t *map, const char *kind)
{
	const json_t *pools = json_object_get(map, "pools"), *pool;
	struct sums sums = {0};
	size_t i;

	ck_assert(json_is_false(json_object_get(map, "truncated")));
	json_array_foreach(pools, i, pool)
		if (!strcmp(json_string_value(json_object_get(pool, "kind")), kind))
			add_pool(&sums, pool);
	return sums;
}

static void check(const struct sums *sums, const json_t *status)
{
	ck_assert_uint_eq(sums->used, number(status, "used_bytes"));
	ck_assert_uint_eq(sums->n_used, number(status, "n_used_blocks"));
	ck_assert_uint_eq(sums->requested, number(status, "requested_bytes"));
	ck_assert_uint_eq(sums->unused, number(status, "cached_bytes") + number(status, "pending_bytes"));
}

static unsigned n_checked;

static void check_all(const char *name)
{
	json_t *status = ask("status"), *map = ask("map");
	struct sums device = sum(map, "device"), pinned = sum(map, "pinned");

	check(&device, json_array_get(json_object_get(status, "devices"), 0));
	check(&pinned, json_object_get(status, "pinned"));
	if (!strcmp(name, "held")) {
		ck_assert_uint_gt(device.n_used, 0);
		ck_assert_uint_eq(device.n_sited, device.n_used);
		ck_assert_uint_gt(json_array_size(json_object_get(map, "sites")), 0);
		ck_assert_uint_gt(json_array_size(json_object_get(map, "objects")), 0);
	}
	n_checked++;
	json_decref(status);
	json_decref(map);
}

static const struct {
	const char *scenario, *kind;
} rows[] = {
	{"leaks", "GPUPOOL_POOL=none"},
	{"leaks", "GPUPOOL_POOL=simple"},
	{"leaks", "GPUPOOL_POOL=binned"},
	{"leaks", "GPUPOOL_POOL=split"},
	{"leaks", "GPUPOOL_POOL=vmm"},
	{"threads", "GPUPOOL_POOL=split"},
	{"threads", "GPUPOOL_POOL=vmm"},
};

START_TEST(the_blocks_of_the_map_add_up_to_the_figures_of_the_status)
{
	const char *env[] = {"GPUPOOL_STACKS=8", rows[_i].kind, NULL};

	n_checked = 0;
	play_run(&(struct play){.program = "app_sites",
		.words = {rows[_i].scenario},
		.env = env,
		.preload = play_library,
		.at_pause = check_all});
	ck_assert_msg(play_status == 0, "expected exit status 0, got %d: %s", play_status, play_err);
	ck_assert_uint_gt(n_checked, 0);
}
END_TEST

static void check_drawing(const char *name)
{
	char text[8192];

	if (strcmp(name, "held"))
		return;
	ck_assert_msg(play_run_stat("map --ascii", text, sizeof(text)) == 0, "gpupool-stat map failed: %s", text);
	ck_assert_msg(
		strstr(text, "\ndevice 0: ") && strstr(text, "\npinned memory: ") && strstr(text, "are unused in "),
		"expected both memories and their free bytes in: %s", text);
	n_checked++;
}

START_TEST(gpupool_stat_map_draws_device_and_pinned_memory)
{
	const char *const env[] = {"GPUPOOL_STACKS=8", NULL};

	n_checked = 0;
	play_run(&(struct play){.program = "app_sites",
		.words = {"leaks"},
		.env = env,
		.preload = play_library,
		.at_pause = check_drawing});
	ck_assert_uint_eq(n_checked, 1);
}
END_TEST

static void add_map(TCase *tc)
{
	tcase_add_loop_test(tc, the_blocks_of_the_map_add_up_to_the_figures_of_the_status, 0, LENGTH(rows));
	tcase_add_test(tc, gpupool_stat_map_draws_device_and_pinned_memory);
}

int main(int argc, char **argv)
{
	static const struct play_tests tests[] = {{"map", add_map}};

	return play_main(argc, argv, tests, LENGTH(tests));
}
