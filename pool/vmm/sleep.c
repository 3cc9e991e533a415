/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "sleep.h"

#include <errno.h>
#include <stdlib.h>

#include "arena.h"
#include "arena_life.h"
#include "chunk.h"
#include "pool/tuning.h"

enum { SLOTS = 2 }; /* copies of one chunk are under way while those of the chunk before are awaited */

static const struct gp_sleep_ops *ops_of(const struct gp_pool *pool)
{
	return gp_pool_mover(pool)->ops->sleep;
}

static void *arg_of(const struct gp_pool *pool)
{
	return gp_pool_mover(pool)->arg;
}

static const struct gp_mapping_ops *mapping_of(const struct gp_pool *pool)
{
	return gp_pool_mover(pool)->ops->mapping;
}

/* Only threads between enter and leave change the list, so it can be walked without the lock. */
#define each_chunk(link, pool) gp_list_each(link, &(pool)->cache.vm->chunks)

static struct gp_chunk *chunk_of(struct gp_list *link)
{
	return gp_container_of(link, struct gp_chunk, link);
}

static bool is_dead(struct gp_pool *pool)
{
	return gp_flag_is_set(&pool->dead);
}

int gp_pool_sleep_enter(struct gp_pool *pool, uint64_t max_ns)
{
	const struct gp_backend *be = gp_pool_mover(pool);
	uint64_t start_ns = gp_pool_now_ns(pool);
	struct gp_vm *vm = pool->options.kind == GP_KIND_VMM ? pool->cache.vm : NULL;

	if (!vm || !be->ops->sleep)
		return -ENOTSUP;
	for (unsigned attempt = 0;; attempt++) {
		bool is_alive, is_free;

		gp_mutex_lock(&pool->lock);
		is_free = vm->n_busy == 0;
		is_alive = !is_free || gp_arena_enter_locked(pool);
		vm->is_exclusive = is_free && is_alive;
		gp_mutex_unlock(&pool->lock);
		if (!is_alive)
			return GP_E_DEAD;
		if (is_free)
			return 0;
		if (gp_pool_now_ns(pool) - start_ns >= max_ns)
			return -EAGAIN;
		be->ops->pause(be->arg, attempt);
	}
}

/* Waits for copies out that nothing has waited for: their host memory is about to go back. */
static void drain(struct gp_pool *pool)
{
	if (pool->cache.vm->saved.are_under_way)
		ops_of(pool)->copy_drain(arg_of(pool));
	pool->cache.vm->saved.are_under_way = false;
}

void gp_pool_sleep_leave(struct gp_pool *pool)
{
	struct gp_list *link;
	bool is_any_asleep = false;

	each_chunk(link, pool)
	{
		if (chunk_of(link)->is_asleep)
			is_any_asleep = true;
		else
			gp_saved_forget(chunk_of(link));
	}
	drain(pool);
	if (!is_any_asleep)
		gp_saved_give_back(pool);
	gp_mutex_lock(&pool->lock);
	pool->cache.vm->is_exclusive = false;
	gp_mutex_unlock(&pool->lock);
	gp_arena_leave(pool);
}

/* Adds a part. Parts with little free memory between them are copied as one. */
static void keep(struct gp_saved *saved, uint64_t offset, uint64_t bytes)
{
	uint64_t end = saved->n ? saved->parts[saved->n - 1].offset + saved->parts[saved->n - 1].bytes : 0;

	if (saved->n && offset - end < GP_SLEEP_GAP) {
		saved->parts[saved->n - 1].bytes += offset + bytes - end;
		saved->bytes += offset + bytes - end;
		return;
	}
	saved->parts[saved->n].offset = offset;
	saved->parts[saved->n++].bytes = bytes;
	saved->bytes += bytes;
}

/* Pending blocks are kept, too: a graph may go on using memory that was freed while it was captured. */
static void survey_locked(struct gp_pool *pool, const struct gp_chunk *chunk, struct gp_saved *saved)
{
	const struct gp_block *b = gp_arena_block_of_locked(pool, chunk);
	uint64_t end = chunk->addr + chunk->size;

	for (; b && b->addr < end; b = b->next) {
		uint64_t from = gp_max(b->addr, chunk->addr), to = gp_min(b->addr + b->size, end);

		if (gp_block_state(b) != GP_BLOCK_CACHED)
			keep(saved, from - chunk->addr, to - from);
	}
}

