# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Joins, groups, sorts and string operations of cuDF on tables of varying sizes, with RMM's pool, which the program asks for.
All numbers are whole, so that each sum is exact.
"""

import json
import sys
import time

import numpy
import rmm

# RMM's pool has to be there before the first table.
rmm.reinitialize(pool_allocator=True, initial_pool_size=64 << 20)

import cudf

WARM_UP, STEPS, WINDOWS = 3, 20, 3
KEYS, TABLES = 5000, 3
NAMES = ["north", "east", "south", "west", "centre"]


def tables():
    """Host columns of three sizes, which are copied to the GPU in each step."""
    generator = numpy.random.default_rng(1)
    made = []
    for i in range(TABLES):
        n = 200_000 + 150_000 * i
        made.append({"key": generator.integers(0, KEYS, n), "value": generator.integers(0, 1000, n),
                     "name": generator.integers(0, len(NAMES), n)})
    return made


def make_step():
    columns, names = tables(), cudf.DataFrame({"name": range(len(NAMES)), "text": NAMES})
    limits = cudf.DataFrame({"key": numpy.arange(KEYS), "limit": numpy.arange(KEYS) % 900})

    def step(i):
        rows = cudf.DataFrame(columns[i % TABLES])
        joined = rows.merge(limits, on="key").merge(names, on="name")
        kept = joined[joined["value"] > joined["limit"]]
        groups = kept.groupby(["text", "key"]).agg({"value": "sum", "limit": "max"})
        ordered = kept.sort_values(["value", "key", "name"]).head(1000 + i)
        long_names = int(kept["text"].str.upper().str.len().sum())
        return int(groups.sum().sum()) + int(ordered["key"].sum()) + long_names

    return step


def main():
    step, total = make_step(), 0
    for i in range(WARM_UP):
        step(i)
    ms = []
    for _ in range(WINDOWS):
        start = time.perf_counter()
        for i in range(STEPS):
            total += step(i)  # its sums wait for the GPU
        ms.append((time.perf_counter() - start) / STEPS * 1e3)
    resource = type(rmm.mr.get_current_device_resource()).__name__
    print(json.dumps({"ms": ms, "answer": str(total), "own_peak_bytes": None, "own_pool": resource}), flush=True)
    sys.stdin.readline()  # the test may observe this process before it ends


if __name__ == "__main__":
    main()
