/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * What may be taken from the driver: one limit that several pools, and the allocations that are not pooled,
 * share. Charging comes before the driver call and is undone if that fails, so a limit is never exceeded, not
 * even for a moment.
 */

#include <stdatomic.h>

#include "base.h"

#define GP_NO_LIMIT UINT64_MAX

struct gp_budget {
	_Atomic uint64_t limit_bytes;
	_Atomic uint64_t charged_bytes;
};

void gp_budget_init(struct gp_budget *budget, uint64_t limit_bytes);

/* False if the limit forbids it; then nothing is charged. */
bool gp_budget_charge(struct gp_budget *budget, uint64_t bytes);

void gp_budget_uncharge(struct gp_budget *budget, uint64_t bytes);

/* Bytes that are charged beyond the limit, which may have been lowered since. */
static inline uint64_t gp_budget_over(const struct gp_budget *budget)
{
	uint64_t limit = atomic_load_explicit(&budget->limit_bytes, memory_order_relaxed);
	uint64_t charged = atomic_load_explicit(&budget->charged_bytes, memory_order_relaxed);

	return charged > limit ? charged - limit : 0;
}

/* Bytes that can still be charged: GP_NO_LIMIT without a limit. */
static inline uint64_t gp_budget_left(const struct gp_budget *budget)
{
	uint64_t limit = atomic_load_explicit(&budget->limit_bytes, memory_order_relaxed), charged;

	if (limit == GP_NO_LIMIT)
		return GP_NO_LIMIT;
	charged = atomic_load_explicit(&budget->charged_bytes, memory_order_relaxed);
	return charged < limit ? limit - charged : 0;
}
