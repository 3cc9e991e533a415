# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Runs the soak program under every kind of pool and mode of reuse, and prints a table of what it found.

A row's operations are done by one process after the other, each with a seed of its own, and the rows take turns: so a
run that is cut short has still seen all of them. Ends with 1 if anything was wrong; or, with --broken, if one of the
rows has seen no race.
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

# How much of the operations a kind gets: a driver call for everything takes its time.
SHARES = {"split": 3, "vmm": 3, "binned": 3, "simple": 3, "none": 1}
ABSENT = "absent"  # the program without gpupool: what is wrong there is the program's or the simulator's fault
MODES = ("ordered", "completed")
LIMIT_MIB = 64
# In every third process some calls are held up before their effect and before their return. Few threads: each fence that
# another thread records meanwhile covers the submission.
JITTER_THREADS = 4
JITTER = "cuGraphLaunch=2,cuLaunchKernel=100,cuMemcpyHtoDAsync_v2=100,cuCtxRecordEvent=100"

REPORTS = re.compile(r"WARNING: ThreadSanitizer|ERROR: \w+Sanitizer|runtime error:")
COLUMNS = ("kind", "mode", "operations", "seconds", "cpu s", "checks", "captures", "ended", "exports", "inflight", "clients", "killed",
           "ooms", "races", "deadlocks", "invalid", "wrong", "reports", "failed")
BAD = ("races", "deadlocks", "invalid", "wrong", "reports", "failed")
EMULATOR = os.environ.get("GPUPOOL_TEST_EMULATOR", "").split()
TOLD_ONCE = 6  # runs that went wrong are shown with what they said, but not more of them


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
                        help="in all (10^8)")
    parser.add_argument("--seed", type=int, default=int(time.time()), metavar="S", help="of the first process")
    parser.add_argument("--kind", action="append", choices=[*SHARES, ABSENT], help="only that kind of pool, or those")
    parser.add_argument("--mode", action="append", choices=MODES + ("auto",), help="only that mode, or those")
    parser.add_argument("--threads", type=int, default=64, metavar="N")
    parser.add_argument("--devices", type=int, default=2, metavar="N", help="simulated ones")
    parser.add_argument("--chunk", type=int, default=1000000, metavar="N", help="operations of one process, at most")
    parser.add_argument("--limit", type=int, default=3600, metavar="SECONDS", help="of one process; then it hangs")
    parser.add_argument("--broken", action="store_true", help="the library is, and must be found out")
    parser.add_argument("--program", required=True)
    parser.add_argument("--library", dest="preload", help="to preload")
    parser.add_argument("--driver", required=True, metavar="DIRECTORY", help="that has libcuda.so.1")
    return parser.parse_args()


def make_rows(args):
    kinds, modes = args.kind or list(SHARES), args.mode or list(MODES)
    unit = args.operations / sum(SHARES.get(kind, 1) for kind in kinds) / len(modes)
    rows = [Row(kind, mode, int(SHARES.get(kind, 1) * unit)) for kind in kinds for mode in modes]
    rows[0].left += args.operations - sum(row.left for row in rows)
    args.chunk = min(args.chunk, (max(row.left for row in rows) + 1) // 2)  # at least one process of each sort
    return rows


def has_jitter(row):
    return row.n_runs % 3 == 1


def environment(args, row, runtime_dir):
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    env.update({
        "LD_LIBRARY_PATH": args.driver,
        "SIMGPU_DEVICES": str(args.devices),
        "SIMGPU_STRICT": "1",
        "SIMGPU_DEADLOCK_MS": "60000",  # threads of a busy machine may stand still for long
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
        # Every other process runs out of memory now and then.
        "GPUPOOL_LIMIT": "%dMiB" % LIMIT_MIB if row.n_runs % 2 else "none",
        "GPUPOOL_RUNTIME_DIR": runtime_dir,
    })
    if args.preload:
        env["LD_PRELOAD"] = args.preload
    return env


def numbers(text):
    return {name: int(value) for name, value in re.findall(r"^(\w+) (\d+)$", text, re.M)}


def tell(row, command, env, result):
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
            hangs = "\nsoak: it hung, and was killed after %d s\n" % limit_s
        except KeyboardInterrupt:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err + hangs)


def run_once(args, row, seed):
    """One process; True if nothing was wrong."""
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
    found = {"races": len(re.findall(r"^simgpu: race:", result.stderr, re.M))}  # if it does not come to its report
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
        tell(row, command, env, result)
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
        while any(row.left for row in rows) and (args.broken or n_bad < TOLD_ONCE):
            for row in rows:
                if row.left:
                    n_bad += not run_once(args, row, seed)
                    seed += 1
    except KeyboardInterrupt:
        is_cut_short = True
    print_table(rows)
    if is_cut_short:
        print("cut short")
    if args.broken:
        n_bad = sum(not row.sums["races"] for row in rows)
    sys.exit(1 if n_bad or is_cut_short else 0)


main()
