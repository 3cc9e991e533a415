/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "retainer.h"

#include <stdlib.h>

#include "block.h"

/* Leaves the ring of joined retainers. */
static void leave_ring_locked(struct gp_retainer *retainer)
{
	struct gp_retainer *before = retainer;

	while (before->joined != retainer)
		before = before->joined;
	before->joined = retainer->joined;
	retainer->joined = retainer;
}

/* The driver drops owners without the lock, so retainers without owners are freed here, later. */
static void free_unused_locked(struct gp_retainers *all)
{
	struct gp_list *link, *tmp;

	gp_list_each_safe(link, tmp, &all->all) {
		struct gp_retainer *retainer = gp_container_of(link, struct gp_retainer, link);

		if (retainer->n_refs || atomic_load(&retainer->n_owners))
			continue;
		leave_ring_locked(retainer);
		gp_list_remove(link);
		free(retainer);
	}
}

struct gp_retainer *gp_retainer_new(struct gp_retainers *all)
{
	struct gp_retainer *retainer = calloc(1, sizeof(*retainer));

	if (!retainer)
		return NULL;
	retainer->all = all;
	retainer->joined = retainer;
	retainer->n_refs = 1;
	gp_mutex_lock(&all->lock);
	free_unused_locked(all);
	gp_list_append(&all->all, &retainer->link);
	gp_mutex_unlock(&all->lock);
	return retainer;
}

struct gp_retainer *gp_retainer_get(struct gp_retainer *retainer)
{
	gp_mutex_lock(&retainer->all->lock);
	retainer->n_refs++;
	gp_mutex_unlock(&retainer->all->lock);
	return retainer;
}

void gp_retainer_put(struct gp_retainer *retainer)
{
	struct gp_retainers *all;

	if (!retainer)
		return;
	all = retainer->all;
	gp_mutex_lock(&all->lock);
	retainer->n_refs--;
	gp_mutex_unlock(&all->lock);
}

void gp_retainer_add_owner(struct gp_retainer *retainer)
{
	atomic_fetch_add(&retainer->n_owners, 1);
}

void gp_retainer_drop_owner(struct gp_retainer *retainer)
{
	/* The retainer may be freed as soon as it has no owner. */
	struct gp_retainers *all = retainer->all;

	if (atomic_fetch_sub(&retainer->n_owners, 1) == 1)
		atomic_fetch_add(&all->n_ended, 1);
}

static bool is_owned_locked(const struct gp_retainer *retainer)
{
	const struct gp_retainer *r = retainer;

	do {
		if (atomic_load(&r->n_owners))
			return true;
		r = r->joined;
	} while (r != retainer);
	return false;
}

bool gp_retainer_is_owned(struct gp_retainer *retainer)
{
	bool is_owned;

	gp_mutex_lock(&retainer->all->lock);
	is_owned = is_owned_locked(retainer);
	gp_mutex_unlock(&retainer->all->lock);
	return is_owned;
}

bool gp_retainer_is_unused(struct gp_retainer *retainer)
{
	bool is_unused;

	gp_mutex_lock(&retainer->all->lock);
	is_unused = retainer->n_refs == 1 && retainer->joined == retainer;
	gp_mutex_unlock(&retainer->all->lock);
	return is_unused;
}

static bool are_joined_locked(const struct gp_retainer *a, const struct gp_retainer *b)
{
	const struct gp_retainer *r = a;

	do {
		if (r == b)
			return true;
		r = r->joined;
	} while (r != a);
	return false;
}

/* Two rings become one if a member of each takes over the other's successor. */
void gp_retainer_join(struct gp_retainer *a, struct gp_retainer *b)
{
	gp_mutex_lock(&a->all->lock);
	if (!are_joined_locked(a, b)) {
		struct gp_retainer *next = a->joined;

		a->joined = b->joined;
		b->joined = next;
	}
	gp_mutex_unlock(&a->all->lock);
}

void gp_retainer_note_hand_out_locked(struct gp_block *block, const struct gp_capture_alloc *capture)
{
	struct gp_retainer *before = block->flags & GP_BLOCK_CAPTURED ? block->captured.retainer : NULL;

	block->captured.retainer = gp_retainer_get(capture->retainer);
	block->captured.n_elsewhere = capture->n_elsewhere;
	block->captured.n_captured = capture->n_captured;
	block->flags |= GP_BLOCK_CAPTURED;
	gp_retainer_put(before);
}

void gp_retainer_forget_locked(struct gp_block *block)
{
	if (!(block->flags & GP_BLOCK_CAPTURED))
		return;
	gp_retainer_put(block->captured.retainer);
	block->captured.retainer = NULL;
	if (gp_block_state(block) == GP_BLOCK_RETAINED) {
		gp_retainer_put(block->captured.second);
		block->captured.second = NULL;
	}
	block->flags &= (uint8_t) ~(GP_BLOCK_CAPTURED | GP_BLOCK_REUSABLE);
}
