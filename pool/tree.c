/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A treap: a binary search tree by (key, tie) that is also a heap by a pseudo-random priority. The priority is a hash
 * of the node's own address, so a node has no field for it, and the code needs no random generator. A treap is simpler
 * than a red-black tree: insertion is a split, removal is a merge, and neither distinguishes cases.
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
 * Nodes with equal (key, tie) are ordered by their own addresses. Two nodes have equal pairs only if a program freed
 * memory of a pool through the driver, and the driver has handed the address out again. That must not break the tree.
 */
static bool less(const struct gp_tree_node *a, const struct gp_tree_node *b)
{
	if (a->key != b->key)
		return a->key < b->key;
	return a->tie < b->tie || (a->tie == b->tie && (uintptr_t)a < (uintptr_t)b);
}

void gp_tree_insert(struct gp_tree *tree, struct gp_tree_node *node)
{
	struct gp_tree_node **link = &tree->root, **left = &node->left, **right = &node->right, *rest;
	uint64_t node_priority = priority(node);

	while (*link && priority(*link) >= node_priority)
		link = less(*link, node) ? &(*link)->right : &(*link)->left;
	rest = *link;
	*link = node;
	/* Split the subtree that was here into the nodes less than the new node and those greater. */
	while (rest) {
		if (less(rest, node)) {
			*left = rest;
			left = &rest->right;
			rest = rest->right;
		} else {
			*right = rest;
			right = &rest->left;
			rest = rest->left;
		}
	}
	*left = *right = NULL;
}

void gp_tree_remove(struct gp_tree *tree, struct gp_tree_node *node)
{
	struct gp_tree_node **link = &tree->root, *left = node->left, *right = node->right;

	while (*link != node)
		link = less(*link, node) ? &(*link)->right : &(*link)->left;
	/* Merge the two subtrees in place of the node. */
	while (left && right) {
		if (priority(left) >= priority(right)) {
			*link = left;
			link = &left->right;
			left = left->right;
		} else {
			*link = right;
			link = &right->left;
			right = right->left;
		}
	}
	*link = left ? left : right;
}

struct gp_tree_node *gp_tree_at_least(const struct gp_tree *tree, uint64_t key)
{
	struct gp_tree_node *found = NULL, *current = tree->root;

	while (current) {
		if (current->key >= key) {
			found = current;
			current = current->left;
		} else {
			current = current->right;
		}
	}
	return found;
}

struct gp_tree_node *gp_tree_at_most(const struct gp_tree *tree, uint64_t key)
{
	struct gp_tree_node *found = NULL, *current = tree->root;

	while (current) {
		if (current->key <= key) {
			found = current;
			current = current->right;
		} else {
			current = current->left;
		}
	}
	return found;
}

struct gp_tree_node *gp_tree_before(const struct gp_tree *tree, const struct gp_tree_node *node)
{
	struct gp_tree_node *found = NULL, *current = tree->root;

	while (current) {
		if (less(current, node)) {
			found = current;
			current = current->right;
		} else {
			current = current->left;
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
