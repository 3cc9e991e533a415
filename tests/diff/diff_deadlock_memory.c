/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* No new deadlock when memory runs out: the retry rounds wait only for the work that the driver's free waits for. */

#include "steps.h"

/*
 * These scenarios have their own processes. After other scenarios, the blocks could be parts of different cached
 * segments of the pool type split. They would never merge, and could not go back to the driver while the program holds
 * the other parts. The size of the device decides whether that happens.
 */
#define ALONE(X)                                                                                  \
	X(pending_parts, STEPS_HUGE, "take-all busy free free free free spin malloc-big release") \
	X(unpooled, STEPS_HUGE, "take-all busy free free free free free free free free spin malloc-async release")

#define SCENARIOS(X)                                                                                            \
	X(empty, STEPS_HUGE, "take-all spin malloc release")                                                    \
	X(cached, STEPS_SMALL, "churn take-all free spin take release")                                         \
	X(cached_more, STEPS_SMALL, "churn take-all free free free spin take take take release")                \
	X(pending, STEPS_HUGE, "take-all busy free free spin malloc malloc release")                            \
	X(pending_of_other, STEPS_HUGE, "take-all busy other:free other:free spin other:malloc malloc release") \
	X(pending_async, STEPS_HUGE, "take-all busy free free-async free spin malloc release")

SCENARIOS(STEPS_FUNCTION)
ALONE(STEPS_FUNCTION)

const struct app_scenario app_scenarios[] = {
	SCENARIOS(STEPS_TOGETHER) ALONE(STEPS_APART){0},
};
