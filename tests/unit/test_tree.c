/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <check.h>
#include <stdlib.h>

#include "pool/tree.h"
#include "tests/suite.h"

enum { N = 200, STEPS = 4000 };

static struct gp_tree_node nodes[N];
static bool is_in[N];

static uint64_t random_state = 1;

static uint64_t below(uint64_t n)
{
	random_state = random_state * UINT64_C(6364136223846793005) + 1;
	return (random_state >> 33) % n;
}

static bool is_before(const struct gp_tree_node *a, const struct gp_tree_node *b)
{
	return a->key < b->key || (a->key == b->key && a->tie < b->tie);
}

/* Returns the node that the tree should find, from a scan of all nodes. */
static struct gp_tree_node *find(uint64_t key, bool at_least)
{
	struct gp_tree_node *best = NULL;

	for (int i = 0; i < N; i++) {
		struct gp_tree_node *node = &nodes[i];

		if (!is_in[i] || (at_least ? node->key < key : node->key > key))
			continue;
		if (!best || is_before(node, best) == at_least)
			best = node;
	}
	return best;
}

static uint64_t count(void)
{
	uint64_t n = 0;

	for (int i = 0; i < N; i++)
		n += is_in[i];
	return n;
}

START_TEST(an_empty_tree_finds_nothing)
{
	struct gp_tree tree = {0};

	ck_assert_ptr_null(gp_tree_at_least(&tree, 0));
	ck_assert_ptr_null(gp_tree_at_most(&tree, UINT64_MAX));
	ck_assert_uint_eq(gp_tree_count(&tree), 0);
}
END_TEST

START_TEST(among_nodes_with_equal_keys_the_lowest_tie_is_the_least_node)
{
	struct gp_tree tree = {0};
	struct gp_tree_node a = {.key = 5, .tie = 2}, b = {.key = 5, .tie = 1}, c = {.key = 5, .tie = 3};

	gp_tree_insert(&tree, &a);
	gp_tree_insert(&tree, &b);
	gp_tree_insert(&tree, &c);
	ck_assert_ptr_eq(gp_tree_at_least(&tree, 5), &b);
	ck_assert_ptr_eq(gp_tree_at_most(&tree, 5), &c);
	ck_assert_ptr_eq(gp_tree_at_least(&tree, 4), &b);
	ck_assert_ptr_null(gp_tree_at_least(&tree, 6));
	ck_assert_ptr_null(gp_tree_at_most(&tree, 4));
}
END_TEST

START_TEST(tree_nodes_with_equal_key_and_tie_are_removed_one_by_one)
{
	struct gp_tree tree = {0};
	struct gp_tree_node twins[20];

	for (int i = 0; i < 20; i++) {
		twins[i].key = 7;
		twins[i].tie = (uint64_t)i / 10;
		gp_tree_insert(&tree, &twins[i]);
	}
	for (int i = 0; i < 20; i++) {
		gp_tree_remove(&tree, &twins[i * 7 % 20]);
		ck_assert_uint_eq(gp_tree_count(&tree), 19 - i);
	}
}
END_TEST

/* Numbers of different keys, from all equal to all different. */
static const uint64_t key_counts[] = {1, 3, 50, 1000000};

START_TEST(a_tree_finds_the_same_nodes_as_a_scan_of_all_nodes)
{
	struct gp_tree tree = {0};

	for (int i = 0; i < N; i++)
		is_in[i] = false;
	for (int step = 0; step < STEPS; step++) {
		uint64_t i = below(N), key = below(key_counts[_i] + 2);

		if (is_in[i]) {
			gp_tree_remove(&tree, &nodes[i]);
		} else {
			nodes[i].key = below(key_counts[_i]) + 1;
			nodes[i].tie = i;
			gp_tree_insert(&tree, &nodes[i]);
		}
		is_in[i] = !is_in[i];
		ck_assert_ptr_eq(gp_tree_at_least(&tree, key), find(key, true));
		ck_assert_ptr_eq(gp_tree_at_most(&tree, key), find(key, false));
		ck_assert_uint_eq(gp_tree_count(&tree), count());
	}
}
END_TEST

static unsigned depth(const struct gp_tree_node *node)
{
	unsigned left, right;

	if (!node)
		return 0;
	left = depth(node->left);
	right = depth(node->right);
	return 1 + (left > right ? left : right);
}

START_TEST(nodes_inserted_in_order_do_not_make_a_deep_tree)
{
	static struct gp_tree_node many[10000];
	struct gp_tree tree = {0};

	for (uint64_t i = 0; i < 10000; i++) {
		many[i].key = i;
		gp_tree_insert(&tree, &many[i]);
	}
	/* Random trees of this size are about 30 deep. A depth of 60 is very unlikely. */
	ck_assert_uint_lt(depth(tree.root), 60);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tree");
	TCase *tc = tcase_create("tree");

	suite_add_tcase(suite, tc);
	tcase_add_test(tc, an_empty_tree_finds_nothing);
	tcase_add_test(tc, among_nodes_with_equal_keys_the_lowest_tie_is_the_least_node);
	tcase_add_test(tc, tree_nodes_with_equal_key_and_tie_are_removed_one_by_one);
	tcase_add_loop_test(
		tc, a_tree_finds_the_same_nodes_as_a_scan_of_all_nodes, 0, sizeof(key_counts) / sizeof(*key_counts));
	tcase_add_test(tc, nodes_inserted_in_order_do_not_make_a_deep_tree);
	return suite_run(suite);
}
