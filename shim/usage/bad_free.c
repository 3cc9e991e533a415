/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * While stacks are on, a report has up to four lines: the free, where it was made, where the block was freed
 * before, and where it was allocated. At most GP_LOG_REPEATS are logged. The last bad frees are kept for `leaks`.
 */

#include "bad_free.h"

#include <inttypes.h>

#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/base/state.h"
#include "shim/debug/debug.h"
#include "shim/trace/alloc_info.h"
#include "shim/trace/stack_text.h"

enum { KEPT = 16 };

struct bad_free {
	enum gp_bad_free what;
	uint64_t addr, block, bytes, time_ns, age_ns;
	uint32_t free_site, earlier_free_site, alloc_site; /* 0: unknown */
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

/* Returns the start of the block that the address is in, or the address itself if it is in none. */
static uint64_t block_around(struct gp_addrmap *map, uint64_t addr)
{
	struct gp_block_info info;

	return gp_debug_info(map, addr, &info) == 0 ? info.addr : addr;
}

static void log_sites(const struct bad_free *bad)
{
	char text[GP_STACK_TEXT_MAX];

	if (bad->free_site)
		gp_log(GP_LOG_WARN, "  freed here: %s", gp_stack_text(text, bad->free_site));
	if (bad->earlier_free_site)
		gp_log(GP_LOG_WARN, "  freed before, %" PRIu64 " ms ago: %s", bad->age_ns / 1000000,
			gp_stack_text(text, bad->earlier_free_site));
	if (bad->alloc_site)
		gp_log(GP_LOG_WARN, "  allocated, %" PRIu64 " bytes at 0x%" PRIx64 ": %s", bad->bytes, bad->block,
			gp_stack_text(text, bad->alloc_site));
}

void gp_bad_free_report(struct gp_addrmap *map, uint64_t addr, enum gp_bad_free what)
{
	struct bad_free bad = {.what = what, .addr = addr, .block = addr, .time_ns = gp_clock_now_ns(NULL)};
	struct gp_alloc_info record;

	if (what == GP_BAD_FREE_DOUBLE)
		gp_log(GP_LOG_WARN, "double free of 0x%" PRIx64 ": the block is already free", addr);
	else
		gp_log(GP_LOG_WARN, "invalid free of 0x%" PRIx64 ": the address is inside a block, not at its start",
			addr);
	if (what == GP_BAD_FREE_INTERIOR)
		bad.block = block_around(map, addr);
	if (gp_alloc_info_find(bad.block, &record)) {
		bad.bytes = record.bytes;
		bad.alloc_site = record.given;
		bad.earlier_free_site = record.freed;
		bad.age_ns = bad.time_ns - gp_min(record.time_ns, bad.time_ns);
	}
	bad.free_site = gp_alloc_info_current_site();
	log_sites(&bad);
	keep(&bad);
}

void gp_bad_free_refused(uint64_t addr)
{
	struct gp_alloc_info record;

	if (gp_alloc_info_find(addr, &record) && record.is_freed)
		gp_bad_free_report(&gp_state.device_map, addr, GP_BAD_FREE_DOUBLE);
}

static void write_one(struct gp_json *out, struct gp_stack_json *stacks, const struct bad_free *bad)
{
	uint64_t now_ns = gp_clock_now_ns(NULL);

	gp_json_object_begin(out, NULL);
	gp_json_address(out, "address", bad->addr);
	gp_json_string(out, "what", bad->what == GP_BAD_FREE_DOUBLE ? "double" : "interior");
	gp_json_u64(out, "age_ns", now_ns - gp_min(bad->time_ns, now_ns));
	gp_json_address(out, "block", bad->block);
	if (bad->bytes)
		gp_json_u64(out, "requested_bytes", bad->bytes);
	else
		gp_json_null(out, "requested_bytes");
	gp_stack_json_site(out, stacks, "freed_here", bad->free_site);
	gp_stack_json_site(out, stacks, "freed_before", bad->earlier_free_site);
	gp_stack_json_site(out, stacks, "allocated", bad->alloc_site);
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
