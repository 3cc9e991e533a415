/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "rest_choice.h"

/* Processes idle for the same number of these are equal in that. */
enum { IDLE_STEP_DS = 10 };

static bool is_before(const struct gp_process *a, const struct gp_process *b)
{
	unsigned idle_a = a->idle_ds / IDLE_STEP_DS, idle_b = b->idle_ds / IDLE_STEP_DS;

	return idle_a != idle_b ? idle_a > idle_b : a->held_bytes > b->held_bytes;
}

static void sort(struct gp_process *processes, unsigned n)
{
	for (unsigned i = 1; i < n; i++) {
		struct gp_process process = processes[i];
		unsigned at = i;

		for (; at && is_before(&process, &processes[at - 1]); at--)
			processes[at] = processes[at - 1];
		processes[at] = process;
	}
}

unsigned gp_rest_choose(struct gp_process *processes, unsigned n, uint64_t bytes)
{
	unsigned chosen = 0, kept = 0;
	uint64_t sum = 0;

	sort(processes, n);
	while (chosen < n && sum < bytes)
		sum += processes[chosen++].held_bytes;
	if (sum < bytes)
		return 0;
	/* A process without which the others are enough stays awake. The last one that was chosen is needed. */
	for (unsigned i = 0; i < chosen; i++) {
		if (i + 1 < chosen && sum - processes[i].held_bytes >= bytes)
			sum -= processes[i].held_bytes;
		else
			processes[kept++] = processes[i];
	}
	return kept;
}
