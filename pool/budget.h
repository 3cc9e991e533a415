/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The limit on memory from the driver, shared by several pools and by allocations that are not pooled. Memory is
 * charged before the driver call, and uncharged if that fails, so the limit is never exceeded, not even for a moment.
 */

#include <stdatomic.h>

#include "base.h"

#define GP_NO_LIMIT UINT64_MAX

/*
 * A second limit, which several processes share. `left` is GP_NO_LIMIT without a limit. All three may be called from
 * any thread; charge and left only without locks, since they may wait for other processes for a short, bounded time.
 */
struct gp_budget_group {
	bool (*charge)(struct gp_budget_group *group, uint64_t bytes);
	void (*uncharge)(struct gp_budget_group *group, uint64_t bytes);
	uint64_t (*left)(struct gp_budget_group *group);
};

struct gp_budget {
	_Atomic uint64_t limit_bytes;
	_Atomic uint64_t charged_bytes;
	struct gp_budget_group *group; /* NULL: none; set before the first charge */
};

void gp_budget_init(struct gp_budget *budget, uint64_t limit_bytes);

/* Charges the bytes. Returns false, and charges nothing, if the limit or that of the group forbids it. */
bool gp_budget_charge(struct gp_budget *budget, uint64_t bytes);

void gp_budget_uncharge(struct gp_budget *budget, uint64_t bytes);

/* Returns the bytes charged beyond the limit, which may have been lowered. */
static inline uint64_t gp_budget_over(const struct gp_budget *budget)
{
	uint64_t limit = atomic_load_explicit(&budget->limit_bytes, memory_order_relaxed);
	uint64_t charged = atomic_load_explicit(&budget->charged_bytes, memory_order_relaxed);

	return charged > limit ? charged - limit : 0;
}

/* Returns the bytes that the process's own limit allows: GP_NO_LIMIT without a limit. */
static inline uint64_t gp_budget_left(const struct gp_budget *budget)
{
	uint64_t limit = atomic_load_explicit(&budget->limit_bytes, memory_order_relaxed), charged;

	if (limit == GP_NO_LIMIT)
		return GP_NO_LIMIT;
	charged = atomic_load_explicit(&budget->charged_bytes, memory_order_relaxed);
	return charged < limit ? limit - charged : 0;
}

/* Returns the bytes that the group's limit allows: GP_NO_LIMIT without one. No lock may be held. */
static inline uint64_t gp_budget_left_in_group(const struct gp_budget *budget)
{
	return budget->group ? budget->group->left(budget->group) : GP_NO_LIMIT;
}

/* Returns the bytes that both limits allow. No lock may be held. */
static inline uint64_t gp_budget_left_of_all(const struct gp_budget *budget)
{
	return gp_min(gp_budget_left(budget), gp_budget_left_in_group(budget));
}
