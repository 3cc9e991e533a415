/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "saved.h"

#include <errno.h>
#include <stdlib.h>

#include "arena.h"
#include "chunk.h"
#include "pool/pool_impl.h"

int gp_saved_take_piece(struct gp_pool *pool, uint64_t bytes, uint64_t next_bytes, bool *ret_is_new)
{
	const struct gp_backend *be = gp_pool_mover(pool);
	struct gp_saved_pieces *all = &pool->cache.vm->saved;
	struct gp_saved_piece *more = realloc(all->pieces, (all->n + 1) * sizeof(*more));
	int r;

	if (!more)
		return -ENOMEM;
	all->pieces = more;
	r = be->ops->sleep->host_take(be->arg, bytes, next_bytes, &more[all->n].host, &more[all->n].bytes, ret_is_new);
	if (!r)
		more[all->n++].is_pinned = true;
	return r;
}

void gp_saved_pin(struct gp_pool *pool, struct gp_saved_piece *piece)
{
	const struct gp_backend *be = gp_pool_backend(pool);

	if (!piece->is_pinned)
		piece->is_pinned = !be->ops->sleep->host_pin(be->arg, piece->host, piece->bytes);
}

bool gp_saved_unpin(struct gp_pool *pool)
{
	const struct gp_backend *be = gp_pool_backend(pool);
	struct gp_saved_pieces *all = &pool->cache.vm->saved;

	for (unsigned i = all->n; i--;) {
		struct gp_saved_piece *piece = &all->pieces[i];

		if (!piece->is_pinned)
			continue;
		be->ops->sleep->host_unpin(be->arg, piece->host, piece->bytes);
		piece->is_pinned = false;
		return true;
	}
	return false;
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

		be->ops->sleep->host_give(be->arg, last->host, last->bytes, last->is_pinned);
	}
	free(all->pieces);
	all->pieces = NULL;
}
