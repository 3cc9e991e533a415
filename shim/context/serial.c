/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "serial.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "common/compat.h"
#include "context.h"
#include "pool/pool_control.h"
#include "shim/base/log.h"
#include "shim/base/slow_path.h"
#include "shim/driver/driver_table.h"
#include "shim/driver/submit.h"
#include "shim/record/record.h"

_Atomic bool gp_serial_is_over_everywhere;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic bool is_over;              /* set before any pool is notified, so that a new context reads it */
static const char *_Atomic bypass_reason; /* why submissions may bypass gpupool; may be set before there is any pool */
static _Atomic bool has_thread_stream;    /* a thread has submitted to its own default stream */
static _Thread_local bool is_thread_stream_noted __attribute__((tls_model("initial-exec")));

/*
 * Ids of interfaces that the runtime of CUDA 13.0 and libraries on top of it ask for. They are for contexts by other
 * handles, for data stored with contexts, modules and functions, and for tools. The runtime and these libraries submit
 * all their work through functions that a header declares (checked by tests/gpu/seen.py).
 */
static const uint8_t known_interfaces[][16] = {
	/* The runtime. */
	{0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa, 0x7e},
	{0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc},
	{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9},
	{0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66},
	{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93},
	{0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2},
	{0xf8, 0xcf, 0xf9, 0x51, 0x21, 0x46, 0x8b, 0x4e, 0xb9, 0xe2, 0xfb, 0x46, 0x9e, 0x7c, 0x0d, 0xd9},
	/* cuBLAS, cuDNN, PyTorch, NCCL, JAX and CuPy. */
	{0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8, 0xf2},
	{0x69, 0xa2, 0x8e, 0x9f, 0x24, 0x49, 0x8b, 0x47, 0xb0, 0x30, 0xc5, 0xda, 0x33, 0x0e, 0xa4, 0xe9},
	{0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d, 0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99, 0x1e},
	{0xda, 0x91, 0x51, 0xd3, 0x3a, 0xe6, 0xcc, 0x41, 0xa5, 0xc0, 0x4f, 0x26, 0xd5, 0x33, 0xe3, 0x28},
};

bool gp_serial_is_on(void)
{
	/* Without these functions a record makes the host wait, so serial mode would save nothing. */
	return !atomic_load(&is_over) && !atomic_load(&bypass_reason) &&
	       gp_state.config.reuse == GP_CONFIG_REUSE_AUTO && gp_real.cuCtxRecordEvent && gp_real.cuCtxWaitEvent;
}

static void end_in_context(void *unused, struct gp_context *context)
{
	gp_record(context->pool, IN_ORDER, 0);
	gp_pool_set_serial(context->pool, false);
}

static void set_over_everywhere(void)
{
	atomic_store(&gp_serial_is_over_everywhere, true);
	atomic_fetch_and(&gp_submit_reasons, ~(unsigned)GP_SUBMIT_SERIAL);
}

static void end_everywhere(void)
{
	atomic_store(&is_over, true);
	gp_context_each(end_in_context, NULL);
	set_over_everywhere();
}

void gp_serial_end(const char *why)
{
	if (gp_likely(gp_serial_is_over()))
		return;
	gp_log(GP_LOG_DEBUG, "serial mode has ended: %s", why);
	(void)pthread_once(&once, end_everywhere);
}

const char *gp_serial_why_unseen(void)
{
	const char *why = atomic_load(&bypass_reason);

	return why ? why : gp_real_why_unseen();
}

void gp_serial_end_if_early(void)
{
	const char *why = gp_serial_why_unseen();

	if (why)
		gp_serial_end(why);
}

/*
 * Returns true if gpupool is off or bypassed for good. Then there is no serial mode to end, and submissions need no
 * check.
 */
static bool is_inactive(void)
{
	bool is = gp_slow_path_is_any(GP_SLOW_PATH_BYPASS) || !gp_state_is_enabled();

	if (is)
		set_over_everywhere();
	return is;
}

void gp_serial_note_stream(CUstream stream)
{
	int saved_errno = errno;

	if (is_inactive())
		return;
	if (stream && stream != CU_STREAM_PER_THREAD) {
		gp_serial_end("work was submitted to a created stream");
	} else if (!is_thread_stream_noted) {
		is_thread_stream_noted = true;
		if (atomic_exchange(&has_thread_stream, true))
			gp_serial_end("work was submitted to the default stream of a second thread");
	}
	errno = saved_errno;
}

void gp_serial_report(void)
{
	const char *why = gp_serial_why_unseen();

	if (why)
		gp_log(GP_LOG_DEBUG, "work may be submitted past gpupool, so each free records a fence: %s", why);
}

void gp_serial_lose_sight(const char *why)
{
	gp_submission_lose_sight(&gp_submitted);
	/* Unseen work would find its memory asleep. From now on the process does not fall asleep again. */
	gp_submit_await();
	gp_slow_path_lose_contexts();
	/* If no driver is in the process yet, gp_serial_end_if_early() ends serial mode at the first context. */
	if (!atomic_exchange(&bypass_reason, why))
		gp_serial_report();
	if (gp_real_is_found() && !is_inactive())
		gp_serial_end(why);
}

/* The calling hook preserves errno, so this function need not. */
void gp_serial_note_private(const void *id)
{
	for (size_t i = 0; i < sizeof(known_interfaces) / sizeof(known_interfaces[0]); i++)
		if (!memcmp(id, known_interfaces[i], sizeof(known_interfaces[i])))
			return;
	gp_serial_lose_sight("the program uses a driver interface that no header declares");
}
