# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""The protocol of a player in Python, as in player.c: each line of stdin requests a window of steps."""

import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))


def print_line(text):
    print(text, flush=True)


def serve(step, wait, steps, more_results=lambda: {}):
    """step(i) submits work, wait() waits for all of it, more_results() returns further results as numbers."""
    print_line("ready")
    for _ in sys.stdin:
        wait()
        start, cpu = time.perf_counter_ns(), time.process_time_ns()
        for i in range(steps):
            step(i)
        wait()
        ns, cpu_ns = time.perf_counter_ns() - start, time.process_time_ns() - cpu
        more = "".join(f" {key}={value}" for key, value in more_results().items() if value is not None)
        print_line(f"pair ns={ns / steps:.1f} cpu_ns={cpu_ns / steps:.1f} pairs={steps}{more}")
