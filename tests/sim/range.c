/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "range.h"

#include <stddef.h>

static uint32_t next_priority(void)
{
	static uint32_t state = 0x9e3779b9;

	state ^= state << 13;
	state ^= state >> 17;
	state ^= state << 5;
	return state;
}

/* Splits a tree into the ranges below addr and those at or above it. */
static void split(struct sim_range *root, uint64_t addr, struct sim_range **below, struct sim_range **above)
{
	while (root) {
		if (root->lo < addr) {
			*below = root;
			below = &root->right;
			root = root->right;
		} else {
			*above = root;
			above = &root->left;
			root = root->left;
		}
	}
	*below = NULL;
	*above = NULL;
}

void sim_range_insert(struct sim_range **root, struct sim_range *range)
{
	range->priority = next_priority();
	while (*root && (*root)->priority >= range->priority)
		root = range->lo < (*root)->lo ? &(*root)->left : &(*root)->right;
	split(*root, range->lo, &range->left, &range->right);
	*root = range;
}

void sim_range_remove(struct sim_range **root, struct sim_range *range)
{
	struct sim_range *left = range->left, *right = range->right;

	while (*root != range)
		root = range->lo < (*root)->lo ? &(*root)->left : &(*root)->right;
	while (left && right) {
		if (left->priority >= right->priority) {
			*root = left;
			root = &left->right;
			left = left->right;
		} else {
			*root = right;
			root = &right->left;
			right = right->left;
		}
	}
	*root = left ? left : right;
}

struct sim_range *sim_range_after(struct sim_range *root, uint64_t addr)
{
	struct sim_range *found = NULL;

	while (root) {
		if (root->hi > addr) {
			found = root;
			root = root->left;
		} else {
			root = root->right;
		}
	}
	return found;
}

struct sim_range *sim_range_at(struct sim_range *root, uint64_t addr)
{
	struct sim_range *range = sim_range_after(root, addr);

	return range && range->lo <= addr ? range : NULL;
}
