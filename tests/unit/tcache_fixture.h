/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* A thread cache over the fixture's pool, for a suite in a single file. */

#include <check.h>
#include <errno.h>

#include "pool/tcache_impl.h"
#include "pool_fixture.h"

enum { DEPTH = 32, ROUNDS = 40 * DEPTH };

#define SMALL (64 * GP_KIB)

static struct gp_tcache *own_cache;

static uint64_t take(uint64_t bytes)
{
	const char *breach;
	uint64_t addr = 0;

	ck_assert_int_eq(gp_tcache_alloc(own_cache, bytes, 0, &addr), 0);
	fixture_check();
	breach = fake_check_hand_out(&px.fake, addr, bytes, true);
	ck_assert_msg(!breach, "%s", breach);
	return addr;
}

/*
 * Frees as the program does: into the cache, or into the pool if the cache refuses. True if the cache kept
 * the block.
 */
static bool put(uint64_t addr)
{
	int r;

	fake_note_free(&px.fake, addr, fixture_info(addr).size, FAKE_FREED);
	r = gp_tcache_put(own_cache, addr);
	if (r == -ENOENT)
		ck_assert_int_eq(gp_pool_free(&px.map, addr, GP_FREE_NORMAL), 0);
	else
		ck_assert_int_eq(r, 0);
	fixture_check();
	return r == 0;
}

static void start_with(uint64_t cache_bytes)
{
	px.options.thread_cache_bytes = cache_bytes;
	own_cache = gp_tcache_new(fixture_pool());
	ck_assert_ptr_nonnull(own_cache);
}

static inline void start(void)
{
	start_with(16 * GP_MIB);
}

static void end(void)
{
	gp_tcache_free(own_cache);
}

static void clear_calls(void)
{
	for (enum fake_call call = 0; call < FAKE_N_CALLS; call++)
		(void)fake_calls(&px.fake, call);
}

/* Allocates and frees until every block of the bin has been in use. */
static inline void warm_up(uint64_t bytes)
{
	for (unsigned i = 0; i < ROUNDS; i++)
		put(take(bytes));
	clear_calls();
}
