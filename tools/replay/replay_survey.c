/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "replay_survey.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "replay_map.h"

struct survey {
	struct replay_contents *contents;
	struct replay_map live; /* blocks by address; bytes: rounded size */
	uint64_t live_bytes[2]; /* of device memory, of pinned memory */
	struct survey_pool {
		uint64_t live_bytes;
		bool is_pinned, is_dropped;
		uint64_t *fence_ns; /* by slot: the time of its last record; NULL before the first */
	} * pools;
};

static void add_pool(struct survey *s, const struct replay_event *e)
{
	struct replay_contents *c = s->contents;
	bool is_pinned = e->values[2] != 0;

	if (!is_pinned && !c->kind)
		c->kind = (enum gp_kind)gp_min(e->values[3], GP_KIND_VMM);
	s->pools = stat_alloc(realloc(s->pools, (c->n_pools + 1) * sizeof(*s->pools)));
	s->pools[c->n_pools++] = (struct survey_pool){.is_pinned = is_pinned};
}

static void remove_block(struct survey *s, struct replay_entry *block)
{
	struct survey_pool *pool = &s->pools[block->pool];

	if (!pool->is_dropped) {
		pool->live_bytes -= block->bytes;
		s->live_bytes[pool->is_pinned] -= block->bytes;
	}
	replay_map_remove(&s->live, block);
}

/* Adds a block. A block at the same address must have been freed without a record. */
static void add_block(struct survey *s, const struct replay_event *e)
{
	struct replay_entry block = {e->values[0], gp_round_up(e->values[1], GP_ALIGN), 0, e->pool};
	struct replay_entry *old = replay_map_find(&s->live, block.key);
	struct survey_pool *pool = &s->pools[e->pool];
	struct replay_contents *c = s->contents;

	if (e->values[2] || !block.key) {
		c->n_refused++;
		return;
	}
	c->n_allocs++;
	if (old)
		remove_block(s, old);
	replay_map_put(&s->live, block);
	pool->live_bytes += block.bytes;
	s->live_bytes[pool->is_pinned] += block.bytes;
	c->peak_live_bytes = gp_max(c->peak_live_bytes, s->live_bytes[false]);
	c->peak_live_pinned_bytes = gp_max(c->peak_live_pinned_bytes, s->live_bytes[true]);
}

static void free_block(struct survey *s, const struct replay_event *e)
{
	struct replay_entry *block = replay_map_find(&s->live, e->values[0]);

	if (block && s->pools[block->pool].is_pinned != (e->values[2] != 0))
		block = NULL;
	s->contents->n_frees += block != NULL;
	s->contents->n_foreign += !block;
	if (block)
		remove_block(s, block);
}

static void drop_pool(struct survey *s, struct survey_pool *pool)
{
	s->live_bytes[pool->is_pinned] -= pool->live_bytes;
	pool->live_bytes = 0;
	pool->is_dropped = true;
}

static void note_fence(struct survey_pool *pool, const struct replay_event *e)
{
	if (e->values[1])
		return;
	if (!pool->fence_ns)
		pool->fence_ns = stat_alloc(calloc(GP_FENCE_SLOTS, sizeof(*pool->fence_ns)));
	pool->fence_ns[e->values[0] % GP_FENCE_SLOTS] = e->ns;
}

/* Fences of pinned memory may also cover work for which a free does not wait, so they do not count. */
static void note_query(struct survey *s, const struct survey_pool *pool, const struct replay_event *e)
{
	if (!pool->fence_ns || pool->is_pinned || (int64_t)e->values[1] != -EAGAIN)
		return;
	s->contents->lag_ns = gp_max(s->contents->lag_ns, e->ns - pool->fence_ns[e->values[0] % GP_FENCE_SLOTS]);
}

static void count_event(struct survey *s, const struct replay_event *e)
{
	struct replay_contents *c = s->contents;

	c->n_events++;
	c->duration_ns = e->ns;
	c->n_threads = (uint32_t)gp_max(c->n_threads, (uint64_t)e->thread + 1);
	switch (e->kind) {
	case GP_RECORD_PROCESS:
		c->pid = e->values[0];
		c->start_s = e->values[1];
		break;
	case GP_RECORD_POOL:
		add_pool(s, e);
		break;
	case GP_RECORD_ALLOC:
		add_block(s, e);
		break;
	case GP_RECORD_FREE:
		free_block(s, e);
		break;
	case GP_RECORD_FENCE:
		note_fence(&s->pools[e->pool], e);
		break;
	case GP_RECORD_QUERY:
		note_query(s, &s->pools[e->pool], e);
		break;
	case GP_RECORD_DROP:
		drop_pool(s, &s->pools[e->pool]);
		break;
	case GP_RECORD_EXPORT:
		c->n_exports++;
		break;
	case GP_RECORD_EXIT:
		c->is_exit = true;
		break;
	default:
		break;
	}
}

int replay_survey(struct replay_file *file, struct replay_contents *contents, char error[static REPLAY_ERROR_MAX])
{
	struct survey s = {.contents = contents};
	struct replay_event event;
	bool is_refused = false;
	const char *command;
	int r;

	*contents = (struct replay_contents){.is_text = replay_is_text(file)};
	replay_rewind(file);
	while ((r = replay_next(file, &event, error)) > 0) {
		count_event(&s, &event);
		if (s.live.n <= REPLAY_BLOCKS_MAX)
			continue;
		r = replay_refuse(file, REPLAY_MORE_THAN(REPLAY_BLOCKS_MAX) "blocks at a time", error);
		is_refused = true;
		break;
	}
	contents->is_cut = replay_is_cut(file);
	command = replay_command_of(file, &contents->command_length);
	memcpy(contents->command, command, contents->command_length);
	if (r < 0 && !is_refused && !contents->is_text && contents->n_allocs) {
		replay_end_here(file);
		strcpy(contents->damage, error);
		r = 0;
	}
	replay_map_deinit(&s.live);
	for (uint32_t i = 0; i < contents->n_pools; i++)
		free(s.pools[i].fence_ns);
	free(s.pools);
	return r;
}

enum stat_exit replay_survey_end(const char *name, const struct replay_contents *contents)
{
	if (!*contents->damage)
		return STAT_OK;
	stat_error("the rest is lost; record the program again if you need it.",
		"%s: %s; the part before that was read.", name, contents->damage);
	return STAT_FAILED;
}
