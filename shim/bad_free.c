/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * While stacks are on a report has up to four lines: the free, where it was made, where the block was freed before, and
 * where it was allocated. As many bad frees are told of as any place in the library may tell; the last are kept.
 */

#include "bad_free.h"

#include <inttypes.h>

#include "debug.h"
#include "driver.h"
#include "log.h"
#include "origin.h"
#include "stack_text.h"
#include "state.h"

enum { KEPT = 16 };

struct bad_free {
	enum gp_bad_free what;
	uint64_t addr, block, bytes, time_ns, age_ns;
	uint32_t again, freed, given; /* sites */
};

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static struct bad_free kept[KEPT];
static uint64_t n_all;

static void keep(const struct bad_free *bad)
{
	gp_mutex_lock(&lock);
	kept[n_all++ % KEPT] = *bad;
	gp_mutex_unlock(&lock);
}

/* The block that the address is in, as far as it is one. */
static uint64_t block_around(struct gp_addrmap *map, uint64_t addr)
{
	struct gp_block_info info;

	return gp_debug_info(map, addr, &info) == 0 ? info.addr : addr;
}

static void tell_origin(const struct bad_free *bad)
{
	char text[GP_STACK_TEXT_MAX];

	if (bad->again)
		gp_log(GP_LOG_WARN, "  freed here: %s", gp_stack_text(text, bad->again));
	if (bad->freed)
		gp_log(GP_LOG_WARN, "  freed before, %" PRIu64 " ms ago: %s", bad->age_ns / 1000000,
			gp_stack_text(text, bad->freed));
	if (bad->given)
		gp_log(GP_LOG_WARN, "  allocated, %" PRIu64 " bytes at 0x%" PRIx64 ": %s", bad->bytes, bad->block,
			gp_stack_text(text, bad->given));
}

void gp_bad_free_report(struct gp_addrmap *map, uint64_t addr, enum gp_bad_free what)
{
	struct bad_free bad = {.what = what, .addr = addr, .block = addr, .time_ns = gp_driver_now_ns(NULL)};
	struct gp_origin origin;

	if (what == GP_BAD_FREE_DOUBLE)
		gp_log(GP_LOG_WARN, "free of 0x%" PRIx64 ", which is free already", addr);
	else
		gp_log(GP_LOG_WARN, "free of 0x%" PRIx64 ", which is inside a block", addr);
	if (what == GP_BAD_FREE_INTERIOR)
		bad.block = block_around(map, addr);
	if (gp_origin_find(bad.block, &origin)) {
		bad.bytes = origin.bytes;
		bad.given = origin.given;
		bad.freed = origin.freed;
		bad.age_ns = bad.time_ns - gp_min(origin.time_ns, bad.time_ns);
	}
	bad.again = gp_origin_of_caller();
	tell_origin(&bad);
	keep(&bad);
}

void gp_bad_free_refused(uint64_t addr)
{
	struct gp_origin origin;

	if (gp_origin_find(addr, &origin) && origin.is_freed)
		gp_bad_free_report(&gp_state.device_map, addr, GP_BAD_FREE_DOUBLE);
}

static void write_one(struct gp_json *out, struct gp_stack_json *stacks, const struct bad_free *bad)
{
	uint64_t now_ns = gp_driver_now_ns(NULL);

	gp_json_object_begin(out, NULL);
	gp_json_address(out, "address", bad->addr);
	gp_json_string(out, "what", bad->what == GP_BAD_FREE_DOUBLE ? "double" : "interior");
	gp_json_u64(out, "age_ns", now_ns - gp_min(bad->time_ns, now_ns));
	gp_json_address(out, "block", bad->block);
	if (bad->bytes)
		gp_json_u64(out, "requested_bytes", bad->bytes);
	else
		gp_json_null(out, "requested_bytes");
	gp_stack_json_site(out, stacks, "freed_here", bad->again);
	gp_stack_json_site(out, stacks, "freed_before", bad->freed);
	gp_stack_json_site(out, stacks, "allocated", bad->given);
	gp_json_object_end(out);
}

void gp_bad_free_write(struct gp_json *out, struct gp_stack_json *stacks)
{
	struct bad_free list[KEPT];
	uint64_t n;

	gp_mutex_lock(&lock);
	n = n_all;
	for (unsigned i = 0; i < KEPT; i++)
		list[i] = kept[i];
	gp_mutex_unlock(&lock);
	gp_json_u64(out, "n_bad_frees", n);
	gp_json_array_begin(out, "bad_frees");
	for (uint64_t i = n - gp_min(n, KEPT); i < n; i++)
		write_one(out, stacks, &list[i % KEPT]);
	gp_json_array_end(out);
}
