# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Usage: ranks.py RANK LIBRARY SIM [--steps=N] [--rounds=N] [--live=MIB] [--largest=MIB] [--phase=N]

Four ranks with random steps, N each, under a group limit of 8 GiB, and under four limits of 2 GiB each, in turns.
Checks that the ranks of a group never hold more than its limit, by the simulated driver's count over all processes at
each of its calls. Prints the throughput of the group relative to that of the four limits. Each rank holds --live MiB
at most, in blocks of up to --largest MiB. With a real runtime in place of the simulated one (SIM is its directory)
only the throughput is measured.
"""

import os
import pathlib
import struct
import subprocess
import sys
import tempfile

RANKS = 4
GIB, MIB = 1 << 30, 1 << 20


def most_held(ledger):
    """The most bytes that all processes have held of device 0 together (struct sim_ledger_file begins with it); 0 on a real GPU."""
    if not ledger.exists():
        return 0
    return struct.unpack_from("=Q", ledger.read_bytes())[0]


def run_ranks(rank, library, sim, directory, steps, live_mib, largest_mib, seed=1, phase=0, **variables):
    """Runs the ranks together. Returns the failures, the most bytes held, and the steps per second."""
    ledger = pathlib.Path(directory) / "ledger"
    ledger.unlink(missing_ok=True)
    environment = {**os.environ, "LD_PRELOAD": library, "LD_LIBRARY_PATH": sim, "GPUPOOL_RUNTIME_DIR": str(directory),
                   "TMPDIR": str(directory), "XDG_RUNTIME_DIR": "", "GPUPOOL_OOM_FILE": "off", "GPUPOOL_LOG": "error",
                   "SIMGPU_MEMORY": "32G", "SIMGPU_CONTEXT_MEMORY": "0", "SIMGPU_SHARED": str(ledger), **variables}
    ranks = [subprocess.Popen([rank, str(seed * RANKS + i), str(steps), str(live_mib), str(largest_mib), str(phase)], text=True,
                              env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for i in range(RANKS)]
    for process in ranks:
        assert process.stdout.readline() == "ready\n"
    for process in ranks:
        process.stdin.write("\n")
        process.stdin.flush()
    figures = []
    for process in ranks:
        figures.append({key: int(value) for key, value in (word.split("=") for word in process.stdout.readline().split())})
    for process in ranks:
        process.communicate()
        assert process.returncode == 0, process.returncode
    return (sum(figure["failures"] for figure in figures), most_held(ledger),
            RANKS * steps / (max(figure["ns"] for figure in figures) / 1e9))


def main(rank, library, sim, *options):
    options = dict(option.removeprefix("--").split("=") for option in options)
    steps, rounds = int(options.get("steps", 250000)), int(options.get("rounds", 3))
    live, largest, phase = (int(options.get(name, value)) for name, value in (("live", 1200), ("largest", 128), ("phase", 0)))
    with tempfile.TemporaryDirectory(prefix="gpupool-ranks-", dir="/dev/shm") as directory:
        speeds = {"group": 0, "single": 0}
        for seed in range(rounds):
            for name, variables in {"single": {"GPUPOOL_LIMIT": "2GiB"}, "group": {"GPUPOOL_LIMIT_GROUP": "ranks:8GiB"}}.items():
                failures, most, speed = run_ranks(rank, library, sim, directory, steps, live, largest, seed, phase, **variables)
                speeds[name] += speed
                print(f"{name}: {RANKS * steps} steps, {failures} failed, at most {most / GIB:.3f} GiB held, "
                      f"{speed / 1e3:.1f} thousand steps a second", flush=True)
                if most > 8 * GIB:
                    sys.exit(f"more than the limit of 8 GiB: {most} bytes")
        print(f"throughput of the group relative to four limits: {speeds['group'] / speeds['single']:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
