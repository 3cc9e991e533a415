/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "leaks.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bad_free.h"
#include "shim/base/clock.h"
#include "shim/base/reserve.h"
#include "shim/trace/alloc_info.h"
#include "shim/trace/call_site.h"
#include "shim/trace/location.h"
#include "shim/trace/module.h"
#include "shim/trace/stack_json.h"

enum {
	SITE_JSON_BYTES = GP_STACK_JSON_BYTES + 256,
	CALLER_JSON_BYTES = 256,
	CALLERS_JSON_BYTES = 512 << 10,
	END_JSON_BYTES = (512 << 10) + CALLERS_JSON_BYTES,
	N_HOLDERS = (GP_SITES_MAX + 1) + (GP_MODULES_MAX + 1),
	ALL_MEMORY = -2, /* not the number of a device */
};

static void add(struct gp_holders *holders, const struct gp_holding *holding, uint64_t time_ns)
{
	holders->blocks++;
	holders->bytes += holding->bytes;
	holders->requested += holding->requested;
	holders->pinned_bytes += holding->kind == GP_HOLDING_PINNED ? holding->bytes : 0;
	holders->unpooled_bytes += holding->kind == GP_HOLDING_UNPOOLED ? holding->bytes : 0;
	if (!time_ns)
		return;
	if (!holders->oldest_ns || time_ns < holders->oldest_ns)
		holders->oldest_ns = time_ns;
	holders->newest_ns = gp_max(holders->newest_ns, time_ns);
}

uint64_t gp_leaks_age_ns(unsigned i)
{
	static const unsigned seconds[GP_N_AGES] = {0, 1, 10, 60, 600, 3600, 6 * 3600, 24 * 3600};

	return seconds[i] * UINT64_C(1000000000);
}

static unsigned class_of_age(uint64_t age_ns)
{
	unsigned i = GP_N_AGES - 1;

	while (age_ns < gp_leaks_age_ns(i))
		i--;
	return i;
}

/*
 * Returns the calling module. If the program called a runtime past gpupool's functions, the block names the runtime.
 * The stack, if there is one, then shows the caller of the runtime.
 */
static uint32_t caller_of(const struct gp_holding *holding, uint32_t site)
{
	struct gp_site_info info;
	uint32_t number = 0;

	if (!site || (holding->module && !gp_module_is_cuda(holding->module)))
		return holding->module;
	gp_site_info(site, &info);
	if (!gp_location_is(info.frames[0]))
		number = gp_module_number(info.frames[0] - 1);
	return number ? number : holding->module;
}

/*
 * Adds a block to the totals if it was allocated at `before` or earlier. A block without an allocation record has no
 * known age, and always counts.
 */
static void count(struct gp_leaks *leaks, const struct gp_holding *holding, uint64_t before)
{
	struct gp_alloc_info record = {0};
	bool is_known = gp_alloc_info_find(holding->key, &record) && !record.is_freed;
	uint64_t time_ns = is_known ? record.time_ns : 0;
	uint32_t site = is_known ? record.given : 0;

	if (time_ns > before)
		return;
	leaks->n_blocks++;
	leaks->bytes += holding->bytes;
	add(site ? &leaks->sites[site] : &leaks->without, holding, time_ns);
	add(&leaks->callers[caller_of(holding, site)], holding, time_ns);
	add(&leaks->sizes[gp_log2(holding->requested)], holding, time_ns);
	if (is_known)
		add(&leaks->ages[class_of_age(leaks->now_ns - gp_min(time_ns, leaks->now_ns))], holding, time_ns);
}

static int compare(const void *a, const void *b)
{
	const struct gp_holders *one = a, *other = b;

	if (one->bytes != other->bytes)
		return one->bytes < other->bytes ? 1 : -1;
	return (one->number > other->number) - (one->number < other->number);
}

/* Moves the entries with blocks to the front, most bytes first. Returns their number. */
static size_t sort(struct gp_holders *holders, uint32_t n)
{
	size_t n_held = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (!holders[i].blocks)
			continue;
		holders[n_held] = holders[i];
		holders[n_held++].number = i;
	}
	qsort(holders, n_held, sizeof(*holders), compare);
	return n_held;
}

static bool is_of(const struct gp_holding *holding, int device)
{
	if (device == ALL_MEMORY)
		return true;
	return holding->kind == GP_HOLDING_PINNED ? device == -1 : device == holding->device;
}

