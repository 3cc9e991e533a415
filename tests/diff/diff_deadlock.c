/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * No new deadlock in one context: a program allocates and frees while a kernel spins until a later step releases it. If
 * it finishes without the library, it must finish with the library (T1.7).
 */

#include "steps.h"

#define SCENARIOS(X)                                                                                                   \
	/* All free memory is in pending blocks. Without the library, their free waited for other work. */             \
	X(pending_fit, STEPS_HUGE, "busy free free free spin malloc release")                                          \
	X(pending_fits, STEPS_HUGE, "busy free free free spin malloc malloc malloc release")                           \
	X(pending_parts, STEPS_HUGE, "busy free free free free spin malloc-big release")                               \
	X(pending_of_other, STEPS_HUGE, "busy other:free other:free free spin malloc malloc release")                  \
	X(pending_for_other, STEPS_HUGE, "busy free free free spin other:malloc other:release")                        \
	X(pending_pinned, STEPS_LARGE, "busy-host free-host free-host spin malloc-host malloc-host release")           \
	X(pending_async, STEPS_HUGE, "busy free-async free-async spin malloc malloc release")                          \
	X(pending_behind, STEPS_HUGE, "spin free-behind free-behind malloc malloc release")                            \
	X(pending_both, STEPS_HUGE, "busy free free-async free spin free-async malloc malloc malloc release")          \
	/* An open capture forbids fences. */                                                                          \
	X(capture, STEPS_LARGE, "busy free capture spin malloc end-capture release")                                   \
	X(capture_open, STEPS_HUGE, "capture busy free spin malloc free-async malloc release end-capture free malloc") \
	X(capture_freed, STEPS_HUGE, "capture free-async free-async spin malloc malloc end-capture malloc release")    \
	/* A thread cache that was filled while the GPU was idle, or behind other work. */                             \
	X(cached, STEPS_SMALL, "churn spin malloc malloc malloc release")                                              \
	X(cached_one, STEPS_SMALL, "churn free spin malloc free-async malloc release")                                 \
	X(cached_behind, STEPS_SMALL, "churn busy free churn spin malloc malloc malloc release")                       \
	X(cached_busy, STEPS_SMALL, "churn busy free free free spin malloc malloc malloc-big release")                 \
	X(cached_by_other, STEPS_SMALL, "other:churn spin malloc malloc other:malloc other:release")                   \
	X(cached_for_other, STEPS_SMALL, "churn busy other:free free spin other:malloc malloc release")                \
	X(cached_asked, STEPS_SMALL, "churn busy free spin reclaim malloc info malloc release")                        \
	X(cached_capture, STEPS_SMALL, "churn capture free-async spin malloc malloc end-capture release")              \
	X(cached_and_huge, STEPS_HUGE, "churn busy free free free churn spin malloc malloc release")                   \
	/* Queries, requests to reclaim, and calls that pass through to the driver. */                                 \
	X(asked, STEPS_LARGE, "busy free free-host spin info reclaim malloc malloc-host info reclaim release")         \
	X(asked_huge, STEPS_HUGE, "busy free free free malloc spin reclaim malloc release")                            \
	X(asked_pinned, STEPS_HUGE, "busy free-host free free free spin reclaim malloc release")                       \
	X(pinned_late, STEPS_HUGE,                                                                                     \
		"capture free-host end-capture busy free free free spin malloc-host malloc release")                   \
	X(pinned_late_reclaimed, STEPS_HUGE,                                                                           \
		"capture free-host end-capture busy free free free spin reclaim malloc release")                       \
	X(unpooled, STEPS_LARGE, "busy free spin malloc-async malloc-managed release")

SCENARIOS(STEPS_FUNCTION)

static void sweep_small(void)
{
	steps_sweep(STEPS_SMALL);
}

static void sweep_huge(void)
{
	steps_sweep(STEPS_HUGE);
}

const struct app_scenario app_scenarios[] = {
	{"sweep_small", sweep_small, 0},
	{"sweep_huge", sweep_huge, 0},
	SCENARIOS(STEPS_TOGETHER){0},
};
