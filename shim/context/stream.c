/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stream.h"

#include "pool/base.h"
#include "shim/driver/driver_table.h"
#include "shim/driver/launch_abi.h"
#include "thread.h"

/* The number of default streams. Those of created streams are odd. */
enum { OF_DEFAULT_STREAMS = 2 };

_Atomic enum gp_stream_mode gp_stream_mode;

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
		.number = (uint64_t)id << 1 | 1,
		.is_blocking = known->is_blocking,
	};
	return true;
}

bool gp_stream_decide(enum gp_stream_mode mode)
{
	enum gp_stream_mode now = GP_STREAM_UNDECIDED;

	return atomic_compare_exchange_strong(&gp_stream_mode, &now, mode) || now == mode;
}

bool gp_stream_identify(CUstream handle, CUcontext current, struct gp_stream *ret_stream)
{
	if (gp_unlikely(!gp_real.cuStreamGetId || !gp_real.cuStreamGetCtx || !gp_real.cuStreamGetFlags))
		return false;
	if (handle && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD)
		return identify_created(handle, ret_stream);
	*ret_stream = (struct gp_stream){.ctx = current, .number = OF_DEFAULT_STREAMS, .is_blocking = true};
	return current != NULL;
}
