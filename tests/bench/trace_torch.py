# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
What a program allocated and freed, once more through PyTorch's own pool as the environment configures it. On stdin what
`gpupool-stat convert --to=rmm` writes; says how many bytes that pool held and had handed out at most.
"""

import csv
import sys

import torch


def main():
    live = {}
    for row in csv.DictReader(sys.stdin):
        if row["Action"] == "allocate":
            live[row["Pointer"]] = torch.cuda.caching_allocator_alloc(int(row["Size"]))
        else:
            torch.cuda.caching_allocator_delete(live.pop(row["Pointer"]))
    stats = torch.cuda.memory_stats()
    print(f"peak reserved={stats['reserved_bytes.all.peak']} allocated={stats['allocated_bytes.all.peak']}")


main()
