/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The functions stand in a table, in the order of their addition. A thread that adds one tries the free places in turn.
 * Two threads that add the same function try the same place, so it is added once, and neither returns before it is
 * in the table. A list with a flag in each member could not do that: between the flag and the link a fork would find
 * the flag set and the function missing.
 */

#include "fork.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/compat.h"
#include "pool/base.h"

static _Atomic(const struct gp_fork_child *) added[GP_FORK_CHILDREN_MAX];

static void in_child(void)
{
	for (size_t i = GP_FORK_CHILDREN_MAX; i-- > 0;) {
		const struct gp_fork_child *child = atomic_load(&added[i]);

		if (child)
			child->fn();
	}
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

void gp_fork_on_child(const struct gp_fork_child *child)
{
	watch();
	for (size_t i = 0; i < GP_FORK_CHILDREN_MAX; i++) {
		const struct gp_fork_child *found = atomic_load(&added[i]);

		if (!found && atomic_compare_exchange_strong(&added[i], &found, child))
			return;
		if (found == child)
			return;
	}
	gp_assert(false);
}
