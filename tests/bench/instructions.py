#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Usage: instructions.py --library LIBRARY --programs DIR --runtime DIR [--other LIBRARY]

Counts the instructions of a cudaMalloc and of a cudaFree under the library, over the driver that does nothing, with
valgrind's callgrind: of a hit, of a miss, of a hit of cudaMallocAsync on a non-blocking (stream), a blocking and the
legacy stream, and of one of cudaMallocFromPoolAsync (pool), through a static and a shared runtime. Also those that the library adds to a launch, in serial mode and on a
stream, without and with GPUPOOL_SLEEP=on. With the same compiler and C library a count, unlike a time, depends little
on the machine and its load, so two
versions can be compared on a busy machine. It leaves out what an instruction costs: an atomic exchange counts 1, and so
does a system call. Each figure is the smallest of several runs, since the library does more work in a run that is
interrupted for long.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

PAIRS, RUNS = 500, 3
RUNTIMES, CASES, CALLS = ("static", "shared"), ("hit", "miss", "stream", "blocking", "legacy", "pool"), ("alloc_one", "free_one")
LAUNCHES = ("serial", "stream")
LAUNCH_SETTINGS = {"": {}, ", sleep": {"GPUPOOL_POOL": "vmm", "GPUPOOL_SLEEP": "on"}}
TOTAL = re.compile(r"Collected : (\d+)")
# Callgrind counts each repetition of `rep stosb` as an instruction, though the processor does many at a time. So memset
# is kept from using it.
TUNABLES = f"glibc.cpu.x86_rep_stosb_threshold={1 << 30}"


def count_in(library, options, program, case, call, settings):
    """Instructions of each call of that function of the program, with all that it calls. library: None for none."""
    variables = {**os.environ, "LD_PRELOAD": str(library or ""), "GLIBC_TUNABLES": TUNABLES,
                 "LD_LIBRARY_PATH": f"{options.programs}:{options.runtime}", **settings}
    with tempfile.NamedTemporaryFile() as profile:
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--toggle-collect={call}", f"--callgrind-out-file={profile.name}",
             options.programs / program, case, str(PAIRS)],
            env=variables, capture_output=True, text=True, check=False)
    total = TOTAL.search(done.stderr)
    if done.returncode or not total or total[1] == "0":
        sys.exit(f"instructions.py: {program} {case} failed:\n{done.stderr}")
    return int(total[1]) / PAIRS


def count(library, options, runtime, case, call):
    call = "alloc_from_pool" if (case, call) == ("pool", "alloc_one") else call
    return count_in(library, options, f"pairs_counted_{runtime}", case, call, {"GPUPOOL_ASYNC": "on"})


def launches(library, options, case, settings):
    return min(count_in(library, options, "launches_counted", case, "launch_one", settings) for _ in range(RUNS))


def launch_rows(options):
    """Rows of the instructions that each library adds to a launch."""
    for case in LAUNCHES:
        raw = launches(None, options, case, {})
        for name, settings in LAUNCH_SETTINGS.items():
            yield (f"{case}{name}",
                   *(launches(library, options, case, settings) - raw for library in (options.preload, options.other)
                     if library))


def rows(options):
    for runtime in RUNTIMES:
        for case in CASES:
            yield (f"{runtime} {case}",
                   *([min(count(library, options, runtime, case, call) for _ in range(RUNS)) for call in CALLS]
                     for library in (options.preload, options.other) if library))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", dest="preload", type=pathlib.Path, required=True,
                        help="libgpupool.so of a release build")
    parser.add_argument("--programs", type=pathlib.Path, required=True, help="the folder of pairs_counted_static")
    parser.add_argument("--runtime", type=pathlib.Path, required=True, help="the folder of libcudart.so")
    parser.add_argument("--other", type=pathlib.Path, help="another libgpupool.so, to compare the first with")
    options = parser.parse_args()
    for name, path in vars(options).items():
        if path:
            setattr(options, name, path.resolve())
    return options


def main():
    options = parse_arguments()
    print(f"{'':16}{'malloc':>9}{'free':>9}{'pair':>9}" + (f"{'other':>9}{'ratio':>9}" if options.other else ""))
    for name, own, *other in rows(options):
        line = f"{name:16}{own[0]:9.0f}{own[1]:9.0f}{sum(own):9.0f}"
        if other:
            line += f"{sum(other[0]):9.0f}{sum(own) / sum(other[0]):9.3f}"
        print(line, flush=True)
    print(f"\n{'a launch':16}{'added':>9}" + (f"{'other':>9}" if options.other else ""))
    for name, *added in launch_rows(options):
        print(f"{name:16}" + "".join(f"{n:9.0f}" for n in added), flush=True)


if __name__ == "__main__":
    main()