static int survey(struct gp_pool *pool, struct gp_chunk *chunk, bool drops)
{
	/* Each part but the first begins at least GP_SLEEP_GAP behind the end of the one before. */
	uint64_t n_max = drops ? 0 : chunk->size / GP_SLEEP_GAP + 2;
	struct gp_saved *saved = calloc(1, sizeof(*saved) + n_max * sizeof(saved->parts[0]));
	bool is_alive;

	if (!saved)
		return -ENOMEM;
	saved->is_dropped = drops;
	gp_mutex_lock(&pool->lock);
	is_alive = !is_dead(pool);
	if (is_alive && !drops)
		survey_locked(pool, chunk, saved);
	gp_mutex_unlock(&pool->lock);
	chunk->saved = saved;
	return is_alive ? 0 : GP_E_DEAD;
}

int gp_pool_sleep_survey(struct gp_pool *pool, bool drops, struct gp_sleep_bytes *ret_bytes)
{
	struct gp_sleep_bytes bytes = {0};
	struct gp_list *link;

	each_chunk(link, pool)
	{
		struct gp_chunk *chunk = chunk_of(link);
		int r;

		if (chunk->is_asleep)
			continue;
		/* Spilled memory has no device memory. It stays in the host, where its content can be dropped. */
		if (chunk->is_spilled) {
			r = drops ? survey(pool, chunk, true) : 0;
			if (r)
				return r;
			continue;
		}
		bytes.shared_bytes += chunk->is_retired ? chunk->size : 0;
		bytes.stuck_bytes += chunk->is_stuck && !chunk->is_retired ? chunk->size : 0;
		if (chunk->is_retired || chunk->is_stuck)
			continue;
		r = survey(pool, chunk, drops);
		if (r)
			return r;
		bytes.device_bytes += chunk->size;
		bytes.dropped_bytes += drops ? chunk->size : 0;
		bytes.host_bytes += chunk->saved->bytes;
	}
	bytes.mapped_bytes = gp_round_up(bytes.host_bytes, GP_SLEEP_ROUND);
	*ret_bytes = bytes;
	return 0;
}

/* Gives each chunk a place in the host memory that is to be taken. Returns how much that has to be. */
static uint64_t place(struct gp_pool *pool, uint64_t begin)
{
	struct gp_list *link;
	uint64_t end = begin;

	each_chunk(link, pool)
	{
		struct gp_chunk *chunk = chunk_of(link);

		if (chunk->is_asleep || !chunk->saved)
			continue;
		chunk->saved->at = end;
		end += chunk->saved->bytes;
	}
	return end - begin;
}

/* Starts the copies of a part, in either direction: one for each piece of host memory in which it lies. */
static int start_part(struct gp_pool *pool, uint64_t addr, uint64_t at, uint64_t bytes, bool is_out)
{
	const struct gp_sleep_ops *ops = ops_of(pool);
	uint64_t size = ops->piece_bytes;
	int r = 0;

	while (bytes && !r) {
		struct gp_saved_piece *piece = &pool->cache.vm->saved.pieces[at / size];
		char *host = (char *)piece->host + at % size;
		uint64_t n = gp_min(bytes, size - at % size);

		gp_saved_pin(pool, piece);
		r = is_out ? ops->copy_out(arg_of(pool), host, addr, n) : ops->copy_in(arg_of(pool), addr, host, n);
		addr += n;
		at += n;
		bytes -= n;
	}
	return r;
}

/* Starts the copies of the content that lies from `from` to `to` in the host memory. */
static int start_between(struct gp_pool *pool, const struct gp_chunk *chunk, uint64_t from, uint64_t to, bool is_out)
{
	const struct gp_saved *saved = chunk->saved;
	uint64_t at = saved->at;
	int r = 0;

	for (unsigned i = 0; i < saved->n && !r; i++) {
		uint64_t begin = gp_max(at, from), end = gp_min(at + saved->parts[i].bytes, to);

		if (begin < end)
			r = start_part(
				pool, chunk->addr + saved->parts[i].offset + (begin - at), begin, end - begin, is_out);
		at += saved->parts[i].bytes;
	}
	return r;
}

