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

struct gp_budget {
	_Atomic uint64_t limit_bytes;
	_Atomic uint64_t charged_bytes;
};

void gp_budget_init(struct gp_budget *budget, uint64_t limit_bytes);

/* Charges the bytes. Returns false, and charges nothing, if the limit forbids it. */
bool gp_budget_charge(struct gp_budget *budget, uint64_t bytes);

void gp_budget_uncharge(struct gp_budget *budget, uint64_t bytes);

/* Returns the bytes charged beyond the limit, which may have been lowered. */
static inline uint64_t gp_budget_over(const struct gp_budget *budget)
{
	uint64_t limit = atomic_load_explicit(&budget->limit_bytes, memory_order_relaxed);
	uint64_t charged = atomic_load_explicit(&budget->charged_bytes, memory_order_relaxed);

	return charged > limit ? charged - limit : 0;
}

/* Returns the bytes that can still be charged: GP_NO_LIMIT without a limit. */
static inline uint64_t gp_budget_left(const struct gp_budget *budget)
{
	uint64_t limit = atomic_load_explicit(&budget->limit_bytes, memory_order_relaxed), charged;

	if (limit == GP_NO_LIMIT)
		return GP_NO_LIMIT;
	charged = atomic_load_explicit(&budget->charged_bytes, memory_order_relaxed);
	return charged < limit ? limit - charged : 0;
}
