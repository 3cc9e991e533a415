/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Whether all work of a context is done in the order in which it came. So it is while one thread alone has used CUDA
 * and no stream was created: what is left are the default streams, the legacy one and the thread's own, which wait for
 * each other. Then freed memory can be used again at once: the work of its next owner comes later, and is done later.
 *
 * It ends once and for all, for the whole process, before there can be work out of order: when a second thread makes a
 * context current, since it has a default stream of its own; when a stream or a green context is created; when a kernel
 * is launched that may begin early (hook_launch.c); when a capture begins, as fences are refused while it lasts; when
 * order is not enough any more (gp_state_need_completion). Then the driver is told to have later work wait for what was
 * freed, unless it knows already (gp_pool_set_in_order).
 */

#include <stdatomic.h>
#include <stdbool.h>

/* It is over, and everybody has been told. */
extern _Atomic bool gp_in_order_told;

static inline bool gp_in_order_is_past(void)
{
	return atomic_load_explicit(&gp_in_order_told, memory_order_acquire);
}

/* Whether it is so, as far as anybody knows; for a new context. */
bool gp_in_order_is(void);

/* It ends, because of what is about to come. All is done when this returns, whoever does it. */
void gp_in_order_end(const char *why);

/* This thread uses CUDA. */
void gp_in_order_note_thread(void);
