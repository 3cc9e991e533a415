# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Puts random programs to sleep at random points, until they have slept and woken a number of times.

Each program (../preload/app_sleep_random.c) has its own seed, from which its settings follow, too. Exits with 1 if a
block had another value than it should, or if the simulated driver saw a race, a deadlock or a use of memory that was
away.
"""

import argparse
import concurrent.futures
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time

EMULATOR = os.environ.get("GPUPOOL_TEST_EMULATOR", "").split()
REPORTS = re.compile(r"WARNING: ThreadSanitizer|ERROR: \w+Sanitizer|runtime error:|^simgpu: ", re.M)
JITTER = "cuMemcpyDtoHAsync_v2=20,cuMemsetD32Async=50,cuLaunchKernel=50,cuMemUnmap=20,cuMemCreate=20"
COLUMNS = ("programs", "cycles", "busy", "failed", "checks", "wrong", "races", "bad")
FAILURES_MAX = 5  # the run ends after this many bad programs
PROGRESS = 50000  # cycles between two lines of counts


def parse_arguments():
    parser = argparse.ArgumentParser(prog="sleep-soak", description=__doc__.splitlines()[0])
    parser.add_argument("--cycles", type=lambda text: int(float(text)), default=10**6, metavar="N",
                        help="sleeps, each with its wake, of all programs together (default: 10^6)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="seed of the first program (default: 1)")
    parser.add_argument("--chunk", type=int, default=2000, metavar="N", help="most cycles of a program (default: 2000)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="programs at the same time (default: 1)")
    parser.add_argument("--limit", type=int, default=1200, metavar="SECONDS",
                        help="time after which a program counts as hung and is killed (default: 1200)")
    parser.add_argument("--program", required=True, help="app_sleep_random")
    parser.add_argument("--library", dest="preload", help="the library to preload")
    parser.add_argument("--driver", required=True, metavar="DIRECTORY", help="the directory that has libcuda.so.1")
    return parser.parse_args()


def choose(seed):
    """Returns the scenario and the settings that follow from a seed, and the share of the cycles that it gets."""
    env = {
        "GPUPOOL_REUSE": ("auto", "ordered", "completed")[seed % 3],
        "GPUPOOL_SLEEP_KEEP": "off" if seed % 4 == 0 else "on",
        "GPUPOOL_SLEEP_PINNED": ("0", "1MiB", "16GiB")[seed // 2 % 3],
        "GPUPOOL_PINNED_THREADS": str(1 + seed // 4 % 2),
        "GPUPOOL_ASYNC": "off" if seed % 5 == 0 else "on",
        "SIMGPU_DEVICES": "2" if seed // 3 % 3 == 0 else "1",
    }
    if seed % 7 == 3:
        env["SIMGPU_JITTER"] = JITTER
    # Threads cancel most sleeps, so a cycle of theirs takes ten times as long.
    return ("threads", env, 10) if seed % 6 == 2 else ("one-thread", env, 1)


def environment(args, seed, cycles, settings):
    env = {name: os.environ[name] for name in ("PATH", "HOME", "TSAN_OPTIONS") if name in os.environ}
    env.update({
        "LD_LIBRARY_PATH": args.driver,
        "SIMGPU_STRICT": "1",
        "SIMGPU_DEADLOCK_MS": "60000",  # on a busy machine a thread may not run for a long time
        "SIMGPU_LATENCY": "cuEventQuery=1000000",  # otherwise the simulated clock stands still between queries
        "GPUPOOL_POOL": "vmm",
        "GPUPOOL_LOG": "off",
        "GPUPOOL_SOCKET": "off",
        "APP_SEED": str(seed),
        "APP_CYCLES": str(cycles),
    })
    env.update(settings)
    if args.preload:
        env["LD_PRELOAD"] = args.preload
    return env


def print_failure(command, env, result):
    settings = " ".join("%s=%s" % (name, shlex.quote(value)) for name, value in env.items() if name not in ("PATH", "HOME"))
    print("exit status %d of: %s %s" % (result.returncode, settings, shlex.join(command)))
    print(result.stdout[-500:])
    print("\n".join(result.stderr.splitlines()[:40]), flush=True)


def run_one(args, seed, n):
    """Runs one program. Returns its counts."""
    scenario, settings, cost = choose(seed)
    cycles = max(1, n // cost)
    command, env = EMULATOR + [args.program, scenario], environment(args, seed, cycles, settings)
    hangs = ""
    with tempfile.NamedTemporaryFile(prefix="gpupool-sleeps-", mode="r") as facts:
        # The program reports its counts on descriptor 3.
        shell = ["sh", "-c", 'exec "$@" 3>"$0"', facts.name] + command
        with subprocess.Popen(shell, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                              errors="replace") as process:
            try:
                out, err = process.communicate(timeout=args.limit)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                hangs = "\nthe program hung and was killed after %d s\n" % args.limit
        counts = dict(re.findall(r"^(\w+) (\d+)$", facts.read(), re.M))
    counts = {name: int(value) for name, value in counts.items() if name in COLUMNS}
    match = re.search(r"^wrong: (\d+)$", out, re.M)
    counts["wrong"] = int(match.group(1)) if match else 1
    counts["programs"] = 1
    is_bad = process.returncode or counts["wrong"] or not counts.get("cycles") or REPORTS.search(err)
    counts["bad"] = int(bool(is_bad))
    if is_bad:
        print_failure(command, env, subprocess.CompletedProcess(command, process.returncode, out, err + hangs))
    return counts


class Run:
    def __init__(self, args):
        self.args, self.lock = args, threading.Lock()
        self.seed, self.sums, self.is_cut_short = args.seed, dict.fromkeys(COLUMNS, 0), False

    def next_seed(self):
        """Returns the seed of the next program and how many cycles are left, or None."""
        with self.lock:
            left = self.args.cycles - self.sums["cycles"]
            if left <= 0 or self.sums["bad"] >= FAILURES_MAX or self.is_cut_short:
                return None
            self.seed += 1
            return self.seed - 1, min(left, self.args.chunk)

    def work(self):
        while (job := self.next_seed()):
            counts = run_one(self.args, *job)
            with self.lock:
                before = self.sums["cycles"]
                for name in COLUMNS:
                    self.sums[name] += counts.get(name, 0)
                if self.sums["cycles"] // PROGRESS != before // PROGRESS:
                    self.print_sums()

    def print_sums(self):
        print(", ".join("%d %s" % (self.sums[name], name) for name in COLUMNS), flush=True)


def interrupt(*unused):
    raise KeyboardInterrupt


def main():
    args = parse_arguments()
    run, start = Run(args), time.monotonic()
    signal.signal(signal.SIGTERM, interrupt)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as executor:
        try:
            for job in [executor.submit(run.work) for _ in range(args.jobs)]:
                job.result()
        except KeyboardInterrupt:
            run.is_cut_short = True
    print("seeds %d to %d, %d s" % (args.seed, run.seed - 1, time.monotonic() - start))
    run.print_sums()
    if run.is_cut_short:
        print("interrupted")
    sys.exit(1 if run.sums["bad"] or run.is_cut_short else 0)


main()
