/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stream.h"

#include "pool/base.h"
#include "shim/driver/driver_table.h"
#include "thread.h"

_Atomic uint64_t gp_stream_generation = 1;
_Atomic enum gp_stream_mode gp_stream_mode;

/* The numbers of threads' own default streams are even, and greater than that of the legacy stream. */
static _Atomic uint64_t last_own_number = GP_STREAM_OF_LEGACY;

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

/* Ids are never used again, so an entry with the right id is right in everything. */
static bool identify_created(struct gp_thread_streams *streams, CUstream handle, struct gp_stream *ret_stream)
{
	struct gp_known_stream once = {NULL}, *known = streams ? &streams->known[gp_stream_slot(handle)] : &once;
	uint64_t generation = atomic_load(&gp_stream_generation); /* read before the driver is asked */
	unsigned long long id;

	if (gp_real.cuStreamGetId(handle, &id))
		return false;
	if (gp_unlikely(known->handle != handle || known->id != id) && !ask(handle, id, known))
		return false;
	known->generation = generation;
	*ret_stream = (struct gp_stream){
		.ctx = known->ctx,
		.number = (uint64_t)id << 1 | 1,
		.is_blocking = known->is_blocking,
	};
	return true;
}

static void ensure_own_number(struct gp_thread_streams *streams)
{
	if (!streams->own_number)
		streams->own_number = atomic_fetch_add(&last_own_number, 2) + 2;
}

bool gp_stream_decide(enum gp_stream_mode mode)
{
	enum gp_stream_mode now = GP_STREAM_UNDECIDED;

	return atomic_compare_exchange_strong(&gp_stream_mode, &now, mode) || now == mode;
}

bool gp_stream_can_identify(void)
{
	return gp_real.cuStreamGetId && gp_real.cuStreamGetCtx && gp_real.cuStreamGetFlags;
}

bool gp_stream_identify(CUstream handle, bool is_per_thread, CUcontext current, struct gp_stream *ret_stream)
{
	struct gp_thread_streams *streams = gp_thread_ensure() ? &gp_thread_self->streams : NULL;
	bool is_legacy = gp_stream_is_legacy(handle, is_per_thread);

	if (gp_unlikely(!gp_stream_can_identify()))
		return false;
	if (streams && gp_stream_recall(streams, handle, is_per_thread, current, ret_stream))
		return ret_stream->ctx != NULL;
	if (!gp_stream_is_default(handle))
		return identify_created(streams, handle, ret_stream);
	if (streams && !is_legacy)
		ensure_own_number(streams);
	*ret_stream = (struct gp_stream){
		.ctx = current,
		.number = is_legacy ? GP_STREAM_OF_LEGACY : (streams ? streams->own_number : 0),
		.is_legacy = is_legacy,
		.is_blocking = true,
	};
	return current != NULL;
}
