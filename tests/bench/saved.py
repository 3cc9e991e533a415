# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""Result files of a run (tests/pages/result_file.py), of which docs/benchmarks.md is made."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "pages"))

import bars
import benchmarks
import result_file
from figures import figure, median_interval

BASES = ("own", "split alone")  # the peers with which the others of their table are compared
MIB = 1 << 20


def base_of(book, group):
    """The peer with which the others of the group are compared, or None."""
    bases = ("raw",) if group.endswith(bars.STREAM_ORDER) else BASES
    return next((name for name in bases if name in book.peers(group)), None)


def times(book):
    """The times of runs alone are left out: nothing else was measured at the same time."""
    for group in book.groups():
        if group.endswith(bars.ALONE):
            continue
        for cell in book.cells(group):
            for peer in book.peers(group):
                found = book.figure(group, cell, peer)
                if found:
                    yield {"group": group, "cell": cell, "peer": peer, "ns": round(found.median),
                           "low": round(found.low), "high": round(found.high), "n": found.n}


def ratios(book):
    for group in book.groups():
        peers = book.peers(group)
        base = base_of(book, group)
        for cell in book.cells(group) if base else ():
            for peer in peers:
                values = book.ratios(group, cell, peer, base) if peer != base else []
                if not values:
                    continue
                low, high = median_interval(values) or (None, None)
                yield {"group": group, "cell": cell, "peer": peer, "base": base, "median": figure(values).median,
                       "low": low, "high": high, "n": len(values)}


def peaks(book):
    for group in book.groups():
        for peer in book.peers(group):
            for key in benchmarks.PEAKS:
                found = [value for cell in book.cells(group)
                         for value in book.rounds(group, cell, peer, key).values() if value]
                if found:
                    yield {"group": group, "peer": peer, "key": key, "mib": round(max(found) / MIB)}


def others(book, kind, keys):
    for row in book.rows:
        if row["type"] == kind:
            yield {key: row[key] for key in keys if key in row}


def document(book, run):
    """The content of the result file of one part, without empty members."""
    members = {"cells": times(book), "ratios": ratios(book), "peaks": peaks(book),
               "values": others(book, "value", ("name", "value", "unit", "kind", "trace")),
               "calls": others(book, "calls", ("name", "peer", "pairs", "calls"))}
    members = {name: list(found) for name, found in members.items()}
    return {"runs": [run], **{name: found for name, found in members.items() if found}}


def save(folder, part, book, command, is_sim):
    """Writes the result file of a part, and returns its path."""
    run = result_file.describe_run(ROOT, command)
    if is_sim:
        run["hardware"] = benchmarks.SIMULATED
        run.pop("software", None)
    return result_file.save(folder, part, document(book, run))