/* Starts those copies of a chunk that have not been started yet. */
static int start_copies(struct gp_pool *pool, const struct gp_chunk *chunk, bool is_out)
{
	return start_between(pool, chunk, is_out ? pool->cache.vm->saved.copied : 0, UINT64_MAX, is_out);
}

/* Starts the copies into host memory that lies before `end`. */
static int start_until(struct gp_pool *pool, uint64_t end)
{
	struct gp_saved_pieces *all = &pool->cache.vm->saved;
	struct gp_list *link;
	int r = 0;

	all->are_under_way = true;
	each_chunk(link, pool)
	{
		const struct gp_chunk *chunk = chunk_of(link);

		if (!r && !chunk->is_asleep && chunk->saved)
			r = start_between(pool, chunk, all->copied, end, true);
	}
	all->copied = end;
	return r;
}

/*
 * The copies into a piece that is new run while the next one is taken: then the first sleep of a process takes hardly
 * longer than its host memory. Those into kept memory are started chunk by chunk as the chunks move out, so that device
 * memory goes back while others are under way.
 */
int gp_pool_sleep_take_host(struct gp_pool *pool, bool (*must_stop)(void *arg), void *arg)
{
	uint64_t piece = ops_of(pool)->piece_bytes, at, end;
	int r = 0;

	/* Pieces of a sleep that failed may still be in use. */
	at = pool->cache.vm->saved.n * piece;
	end = at + place(pool, at);
	pool->cache.vm->saved.copied = at;
	while (at < end && !r) {
		uint64_t bytes = gp_min(end - at, piece), next_bytes = gp_min(end - at - bytes, piece);
		bool is_new;

		if (must_stop && must_stop(arg))
			return -ECANCELED;
		r = gp_saved_take_piece(
			pool, gp_round_up(bytes, GP_SLEEP_ROUND), gp_round_up(next_bytes, GP_SLEEP_ROUND), &is_new);
		at += bytes;
		if (!r && is_new)
			r = start_until(pool, at);
	}
	return r;
}

/* Notes that a chunk that is asleep has device memory, or has none any more. */
static void note_taken(struct gp_pool *pool, const struct gp_chunk *chunk, bool is_taken)
{
	uint64_t *taken = &pool->cache.vm->asleep.taken_bytes;

	gp_mutex_lock(&pool->lock);
	*taken = is_taken ? *taken + chunk->size : *taken - chunk->size;
	gp_mutex_unlock(&pool->lock);
}

static void set_asleep(struct gp_pool *pool, struct gp_chunk *chunk, bool is_asleep)
{
	struct gp_sleep_bytes *asleep = &pool->cache.vm->asleep;
	uint64_t dropped = chunk->saved->is_dropped ? chunk->size : 0;

	gp_mutex_lock(&pool->lock);
	chunk->is_asleep = is_asleep;
	if (is_asleep) {
		asleep->device_bytes += chunk->size;
		asleep->dropped_bytes += dropped;
		asleep->host_bytes += chunk->saved->bytes;
	} else {
		asleep->device_bytes -= chunk->size;
		asleep->taken_bytes -= chunk->size;
		asleep->dropped_bytes -= dropped;
		asleep->host_bytes -= chunk->saved->bytes;
	}
	gp_mutex_unlock(&pool->lock);
}

static int unmap(struct gp_pool *pool, struct gp_chunk *chunk)
{
	int r = mapping_of(pool)->unmap(arg_of(pool), chunk->addr, chunk->size);

	chunk->is_mapped = r != 0;
	return r;
}

static void release(struct gp_pool *pool, struct gp_chunk *chunk)
{
	mapping_of(pool)->release(arg_of(pool), chunk->handle, chunk->size);
	chunk->handle = GP_CHUNK_NO_HANDLE;
}

/* In a recording the chunk keeps the name that it has, whatever memory it gets. */
static void take_name(struct gp_pool *pool, const struct gp_chunk *chunk)
{
	const struct gp_backend *be = gp_pool_backend(pool);

	if (be->ops->recorder)
		chunk->saved->name = be->ops->recorder->name_take(be->arg, chunk->handle);
}

static void give_name(struct gp_pool *pool, const struct gp_chunk *chunk)
{
	const struct gp_backend *be = gp_pool_backend(pool);

	if (be->ops->recorder)
		be->ops->recorder->name_give(be->arg, chunk->handle, chunk->saved->name);
}

