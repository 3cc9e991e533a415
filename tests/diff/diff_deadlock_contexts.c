/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * No new deadlock when the program's use of the GPU changes while blocks are pending: from one stream to several, from
 * one thread to two, from one context of a device to two.
 */

#include "steps.h"

#define SCENARIOS(X)                                                                                                   \
	X(alone, STEPS_LARGE, "alone free malloc free malloc")                                                         \
	X(second_stream, STEPS_LARGE, "alone busy free free stream malloc spin free-async malloc release free malloc") \
	X(second_stream_later, STEPS_LARGE, "alone busy free free malloc spin stream malloc release free malloc")      \
	X(second_stream_huge, STEPS_HUGE, "alone busy free free free spin stream malloc malloc release")               \
	X(second_thread, STEPS_LARGE, "alone busy free free other:malloc spin stream other:malloc other:release")      \
	X(second_thread_frees, STEPS_HUGE, "alone busy free other:free spin stream malloc other:malloc release")       \
	X(second_thread_launches, STEPS_HUGE, "alone busy free free other:stream other:spin malloc host-release")      \
	X(contexts, STEPS_LARGE, "spin second:free second:malloc second:release")                                      \
	X(contexts_huge, STEPS_HUGE,                                                                                   \
		"second:busy second:free second:free spin second:malloc second:malloc second:release")                 \
	X(contexts_pinned, STEPS_LARGE, "spin second:free-host second:malloc-host second:malloc-host second:release")  \
	X(contexts_pinned_free, STEPS_HUGE, "busy free free free spin second:free-host malloc release")                \
	X(contexts_both, STEPS_HUGE, "busy free spin second:free malloc second:malloc release")                        \
	X(context_comes, STEPS_HUGE, "busy free free malloc open second:spin malloc second:release")                   \
	X(context_comes_late, STEPS_HUGE, "busy free free malloc spin open second:free second:malloc release")         \
	X(context_goes, STEPS_LARGE, "second:free second:malloc spin second:close free-async malloc release")          \
	X(context_goes_busy, STEPS_LARGE, "second:busy second:free second:malloc spin second:close malloc release")    \
	X(other_frees, STEPS_LARGE, "spin other:free& second:free second:malloc second:release")                       \
	X(other_frees_huge, STEPS_HUGE, "spin other:free& second:free second:malloc second:malloc second:release")     \
	X(other_frees_pinned, STEPS_LARGE, "spin other:free-host& second:free-host second:malloc-host second:release") \
	X(other_opens, STEPS_HUGE, "spin other:free& open second:free second:malloc second:release")                   \
	X(cached_alone, STEPS_SMALL, "alone churn busy free churn malloc spin stream malloc malloc release")           \
	X(cached_in_both, STEPS_SMALL,                                                                                 \
		"churn second:churn busy free spin second:churn second:malloc malloc second:release")                  \
	X(cached_in_closed, STEPS_SMALL, "churn second:churn busy free spin second:close malloc malloc release")       \
	X(cached_comes, STEPS_SMALL, "churn busy free churn spin open second:churn malloc second:release")

SCENARIOS(STEPS_FUNCTION)

const struct app_scenario app_scenarios[] = {
	SCENARIOS(STEPS_APART){0},
};
