# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Measures the cost of gpupool itself, over a stub driver that does nothing; run by meson test --benchmark. Needs no GPU.
All peers take turns in one run. Figures are multiples of the same calls without gpupool, in processor time if only one
thread works, because absolute times are not comparable on a shared machine.
"""

import argparse
import dataclasses
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import book as books
import extras
from cells import GIB, KIB, MIB, cell, thread_groups
from player import Group, Peer, Stage

KINDS = ("none", "simple", "binned", "split", "vmm")
SIZES = (512, 64 * KIB, MIB, 64 * MIB, GIB, 2 * GIB)
ROUNDS, MS = 11, 4
STACKS = ("1", "16", "16,sample=100")
# These reasons are not failures: the library or tool under test may lack a feature.
NO_FAILURE = ("this library has no pool of the kind", "gpupool-stat has no replay")
SMALL = 0.2  # below this scale the rows with many blocks are left out


def one_thread_cells(scale):
    cells = [cell("pingpong", size) for size in SIZES]
    cells += [cell("window", size, live=32) for size in (*SIZES, 0)]
    cells += [cell("batch", 64 * KIB, f" of {n}", live=n) for n in (32, 1000)]
    if scale >= SMALL:
        cells += [cell("window", size, ", 100 000 live", live=100000) for size in (512, 0)]
    return cells


def growth_groups(scale):
    most = 6 if scale >= SMALL else 3
    live, held, cached, contexts = [], [], [], []
    for n in (10**power for power in range(1, most + 1)):
        live.append(cell("window", 512, f", {n} live", live=n))
        held.append(cell("window", 4 * KIB, f", {n} more live", live=32, held=n))
        if n < 10**6:
            cached.append(cell("window", 4 * KIB, f", {n} cached", live=32, cached=n))
    for n in (0, 1, 7, 31):
        contexts.append(Group("growth: contexts", [cell("window", 64 * KIB, f", {n + 1} contexts", live=32,
                                                        contexts=n)]))
    return [Group("growth: live blocks", live), Group("growth: blocks besides the window", held),
            Group("growth: cached blocks", cached), *contexts]


def stream_cells():
    return [cell("pingpong", 64 * KIB, streams=4),
            *(cell("window", size, live=32, streams=4) for size in (64 * KIB, 0))]


def submission_cells():
    """Cells for submissions of the program itself, and for pairs with a submission between malloc and free."""
    return [cell(pattern, 64 * KIB, f", {n} streams" if n else "", streams=n, live=1)
            for pattern in ("submit", "submitted") for n in (0, 4)]


def pinned_cells():
    return [cell("pinned", size, live=4) for size in (4 * KIB, MIB, 256 * MIB)]


def peers_of(options, words, label=""):
    raw = Peer(f"raw{label}", words, variables=options.variables)
    kinds = []
    for kind in options.kinds:
        variables = {**options.variables, "GPUPOOL_POOL": kind}
        kinds.append(Peer(f"{kind}{label}", words, options.preload, variables, kind=kind))
        if options.other:
            kinds.append(Peer(f"{kind}{label}, other", words, options.other, variables, kind=kind))
    return [raw, *kinds]


def run_groups(book, options, log, peers, groups):
    groups = [group for group in groups if not options.only or group.name in options.only]
    Stage(book, peers, log, max(2, round(ROUNDS * options.scale)), MS).run(groups)


def run_pairs(book, options, log):
    peers = peers_of(options, [options.programs / "player_driver"])
    run_groups(book, options, log, peers, [
        Group("one thread", one_thread_cells(options.scale)), Group("four streams alive", stream_cells()),
        *[Group("submissions", [one]) for one in submission_cells()], Group("pinned", pinned_cells()), *thread_groups((("window", (1, 4, 16)), ("handover", (2, 16)))),
        *growth_groups(options.scale)])
    for runtime in ("static", "shared"):
        peers = peers_of(options, [options.programs / f"player_runtime_{runtime}"], f", {runtime}")
        cells = [cell("pingpong", 64 * KIB), cell("window", 64 * KIB, live=32), cell("window", 0, live=32)]
        few = [peer for peer in peers if peer.kind in ("", "split", "vmm")]
        run_groups(book, options, log, few, [Group(f"{runtime} runtime", cells)])


def run_stacks(book, options, log):
    """Pairs with call stacks taken at each allocation and free. The stack of a player is not deep."""
    raw, *peers = peers_of(options, [options.programs / "player_driver"])
    for split in [peer for peer in peers if peer.kind == "split"][:1]:
        traced = [dataclasses.replace(split, name=f"stacks {words}",
                                      variables={**split.variables, "GPUPOOL_STACKS": words}) for words in STACKS]
        run_groups(book, options, log, [raw, split, *traced], [
            Group("stacks", [cell("pingpong", 64 * KIB), cell("window", 64 * KIB, live=32),
                             cell("window", 0, live=32)])])


def run_extras(book, options, log):
    extras.startup(book, options.programs, options.preload, max(20, round(300 * options.scale)))
    split = next(peer for peer in peers_of(options, [options.programs / "player_driver"]) if peer.kind == "split")
    rounds = max(3, round(15 * options.scale))
    extras.watch(book, split, options.stat, log, rounds, 100, "cpu_ns")
    cells = [cell("window", 64 * KIB, live=32), cell("window", 0, live=32)]
    with extras.recording(split) as peer:
        stage = Stage(book, [split, peer], log, max(3, round(ROUNDS * options.scale)), MS)
        stage.run([Group("recording", cells)])
    extras.recording_growth(book, split, [*cells, cell("window", 0, ", 4 streams", live=32, streams=4)], log, MS)
    extras.traces(book, options.stat, HERE.parent / "traces")
    cells = [cell("pingpong", GIB), cell("window", 64 * KIB, live=32), cell("window", 0, live=32),
             cell("batch", 64 * KIB, live=32), cell("window", 0, ", 4 streams", live=32, streams=4)]
    extras.steady_calls(book, split, cells, log, MS)


def is_parallel(group):
    return group == "threads"


def report(book):
    lines = [
        "First column: nanoseconds of a pair of malloc and free; raw is the stub driver, which does nothing. Other",
        "columns: multiples of it in the same round. Medians, and half the interquartile range in per cent of them.",
        "With one thread the time is processor time; with several it is wall time x threads / pairs.",
        "",
    ]
    for group in filter(book.peers, book.groups()):
        base = book.peers(group)[0]
        for key in ("ns", "cpu_ns") if is_parallel(group) else ("cpu_ns",):
            title = f"{group}, processor time" if is_parallel(group) and key == "cpu_ns" else group
            lines += [*books.ratio_table(book, group, base, key, title), ""]
            if is_parallel(group) or group.startswith("growth"):
                lines += [*books.series_table(book, group, key, title), ""]
    lines += [*books.calls_table(book), ""]
    lines += books.value_lines(book)
    return [*lines, *books.missing_lines(book)]


def write(book, options):
    document = {"schema": "gpupool.bench-cpu/1", "cells": books.summary(book),
                "values": [row for row in book.rows if row["type"] == "value"],
                "calls": [row for row in book.rows if row["type"] == "calls"],
                "missing": [row for row in book.rows if row["type"] == "miss"]}
    options.json.write_text(json.dumps(document, indent=1) + "\n")


def parse_arguments():
    parser = argparse.ArgumentParser(prog="cpu.py", description=__doc__)
    parser.add_argument("--library", dest="preload", type=pathlib.Path, required=True, help="libgpupool.so")
    parser.add_argument("--programs", type=pathlib.Path, required=True, help="directory of the players")
    parser.add_argument("--runtime", type=pathlib.Path, required=True, help="directory of a libcudart.so")
    parser.add_argument("--stat", type=pathlib.Path, help="gpupool-stat")
    parser.add_argument("--json", type=pathlib.Path, help="write every figure to this file")
    parser.add_argument("--table", type=pathlib.Path, help="write the tables to this file, too")
    parser.add_argument("--other", type=pathlib.Path,
                        help="compare with this other libgpupool.so, which takes turns with the first")
    parser.add_argument("--kinds", nargs="+", default=KINDS, help="pool types to measure")
    parser.add_argument("--only", nargs="+", help="measure only these tables, such as 'one thread' or threads")
    parser.add_argument("--scale", type=float, default=1.0,
                        help="multiply the number of rounds by this factor, such as 0.2")
    options = parser.parse_args()
    options.preload, options.programs = options.preload.resolve(), options.programs.resolve()
    options.other = options.other and options.other.resolve()
    # The loader must find the stub driver before any other libcuda.
    options.variables = {"LD_LIBRARY_PATH": f"{options.programs}:{options.runtime.resolve()}"}
    return options


def main():
    options, book = parse_arguments(), books.Book()
    log = options.json.with_suffix(".err") if options.json else pathlib.Path("/dev/null")
    with log.open("w") as errors:
        run_pairs(book, options, errors)
        run_stacks(book, options, errors)
        if not options.only:
            run_extras(book, options, errors)
    text = "\n".join(report(book)) + "\n"
    print("\n" + text)
    if options.table:
        options.table.write_text(text)
    if options.json:
        write(book, options)
    failed = [row for row in book.rows if row["type"] == "miss" and not row["why"].startswith(NO_FAILURE)]
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
