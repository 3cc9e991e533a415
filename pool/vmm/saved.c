/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "saved.h"

#include <errno.h>
#include <stdlib.h>

#include "arena.h"
#include "chunk.h"
#include "pool/pool_impl.h"

int gp_saved_take_piece(struct gp_pool *pool, uint64_t bytes)
{
	const struct gp_backend *be = gp_pool_mover(pool);
	struct gp_saved_pieces *all = &pool->cache.vm->saved;
	struct gp_saved_piece *more = realloc(all->pieces, (all->n + 1) * sizeof(*more));
	int r;

	if (!more)
		return -ENOMEM;
	all->pieces = more;
	r = be->ops->sleep->host_take(be->arg, bytes, &more[all->n].host, &more[all->n].bytes);
	if (!r)
		all->n++;
	return r;
}

void gp_saved_forget(struct gp_chunk *chunk)
{
	free(chunk->saved);
	chunk->saved = NULL;
}

void gp_saved_give_back(struct gp_pool *pool)
{
	const struct gp_backend *be = gp_pool_mover(pool);
	struct gp_saved_pieces *all = &pool->cache.vm->saved;

	while (all->n) {
		const struct gp_saved_piece *last = &all->pieces[--all->n];

		be->ops->sleep->host_give(be->arg, last->host, last->bytes);
	}
	free(all->pieces);
	all->pieces = NULL;
}
