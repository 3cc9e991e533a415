/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The pool polls the fences before it takes a cached block, if a block that has completed meanwhile may be a better
 * choice.
 */

#include <check.h>
#include <stdlib.h>

#include "pool_fixture.h"
#include "tests/suite.h"

/*
 * The pool polls before it cuts a block, and before it takes a part of a segment, which might merge with its
 * neighbours. With one stream it always polls, because it would call the driver more often otherwise.
 */
static const struct {
	uint64_t bytes;
	bool overlap, is_polled;
} choices[] = {
	{40 * GP_MIB, true, false},
	{50 * GP_MIB, true, true},
	{8 * GP_MIB, true, true},
	{40 * GP_MIB, false, true},
};

START_TEST(an_exact_cached_segment_is_reused_without_a_poll_only_if_streams_overlap)
{
	/*
	 * The first two blocks are segments of their own. The last two share a segment, in which the second
	 * stays in use.
	 */
	const uint64_t sizes[] = {40 * GP_MIB, 60 * GP_MIB, 8 * GP_MIB, 8 * GP_MIB};
	uint64_t addrs[4], other = fixture_alloc(80 * GP_MIB), n_queries;

	for (int i = 0; i < 4; i++)
		addrs[i] = fixture_alloc(sizes[i]);
	gp_pool_set_overlap(fixture_pool(), choices[_i].overlap);
	fixture_alloc(1);
	for (int i = 0; i < 3; i++)
		fixture_free(addrs[i]);
	fake_complete_all(&px.fake);
	fixture_alloc(1); /* polls, and so sees that they are complete */
	fixture_work();
	fixture_free(other);
	fake_calls(&px.fake, FAKE_QUERY);
	fixture_alloc(choices[_i].bytes);
	n_queries = fake_calls(&px.fake, FAKE_QUERY);
	ck_assert_int_eq(n_queries != 0, choices[_i].is_polled);
}
END_TEST

/* In a pool of about 235 MiB with 32 MiB free: which kinds poll the fences before they cut the free block. */
static const struct {
	uint64_t pending;
	bool overlap, split_polls, vmm_polls;
} thresholds[] = {
	{GP_MIB, false, false, false},
	{3 * GP_MIB, false, false, true},
	{3 * GP_MIB, true, false, false},
	{8 * GP_MIB, false, true, true},
	{8 * GP_MIB, true, true, true},
};

START_TEST(vmm_polls_for_less_pending_memory_than_split_unless_streams_overlap)
{
	bool polls = px.options.kind == GP_KIND_VMM ? thresholds[_i].vmm_polls : thresholds[_i].split_polls;
	uint64_t cached = fixture_alloc(32 * GP_MIB), pending = fixture_alloc(thresholds[_i].pending);

	fixture_alloc(200 * GP_MIB);
	gp_pool_set_overlap(fixture_pool(), thresholds[_i].overlap);
	fixture_free_as(cached, GP_FREE_SYNCED);
	fixture_work();
	fixture_free(pending);
	fake_complete_all(&px.fake);
	fake_calls(&px.fake, FAKE_QUERY);
	fixture_alloc(4 * GP_MIB + px.options.page_bytes); /* no whole granules, which are another case */
	ck_assert_int_eq(fake_calls(&px.fake, FAKE_QUERY) != 0, polls);
}
END_TEST

static TCase *case_of(enum gp_kind kind)
{
	TCase *tc = fixture_case(kind);

	/* Other kinds have no segments that can be cut, or no whole segments. */
	if (kind == GP_KIND_SPLIT)
		ADD_ROWS(tc, choices, an_exact_cached_segment_is_reused_without_a_poll_only_if_streams_overlap);
	ADD_ROWS(tc, thresholds, vmm_polls_for_less_pending_memory_than_split_unless_streams_overlap);
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("poll_before_reuse");

	suite_add_tcase(suite, case_of(GP_KIND_SPLIT));
	suite_add_tcase(suite, case_of(GP_KIND_VMM));
	return suite_run(suite);
}
