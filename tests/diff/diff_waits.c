/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The driver's own free waits for a spinning kernel, and meanwhile nobody may launch in that context what releases it:
 * these hang without the library. With it a free waits for nothing, and they may finish.
 */

#include "steps.h"

#define SCENARIOS(X)												\
	X(small, STEPS_SMALL, "spin free release")								\
	X(large_then_malloc, STEPS_LARGE, "spin free malloc release")						\
	X(for_host, STEPS_LARGE, "spin free host-release")							\
	X(pinned, STEPS_LARGE, "spin free-host malloc-host release")						\
	X(other_thread, STEPS_LARGE, "spin other:free& release")						\
	X(other_thread_pinned, STEPS_LARGE, "spin other:free-host& release")					\
	X(alone, STEPS_LARGE, "alone free stream spin free release")

SCENARIOS(STEPS_FUNCTION)

const struct app_scenario app_scenarios[] = {
	SCENARIOS(STEPS_APART)
	{0},
};
