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
 * Serial mode ends for good, for the whole process, before any work can run out of order:
 *
 *   - when work is submitted to a stream that was created, or to the default stream of a second thread (submit.def);
 *   - when a green context is created;
 *   - when a kernel is launched that may begin early (hook_launch.c);
 *   - when a capture begins, since fence calls are refused during a capture;
 *   - when reuse needs completion (gp_context_need_completion).
 *
 * When serial mode ends, each pool makes later work wait on the GPU for the memory freed so far, unless a GPU wait has
 * done that already (gp_pool_set_serial).
 *
 * Serial mode is possible only if gpupool knows every function that submits work, and sees every call of them. A driver
 * that is newer than submit.def may have more such functions, and another library may intercept calls between the
 * program and gpupool. In these cases serial mode ends before the first context is in use. It ends at once when a
 * program looks up a submitting function behind gpupool, opens a plug-in that bypasses gpupool, or asks for an
 * interface that no header declares. Interfaces of the runtime and its libraries are exempt, since their work comes
 * through known functions.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shim/driver/launch_abi.h"

/*
 * Stands for the stream if the work is not ordered by a stream, or if other arguments of the function have the streams.
 */
#define GP_STREAM_ANY ((CUstream) ~(uintptr_t)0)

/*
 * Marks the stream of a submission that only makes it wait. Such a submission does not end serial mode, and stands for
 * the legacy stream there. No address of a program has the bit.
 */
#define GP_STREAM_WAITS_BIT     (UINTPTR_MAX / 2 + 1)
#define GP_STREAM_WAITS(stream) ((CUstream)((uintptr_t)(stream) | GP_STREAM_WAITS_BIT))

static inline bool gp_stream_is_wait(CUstream stream)
{
	return stream != GP_STREAM_ANY && ((uintptr_t)stream & GP_STREAM_WAITS_BIT);
}

/* Returns the stream without the mark. */
static inline CUstream gp_stream_waiting(CUstream stream)
{
	return gp_stream_is_wait(stream) ? (CUstream)((uintptr_t)stream & ~GP_STREAM_WAITS_BIT) : stream;
}

/* True once serial mode has ended in all pools. */
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
 * Ends serial mode. To be called before the reason for the end comes true. When it returns, serial mode has ended in
 * all pools, also if another thread ends it at the same time. why: the reason, for the log.
 */
void gp_serial_end(const char *why);

/* Notes that work is about to be submitted to another stream than the legacy stream. */
void gp_serial_note_stream(CUstream stream);

/* Notes that submissions may bypass gpupool from now on. May be called before gpupool has started. */
void gp_serial_lose_sight(const char *why);

/* Returns why submissions may bypass gpupool, or NULL if all are seen. */
const char *gp_serial_why_unseen(void);

/* Logs why submissions may bypass gpupool, if they may. To be called once there is a log. */
void gp_serial_report(void);

/* Notes that the program asks for a driver interface by its 16-byte id, which may be in no header. */
void gp_serial_note_private(const void *id);

/*
 * Notes that work is about to be submitted. A stream of NULL is the thread's own default stream if the function's flags
 * are not 0, otherwise the legacy stream.
 */
static inline void gp_serial_see(CUstream stream, int flags)
{
	if (__builtin_expect(gp_serial_is_over(), 1))
		return;
	if (stream != CU_STREAM_LEGACY && (stream || flags) && !gp_stream_is_wait(stream))
		gp_serial_note_stream(stream);
}