/* Gives back the memory of a chunk whose copies were the last before the mark in this slot. */
static int finish_out(struct gp_pool *pool, struct gp_chunk *chunk, int slot)
{
	int r = ops_of(pool)->copy_wait(arg_of(pool), slot);

	if (!r)
		r = unmap(pool, chunk);
	if (r)
		return r;
	take_name(pool, chunk);
	release(pool, chunk);
	set_asleep(pool, chunk, true);
	return 0;
}

/* Drops the content of spilled memory, which stays where it is: last of all, since it cannot be undone. */
static int zero_spilled(struct gp_pool *pool)
{
	struct gp_list *link;
	bool is_any = false;
	int r = 0;

	each_chunk(link, pool)
	{
		const struct gp_chunk *chunk = chunk_of(link);

		if (r || !chunk->is_spilled || !chunk->saved)
			continue;
		r = is_dead(pool) ? GP_E_DEAD : ops_of(pool)->zero(arg_of(pool), chunk->addr, chunk->size);
		is_any = true;
	}
	if (is_any && !r)
		r = ops_of(pool)->copy_mark(arg_of(pool), 0);
	return is_any && !r ? ops_of(pool)->copy_wait(arg_of(pool), 0) : r;
}

int gp_pool_sleep_move_out(struct gp_pool *pool, bool (*must_stop)(void *arg), void *arg)
{
	struct gp_chunk *before = NULL;
	struct gp_list *link;
	unsigned n = 0;
	int r = 0, last = 0;

	each_chunk(link, pool)
	{
		struct gp_chunk *chunk = chunk_of(link);

		if (chunk->is_asleep || chunk->is_spilled || !chunk->saved)
			continue;
		if (is_dead(pool))
			r = GP_E_DEAD;
		else if (must_stop && must_stop(arg))
			r = -ECANCELED;
		if (!r)
			r = start_copies(pool, chunk, true);
		if (!r)
			r = ops_of(pool)->copy_mark(arg_of(pool), (int)(n % SLOTS));
		if (r)
			break;
		if (before)
			r = finish_out(pool, before, (int)((n - 1) % SLOTS));
		before = chunk;
		n++;
		if (r)
			break;
	}
	if (before && !before->is_asleep && (!r || r == -ECANCELED))
		last = finish_out(pool, before, (int)((n - 1) % SLOTS));
	if (!r && !last)
		last = zero_spilled(pool);
	pool->cache.vm->saved.are_under_way = r || last;
	drain(pool);
	return r ? r : last;
}

/* Waits for copies in that nothing has waited for: their device memory is about to go back. */
static void drain_filling(struct gp_pool *pool)
{
	struct gp_list *link;
	bool is_any = false;

	each_chunk(link, pool)
	{
		struct gp_saved *saved = chunk_of(link)->saved;

		if (saved && saved->is_filling)
			is_any = true;
		if (saved)
			saved->is_filling = false;
	}
	if (is_any)
		ops_of(pool)->copy_drain(arg_of(pool));
}

void gp_pool_sleep_return_device(struct gp_pool *pool)
{
	struct gp_list *link;

	drain_filling(pool);
	each_chunk(link, pool)
	{
		struct gp_chunk *chunk = chunk_of(link);

		if (!chunk->is_asleep || chunk->handle == GP_CHUNK_NO_HANDLE)
			continue;
		/* A chunk that the driver does not unmap keeps its memory, and is unmapped before it is mapped. */
		if (!chunk->is_mapped || !unmap(pool, chunk)) {
			release(pool, chunk);
			note_taken(pool, chunk, false);
		}
	}
}

static int create(struct gp_pool *pool, struct gp_chunk *chunk)
{
	int r = is_dead(pool) ? GP_E_DEAD : mapping_of(pool)->create(arg_of(pool), chunk->size, &chunk->handle);

	if (!r)
		note_taken(pool, chunk, true);
	return r;
}

int gp_pool_sleep_take_device(struct gp_pool *pool)
{
	struct gp_list *link;
	int r = 0;

	each_chunk(link, pool)
	{
		struct gp_chunk *chunk = chunk_of(link);

		if (!r && chunk->is_asleep && chunk->handle == GP_CHUNK_NO_HANDLE)
			r = create(pool, chunk);
	}
	if (r)
		gp_pool_sleep_return_device(pool);
	return r;
}

