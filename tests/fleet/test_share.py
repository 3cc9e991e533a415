# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Usage: test_share.py PROGRAM LIBRARY SIM GPUPOOL-STAT

Processes that share a device do not disturb each other: a few runs of what scripts/share measures.
"""

import fleet
import share


def two_programs_under_a_schedulers_limit_size_themselves_as_each_does_alone():
    for limit in share.LIMITS:
        if limit == "no limit":
            continue
        alone, together = share.sizes("split", limit, 2)
        assert 340 << 20 < alone < 400 << 20, alone
        assert share.spread(alone, together) <= 1, (limit, alone, together)


def no_allocation_of_contending_processes_fails_with_any_pool_type():
    for kind in share.KINDS:
        n, failed, _ = share.contend(kind, 12, n_processes=6, lo_mib=100, hi_mib=300)
        assert (n, failed) == (72, 0), (kind, n, failed)


fleet.main([
    two_programs_under_a_schedulers_limit_size_themselves_as_each_does_alone,
    no_allocation_of_contending_processes_fails_with_any_pool_type,
])
