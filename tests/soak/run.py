# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Runs the soak program with every pool type and reuse mode, and prints a table of the results.

The operations of a row are spread over several processes, one after the other, each with its own seed. The rows take
turns, so that an interrupted run has results for all of them. Exits with 1 if a check failed, or, with --broken, if no
race was found in one of the rows.
"""

import argparse
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time

# Relative numbers of operations. The pool type none gets fewer because each operation is a call of the driver.
SHARES = {"split": 3, "vmm": 3, "binned": 3, "simple": 3, "none": 1}
ABSENT = "absent"  # without gpupool: a failed check is then the fault of the program or the simulator
MODES = ("ordered", "completed")
LIMIT_MIB = 64
# In every third process the simulator delays some calls before their effect and before their return. Such a process has
# few threads, because a fence that another thread records meanwhile covers the submission.
JITTER_THREADS = 4
JITTER = "cuGraphLaunch=2,cuLaunchKernel=100,cuMemcpyHtoDAsync_v2=100,cuCtxRecordEvent=100"

REPORTS = re.compile(r"WARNING: ThreadSanitizer|ERROR: \w+Sanitizer|runtime error:")
COLUMNS = ("kind", "mode", "operations", "seconds", "cpu s", "checks", "captures", "ended", "exports", "inflight", "clients", "killed",
           "ooms", "races", "deadlocks", "invalid", "wrong", "reports", "failed")
BAD = ("races", "deadlocks", "invalid", "wrong", "reports", "failed")
EMULATOR = os.environ.get("GPUPOOL_TEST_EMULATOR", "").split()
FAILURES_MAX = 6  # the run ends after this many failed processes


class Row:
    def __init__(self, kind, mode, operations):
        self.kind, self.mode, self.left = kind, mode, operations
        self.n_runs = 0
        self.sums = dict.fromkeys(COLUMNS[2:], 0)

    def cells(self):
        return [self.kind, self.mode] + ["%d" % self.sums[name] for name in COLUMNS[2:]]


def parse_arguments():
    parser = argparse.ArgumentParser(prog="soak", description=__doc__.splitlines()[0])
    parser.add_argument("--operations", type=lambda text: int(float(text)), default=10**8, metavar="N",
                        help="number of operations in all processes together (default: 10^8)")
    parser.add_argument("--seed", type=int, default=int(time.time()), metavar="S", help="seed of the first process")
    parser.add_argument("--kind", action="append", choices=[*SHARES, ABSENT],
                        help="run only this pool type; may be repeated")
    parser.add_argument("--mode", action="append", choices=MODES + ("auto",),
                        help="run only this reuse mode; may be repeated")
    parser.add_argument("--threads", type=int, default=64, metavar="N", help="threads of each process (default: 64)")
    parser.add_argument("--devices", type=int, default=2, metavar="N", help="number of simulated GPUs (default: 2)")
    parser.add_argument("--chunk", type=int, default=1000000, metavar="N",
                        help="maximum number of operations of one process (default: 1000000)")
    parser.add_argument("--limit", type=int, default=3600, metavar="SECONDS",
                        help="time after which a process counts as hung and is killed (default: 3600)")
    parser.add_argument("--broken", action="store_true",
                        help="expect a race in every row: the library is broken on purpose")
    parser.add_argument("--program", required=True, help="the soak program")
    parser.add_argument("--library", dest="preload", help="the library to preload")
    parser.add_argument("--driver", required=True, metavar="DIRECTORY", help="the directory that has libcuda.so.1")
    return parser.parse_args()


def make_rows(args):
    kinds, modes = args.kind or list(SHARES), args.mode or list(MODES)
    unit = args.operations / sum(SHARES.get(kind, 1) for kind in kinds) / len(modes)
    rows = [Row(kind, mode, int(SHARES.get(kind, 1) * unit)) for kind in kinds for mode in modes]
    rows[0].left += args.operations - sum(row.left for row in rows)
    # At least two processes: one without and one with a limit.
    args.chunk = min(args.chunk, (max(row.left for row in rows) + 1) // 2)
    return rows


def has_jitter(row):
    return row.n_runs % 3 == 1


def environment(args, row, runtime_dir):
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    env.update({
        "LD_LIBRARY_PATH": args.driver,
        "SIMGPU_DEVICES": str(args.devices),
        "SIMGPU_STRICT": "1",
        "SIMGPU_DEADLOCK_MS": "60000",  # on a busy machine a thread may not run for a long time
        "TSAN_OPTIONS": "atexit_sleep_ms=0 " + os.environ.get("TSAN_OPTIONS", ""),
    })
    if has_jitter(row):
        env["SIMGPU_JITTER"] = JITTER
    if row.kind == ABSENT:
        return env
    env.update({
        "GPUPOOL_POOL": row.kind,
        "GPUPOOL_REUSE": row.mode,
        "GPUPOOL_LOG": "off",
        # With the limit, which every second process has, the process runs out of memory now and then.
        "GPUPOOL_LIMIT": "%dMiB" % LIMIT_MIB if row.n_runs % 2 else "none",
        "GPUPOOL_RUNTIME_DIR": runtime_dir,
    })
    if args.preload:
        env["LD_PRELOAD"] = args.preload
    return env


def numbers(text):
    return {name: int(value) for name, value in re.findall(r"^(\w+) (\d+)$", text, re.M)}


def print_failure(row, command, env, result):
    settings = " ".join("%s=%s" % (name, shlex.quote(value)) for name, value in env.items()
                        if name not in ("PATH", "HOME", "GPUPOOL_RUNTIME_DIR"))
    print("%s %s: exit status %d of: %s %s" % (row.kind, row.mode, result.returncode, settings, shlex.join(command)))
    print("\n".join(result.stderr.splitlines()[:60]), flush=True)


def execute(command, env, limit_s):
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                          errors="replace") as process:
        hangs = ""
        try:
            out, err = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            hangs = "\nsoak: the process hung and was killed after %d s\n" % limit_s
        except KeyboardInterrupt:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err + hangs)


def run_once(args, row, seed):
    """Runs one process. Returns True if no check failed."""
    n = min(row.left, args.chunk)
    row.left -= n
    row.n_runs += 1
    n_threads = min(args.threads, JITTER_THREADS) if has_jitter(row) else args.threads
    command = [args.program, str(n), str(seed), str(n_threads)]
    start, cpu = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory(prefix="gpupool-soak-") as runtime_dir:
        env = environment(args, row, runtime_dir)
        result = execute(EMULATOR + command, env, args.limit)
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    # The count from stderr is replaced by the program's own report if the program got that far.
    found = {"races": len(re.findall(r"^simgpu: race:", result.stderr, re.M))}
    found.update(numbers(result.stdout))
    found["invalid"] = found.pop("invalid_uses", 0)
    found["reports"] = len(REPORTS.findall(result.stderr))
    found["failed"] = int(result.returncode != 0 or found.get("operations") != n)
    found["seconds"] = time.monotonic() - start
    found["cpu s"] = now.ru_utime + now.ru_stime - cpu.ru_utime - cpu.ru_stime
    for name in row.sums:
        row.sums[name] += found.get(name, 0)
    is_bad = any(found.get(name) for name in BAD)
    if is_bad and not args.broken:
        print_failure(row, command, env, result)
    return not is_bad


def print_table(rows):
    lines = [list(COLUMNS)] + [row.cells() for row in rows]
    lines.append(["all", ""] + ["%d" % sum(row.sums[name] for row in rows) for name in COLUMNS[2:]])
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    for line in lines:
        print("  ".join(cell.ljust(width) if i < 2 else cell.rjust(width)
                        for i, (cell, width) in enumerate(zip(line, widths))).rstrip())


def interrupt(*unused):
    raise KeyboardInterrupt


def main():
    args = parse_arguments()
    rows = make_rows(args)
    seed, n_bad, is_cut_short = args.seed, 0, False
    signal.signal(signal.SIGTERM, interrupt)
    print("%d operations, %d threads, seeds from %d, %s" %
          (args.operations, args.threads, seed, time.strftime("%Y-%m-%d %H:%M")), flush=True)
    try:
        while any(row.left for row in rows) and (args.broken or n_bad < FAILURES_MAX):
            for row in rows:
                if row.left:
                    n_bad += not run_once(args, row, seed)
                    seed += 1
    except KeyboardInterrupt:
        is_cut_short = True
    print_table(rows)
    if is_cut_short:
        print("interrupted")
    if args.broken:
        n_bad = sum(not row.sums["races"] for row in rows)
    sys.exit(1 if n_bad or is_cut_short else 0)


main()
