# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""Rows of the tables, for players of C."""

import book as books
from player import Cell, Group

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PATIENCE = 10  # threads have to come to their turn, on machines with fewer processors, too


def cell(pattern, size, name="", **request):
    """size: bytes, or 0 for a mixture up to 1 MiB."""
    words = books.format_bytes(size) if size else "mixed"
    return Cell(f"{pattern} {words}{name}", {"pattern": pattern, "bytes": size, **request}, series=name and pattern)


def thread_groups(patterns):
    """A process for each: what a thread has done cannot be undone."""
    groups = []
    for pattern, counts in patterns:
        for n in counts:
            request = {"live": 32} if pattern == "window" else {}
            what = cell(pattern, 64 * KIB, f", {n} threads", threads=n, streams=4, **request)
            what.patience = PATIENCE
            groups.append(Group("threads", [what]))
    return groups
