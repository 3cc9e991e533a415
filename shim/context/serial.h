/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Serial mode: all work of a context is done in the order in which it is submitted. It holds while all work goes to
 * default streams, the legacy stream and one thread's own default stream, which wait for each other. The number of
 * threads and streams does not matter as long as nothing is submitted to another stream. (Libraries create streams
 * that they never use: cuBLAS does.) In serial mode freed memory can be used again at once: the work of its next
 * owner is submitted later, and is done later.
 *
 * Serial mode ends for good, for the whole process, before any work can run out of order: when work is submitted to a
 * stream that was created, or to the own default stream of a second thread (submit.def); when a green context is
 * created; when a kernel is launched that may begin early (hook_launch.c); when a capture begins, since fences are
 * refused during it; when reuse needs completion (gp_context_need_completion). At its end each pool makes later work
 * wait on the GPU for the memory freed so far, unless a GPU wait has done that already (gp_pool_set_serial).
 *
 * This works only if gpupool knows every function that submits work, and every such call passes through it. A driver
 * newer than our table may have more such functions, and another library may stand between the program and the
 * driver: in these cases serial mode ends before the first context is in use. It ends at once when a program looks up
 * a submitting function behind gpupool, opens a plug-in that bypasses gpupool, or asks for an interface that no
 * header declares. Interfaces of the runtime and its libraries are exempt, since their work comes through known
 * functions.
 */

#include <stdatomic.h>
#include <stdbool.h>

#include "shim/driver/launch_abi.h"

/* The stream of a function whose work is in no order in any stream, or which takes its streams in other arguments. */
#define GP_STREAM_ANY ((CUstream) ~(uintptr_t)0)

/* True once serial mode has ended and all pools know. */
extern _Atomic bool gp_serial_is_over_everywhere;

static inline bool gp_serial_is_over(void)
{
	return atomic_load_explicit(&gp_serial_is_over_everywhere, memory_order_acquire);
}

/* Returns true if a new context is in serial mode. */
bool gp_serial_is_on(void);

/* Ends serial mode if submissions may bypass gpupool. To be called before a context is in use. */
void gp_serial_end_if_early(void);

/*
 * Ends serial mode, for something that is about to happen. When it returns all pools know, also if another thread
 * ends it at the same time.
 */
void gp_serial_end(const char *why);

/* Notes that work is about to be submitted to a stream other than the legacy one. */
void gp_serial_note_stream(CUstream stream);

/* Notes that submissions may bypass gpupool from now on. May be called before gpupool has started. */
void gp_serial_lose_sight(const char *why);

/* Logs why submissions may bypass gpupool, if they may. To be called once there is a log. */
void gp_serial_report(void);

/* Notes that the program asks for a driver interface by its 16-byte id, which may be in no header. */
void gp_serial_note_private(const void *id);

/*
 * Notes that work is about to be submitted. A stream of NULL is the thread's own if the function's flags are not 0.
 */
static inline void gp_serial_see(CUstream stream, int flags)
{
	if (__builtin_expect(gp_serial_is_over(), 1))
		return;
	if (stream != CU_STREAM_LEGACY && (stream || flags))
		gp_serial_note_stream(stream);
}
