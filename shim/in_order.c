/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "in_order.h"

#include <pthread.h>

#include "../pool/pool_control.h"
#include "compat.h"
#include "context.h"
#include "log.h"
#include "real.h"
#include "record.h"

_Atomic bool gp_in_order_told;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic bool is_over; /* before all are told: a context that comes in between has seen it */
static _Atomic bool has_thread;
static _Thread_local bool is_noted __attribute__((tls_model("initial-exec")));

bool gp_in_order_is(void)
{
	/* Without fences of the driver's own a record waits, and then nothing is left to be in order. */
	return !atomic_load(&is_over) && gp_state.config.reuse == GP_CONFIG_REUSE_AUTO &&
	       gp_real.cuCtxRecordEvent && gp_real.cuCtxWaitEvent;
}

static void tell(void *unused, struct gp_context *context)
{
	gp_record(context->pool, IN_ORDER, 0);
	gp_pool_set_in_order(context->pool, false);
}

static void tell_all(void)
{
	atomic_store(&is_over, true);
	gp_context_each(tell, NULL);
	atomic_store(&gp_in_order_told, true);
}

void gp_in_order_end(const char *why)
{
	if (gp_likely(gp_in_order_is_past()))
		return;
	gp_log(GP_LOG_DEBUG, "work may be done out of order from now on: %s", why);
	(void)pthread_once(&once, tell_all);
}

void gp_in_order_note_thread(void)
{
	if (gp_likely(is_noted))
		return;
	is_noted = true;
	if (atomic_exchange(&has_thread, true))
		gp_in_order_end("a second thread");
}
