/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * An ordered set of intrusive nodes by (key, tie), for best fit and for address lookup. Nodes with equal pairs are kept
 * apart. All operations take O(log n) expected time; none allocates.
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

/* Returns the smallest node with key >= the given key, or NULL. */
struct gp_tree_node *gp_tree_at_least(const struct gp_tree *tree, uint64_t key);

/* Returns the largest node with key <= the given key, or NULL. */
struct gp_tree_node *gp_tree_at_most(const struct gp_tree *tree, uint64_t key);

/* Returns the largest node that is less than the given node, which is in the tree; or NULL. */
struct gp_tree_node *gp_tree_before(const struct gp_tree *tree, const struct gp_tree_node *node);

/* Counts the nodes one by one. */
uint64_t gp_tree_count(const struct gp_tree *tree);
