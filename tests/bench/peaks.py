#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""Compares the memory that gpupool-stat predicts with the memory that the library takes.

Usage: peaks.py GPUPOOL-STAT LIBRARY PROGRAMS SIM_DIR [TRACE.gz...]

Each trace is a sequence of calls. A program makes these calls on the simulated GPU with the library preloaded, once for
each pool type, and the peak of the library is compared with that of `replay`. Then it runs with the pool type and the
limit that `advise` recommends: no allocation may fail. The GPU's lag, which recordings have, is left out, since the
simulated GPU has another.

The program also makes the calls in stream order, which may take only little more memory. A recording does not name
streams, so there is no prediction for it.

Thread caches hash addresses, on which the peak depends by some percent. So the simulated GPU has the same addresses in
each run.

Prints a table, and exits with 1 if a difference exceeds the tolerance or a recommended limit does not suffice.
"""

import csv
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile

TOLERANCE = 0.02
# Most memory in stream order, relative to the same calls without streams. Under split it is mapped.
IN_STREAM_ORDER = {"split": 1, "vmm": 1.03}
ADDRESSES = "32T"
KINDS = ("none", "simple", "binned", "split", "vmm")


def output_of(words, **options):
    return subprocess.run(list(map(str, words)), check=True, stdout=subprocess.PIPE, timeout=300, **options).stdout


def calls_of(stat, path):
    """Returns the calls of a recording or a trace, as a trace."""
    if not path.name.endswith(".rec.gz"):
        return gzip.decompress(path.read_bytes())
    log = output_of([stat, "convert", "--to=rmm", path], text=True).splitlines()
    lines = [f"a {row['Pointer'].removeprefix('0x')} {row['Size']}\n" if row["Action"] == "allocate"
             else f"f {row['Pointer'].removeprefix('0x')}\n" for row in csv.DictReader(log)]
    return "".join(lines).encode()


class Comparison:
    def __init__(self, stat, library, programs, sim_dir):
        self.stat, self.program = stat, pathlib.Path(programs) / "play_trace"
        self.env = {**os.environ, "LD_PRELOAD": str(library), "LD_LIBRARY_PATH": str(sim_dir),
                    "SIMGPU_MEMORY": "128G", "SIMGPU_ADDRESSES": ADDRESSES, "GPUPOOL_SOCKET": "off"}
        self.n_bad = 0

    def played(self, calls, kind, limit="none", words=()):
        """Returns the peak and the out-of-memory errors of the library."""
        text = output_of([self.program, *words], input=calls, env={**self.env, "GPUPOOL_POOL": kind, "GPUPOOL_LIMIT": limit})
        return [int(word.partition(b"=")[2]) for word in text.split()]

    def compare(self, name, calls, path):
        runs = json.loads(output_of([self.stat, "replay", "--json", path]))["runs"]
        for run in runs:
            predicted = run["device"]["peak_total_bytes"]
            real, _ = self.played(calls, run["pool"])
            difference = predicted / real - 1
            self.report(abs(difference) <= TOLERANCE, name, run["pool"], predicted, real, f"{100 * difference:+.2f} %")
            if run["pool"] in IN_STREAM_ORDER:
                self.compare_in_stream_order(name, calls, run["pool"], real)

    def compare_in_stream_order(self, name, calls, kind, without):
        real, ooms = self.played(calls, kind, words=["stream"])
        ratio = real / without
        self.report(not ooms and ratio <= IN_STREAM_ORDER[kind], f"{name}, in order", kind, without, real, f"{ratio:.3f}")

    def report(self, is_good, name, *cells):
        self.n_bad += not is_good
        print(f"{name:16}", *(f"{cell:>14}" for cell in cells), "" if is_good else "BAD", flush=True)

    def advise(self, name, calls, path):
        advice = json.loads(output_of([self.stat, "advise", "--json", path]))["advice"]
        limit = advice["limit_bytes"]
        real, ooms = self.played(calls, advice["pool"], str(limit))
        self.report(not ooms and real <= limit, name, advice["pool"], limit, real, f"{ooms} errors")


def main():
    stat, library, programs, sim_dir, *paths = map(pathlib.Path, sys.argv[1:])
    paths = paths or sorted((pathlib.Path(__file__).resolve().parents[1] / "traces").glob("*.gz"))
    comparison = Comparison(stat, library, programs, sim_dir)
    comparison.report(True, "trace", "pool", "predicted", "real", "difference")
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            calls = calls_of(stat, path)
            trace = pathlib.Path(folder) / "trace"
            trace.write_bytes(calls)
            name = path.name.partition(".")[0]
            comparison.compare(name, calls, trace)
            comparison.advise(f"{name}, advised", calls, trace)
    sys.exit(comparison.n_bad != 0)


if __name__ == "__main__":
    main()
