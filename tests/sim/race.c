/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The race detector. Memory that simulated work has touched is divided into cells, each with the
 * accesses that later work may still race with. A new access races with an old one if one of them
 * writes and the old one is not ordered before it: the old access's count in its lane exceeds the
 * count in the new work's clock. The order of work is known when it is submitted, so races are found
 * at submission and do not depend on timing.
 *
 * An access leaves the history in two cases:
 *
 * - The host has waited for it, so that all later work is ordered after it.
 * - A newer access covers it: an access that races with the older one would also race with the newer one.
 *
 * Flags that kernels spin on are atomic: they neither race with each other nor order other work.
 */

#include "race.h"

#include <stdlib.h>
#include <string.h>

#include "ctx.h"

#define REPORTS_SHOWN 20

struct past_access {
	unsigned lane, stream_number;
	uint64_t count, number, lo, hi;
	enum sim_access_kind kind;
	const char *name;
};

struct cell {
	struct sim_range range; /* must be first */
	struct past_access *accesses;
	unsigned n, capacity;
};

static struct sim_range *cells;
static unsigned n_cells, sweep_at = 4096;

struct new_access {
	struct past_access access;
	const struct sim_clock *clock;
	uint64_t reported; /* number of the work in the race that was reported last */
};

static struct cell *cell_new(uint64_t lo, uint64_t hi)
{
	struct cell *cell = sim_alloc_zeroed(1, sizeof(*cell));

	cell->range.lo = lo;
	cell->range.hi = hi;
	sim_range_insert(&cells, &cell->range);
	n_cells++;
	return cell;
}

static void cell_free(struct cell *cell)
{
	sim_range_remove(&cells, &cell->range);
	free(cell->accesses);
	free(cell);
	n_cells--;
}

static void cell_add(struct cell *cell, const struct past_access *access)
{
	sim_grow(&cell->accesses, &cell->capacity, cell->n + 1, sizeof(*cell->accesses));
	cell->accesses[cell->n++] = *access;
}

/* Cuts a cell in two at addr and returns the upper part. */
static struct cell *cell_cut(struct cell *cell, uint64_t addr)
{
	uint64_t hi = cell->range.hi;
	struct cell *upper;

	cell->range.hi = addr;
	upper = cell_new(addr, hi);
	for (unsigned i = 0; i < cell->n; i++)
		cell_add(upper, &cell->accesses[i]);
	return upper;
}

static struct cell *cell_after(uint64_t addr)
{
	return (struct cell *)sim_range_after(cells, addr);
}

static bool conflicts(enum sim_access_kind a, enum sim_access_kind b)
{
	return a == SIM_WRITE || b == SIM_WRITE || a != b;
}

/* Returns true if every access that races with `old` also races with `new`. */
static bool covers(enum sim_access_kind new, enum sim_access_kind old)
{
	return new == SIM_WRITE || new == old;
}

static void describe(char *text, size_t size, const struct past_access *access)
{
	static const char *const verbs[] = {"reads", "writes", "updates"};
	struct sim_block *block = sim_block_at(access->lo);

	snprintf(text, size, "%s on stream %u (submission %llu) %s %#llx+%#llx, %llu bytes", access->name,
		access->stream_number, (unsigned long long)access->number, verbs[access->kind],
		(unsigned long long)(block ? block->range.lo : access->lo),
		(unsigned long long)(block ? access->lo - block->range.lo : 0),
		(unsigned long long)(access->hi - access->lo));
}

static void report(const struct past_access *old, struct new_access *new)
{
	char before[256], after[256];

	if (new->reported == old->number)
		return;
	new->reported = old->number;
	if (++sim.races > REPORTS_SHOWN)
		return;
	describe(before, sizeof(before), old);
	describe(after, sizeof(after), &new->access);
	sim_print("race: %s; not ordered behind it: %s", before, after);
}

static bool is_known(const struct past_access *old, const struct new_access *new)
{
	return sim_clock_at(new->clock, old->lane) >= old->count;
}

