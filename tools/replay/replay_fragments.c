/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "replay_fragments.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/answer/stat_stack.h"
#include "replay_call.h"
#include "replay_holders.h"

/* A recording may have many blocks; more than these are not grouped. */
enum { BLOCKS_MAX = 1 << 20 };

struct walk {
	const struct replay_state *run;
	struct replay_fragments *ret;
	struct replay_fragment *list; /* one for each block beside free memory */
	size_t n, size;
	/* Of the segment in which the walk is. */
	uint64_t segment, free_bytes, pending_free;
	size_t n_used;
	bool is_last_used; /* the block before is used, and is the last of the list */
};

static struct replay_fragment *add_block(struct walk *w, const struct gp_block_info *info)
{
	const struct replay_entry *origin = replay_map_find(&w->run->origins, info->addr);

	if (w->n == w->size) {
		w->size = w->size * 2 + 256;
		w->list = stat_alloc(realloc(w->list, w->size * sizeof(*w->list)));
	}
	w->list[w->n] = (struct replay_fragment){.stack = origin ? origin->stack : 0,
		.thread = origin ? (uint32_t)origin->addr : 0,
		.bytes = info->size,
		.all_bytes = info->size,
		.n_blocks = 1};
	return &w->list[w->n++];
}

/* Called for the blocks of a segment by address, or for those of an arena of the kind vmm. */
static bool look_at(void *arg, const struct gp_block_info *info)
{
	struct walk *w = arg;
	struct replay_fragment *block;

	if (info->segment_base != w->segment) {
		/* Free memory at the end of a segment is beside the block before it alone. */
		w->segment = info->segment_base;
		w->pending_free = 0;
		w->is_last_used = false;
	}
	if (!info->is_used) {
		w->ret->unused_bytes += info->rounded;
		w->ret->largest_unused_bytes = gp_max(w->ret->largest_unused_bytes, info->rounded);
		w->pending_free = info->rounded;
		if (w->is_last_used) {
			w->list[w->n - 1].beside_bytes += info->rounded / 2;
			w->ret->beside_bytes += info->rounded / 2;
		}
		w->is_last_used = false;
		return true;
	}
	w->ret->live_bytes += info->size;
	if (w->n >= BLOCKS_MAX)
		return true;
	block = add_block(w, info);
	block->beside_bytes = w->pending_free - w->pending_free / 2;
	w->ret->beside_bytes += block->beside_bytes;
	w->pending_free = 0;
	w->is_last_used = true;
	return true;
}

static int by_group(const void *a, const void *b)
{
	const struct replay_fragment *one = a, *other = b;

	if (one->stack != other->stack)
		return one->stack < other->stack ? -1 : 1;
	if (one->stack)
		return 0;
	if (one->thread != other->thread)
		return one->thread < other->thread ? -1 : 1;
	return (one->bytes > other->bytes) - (one->bytes < other->bytes);
}

static int by_bytes(const void *a, const void *b)
{
	const struct replay_fragment *one = a, *other = b;

	if (one->beside_bytes != other->beside_bytes)
		return one->beside_bytes > other->beside_bytes ? -1 : 1;
	return by_group(a, b);
}

static void group(struct walk *w)
{
	size_t n = 0;

	if (w->n)
		qsort(w->list, w->n, sizeof(*w->list), by_group);
	for (size_t i = 0; i < w->n; i++) {
		if (!w->list[i].beside_bytes)
			continue;
		if (n && by_group(&w->list[n - 1], &w->list[i]) == 0) {
			w->list[n - 1].beside_bytes += w->list[i].beside_bytes;
			w->list[n - 1].all_bytes += w->list[i].all_bytes;
			w->list[n - 1].n_blocks++;
		} else {
			w->list[n++] = w->list[i];
		}
	}
	if (n)
		qsort(w->list, n, sizeof(*w->list), by_bytes);
	w->ret->n_groups = n;
	w->ret->n = gp_min(n, (size_t)REPLAY_FRAGMENTS_MAX);
	if (w->ret->n)
		memcpy(w->ret->list, w->list, w->ret->n * sizeof(*w->list));
}

static void look(void *arg, const struct replay_state *run)
{
	struct walk *w = arg;

	w->run = run;
	for (uint32_t i = 0; i < run->n_pools; i++) {
		struct gp_stats stats;

		if (run->pools[i]->is_pinned)
			continue;
		gp_pool_stats(run->pools[i]->pool, &stats);
		w->ret->taken_bytes += stats.total_bytes;
		gp_pool_each_block(run->pools[i]->pool, look_at, w);
	}
	group(w);
}

int replay_fragments_find(struct replay_file *file, const struct replay_contents *contents,
	const struct replay_result *earlier, struct replay_progress *progress, struct replay_fragments *ret_fragments,
	char error[static REPLAY_ERROR_MAX])
{
	struct walk w = {.ret = ret_fragments};
	struct replay_look at_end = {look, &w};
	struct replay_settings settings = earlier->settings;
	struct replay_result unused;
	int r;

	*ret_fragments = (struct replay_fragments){0};
	settings.knows_origins = true;
	settings.end_position = earlier->peak_position;
	r = replay_run(file, contents, &settings, progress, &at_end, &unused, error);
	free(w.list);
	return r;
}

void replay_fragments_name(struct replay_fragment_sites *sites, const struct replay_fragments *f,
	const struct replay_file *file, const struct replay_contents *contents, bool is_full)
{
	static const struct replay_holders no_holders;
	struct stat_stacks *stacks;
	json_t *answer;

	*sites = (struct replay_fragment_sites){0};
	if (!replay_has_stacks(file))
		return;
	answer = replay_holders_answer(&no_holders, file, contents);
	stacks = stat_stacks_new(answer, 0, getuid());
	for (size_t i = 0; i < f->n; i++) {
		const struct replay_stack *stack = replay_stack_find(replay_stacks_of(file), f->list[i].stack);
		json_t *frames;

		if (!stack)
			continue;
		frames = replay_stack_frames(stack);
		sites->list[i] = is_full ? stat_stacks_full_text(stacks, frames) : stat_stacks_text(stacks, frames);
		json_decref(frames);
	}
	stat_stacks_free(stacks);
	json_decref(answer);
}

void replay_fragments_free_names(struct replay_fragment_sites *sites)
{
	for (size_t i = 0; i < REPLAY_FRAGMENTS_MAX; i++)
		free(sites->list[i]);
}
