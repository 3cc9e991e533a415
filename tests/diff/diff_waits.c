/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * These scenarios hang without the library: the driver's free waits for a spinning kernel, and meanwhile no thread can
 * launch the kernel that would release it. With the library a free does not wait, and the scenarios may finish.
 */

#include "steps.h"

#define SCENARIOS(X)                                                         \
	X(small, STEPS_SMALL, "spin free release")                           \
	X(large_then_malloc, STEPS_LARGE, "spin free malloc release")        \
	X(for_host, STEPS_LARGE, "spin free host-release")                   \
	X(pinned, STEPS_LARGE, "spin free-host malloc-host release")         \
	X(other_thread, STEPS_LARGE, "spin other:free& release")             \
	X(other_thread_pinned, STEPS_LARGE, "spin other:free-host& release") \
	X(alone, STEPS_LARGE, "alone free stream spin free release")

SCENARIOS(STEPS_FUNCTION)

const struct app_scenario app_scenarios[] = {
	SCENARIOS(STEPS_APART){0},
};
