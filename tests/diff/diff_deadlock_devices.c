/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * No new deadlock on two GPUs. A kernel on one GPU spins until a kernel on the other releases it. The driver's free on
 * the first does not delay launches on the second. Allocations and the library's own calls must not delay them either.
 */

#include "steps.h"

#define SCENARIOS(X)                                                                                                   \
	X(plain, STEPS_LARGE, "spin second:release")                                                                   \
	X(frees, STEPS_LARGE, "spin second:free second:malloc second:release")                                         \
	X(frees_huge, STEPS_HUGE,                                                                                      \
		"second:busy second:free second:free spin second:malloc second:malloc second:release")                 \
	X(pending, STEPS_HUGE, "busy free free free spin malloc malloc second:free second:malloc second:release")      \
	X(pending_both, STEPS_HUGE, "busy free second:busy second:free spin malloc second:malloc second:release")      \
	X(pinned, STEPS_LARGE, "spin second:free-host second:malloc-host second:malloc-host second:release")           \
	X(pinned_first, STEPS_LARGE, "second:spin free-host malloc-host malloc-host release")                          \
	X(async, STEPS_HUGE, "spin free-async free-behind malloc second:free-async second:malloc second:release")      \
	X(other_frees, STEPS_LARGE, "spin other:free& second:release")                                                 \
	X(other_frees_huge, STEPS_HUGE, "spin other:free& second:free second:malloc second:malloc second:release")     \
	X(other_frees_pinned, STEPS_LARGE, "spin other:free-host& second:free-host second:malloc-host second:release") \
	X(other_releases, STEPS_HUGE, "busy free free spin malloc second:other:release")                               \
	X(asked, STEPS_LARGE, "free spin info reclaim second:info second:reclaim second:release")

#define ON_SECOND_DEVICE(name, bytes, words) \
	static void name(void)               \
	{                                    \
		steps_second_device = 1;     \
		steps_play(bytes, words);    \
	}

SCENARIOS(ON_SECOND_DEVICE)

/* The second device is used for the first time, or for the last time, while the first is at work. */
#define LATE(X)                                                                                               \
	X(comes, STEPS_HUGE, "busy free free malloc open second:spin malloc second:release")                  \
	X(comes_late, STEPS_HUGE, "busy free free malloc spin open second:free second:malloc second:release") \
	X(comes_to_other, STEPS_HUGE, "spin other:free& open second:free second:malloc second:release")       \
	X(goes, STEPS_LARGE, "second:free second:malloc spin second:close free-async malloc release")

LATE(ON_SECOND_DEVICE)

const struct app_scenario app_scenarios[] = {
	SCENARIOS(STEPS_TOGETHER) LATE(STEPS_APART){0},
};
