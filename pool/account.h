/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * An account counts memory that the program holds in stream order for one purpose: as memory of one of the driver's
 * pools, which the program has made. A request may name an account; its block counts for it until the program frees the
 * block. An account has no memory of its own: whatever a pool has serves any request.
 */

#include <stdatomic.h>
#include <stdint.h>

/* Accounts have the numbers 1 to GP_ACCOUNTS. */
enum { GP_ACCOUNT_NONE = 0, GP_ACCOUNTS = 15 };

struct gp_account {
	_Atomic uint64_t used_bytes, high_bytes; /* now, and at most since the mark was last restarted */
};

/* Shared by the pools of a device. All 0 at first. */
struct gp_accounts {
	struct gp_account of[GP_ACCOUNTS];
};

static inline struct gp_account *gp_account(struct gp_accounts *accounts, unsigned number)
{
	return &accounts->of[number - 1];
}

static inline void gp_account_raise_high(struct gp_account *account, uint64_t used)
{
	uint64_t high = atomic_load(&account->high_bytes);

	while (high < used && !atomic_compare_exchange_weak(&account->high_bytes, &high, used))
		;
}

static inline void gp_account_charge(struct gp_account *account, uint64_t bytes)
{
	gp_account_raise_high(account, atomic_fetch_add(&account->used_bytes, bytes) + bytes);
}

static inline void gp_account_uncharge(struct gp_account *account, uint64_t bytes)
{
	atomic_fetch_sub(&account->used_bytes, bytes);
}

/* A charge meanwhile either sees the mark at 0, or is seen here. */
static inline void gp_account_restart_high(struct gp_account *account)
{
	atomic_store(&account->high_bytes, 0);
	gp_account_raise_high(account, atomic_load(&account->used_bytes));
}
