/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "wait_budget.h"

#include "pool/base.h"

#define SECOND_NS UINT64_C(1000000000)
#define LEAST_NS  UINT64_C(10000000) /* a shorter wait is not worth the questions to other processes */

enum { HALVED_MAX = 8 }; /* then a wait is shorter than LEAST_NS */

static uint64_t spent_in_last_minute(const struct gp_wait_budget *budget, uint64_t now_ns)
{
	uint64_t second = now_ns / SECOND_NS, sum = 0;

	for (int i = 0; i < GP_WAIT_SECONDS; i++)
		if (budget->seconds[i].second + GP_WAIT_SECONDS > second)
			sum += budget->seconds[i].spent_ns;
	return sum;
}

uint64_t gp_wait_budget_grant(struct gp_wait_budget *budget, uint64_t now_ns)
{
	uint64_t taken = spent_in_last_minute(budget, now_ns) + budget->granted_ns, ns;

	if (!taken)
		budget->n_failed = 0;
	ns = gp_min(GP_WAIT_NS >> gp_min(budget->n_failed, (unsigned)HALVED_MAX),
		GP_WAIT_MINUTE_NS - gp_min(taken, GP_WAIT_MINUTE_NS));
	if (ns < LEAST_NS)
		return 0;
	budget->granted_ns += ns;
	return ns;
}

void gp_wait_budget_end(
	struct gp_wait_budget *budget, uint64_t now_ns, uint64_t granted_ns, uint64_t waited_ns, bool is_served)
{
	uint64_t second = now_ns / SECOND_NS;
	struct gp_wait_second *entry = &budget->seconds[second % GP_WAIT_SECONDS];

	budget->granted_ns -= granted_ns;
	if (!waited_ns)
		return;
	budget->n_failed = is_served ? 0 : budget->n_failed + 1;
	if (entry->second != second)
		*entry = (struct gp_wait_second){.second = second};
	entry->spent_ns += waited_ns;
}
