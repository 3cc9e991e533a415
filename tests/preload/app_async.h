/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Declarations that the files of the program app_async share. */

#include "app_driver.h"
#include "tests/sim/abi.h"

extern _Atomic unsigned n_asked; /* allocations in stream order so far */

/* Allocates in stream order. */
CUdeviceptr take(size_t bytes, CUstream stream);

/* Returns the number of allocations in stream order that the driver was asked for. */
uint64_t calls_of_driver(void);

CUmemoryPool default_pool(int device);

/* Work of a stream (cuLaunchHostFunc) that goes on until let_work_go_on is called. */
void wait_for_host(void *unused);
void let_work_go_on(void);

/* Makes a context current in which such work of a new stream uses the memory. */
CUcontext use_in_created(CUdeviceptr ptr, CUstream *ret_stream);

/*
 * Pairs of an allocation and a free of three sizes with a kernel between them, on one stream. Returns the number of
 * driver calls but for the launches.
 */
uint64_t make_pairs(CUstream stream, unsigned n);

/* Scenarios of app_async_apart.c. */
void apart(void);
void apart_at_limit(void);
void apart_on_the_map(void);
void apart_by_threads(void);
void apart_in_created(void);
void apart_and_synchronous(void);
void apart_and_ended(void);
void apart_and_ended_early(void);

/* Scenarios of app_async_elsewhere.c. */
void elsewhere(void);
void elsewhere_legacy(void);
void elsewhere_blocking(void);
void elsewhere_ended(void);
void elsewhere_full(void);
void elsewhere_many(void);
void elsewhere_uncached(void);
void elsewhere_in_turn(void);

/* Scenarios of app_async_order.c. */
void crossed_beside_capture(void);
void crossed_uncached(void);
void crossed_by_driver(void);
void crossed_by_foreign(void);
void crossed_by_event(void);
void elsewhere_with_fault(void);
void elsewhere_with_refusal(void);
void misused(void);
void not_destroyed(void);

/* Scenarios of app_async_outlive.c. */
void outlive_at_limit(void);
void outlive_behind_work(void);
void outlive_elsewhere(void);
void outlive_by_threads(void);
void outlive_in_capture(void);
void outlive_under_work(void);
void outlive_away(void);
void outlive_until_wanted(void);
void outlive_opened(void);
void outlive_attributes(void);
void outlive_marks(void);
void outlive_in_destroyed(void);
void outlive_unknown(void);
void outlive_unknown_user(void);
void outlive_among_others(void);
void outlive_after_many(void);
void outlive_one_by_one(void);
void outlive_in_host_function(void);
void outlive_in_host(void);
void outlive_in_driver(void);

/* Scenarios of app_async_left.c. */
void usual(void);
void usual_legacy(void);
void other_context(void);
void chosen_pool(void);
void chosen_by_location(void);
void chosen_and_destroyed(void);
void named_pool(void);
void named_default_pool(void);
void pairs_from_made_pool(void);
void pairs_from_pool_of_max(void);
void chosen_pool_of_max(void);
void chosen_beside_opened(void);
void chosen_opened_pool(void);
void named_pool_of_max(void);
void named_shareable_pool(void);
void books_of_named_pool(void);
void named_pool_to_decompress(void);
void named_pool_of_other_use(void);
void named_pool_without_account(void);
void named_opened_pool(void);
void named_closed_pool(void);
void created_current(void);
void stream_of_other_device(void);
void stream_of_green_context(void);
void full_stream_of_other_device(void);
void ended_stream(void);
void no_bytes(void);
void green(void);
void no_cache_scope(void);
void no_context(void);
void opened_pool(void);
void opened_with_memory(void);
void opened_to_idle(void);
void opened_twice(void);
void made_opened_with_memory(void);
void made_opened_to_idle(void);
void capture(void);
void capture_elsewhere(void);
void capture_joined(void);
