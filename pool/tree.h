/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Ordered set of intrusive nodes by (key, tie), for best fit and for address lookup. Nodes with the same pair are kept
 * apart. All operations are O(log n) expected; none allocates.
 */

#include "base.h"

struct gp_tree_node {
	struct gp_tree_node *left, *right;
	uint64_t key, tie;
};

struct gp_tree {
	struct gp_tree_node *root;
};

void gp_tree_insert(struct gp_tree *tree, struct gp_tree_node *node);
void gp_tree_remove(struct gp_tree *tree, struct gp_tree_node *node);

/* The smallest node with key >= the given one, or NULL. */
struct gp_tree_node *gp_tree_at_least(const struct gp_tree *tree, uint64_t key);

/* The largest node with key <= the given one, or NULL. */
struct gp_tree_node *gp_tree_at_most(const struct gp_tree *tree, uint64_t key);

/* The largest node that is less than this one, which is in the tree; or NULL. */
struct gp_tree_node *gp_tree_before(const struct gp_tree *tree, const struct gp_tree_node *node);

/* The number of nodes, counted one by one. */
uint64_t gp_tree_count(const struct gp_tree *tree);