/* Counts the blocks of at least that age: those of a device, of pinned memory (-1), or of all memory (ALL_MEMORY). */
static bool take(struct gp_leaks *leaks, uint64_t older_ns, int device)
{
	struct gp_live_blocks live;
	uint64_t before;

	*leaks = (struct gp_leaks){.now_ns = gp_clock_now_ns(NULL)};
	before = older_ns ? leaks->now_ns - gp_min(older_ns, leaks->now_ns) : UINT64_MAX;
	/* Reserves room for the greatest possible number, since call sites and modules may be added meanwhile. */
	leaks->sites = gp_reserve(N_HOLDERS * sizeof(*leaks->sites));
	if (!leaks->sites)
		return false;
	leaks->callers = leaks->sites + GP_SITES_MAX + 1;
	if (!gp_live_blocks_take(&live)) {
		gp_leaks_free(leaks);
		return false;
	}
	for (size_t i = 0; i < live.n; i++)
		if (is_of(&live.list[i], device))
			count(leaks, &live.list[i], before);
	gp_live_blocks_free(&live);
	leaks->n_sites = sort(leaks->sites, gp_sites_count() + 1);
	leaks->n_callers = sort(leaks->callers, GP_MODULES_MAX + 1);
	return true;
}

bool gp_leaks_take(struct gp_leaks *leaks, uint64_t older_ns)
{
	return take(leaks, older_ns, ALL_MEMORY);
}

bool gp_leaks_take_of(struct gp_leaks *leaks, int device)
{
	return take(leaks, 0, device);
}

void gp_leaks_free(struct gp_leaks *leaks)
{
	munmap(leaks->sites, N_HOLDERS * sizeof(*leaks->sites));
}

static void write_age(struct gp_json *out, const char *key, uint64_t now_ns, uint64_t time_ns)
{
	if (time_ns)
		gp_json_u64(out, key, now_ns - gp_min(time_ns, now_ns));
	else
		gp_json_null(out, key);
}

static void write_holders(struct gp_json *out, const struct gp_holders *holders, uint64_t now_ns)
{
	gp_json_u64(out, "blocks", holders->blocks);
	gp_json_u64(out, "bytes", holders->bytes);
	gp_json_u64(out, "requested_bytes", holders->requested);
	gp_json_u64(out, "pinned_bytes", holders->pinned_bytes);
	gp_json_u64(out, "unpooled_bytes", holders->unpooled_bytes);
	write_age(out, "oldest_ns", now_ns, holders->oldest_ns);
	write_age(out, "newest_ns", now_ns, holders->newest_ns);
}

static void write_site(
	struct gp_json *out, struct gp_stack_json *stacks, const struct gp_holders *holders, uint64_t now_ns)
{
	struct gp_site_info info;

	gp_site_info(holders->number, &info);
	gp_json_object_begin(out, NULL);
	gp_json_u64(out, "site", holders->number);
	write_holders(out, holders, now_ns);
	gp_json_u64(out, "allocs", info.n_allocs);
	gp_json_u64(out, "alloc_bytes", info.bytes);
	gp_stack_json_site(out, stacks, "frames", holders->number);
	gp_json_object_end(out);
}

/* Writes as many sites as fit, with room left for the rest of the answer. */
static void write_sites(struct gp_json *out, struct gp_stack_json *stacks, const struct gp_leaks *leaks)
{
	size_t i = 0;

	gp_json_array_begin(out, "sites");
	for (; i < leaks->n_sites && gp_stack_json_room(out, stacks) > SITE_JSON_BYTES + END_JSON_BYTES; i++)
		write_site(out, stacks, &leaks->sites[i], leaks->now_ns);
	gp_json_array_end(out);
	gp_json_u64(out, "n_sites", leaks->n_sites);
	gp_json_bool(out, "truncated", i < leaks->n_sites);
}

void gp_leaks_write_callers(struct gp_json *out, const struct gp_holders *callers, size_t n, uint64_t now_ns)
{
	uint64_t room = gp_min(gp_json_room(out), CALLERS_JSON_BYTES);

	gp_json_array_begin(out, "callers");
	for (size_t i = 0; i < n; i++) {
		const char *path = gp_module_path(callers[i].number);
		/* Escaping turns a byte into at most six, and the name is a part of the path. */
		size_t bytes = CALLER_JSON_BYTES + (path ? 12 * strlen(path) : 0);

		if (bytes > room)
			break;
		room -= bytes;
		gp_json_object_begin(out, NULL);
		gp_json_string(out, "caller", gp_module_name(callers[i].number));
		gp_json_string(out, "path", path);
		write_holders(out, &callers[i], now_ns);
		gp_json_object_end(out);
	}
	gp_json_array_end(out);
}

static void write_class(
	struct gp_json *out, const char *key, uint64_t from, const struct gp_holders *holders, uint64_t now_ns)
{
	if (!holders->blocks)
		return;
	gp_json_object_begin(out, NULL);
	gp_json_u64(out, key, from);
	write_holders(out, holders, now_ns);
	gp_json_object_end(out);
}

