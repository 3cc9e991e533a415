/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "budget.h"

void gp_budget_init(struct gp_budget *budget, uint64_t limit_bytes)
{
	atomic_init(&budget->limit_bytes, limit_bytes);
	atomic_init(&budget->charged_bytes, 0);
	budget->group = NULL;
}

bool gp_budget_charge(struct gp_budget *budget, uint64_t bytes)
{
	uint64_t limit = atomic_load_explicit(&budget->limit_bytes, memory_order_relaxed);
	uint64_t charged = atomic_load_explicit(&budget->charged_bytes, memory_order_relaxed);

	do {
		if (charged > limit || bytes > limit - charged)
			return false;
	} while (!atomic_compare_exchange_weak(&budget->charged_bytes, &charged, charged + bytes));
	if (!budget->group || budget->group->charge(budget->group, bytes))
		return true;
	atomic_fetch_sub(&budget->charged_bytes, bytes);
	return false;
}

void gp_budget_uncharge(struct gp_budget *budget, uint64_t bytes)
{
	uint64_t before = atomic_fetch_sub(&budget->charged_bytes, bytes);

	gp_assert(before >= bytes);
	if (budget->group)
		budget->group->uncharge(budget->group, bytes);
}
