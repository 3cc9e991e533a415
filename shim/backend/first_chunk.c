/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "first_chunk.h"

#include "shim/base/slow_path.h"
#include "shim/context/driver_call.h"
#include "shim/driver/driver_table.h"

_Thread_local struct gp_first_chunks gp_first_chunks __attribute__((tls_model("initial-exec")));

/* Takes the chunk if no other thread has. */
static bool take(struct gp_context *context)
{
	int kept = GP_FIRST_CHUNK_KEPT;

	return atomic_compare_exchange_strong(&context->first_chunk_state, &kept, GP_FIRST_CHUNK_TAKEN);
}

void gp_first_chunk_done(struct gp_context *context)
{
	atomic_store(&context->first_chunk_state, GP_FIRST_CHUNK_NONE);
}

void gp_first_chunk_unmap(struct gp_context *context)
{
	struct gp_driver_relaxed relaxed;

	if (!gp_slow_path_is_any(GP_SLOW_PATH_BYPASS)) {
		relaxed = gp_driver_relax();
		(void)gp_real.cuMemUnmap(context->first_chunk.addr, context->first_chunk.bytes);
		gp_driver_unrelax(&relaxed);
	}
	gp_first_chunk_done(context);
}

/* Gives a taken chunk back. */
static void give_back(struct gp_context *context)
{
	uint64_t handle = context->first_chunk.handle;
	struct gp_driver_relaxed relaxed;

	gp_first_chunk_unmap(context);
	if (gp_slow_path_is_any(GP_SLOW_PATH_BYPASS))
		return;
	relaxed = gp_driver_relax();
	(void)gp_real.cuMemRelease(handle);
	gp_driver_unrelax(&relaxed);
}

void gp_first_chunk_drop(struct gp_context *context)
{
	if (gp_unlikely(atomic_load(&context->first_chunk_state) == GP_FIRST_CHUNK_KEPT) && take(context))
		give_back(context);
}

void gp_first_chunk_release_slow(void)
{
	struct gp_context *context = gp_first_chunks.keeper;

	gp_first_chunks.keeper = NULL;
	gp_first_chunk_drop(context);
	gp_context_unref(context);
}

void gp_first_chunk_keep(struct gp_context *context, const struct gp_first_chunk *chunk)
{
	/* A hook of the program may change the current context within an allocation. */
	gp_first_chunk_release();
	gp_context_ref(context);
	gp_first_chunks.keeper = context;
	context->first_chunk = *chunk;
	atomic_store(&context->first_chunk_state, GP_FIRST_CHUNK_KEPT);
}

bool gp_first_chunk_take(struct gp_context *context, uint64_t bytes, uint64_t *ret_handle)
{
	int state;

	for (unsigned attempt = 0; (state = atomic_load(&context->first_chunk_state)) != GP_FIRST_CHUNK_NONE;) {
		if (state == GP_FIRST_CHUNK_TAKEN) {
			gp_yield(attempt++);
			continue;
		}
		if (!take(context))
			continue;
		if (context->first_chunk.bytes == bytes) {
			*ret_handle = context->first_chunk.handle;
			return true;
		}
		give_back(context);
	}
	return false;
}

bool gp_first_chunk_is(const struct gp_context *context, uint64_t handle)
{
	return gp_unlikely(atomic_load(&context->first_chunk_state) == GP_FIRST_CHUNK_TAKEN) &&
	       context->first_chunk.handle == handle;
}