static int map(struct gp_pool *pool, struct gp_chunk *chunk)
{
	bool is_stuck = false;
	int r = chunk->is_mapped ? unmap(pool, chunk) : 0;

	if (!r)
		r = mapping_of(pool)->map(arg_of(pool), chunk->addr, chunk->size, chunk->handle, &is_stuck);
	chunk->is_mapped = chunk->is_mapped || !r || is_stuck;
	return r;
}

/* Starts to give a chunk that is mapped its content. */
static int start_fill(struct gp_pool *pool, const struct gp_chunk *chunk)
{
	chunk->saved->is_filling = true;
	if (chunk->saved->is_dropped)
		return ops_of(pool)->zero(arg_of(pool), chunk->addr, chunk->size);
	return start_copies(pool, chunk, false);
}

int gp_pool_sleep_take_some(struct gp_pool *pool, uint64_t most, uint64_t *ret_taken, bool *ret_is_all)
{
	struct gp_list *link;
	uint64_t taken = 0;
	int r = 0;

	*ret_is_all = false;
	each_chunk(link, pool)
	{
		struct gp_chunk *chunk = chunk_of(link);

		if (!chunk->is_asleep || chunk->saved->is_filling)
			continue;
		if (chunk->handle == GP_CHUNK_NO_HANDLE)
			r = chunk->size <= most - taken ? create(pool, chunk) : -ENOMEM;
		if (!r)
			r = map(pool, chunk);
		if (!r)
			r = start_fill(pool, chunk);
		if (r)
			break;
		taken += chunk->size;
	}
	*ret_taken += taken;
	*ret_is_all = !r;
	return r == -ENOMEM ? 0 : r;
}

static int map_and_copy(struct gp_pool *pool)
{
	struct gp_list *link;
	int r = 0;

	each_chunk(link, pool) if (!r && chunk_of(link)->is_asleep && !chunk_of(link)->saved->is_filling) r =
		is_dead(pool) ? GP_E_DEAD : map(pool, chunk_of(link));
	each_chunk(link, pool) if (!r && chunk_of(link)->is_asleep && !chunk_of(link)->saved->is_filling) r =
		start_fill(pool, chunk_of(link));
	if (!r)
		r = ops_of(pool)->copy_mark(arg_of(pool), 0);
	if (!r)
		r = ops_of(pool)->copy_wait(arg_of(pool), 0);
	if (r)
		drain_filling(pool);
	return r;
}

int gp_pool_sleep_move_in(struct gp_pool *pool)
{
	struct gp_list *link;
	int r = pool->cache.vm->asleep.device_bytes ? map_and_copy(pool) : 0;

	if (r)
		return r;
	each_chunk(link, pool)
	{
		if (!chunk_of(link)->is_asleep)
			continue;
		give_name(pool, chunk_of(link));
		set_asleep(pool, chunk_of(link), false);
	}
	return 0;
}

bool gp_pool_sleep_unpin(struct gp_pool *pool)
{
	return gp_saved_unpin(pool);
}

uint64_t gp_pool_sleep_address(struct gp_pool *pool)
{
	struct gp_list *link;

	each_chunk(link, pool)
	{
		const struct gp_chunk *chunk = chunk_of(link);

		if (chunk->is_mapped && !chunk->is_asleep && !chunk->is_spilled)
			return chunk->addr;
	}
	return 0;
}

bool gp_pool_sleep_ask(struct gp_pool *pool, uint64_t bytes, bool is_for_all)
{
	const struct gp_backend *be = gp_pool_mover(pool);

	if (is_for_all)
		(void)be->ops->trim_driver(be->arg);
	if (is_for_all && be->ops->ask_processes)
		(void)be->ops->ask_processes(be->arg, bytes);
	return be->ops->sleepers_ask && be->ops->sleepers_ask(be->arg, bytes);
}

struct gp_sleep_bytes gp_pool_asleep(struct gp_pool *pool)
{
	struct gp_sleep_bytes asleep = {0};

	gp_mutex_lock(&pool->lock);
	if (pool->options.kind == GP_KIND_VMM && pool->cache.vm && !is_dead(pool))
		asleep = pool->cache.vm->asleep;
	gp_mutex_unlock(&pool->lock);
	return asleep;
}