static void write_classes(struct gp_json *out, const struct gp_leaks *leaks)
{
	gp_json_array_begin(out, "sizes");
	for (unsigned i = 0; i < 64; i++)
		write_class(out, "from_bytes", UINT64_C(1) << i, &leaks->sizes[i], leaks->now_ns);
	gp_json_array_end(out);
	gp_json_array_begin(out, "ages");
	for (unsigned i = 0; i < GP_N_AGES; i++)
		write_class(out, "from_ns", gp_leaks_age_ns(i), &leaks->ages[i], leaks->now_ns);
	gp_json_array_end(out);
}

static void write_setting(struct gp_json *out)
{
	struct gp_config_stacks stacks;
	uint64_t since_ns, now_ns = gp_clock_now_ns(NULL);

	gp_alloc_info_settings(&stacks, &since_ns);
	gp_json_bool(out, "is_on", stacks.depth != 0);
	gp_json_u64(out, "depth", stacks.depth);
	gp_json_u64(out, "sample", stacks.sample);
	write_age(out, "since_ns", now_ns, since_ns);
	gp_json_u64(out, "sites", gp_sites_count());
	gp_json_u64(out, "sites_dropped", gp_sites_dropped());
	gp_json_u64(out, "blocks_dropped", gp_alloc_info_dropped());
}

static void write_leaks(struct gp_json *out, const struct gp_leaks *leaks, struct gp_stack_json *stacks)
{
	gp_ctl_answer_begin(out, GP_CTL_leaks);
	gp_json_i64(out, "pid", getpid());
	gp_json_u64(out, "time_ns", leaks->now_ns);
	gp_json_object_begin(out, "stacks");
	write_setting(out);
	gp_json_object_end(out);
	gp_json_u64(out, "n_blocks", leaks->n_blocks);
	gp_json_u64(out, "bytes", leaks->bytes);
	write_sites(out, stacks, leaks);
	gp_json_object_begin(out, "without_stack");
	write_holders(out, &leaks->without, leaks->now_ns);
	gp_json_object_end(out);
	gp_leaks_write_callers(out, leaks->callers, leaks->n_callers, leaks->now_ns);
	write_classes(out, leaks);
	gp_bad_free_write(out, stacks);
	gp_stack_json_objects(out, stacks);
	gp_json_object_end(out);
}

/* Parses a number of milliseconds. Returns false if the word is not one. */
static bool read_older(const char *word, uint64_t *ret_ns)
{
	unsigned long long ms;
	char *end;

	errno = 0;
	ms = strtoull(word, &end, 10);
	if (errno || *word < '0' || *word > '9' || *end || ms > INT64_MAX / 1000000)
		return false;
	*ret_ns = ms * 1000000;
	return true;
}

int gp_leaks_answer(int argc, char **argv, struct gp_json *out)
{
	struct gp_stack_json stacks;
	struct gp_leaks leaks;
	uint64_t older_ns = 0;

	if (argc > 1 && !read_older(argv[1], &older_ns))
		return gp_ctl_error(out, GP_CTL_USAGE, "'%s' is not a number of milliseconds", argv[1]);
	if (!gp_stack_json_init(&stacks))
		return gp_ctl_error(out, GP_CTL_FAILED, "not enough host memory for the answer");
	if (!gp_leaks_take(&leaks, older_ns)) {
		gp_stack_json_deinit(&stacks);
		return gp_ctl_error(out, GP_CTL_FAILED, "not enough host memory for the answer");
	}
	write_leaks(out, &leaks, &stacks);
	gp_leaks_free(&leaks);
	gp_stack_json_deinit(&stacks);
	return 0;
}

static int switch_stacks(int argc, char **argv, struct gp_json *out)
{
	struct gp_config_stacks stacks = {.depth = 16, .sample = 1};
	int r;

	if (strcmp(argv[1], "off") == 0 && argc == 2)
		stacks.depth = 0;
	else if (strcmp(argv[1], "on") != 0)
		return gp_ctl_error(out, GP_CTL_USAGE, "usage: stacks [on [DEPTH] [sample=N] | off]");
	for (int i = 2; i < argc; i++)
		if (!gp_config_stacks_depth(argv[i], &stacks) && !gp_config_stacks_sample(argv[i], &stacks))
			return gp_ctl_error(out, GP_CTL_USAGE, "'%s' is neither a depth from 1 to %d nor sample=N",
				argv[i], GP_STACKS_DEPTH_MAX);
	r = gp_alloc_info_switch(&stacks);
	if (r)
		return gp_ctl_error(out, GP_CTL_FAILED, "%s",
			r == -ENOENT ? "cannot read stacks: libgcc_s.so.1 cannot be loaded"
				     : "not enough host memory for stacks");
	return 0;
}

int gp_stacks_answer(int argc, char **argv, struct gp_json *out)
{
	int r = argc > 1 ? switch_stacks(argc, argv, out) : 0;

	if (r)
		return r;
	gp_ctl_answer_begin(out, GP_CTL_stacks);
	write_setting(out);
	gp_json_object_end(out);
	return 0;
}
