/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "debug_check.h"

#include <string.h>

#include "shim/base/clock.h"
#include "shim/trace/alloc_info.h"

/*
 * At most GUARD_MAX bytes before a block are watched, and as many behind it. Of a freed block above WHOLE_MAX the two
 * ends are checked, and samples between them, which lie at other offsets each time.
 */
#define GUARD_MAX    (16 * GP_KIB)
#define WHOLE_MAX    (64 * GP_KIB)
#define END_BYTES    (16 * GP_KIB)
#define SAMPLE_BYTES GP_KIB

enum { SAMPLES = 32, PIECES_MAX = SAMPLES + 2 };

unsigned gp_zone_guards(const struct gp_zone_block *block, struct gp_debug_piece pieces[static 2])
{
	uint64_t before = gp_min(block->ptr - block->start, GUARD_MAX), end = block->ptr + block->bytes;
	unsigned n = 0;

	if (before)
		pieces[n++] = (struct gp_debug_piece){block->ptr - before, before};
	if (block->end > end)
		pieces[n++] = (struct gp_debug_piece){end, gp_min(block->end - end, GUARD_MAX)};
	return n;
}

bool gp_zone_is_watched(const struct gp_zone *zone)
{
	return zone->block.is_filled || zone->block.is_guarded;
}

/* Lists the guards that lie in the zone. The rest of a freed block may belong to another block already. */
static unsigned plan_guards(const struct gp_zone *zone, struct gp_debug_piece *pieces)
{
	struct gp_debug_piece all[2];
	unsigned n = gp_zone_guards(&zone->block, all), n_in = 0;

	for (unsigned i = 0; i < n; i++)
		if (all[i].addr >= zone->addr && all[i].addr + all[i].bytes <= zone->addr + zone->bytes)
			pieces[n_in++] = all[i];
	return n_in;
}

static unsigned plan_samples(const struct gp_zone *zone, struct gp_debug_piece *pieces)
{
	static _Atomic unsigned turns;
	uint64_t step = (zone->bytes - 2 * END_BYTES) / SAMPLES / GP_ALIGN * GP_ALIGN;
	uint64_t n_offsets = (step - SAMPLE_BYTES) / GP_ALIGN + 1;
	uint64_t shift = atomic_fetch_add_explicit(&turns, 1, memory_order_relaxed) * UINT64_C(2654435761) % n_offsets;

	pieces[0] = (struct gp_debug_piece){zone->addr, END_BYTES};
	for (unsigned i = 0; i < SAMPLES; i++)
		pieces[1 + i] =
			(struct gp_debug_piece){zone->addr + END_BYTES + i * step + shift * GP_ALIGN, SAMPLE_BYTES};
	pieces[1 + SAMPLES] = (struct gp_debug_piece){zone->addr + zone->bytes - END_BYTES, END_BYTES};
	return PIECES_MAX;
}

/*
 * Lists the next pieces of a filled zone to check, from offset *at on. Returns their number; 0 at the end of the
 * zone.
 */
static unsigned plan_fill(const struct gp_zone *zone, uint64_t *at, struct gp_debug_piece *pieces)
{
	uint64_t left = zone->bytes - *at;

	if (!left)
		return 0;
	if (!gp_state.config.debug.full && zone->bytes > WHOLE_MAX) {
		*at = zone->bytes;
		return plan_samples(zone, pieces);
	}
	pieces[0] = (struct gp_debug_piece){zone->addr + *at, gp_min(left, GP_DEBUG_IO_BYTES)};
	*at += pieces[0].bytes;
	return 1;
}

struct check {
	struct gp_zone *zone;
	struct gp_finding *found;
};

static unsigned char expected_at(const struct gp_zone *zone, uint64_t i)
{
	const uint32_t poison = GP_DEBUG_POISON;

	return zone->block.is_filled ? ((const unsigned char *)&poison)[i % sizeof(poison)] : GP_DEBUG_GUARD;
}

/*
 * Returns true if the bytes still are the fill: the first period is right, and every later byte equals the byte one
 * period before it.
 */
static bool is_untouched(const struct gp_zone *zone, const unsigned char *seen, uint64_t n)
{
	uint64_t period = gp_min(zone->block.is_filled ? sizeof(uint32_t) : 1, n);

	for (uint64_t i = 0; i < period; i++)
		if (seen[i] != expected_at(zone, i))
			return false;
	return memcmp(seen, seen + period, n - period) == 0;
}

static void count_wrong(
	struct gp_finding *found, const struct gp_debug_piece *piece, uint64_t i, const unsigned char *seen)
{
	if (!found->n_wrong++) {
		found->first = piece->addr + i;
		found->n_bytes = (unsigned)gp_min(piece->bytes - i, GP_FINDING_BYTES);
		memcpy(found->bytes, seen + i, found->n_bytes);
	}
}

static void compare_piece(void *arg, const struct gp_debug_piece *piece, const unsigned char *seen)
{
	const struct check *check = arg;
	const struct gp_zone_block *block = &check->zone->block;
	enum gp_finding_what what = block->is_filled           ? GP_WRITE_AFTER_FREE
				    : piece->addr < block->ptr ? GP_WRITE_BEFORE_START
							       : GP_WRITE_PAST_END;

	if (is_untouched(check->zone, seen, piece->bytes))
		return;
	for (uint64_t i = 0; i < piece->bytes; i++)
		if (seen[i] != expected_at(check->zone, i))
			count_wrong(&check->found[what], piece, i, seen);
}

static void finish(struct gp_zone *zone, enum gp_finding_when when, struct gp_finding *found)
{
	struct gp_alloc_info record;
	bool is_any = false;

	for (int i = 0; i < GP_N_FINDINGS; i++) {
		is_any |= found[i].n_wrong != 0;
		found[i].what = (enum gp_finding_what)i;
		found[i].when = when;
		found[i].block = zone->block;
		found[i].device = zone->block.context->device->index;
		found[i].time_ns = gp_clock_now_ns(NULL);
		found[i].times = 1;
		if (!zone->block.is_freed && gp_alloc_info_find(zone->block.ptr, &record) && !record.is_freed)
			found[i].block.alloc_site = record.given;
	}
	if (is_any)
		zone->block.is_filled = zone->block.is_guarded = false;
}

int gp_zone_check(struct gp_zone *zone, enum gp_finding_when when, struct gp_finding found[static GP_N_FINDINGS])
{
	struct check check = {.zone = zone, .found = found};
	const struct gp_zone_block *block = &zone->block;
	struct gp_debug_piece pieces[PIECES_MAX];
	uint64_t at = 0;
	unsigned n;
	int r = 0;

	memset(found, 0, GP_N_FINDINGS * sizeof(*found));
	if (!block->is_filled) {
		n = plan_guards(zone, pieces);
		r = gp_debug_io_read(block->context, block->is_pinned, pieces, n, compare_piece, &check);
	}
	while (block->is_filled && !r && (n = plan_fill(zone, &at, pieces)))
		r = gp_debug_io_read(block->context, block->is_pinned, pieces, n, compare_piece, &check);
	finish(zone, when, found);
	return r;
}
