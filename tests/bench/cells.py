# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""Rows of the tables, for players written in C."""

import book as books
from player import Cell, Group

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
DURATION_FACTOR = 10  # on a machine with fewer processors than threads each thread waits for its turn, so a run is longer


def cell(pattern, size, name="", **request):
    """A cell; size is in bytes, or 0 for mixed sizes up to 1 MiB."""
    words = books.format_bytes(size) if size else "mixed"
    return Cell(f"{pattern} {words}{name}", {"pattern": pattern, "bytes": size, **request}, series=name and pattern)


def thread_groups(patterns):
    """A process for each number of threads, since the effects of a second thread on a process are permanent."""
    groups = []
    for pattern, counts in patterns:
        for n in counts:
            request = {"live": 32} if pattern == "window" else {}
            what = cell(pattern, 64 * KIB, f", {n} threads", threads=n, streams=4, **request)
            what.duration_factor = DURATION_FACTOR
            groups.append(Group("threads", [what]))
    return groups
