/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A treap: a binary search tree by (key, tie) that is also a heap by a pseudo-random priority. The priority is a hash
 * of the node's own address, so nodes need no field for it and the code no random generator. A treap instead of a
 * red-black tree, because insertion and removal are a split and a merge, without case distinctions.
 */

#include "tree.h"

/*
 * The finaliser of SplitMix64 (Steele, Lea, Flood 2014) without its first and last shifts. An address has no high bits
 * to mix in, and a comparison rarely gets to the low bits of the result. An insertion computes this for each node that
 * it passes.
 */
static uint64_t priority(const struct gp_tree_node *node)
{
	uint64_t x = (uint64_t)(uintptr_t)node * UINT64_C(0xbf58476d1ce4e5b9);

	return (x ^ (x >> 32)) * UINT64_C(0x94d049bb133111eb);
}

/*
 * Nodes with equal pairs are ordered by their own addresses. There should be none. But if a program frees memory of a
 * pool through the driver, the driver hands that address out again, and this must not break the tree.
 */
static bool less(const struct gp_tree_node *a, const struct gp_tree_node *b)
{
	if (a->key != b->key)
		return a->key < b->key;
	return a->tie < b->tie || (a->tie == b->tie && (uintptr_t)a < (uintptr_t)b);
}

void gp_tree_insert(struct gp_tree *tree, struct gp_tree_node *node)
{
	struct gp_tree_node **at = &tree->root, **left = &node->left, **right = &node->right, *t;
	uint64_t p = priority(node);

	while (*at && priority(*at) >= p)
		at = less(*at, node) ? &(*at)->right : &(*at)->left;
	t = *at;
	*at = node;
	/* Split the subtree that was here into the nodes less than the new node and those greater. */
	while (t) {
		if (less(t, node)) {
			*left = t;
			left = &t->right;
			t = t->right;
		} else {
			*right = t;
			right = &t->left;
			t = t->left;
		}
	}
	*left = *right = NULL;
}

void gp_tree_remove(struct gp_tree *tree, struct gp_tree_node *node)
{
	struct gp_tree_node **at = &tree->root, *a = node->left, *b = node->right;

	while (*at != node)
		at = less(*at, node) ? &(*at)->right : &(*at)->left;
	/* Merge the two subtrees in place of the node. */
	while (a && b) {
		if (priority(a) >= priority(b)) {
			*at = a;
			at = &a->right;
			a = a->right;
		} else {
			*at = b;
			at = &b->left;
			b = b->left;
		}
	}
	*at = a ? a : b;
}

struct gp_tree_node *gp_tree_at_least(const struct gp_tree *tree, uint64_t key)
{
	struct gp_tree_node *found = NULL, *t = tree->root;

	while (t) {
		if (t->key >= key) {
			found = t;
			t = t->left;
		} else {
			t = t->right;
		}
	}
	return found;
}

struct gp_tree_node *gp_tree_at_most(const struct gp_tree *tree, uint64_t key)
{
	struct gp_tree_node *found = NULL, *t = tree->root;

	while (t) {
		if (t->key <= key) {
			found = t;
			t = t->right;
		} else {
			t = t->left;
		}
	}
	return found;
}

struct gp_tree_node *gp_tree_before(const struct gp_tree *tree, const struct gp_tree_node *node)
{
	struct gp_tree_node *found = NULL, *t = tree->root;

	while (t) {
		if (less(t, node)) {
			found = t;
			t = t->right;
		} else {
			t = t->left;
		}
	}
	return found;
}

static uint64_t count(const struct gp_tree_node *node)
{
	return node ? count(node->left) + 1 + count(node->right) : 0;
}

uint64_t gp_tree_count(const struct gp_tree *tree)
{
	return count(tree->root);
}
