/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "fork.h"

#include <stddef.h>

#include "common/compat.h"

static _Atomic(struct gp_fork_child *) latest;

static void in_child(void)
{
	for (struct gp_fork_child *child = atomic_load(&latest); child; child = child->next)
		child->fn();
}

/* Two threads may register the handler at once. It then runs twice, which does no harm. */
static void watch(void)
{
	static _Atomic bool is_watching;

	if (atomic_load(&is_watching))
		return;
	if (__register_atfork)
		(void)__register_atfork(NULL, NULL, in_child, __dso_handle);
	atomic_store(&is_watching, true);
}

void gp_fork_on_child(struct gp_fork_child *child)
{
	if (atomic_load_explicit(&child->is_added, memory_order_relaxed))
		return;
	watch();
	if (atomic_exchange(&child->is_added, true))
		return;
	child->next = atomic_load(&latest);
	while (!atomic_compare_exchange_weak(&latest, &child->next, child))
		;
}
