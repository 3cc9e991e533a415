/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "pool/pool.h"
#include "pool_fixture.h"

struct pool_fixture px;

void fixture_setup_large(enum gp_kind kind, uint64_t capacity)
{
	fake_init(&px.fake, capacity);
	gp_addrmap_init(&px.map);
	gp_budget_init(&px.budget, GP_NO_LIMIT);
	px.pool = NULL;
	px.options = (struct gp_pool_options){
		.kind = kind,
		.backend = fake_backend(&px.fake),
		.map = &px.map,
		.budget = &px.budget,
		.capacity_bytes = capacity,
		.granule = 2 * GP_MIB,
		.page_bytes = FIXTURE_PAGE,
		.pending_bytes_max = UINT64_MAX,
		.pending_count_max = UINT64_MAX,
	};
}

void fixture_setup(enum gp_kind kind)
{
	fixture_setup_large(kind, FIXTURE_CAPACITY);
}

void fixture_teardown(void)
{
	const char *breach = NULL;

	if (px.pool) {
		fixture_check();
		gp_pool_drop(px.pool);
		px.fake.has_ended = true;
		gp_pool_unmap(px.pool);
		breach = fake_check_unmapped(&px.fake);
		gp_pool_put(px.pool);
	}
	ck_assert_msg(!breach, "%s", breach);
	ck_assert_uint_eq(atomic_load(&px.budget.charged_bytes), 0);
	gp_addrmap_deinit(&px.map);
	fake_deinit(&px.fake);
}

struct gp_pool *fixture_pool(void)
{
	if (!px.pool)
		ck_assert_int_eq(gp_pool_new(&px.options, &px.pool), 0);
	return px.pool;
}

void fixture_check(void)
{
	const char *broken = gp_pool_check(fixture_pool()), *breach = atomic_load(&px.fake.breach);

	ck_assert_msg(!broken, "%s", broken);
	ck_assert_msg(!breach, "%s", breach);
}

struct gp_stats fixture_stats(void)
{
	struct gp_stats stats;

	gp_pool_stats(fixture_pool(), &stats);
	return stats;
}

int fixture_try(uint64_t bytes, uint64_t *ret_addr)
{
	int r = gp_pool_alloc(fixture_pool(), bytes, 0, ret_addr);

	fixture_check();
	if (r == 0) {
		const char *breach = fake_check_hand_out(&px.fake, *ret_addr, bytes, !px.options.completion_only);

		ck_assert_msg(!breach, "%s", breach);
		ck_assert_uint_eq(*ret_addr % GP_ALIGN, 0);
	}
	return r;
}

uint64_t fixture_alloc(uint64_t bytes)
{
	uint64_t addr = 0;

	ck_assert_int_eq(fixture_try(bytes, &addr), 0);
	return addr;
}

uint64_t fixture_alloc_on(uint64_t bytes, unsigned stream)
{
	const char *breach;
	uint64_t addr = 0;

	ck_assert_int_eq(
		gp_pool_alloc_with(fixture_pool(), bytes, &(struct gp_alloc_options){.stream = stream}, &addr), 0);
	fixture_check();
	breach = fake_check_hand_out_on(&px.fake, addr, bytes, !px.options.completion_only, stream);
	ck_assert_msg(!breach, "%s", breach);
	ck_assert_uint_eq(addr % GP_ALIGN, 0);
	return addr;
}

void fixture_free_on(uint64_t addr, unsigned stream)
{
	fake_note_free_on(&px.fake, addr, fixture_info(addr).rounded, stream);
	ck_assert_int_eq(gp_pool_free_on(&px.map, addr, stream), 0);
	fixture_check();
}

void fixture_free_as(uint64_t addr, enum gp_free_mode mode)
{
	static const enum fake_use uses[] = {
		[GP_FREE_NORMAL] = FAKE_FREED,
		[GP_FREE_UNFENCED] = FAKE_FREED_UNFENCED,
		[GP_FREE_SYNCED] = FAKE_FREED_SYNCED,
	};

	fake_note_free(&px.fake, addr, fixture_info(addr).size, uses[mode]);
	ck_assert_int_eq(gp_pool_free(&px.map, addr, mode), 0);
	fixture_check();
}

void fixture_free(uint64_t addr)
{
	fixture_free_as(addr, GP_FREE_NORMAL);
}

void fixture_note_export(uint64_t addr)
{
	struct gp_block_info info = fixture_info(addr);

	if (info.is_mapped)
		fake_note_export(&px.fake, info.addr, info.rounded);
	else
		fake_note_export(&px.fake, info.segment_base, info.segment_size);
}

void fixture_work(void)
{
	fake_submit(&px.fake, 1);
}

struct gp_block_info fixture_info(uint64_t addr)
{
	struct gp_block_info info = {0};

	ck_assert_int_eq(gp_pool_info(&px.map, addr, &info), 0);
	return info;
}

static void setup_none(void)
{
	fixture_setup(GP_KIND_NONE);
}

static void setup_simple(void)
{
	fixture_setup(GP_KIND_SIMPLE);
}

static void setup_binned(void)
{
	fixture_setup(GP_KIND_BINNED);
}

static void setup_split(void)
{
	fixture_setup(GP_KIND_SPLIT);
}

static void setup_vmm(void)
{
	fixture_setup(GP_KIND_VMM);
}

static void (*const setups[GP_N_KINDS])(void) = {
	[GP_KIND_NONE] = setup_none,
	[GP_KIND_SIMPLE] = setup_simple,
	[GP_KIND_BINNED] = setup_binned,
	[GP_KIND_SPLIT] = setup_split,
	[GP_KIND_VMM] = setup_vmm,
};

TCase *fixture_case(enum gp_kind kind)
{
	TCase *tc = tcase_create(gp_kind_name(kind));

	tcase_add_checked_fixture(tc, setups[kind], fixture_teardown);
	return tc;
}
