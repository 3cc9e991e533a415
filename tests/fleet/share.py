# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Usage: share.py PROGRAM LIBRARY SIM GPUPOOL-STAT [STARTS SECONDS]

Processes that share one simulated device: how much memory two programs take that size themselves by cudaMemGetInfo, and
how many allocations of 8 contending processes fail. As a program it measures both and prints tables: scripts/share.
"""

import os
import random
import subprocess
import sys
import tempfile

import fleet

KINDS = "none", "simple", "binned", "split", "vmm"
RAW = "raw"
GIB = 1 << 30
LIMITS = {  # variables of schedulers
    "no limit": {},
    "CUDA_DEVICE_MEMORY_LIMIT": {"CUDA_DEVICE_MEMORY_LIMIT": "400m"},
    "GPU_MEMORY_LIMIT": {"GPU_MEMORY_LIMIT": str(400 << 20)},
}


def start(path, kind, *words, **variables):
    """Starts a program that shares the device of the folder with all others started for it."""
    if kind != RAW:
        variables.update(LD_PRELOAD=fleet.LIBRARY, GPUPOOL_POOL=kind)
    env = fleet.environment(path, SIMGPU_SHARED=f"{path}/gpu", GPUPOOL_LOG="off", **variables)
    return subprocess.Popen([fleet.GUEST, *map(str, words)], env=env, text=True, stdout=subprocess.PIPE)


def numbers(process):
    """The numbers that a program prints, once it has ended."""
    out, _ = process.communicate(timeout=fleet.LIMIT_S)
    assert process.returncode == 0, process.returncode
    return [int(word) for word in out.split()]


def folder():
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return tempfile.TemporaryDirectory(prefix="gpupool-share-", dir=parent)


def sizes(kind, limit, n_starts, hold_ms=20):
    """The bytes that a program takes alone, and those that each of two takes in every start."""
    phases = random.Random(1)
    with folder() as path:
        alone, = numbers(start(path, kind, "size", 0, 0, **LIMITS[limit]))
        together = []
        for _ in range(n_starts):
            pair = [start(path, kind, "size", phases.randrange(hold_ms * 1000), hold_ms, **LIMITS[limit])
                    for _ in range(2)]
            together += [got for process in pair for got in numbers(process)]
    return alone, together


def spread(alone, together):
    """The largest difference from what the program takes alone, in per cent of that."""
    return max(abs(alone - got) for got in together) * 100 / alone


def contend(kind, how_long, n_processes=8, lo_mib=20, hi_mib=200, hold_ms=5, **variables):
    """All requests of contending processes, those that failed, and the longest one in microseconds."""
    with folder() as path:
        processes = [start(path, kind, "contend", how_long, lo_mib, hi_mib, hold_ms, **variables)
                     for _ in range(n_processes)]
        n, failed, longest = zip(*map(numbers, processes))
    return sum(n), sum(failed), max(longest)


def measure(n_starts, seconds):
    print(f"Two programs that take 90 % of what cudaMemGetInfo reports, {n_starts} starts together, random phase")
    print(f"{'':8}{'limit':28}{'alone MiB':>10}{'least':>8}{'most':>8}{'spread %':>10}")
    for kind in (RAW, "split", "vmm"):
        for limit in LIMITS:
            alone, together = sizes(kind, limit, n_starts)
            print(f"{kind:8}{limit:28}{alone >> 20:10}{min(together) >> 20:8}{max(together) >> 20:8}"
                  f"{spread(alone, together):10.2f}", flush=True)
    print(f"\n8 processes that each take 20 to 200 MiB of 1 GiB for 5 ms, for {seconds} s")
    print(f"{'':8}{'GPUPOOL_OOM_WAIT':>18}{'requests':>10}{'failed':>8}{'failed %':>10}{'longest ms':>12}")
    for kind in (RAW, *KINDS):
        for wait in ("",) if kind == RAW else ("auto", "0"):
            n, failed, longest = contend(kind, f"{seconds}s", GPUPOOL_OOM_WAIT=wait, SIMGPU_REALTIME="1")
            print(f"{kind:8}{wait or '-':>18}{n:10}{failed:8}{failed * 100 / n:10.2f}{longest / 1000:12.0f}", flush=True)


if __name__ == "__main__":
    measure(*map(int, sys.argv[5:7]))
