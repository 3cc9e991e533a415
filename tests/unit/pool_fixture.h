/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* One pool over the fake backend. Each of these calls ends with a check of the pool's invariants. */

#include <check.h>

#include "fake_backend.h"
#include "pool/pool.h"

#define FIXTURE_CAPACITY (256 * GP_MIB)
#define FIXTURE_PAGE     (4 * GP_KIB)

struct pool_fixture {
	struct fake fake;
	struct gp_addrmap map;
	struct gp_budget budget;
	struct gp_pool_options options;
	struct gp_pool *pool;
};

extern struct pool_fixture px;

/* Sets up a fake GPU of FIXTURE_CAPACITY and options without limits. The pool is made when first needed. */
void fixture_setup(enum gp_kind kind);

/* Like fixture_setup, with another capacity. Beyond 1 GiB the fake keeps no history of uses. */
void fixture_setup_large(enum gp_kind kind, uint64_t capacity);

/* Returns a test case named after the kind; its tests run between fixture_setup and fixture_teardown. */
TCase *fixture_case(enum gp_kind kind);

/* Fails the test if an invariant is broken or the fake has seen a breach. */
void fixture_teardown(void);

/* Returns the pool, which the first call makes with px.options. */
struct gp_pool *fixture_pool(void);
void fixture_check(void);
struct gp_stats fixture_stats(void);

/* Returns what gp_pool_alloc returns, and checks a new block against the fake's history. */
int fixture_try(uint64_t bytes, uint64_t *ret_addr);

/* Like fixture_try, but the allocation must succeed. */
uint64_t fixture_alloc(uint64_t bytes);

/* Allocate and free in stream order; both must succeed. */
uint64_t fixture_alloc_on(uint64_t bytes, unsigned stream);
void fixture_free_on(uint64_t addr, unsigned stream);

/* Frees a block that all work submitted so far may touch; the free must succeed. */
void fixture_free(uint64_t addr);
void fixture_free_as(uint64_t addr, enum gp_free_mode mode);

/* Exports the block, so that another process may hold its memory from now on. */
void fixture_note_export(uint64_t addr);

/* Submits work that uses the memory that the program holds. It does not complete by itself. */
void fixture_work(void);

struct gp_block_info fixture_info(uint64_t addr);
