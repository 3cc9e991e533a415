/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "first_chunk.h"

#include <stdlib.h>

#include "shim/base/slow_path.h"
#include "shim/context/driver_call.h"
#include "shim/driver/driver_table.h"

_Thread_local struct gp_first_chunks gp_first_chunks __attribute__((tls_model("initial-exec")));

bool gp_first_chunk_keep(const struct gp_first_chunk *chunk)
{
	struct gp_first_chunk *kept = malloc(sizeof(*kept));

	if (!kept)
		return false;
	*kept = *chunk;
	gp_first_chunks.kept = kept;
	return true;
}

/* Forgets the kept chunk. */
static struct gp_first_chunk forget(void)
{
	struct gp_first_chunk chunk = *gp_first_chunks.kept;

	free(gp_first_chunks.kept);
	gp_first_chunks.kept = NULL;
	return chunk;
}

void gp_first_chunk_give_back(void)
{
	struct gp_first_chunk chunk = forget();
	struct gp_driver_relaxed relaxed;

	if (chunk.is_taken || gp_slow_path_is_any(GP_SLOW_PATH_BYPASS))
		return;
	relaxed = gp_driver_relax();
	(void)gp_real.cuMemUnmap(chunk.addr, chunk.bytes);
	(void)gp_real.cuMemRelease(chunk.handle);
	gp_driver_unrelax(&relaxed);
}

bool gp_first_chunk_take(const struct gp_context *context, uint64_t bytes, uint64_t *ret_handle)
{
	struct gp_first_chunk *kept = gp_first_chunks.kept;

	if (gp_likely(!kept) || kept->is_taken || kept->context != context)
		return false;
	if (kept->bytes != bytes) {
		gp_first_chunk_give_back();
		return false;
	}
	kept->is_taken = true;
	*ret_handle = kept->handle;
	return true;
}

bool gp_first_chunk_find(uint64_t handle, struct gp_first_chunk *ret_chunk)
{
	const struct gp_first_chunk *kept = gp_first_chunks.kept;

	if (gp_likely(!kept) || !kept->is_taken || kept->handle != handle)
		return false;
	*ret_chunk = forget();
	return true;
}
