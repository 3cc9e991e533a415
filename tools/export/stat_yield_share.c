/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_yield_share.h"

#include <stddef.h>

#define MINUTE_NS INT64_C(60000000000)

/* Returns the entry of an id, up to date. A new one replaces the one that was used longest ago. */
static struct stat_yield_share *find(
	struct stat_yield_share *shares, size_t n, uint64_t id, int64_t full_ns, int64_t now_ns)
{
	struct stat_yield_share *found = &shares[0];

	for (size_t i = 0; i < n; i++) {
		if (shares[i].at_ns && shares[i].id == id) {
			found = &shares[i];
			break;
		}
		if (shares[i].at_ns < found->at_ns)
			found = &shares[i];
	}
	if (!found->at_ns || found->id != id)
		*found = (struct stat_yield_share){.id = id, .left_ns = full_ns, .at_ns = now_ns};
	if (now_ns - found->at_ns >= MINUTE_NS)
		found->left_ns = full_ns;
	else
		found->left_ns += (now_ns - found->at_ns) / (MINUTE_NS / full_ns);
	if (found->left_ns > full_ns)
		found->left_ns = full_ns;
	found->at_ns = now_ns;
	return found;
}

static int64_t cost_of(const struct stat_yield_share *share, bool is_wanted, int64_t now_ns)
{
	int64_t paid_ns = share->paid_until_ns > now_ns ? share->paid_until_ns - now_ns : 0;

	return is_wanted ? STAT_YIELD_WANTED_NS - paid_ns : STAT_YIELD_COST_NS;
}

static void pay(struct stat_yield_share *share, bool is_wanted, int64_t now_ns)
{
	share->left_ns -= cost_of(share, is_wanted, now_ns);
	if (is_wanted)
		share->paid_until_ns = now_ns + STAT_YIELD_WANTED_NS;
}

bool stat_yield_shares_pay(struct stat_yield_shares *shares, uint64_t user, pid_t pid, bool is_wanted, int64_t now_ns)
{
	struct stat_yield_share *of_user = find(shares->users, STAT_YIELD_USERS, user, STAT_YIELD_USER_NS, now_ns);
	struct stat_yield_share *of_pid = find(shares->pids, STAT_YIELD_PIDS, (uint64_t)pid, STAT_YIELD_PID_NS, now_ns);

	if (of_user->left_ns < cost_of(of_user, is_wanted, now_ns) ||
		of_pid->left_ns < cost_of(of_pid, is_wanted, now_ns))
		return false;
	pay(of_user, is_wanted, now_ns);
	pay(of_pid, is_wanted, now_ns);
	return true;
}
