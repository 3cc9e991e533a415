/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * No new deadlock when one thread waits in a free for a spinning kernel, while another thread allocates and queries,
 * and then releases the kernel from the host. Without the library, a thread that launches or allocates device memory in
 * that context has to wait as well (measured).
 */

#include "steps.h"

#define SCENARIOS(X)                                                                                    \
	X(frees, STEPS_LARGE, "spin other:free& take host-release")                                     \
	X(frees_huge, STEPS_HUGE, "spin other:free& take take host-release")                            \
	X(freed_before, STEPS_HUGE, "busy free free spin other:free& take take take take host-release") \
	X(frees_pinned, STEPS_LARGE, "spin other:free-host& malloc-host malloc-host host-release")      \
	X(freed_before_pinned, STEPS_LARGE,                                                             \
		"busy-host free-host spin other:free-host& malloc-host malloc-host host-release")       \
	X(frees_both, STEPS_HUGE, "spin other:free-host& take malloc-host host-release")                \
	X(asks, STEPS_LARGE, "free spin other:free& info reclaim host-release")

SCENARIOS(STEPS_FUNCTION)

const struct app_scenario app_scenarios[] = {
	SCENARIOS(STEPS_APART){0},
};
