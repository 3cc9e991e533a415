/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * One pool over the fake backend. Whatever a test does, the pool's invariants are proved after each
 * of these calls.
 */

#include <check.h>

#include "fake_backend.h"
#include "pool/pool.h"

#define FIXTURE_CAPACITY (256 * GP_MIB)
#define FIXTURE_PAGE	 (4 * GP_KIB)

struct pool_fixture {
	struct fake fake;
	struct gp_addrmap map;
	struct gp_budget budget;
	struct gp_pool_options options;
	struct gp_pool *pool;
};

extern struct pool_fixture px;

/* A fake GPU of FIXTURE_CAPACITY and options without limits; the pool is made when first needed. */
void fixture_setup(enum gp_kind kind);

/* Likewise, of so many bytes: beyond 1 GiB without a history of who touched them. */
void fixture_setup_large(enum gp_kind kind, uint64_t capacity);

/* A test case of that name whose tests begin with the one and end with the other. */
TCase *fixture_case(enum gp_kind kind);

/* Fails the test if anything is broken, or anybody was made to wait in vain. */
void fixture_teardown(void);

/* The pool, made with px.options. */
struct gp_pool *fixture_pool(void);
void fixture_check(void);
struct gp_stats fixture_stats(void);

/* What gp_pool_alloc says; what it hands out is held against the fake's history. */
int fixture_try(uint64_t bytes, uint64_t *ret_addr);

/* The same, where it must succeed. */
uint64_t fixture_alloc(uint64_t bytes);

/* Frees a block that all work submitted so far may touch; the free must succeed. */
void fixture_free(uint64_t addr);
void fixture_free_as(uint64_t addr, enum gp_free_mode mode);

/* Somebody outside may hold what is exported with the block at that address. */
void fixture_note_export(uint64_t addr);

/* Submits work that uses what the program holds; it does not complete by itself. */
void fixture_work(void);

struct gp_block_info fixture_info(uint64_t addr);
