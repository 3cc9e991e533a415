/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Whether all work of a context is done in the order in which it came. So it is while all of it goes to default
 * streams, the legacy one and one thread's own, which wait for each other: however many threads and streams there
 * are, as long as nothing was submitted to any other. (Libraries make streams that they never use: cuBLAS does.)
 * Then freed memory can be used again at once: the work of its next owner comes later, and is done later.
 *
 * It ends once and for all, for the whole process, before there can be work out of order: when something is
 * submitted to a stream that was created, or to a second thread's own default stream (work.def); when a green
 * context is created; when a kernel is launched that may begin early (hook_launch.c); when a capture begins, as
 * fences are refused while it lasts; when order is not enough any more (gp_state_need_completion). Then the driver
 * is told to have later work wait for what was freed, unless it knows already (gp_pool_set_in_order).
 *
 * All that is seen only if every function that submits is known and reached through us. A driver newer than our table
 * may have others, and another library may stand between the program and the driver: there it ends before the first
 * context is in use. And where a program looks for such a function behind itself, opens a plug-in that does not meet
 * us, or asks for an interface that no header tells of, it ends at once, but for the interfaces of the runtime and the
 * libraries over it, whose work comes in the usual ways.
 */

#include <stdatomic.h>
#include <stdbool.h>

#include "../pool/work.h"
#include "launch_abi.h"

/* For what is in no order whatever the stream, and what has streams in places of its own. */
#define GP_STREAM_ANY ((CUstream)~(uintptr_t)0)

/* Every submission is reported here, for as long as the driver's call takes; until some may not be seen. */
extern struct gp_work gp_submitted;
extern _Thread_local struct gp_work_lane *gp_submit_lane __attribute__((tls_model("initial-exec")));

/* It is over, and everybody has been told. */
extern _Atomic bool gp_in_order_told;

static inline bool gp_in_order_is_past(void)
{
	return atomic_load_explicit(&gp_in_order_told, memory_order_acquire);
}

/* Whether it is so, as far as anybody knows; for a new context. */
bool gp_in_order_is(void);

/* What ended it before there was any context; to be called before one is in use. */
void gp_in_order_settle(void);

/* It ends, because of what is about to come. All is done when this returns, whoever does it. */
void gp_in_order_end(const char *why);

/* Something is about to be submitted to a stream that is not the legacy one. */
void gp_in_order_note_work(CUstream stream);

/* From now on there may be work that we do not see. Also before anything of ours was started. */
void gp_in_order_lose_sight(const char *why);

/* Why there may be, if so; once there is a log. */
void gp_in_order_say(void);

/* Somebody asks for an interface that no header tells of, by its 16 bytes. */
void gp_in_order_note_private(const void *id);

/* Around the driver's call that submits. */
static inline struct gp_work_lane *gp_submit_begin(void)
{
	struct gp_work_lane *lane = gp_submit_lane;

	if (gp_unlikely(!lane))
		gp_submit_lane = lane = gp_work_lane(&gp_submitted);
	gp_work_enter(&gp_submitted, lane);
	return lane;
}

static inline void gp_submit_end(struct gp_work_lane *lane)
{
	gp_work_leave(lane);
}

/* Something is about to be submitted; NULL means the thread's own stream if the function's flags are not 0. */
static inline void gp_in_order_see(CUstream stream, int flags)
{
	if (__builtin_expect(gp_in_order_is_past(), 1))
		return;
	if (stream != CU_STREAM_LEGACY && (stream || flags))
		gp_in_order_note_work(stream);
}