/* Reports the accesses in the cell that race with the new one, and drops those that no longer matter. */
static void cell_check(struct cell *cell, struct new_access *new)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < cell->n; i++) {
		struct past_access old = cell->accesses[i];
		bool known = is_known(&old, new);

		if (!known && conflicts(new->access.kind, old.kind))
			report(&old, new);
		if ((known && covers(new->access.kind, old.kind)) || sim_host_knows(old.lane, old.count))
			continue;
		cell->accesses[kept++] = old;
	}
	cell->n = kept;
}

/*
 * Checks the new access against the cells of [lo, hi), after cutting cells that reach beyond. With
 * `keep`, the access is added to each cell, and gaps become cells. Without it, the cells are freed.
 */
static void walk(struct new_access *new, uint64_t lo, uint64_t hi, bool keep)
{
	while (lo < hi) {
		struct cell *cell = cell_after(lo);

		if (!cell || cell->range.lo >= hi) {
			if (keep)
				cell_add(cell_new(lo, hi), &new->access);
			return;
		}
		if (cell->range.lo > lo) {
			if (keep)
				cell_add(cell_new(lo, cell->range.lo), &new->access);
		} else if (cell->range.lo < lo) {
			cell = cell_cut(cell, lo);
		}
		if (cell->range.hi > hi)
			cell_cut(cell, hi);
		lo = cell->range.hi;
		cell_check(cell, new);
		if (keep)
			cell_add(cell, &new->access);
		else
			cell_free(cell);
	}
}

/*
 * Drops all accesses that the host knows to be finished. Sweeps are so rare that one costs about as
 * much as adding the cells since the last one did.
 */
static void sweep(void)
{
	struct cell *cell = cell_after(0);

	while (cell) {
		uint64_t next = cell->range.hi;
		unsigned kept = 0;

		for (unsigned i = 0; i < cell->n; i++)
			if (!sim_host_knows(cell->accesses[i].lane, cell->accesses[i].count))
				cell->accesses[kept++] = cell->accesses[i];
		cell->n = kept;
		if (!kept)
			cell_free(cell);
		cell = cell_after(next);
	}
	sweep_at = 2 * n_cells + 4096;
}

void sim_race_enter(const struct sim_work *work, unsigned lane, uint64_t count, const struct sim_clock *clock)
{
	for (unsigned i = 0; i < work->op.n_accesses; i++) {
		const struct sim_access *access = &work->op.accesses[i];
		struct new_access new = {
			.access = {.lane = lane,
				.stream_number = work->stream_number,
				.count = count,
				.number = work->number,
				.lo = access->lo,
				.hi = access->hi,
				.kind = access->kind,
				.name = work->op.name},
			.clock = clock,
		};

		/* A write covers all older accesses, so that one cell can replace many. */
		walk(&new, access->lo, access->hi, access->kind != SIM_WRITE);
		if (access->kind == SIM_WRITE)
			cell_add(cell_new(access->lo, access->hi), &new.access);
	}
	if (n_cells > sweep_at)
		sweep();
}

static void check_host_access(uint64_t lo, uint64_t hi, enum sim_access_kind kind, const char *name)
{
	struct new_access host = {
		.access = {.lo = lo, .hi = hi, .kind = kind, .name = name},
		.clock = sim_host_clock(),
	};
	struct cell *cell;

	for (cell = cell_after(lo); cell && cell->range.lo < hi; cell = cell_after(cell->range.hi))
		cell_check(cell, &host);
}

void sim_race_host_access(uint64_t lo, uint64_t hi, bool is_write)
{
	check_host_access(lo, hi, is_write ? SIM_WRITE : SIM_READ, "host");
}

void sim_race_unmap(uint64_t lo, uint64_t hi)
{
	check_host_access(lo, hi, SIM_WRITE, "cuMemUnmap");
}

void sim_race_forget(uint64_t lo, uint64_t hi)
{
	struct cell *cell = cell_after(lo);

	while (cell && cell->range.lo < hi) {
		if (cell->range.lo < lo)
			cell = cell_cut(cell, lo);
		if (cell->range.hi > hi)
			cell_cut(cell, hi);
		cell_free(cell);
		cell = cell_after(lo);
	}
}

unsigned sim_race_cells(void)
{
	return n_cells;
}
