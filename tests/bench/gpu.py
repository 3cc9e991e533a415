# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
The steps of scripts/bench. The script runs each as a separate process, with a time limit:

    gpu.py list [PART...]            prints the names of the given parts, or of all, a line each
    gpu.py check                     prints the reason and exits with 77 if there is no GPU
    gpu.py build                     builds everything that the parts need
    gpu.py part NAME --out DIR       runs one part, and writes each row to DIR at once
    gpu.py report --out DIR NAME=EXITSTATUS...
                                     makes the tables from the rows in DIR; with --save FOLDER also the result
                                     files of the parts, of which docs/benchmarks.md is made
"""

import argparse
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import bars
import book as books
import peers
import programs
import run as gpu_test
import saved
from gpu_parts import PARTS

SKIPPED = 77
SCHEMA = "gpupool.bench/1"
SIMULATED = "Simulated GPU: times are meaningless; the memory that traces take is valid."
HEAD = [
    "Nanoseconds of a pair of malloc and free, or of a step of a program: medians, and half the interquartile range",
    "in per cent of them. With several threads: wall time x threads / pairs. A pair of overlap has two blocks.",
]


def part_name(word):
    return gpu_test.part_name(word, PARTS, "bench")


def step_list(options):
    print("\n".join(map(part_name, options.words) if options.words else PARTS))


def step_check(options):
    reason = None if options.sim else programs.reason_to_skip()
    if reason:
        print(f"bench: skipped: {reason}")
        sys.exit(SKIPPED)


def step_build(options):
    if options.sim:
        peers.build_on_sim(options.sim)
    else:
        peers.build()
    print(f"bench: library {peers.Setup(options.sim).preload}")


def step_part(options):
    (word,) = options.words
    name, start = part_name(word), time.monotonic()
    print(f"{name}:", flush=True)
    book = books.Book(options.out / f"rows-{name}.jsonl")
    with (options.out / f"{name}.err").open("w") as log:
        PARTS[name](book, peers.Setup(options.sim), options, log)
    print(f"  {name} took {time.monotonic() - start:.0f} s", flush=True)


def tables(book):
    lines = []
    for group in filter(book.peers, book.groups()):
        lines += books.time_table(book, group)
        base = saved.base_of(book, group)
        lines += books.ratio_table(book, group, base) if base else []
        lines += books.before_table(book, group)
        lines += books.memory_lines(book, group)
        lines.append("")
    for more in (books.calls_table(book), books.value_lines(book), books.missing_lines(book)):
        lines += [*more, ""] if more else []
    return lines


def incomplete_lines(statuses):
    for name, status in statuses.items():
        if status:
            reason = "ran out of time" if status in (124, 137) else f"ended with {status}"
            yield f"part {name}: {reason}: figures may be missing"


def step_report(options):
    statuses, book = {}, books.Book()
    for word in options.words:
        name, _, status = word.partition("=")
        statuses[part_name(name)] = int(status)
    for name in statuses:
        book.rows += books.load(options.out / f"rows-{name}.jsonl").rows
    judged, incomplete = bars.judge(book), list(incomplete_lines(statuses))
    head = [SIMULATED] if options.sim else HEAD
    text = [*head, "", *tables(book), *incomplete, *bars.format_bars(judged)]
    document = {"schema": SCHEMA, "is_simulated": bool(options.sim), "parts": statuses, "bars": judged,
                "cells": books.summary(book), "rows": [row for row in book.rows if row["type"] != "sample"]}
    (options.out / "results.json").write_text(json.dumps(document, indent=1) + "\n")
    (options.out / "tables.txt").write_text("\n".join(text) + "\n")
    print("\n" + "\n".join(text))
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.save:
        save(options, statuses)
    if options.bundle:
        gpu_test.bundle(options.out)
    sys.exit(1 if incomplete else 0)


def save(options, statuses):
    """Writes the result files of the parts that have finished."""
    words = ["scripts/bench", "--part", "", *(word for peer in options.peer for word in ("--peer", peer))]
    if options.scale != 1:
        words += ["--scale", f"{options.scale:g}"]
    for name, status in statuses.items():
        words[2] = name
        book = books.load(options.out / f"rows-{name}.jsonl")
        if status or not book.rows:
            print(f"bench: {name} has no results to save")
        else:
            print(f"bench: {saved.save(options.save, name, book, ' '.join(words), bool(options.sim))}")


STEPS = {
    "list": step_list,
    "check": step_check,
    "build": step_build,
    "part": step_part,
    "report": step_report,
}


def library(word):
    path = pathlib.Path(word).resolve()
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"there is no library {word}")
    return path


def add_arguments(parser):
    parser.add_argument("--sim", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--peer", action="append", default=[])
    parser.add_argument("--before", type=library)


if __name__ == "__main__":
    gpu_test.main("bench", STEPS, add_arguments)
