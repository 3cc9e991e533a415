/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * No new deadlock where a thread waits in its free for a spinning kernel, while another allocates and asks, and then
 * lets the host release the kernel. Without the library who launches in that context has to wait as well, and who
 * allocates device memory there (measured).
 */

#include "steps.h"

#define SCENARIOS(X)												\
	X(frees, STEPS_LARGE, "spin other:free& take host-release")						\
	X(frees_huge, STEPS_HUGE, "spin other:free& take take host-release")					\
	X(freed_before, STEPS_HUGE, "busy free free spin other:free& take take take take host-release")		\
	X(frees_pinned, STEPS_LARGE, "spin other:free-host& malloc-host malloc-host host-release")		\
	X(freed_before_pinned, STEPS_LARGE,									\
		"busy-host free-host spin other:free-host& malloc-host malloc-host host-release")		\
	X(frees_both, STEPS_HUGE, "spin other:free-host& take malloc-host host-release")			\
	X(asks, STEPS_LARGE, "free spin other:free& info reclaim host-release")

SCENARIOS(STEPS_FUNCTION)

const struct app_scenario app_scenarios[] = {
	SCENARIOS(STEPS_APART)
	{0},
};
