/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "saved.h"

#include <stdlib.h>

#include "chunk.h"
#include "pool/pool_impl.h"

void gp_saved_forget(struct gp_pool *pool, struct gp_chunk *chunk)
{
	const struct gp_backend *be = gp_pool_backend(pool);

	if (!chunk->saved)
		return;
	if (chunk->saved->host)
		be->ops->sleep->host_give(be->arg, chunk->saved->host, chunk->saved->size);
	free(chunk->saved);
	chunk->saved = NULL;
}
