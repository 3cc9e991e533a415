/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stream.h"

#include "pool/base.h"
#include "shim/driver/driver_table.h"
#include "shim/driver/launch_abi.h"
#include "thread.h"

/* The lowest bits of a number: the kind of stream. No number is 0. */
enum { CREATED = 1, LEGACY = 2, PER_THREAD = 3, N_KIND_BITS = 2 };

_Atomic enum gp_stream_mode gp_stream_mode;

static uint64_t number_of_thread(void)
{
	static _Thread_local uint64_t number __attribute__((tls_model("initial-exec")));
	static _Atomic uint64_t n_threads;

	if (!number)
		number = atomic_fetch_add(&n_threads, 1) + 1;
	return number;
}

static bool ask(CUstream handle, unsigned long long id, struct gp_known_stream *ret_known)
{
	unsigned flags = 0;
	CUcontext ctx;

	if (gp_real.cuStreamGetCtx(handle, &ctx) || gp_real.cuStreamGetFlags(handle, &flags))
		return false;
	*ret_known = (struct gp_known_stream){
		.handle = handle,
		.id = id,
		.ctx = ctx,
		.is_blocking = !(flags & CU_STREAM_NON_BLOCKING),
	};
	return true;
}

static struct gp_known_stream *slot_of(CUstream handle)
{
	return &gp_thread_self->streams[((uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15)) >> 61];
}

_Static_assert(GP_THREAD_STREAMS == 1 << (64 - 61), "the hash fits");

static bool identify_created(CUstream handle, struct gp_stream *ret_stream)
{
	struct gp_known_stream once = {NULL}, *known = gp_thread_self ? slot_of(handle) : &once;
	unsigned long long id;

	if (gp_real.cuStreamGetId(handle, &id))
		return false;
	if (gp_unlikely(known->handle != handle || known->id != id) && !ask(handle, id, known))
		return false;
	*ret_stream = (struct gp_stream){
		.ctx = known->ctx,
		.number = (uint64_t)id << N_KIND_BITS | CREATED,
		.is_blocking = known->is_blocking,
	};
	return true;
}

bool gp_stream_decide(enum gp_stream_mode mode)
{
	enum gp_stream_mode now = GP_STREAM_UNDECIDED;

	return atomic_compare_exchange_strong(&gp_stream_mode, &now, mode) || now == mode;
}

bool gp_stream_identify(CUstream handle, bool is_per_thread, CUcontext current, struct gp_stream *ret_stream)
{
	if (gp_unlikely(!gp_real.cuStreamGetId || !gp_real.cuStreamGetCtx || !gp_real.cuStreamGetFlags))
		return false;
	if (handle && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD)
		return identify_created(handle, ret_stream);
	*ret_stream = (struct gp_stream){.ctx = current, .number = LEGACY, .is_blocking = true};
	if (handle == CU_STREAM_PER_THREAD || (!handle && is_per_thread))
		ret_stream->number = number_of_thread() << N_KIND_BITS | PER_THREAD;
	return current != NULL;
}
