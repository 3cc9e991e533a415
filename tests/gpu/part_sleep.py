# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Sleep and wake: unmodified programs are put to sleep every ten steps, and give the same results to the last digit; graphs,
also with conditional nodes, are replayed after their memory was asleep; times with host memory that is pinned already and
that is not; what a process that is asleep keeps on the device; what gpupool adds to a launch; two processes that take turns
on memory for one and a half of them; and a process that the driver takes out of the device, and brings back. Each program
has a time limit, so that the part takes at most 270 s.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

import ctl
import launches
import nvml
import programs
import turns
from results import Results, load

GIB, MIB = 1 << 30, 1 << 20
PROGRAM_SECONDS = 60
RESIDENT_MIB = 64
REPLAYS = 100
GIB_A_SECOND_COLD = 10
SECONDS_OF_64_GIB = 1.6
TURN_MIB, LEFT_MIB, TURN_SECONDS, SWITCHES = 40 << 10, 56 << 10, 10.5, 5
PART_SECONDS = 270
DEEP_MIB, DEEP_SECONDS, DEEP_ROUNDS = 4 << 10, 40, 2

ROUND = re.compile(
    r"round (\d+): asleep in ([\d.]+) s, ([\d.]+) GiB/s; free memory [-+\d.]+ GiB; "
    r"awake in ([\d.]+) s, ([\d.]+) GiB/s; resident (-?[\d.]+) MiB")


@dataclasses.dataclass
class Work:
    """A program that pauses now and then. module: what it needs; variables: for a result to the last digit."""

    name: str
    words: list
    module: str | None = None
    variables: dict = dataclasses.field(default_factory=dict)
    same_as: str | None = None  # the work whose raw result it has to have
    pauses: str = "every ten steps"


def works():
    script = programs.SOURCES / "work_sleep.py"
    torch = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    jax = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_FLAGS": "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"}
    return [
        Work("static", [programs.BIN / "sleep_steps"]),
        Work("conditional nodes", [programs.BIN / "sleep_steps", "conditional", REPLAYS], pauses="before each replay"),
        Work("torch", [sys.executable, script, "torch"], "torch", torch),
        Work("torch without its cache", [sys.executable, script, "torch"], "torch",
             {**torch, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, "torch"),
        Work("cupy", [sys.executable, script, "cupy"], "cupy"),
        Work("jax", [sys.executable, script, "jax"], "jax", jax),
    ]


def is_there(work):
    return work.module is None or importlib.util.find_spec(work.module) is not None


def log_of(out, name):
    """A file for a program's output, whose name has letters, digits and dashes only."""
    return out / "sleep" / (re.sub(r"[^A-Za-z0-9]+", "-", name) + ".txt")


def reason_in(log):
    """The last line of a log that says why a sleep, or a program, failed."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    found = [line for line in lines if "did not fall asleep" in line or "stays awake" in line or "error" in line]
    return found[-1].partition(": ")[2][:110] if found else ""


class Errors:
    """Standard error of a program. Each line goes to a file, and is kept with the time at which it came."""

    def __init__(self, log):
        log.parent.mkdir(parents=True, exist_ok=True)
        self.lines = []
        source, self.end = os.pipe()
        self.thread = threading.Thread(target=self.read, args=(source, log), daemon=True)
        self.thread.start()

    def read(self, source, log):
        with os.fdopen(source, errors="replace") as lines, log.open("w") as file:
            for line in lines:
                self.lines.append((time.monotonic(), line.rstrip("\n")))
                file.write(line)
                file.flush()

    def close(self):
        """Waits for the rest of the lines, unless another process still has the other end."""
        self.thread.join(1)


class Program:
    """A running program that is talked to by lines. It is killed at its time limit."""

    def __init__(self, config, words, log, variables, seconds, directory):
        self.directory, self.errors = directory, Errors(log)
        self.process = subprocess.Popen([str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors.end, env=config.environment(directory, variables), text=True)
        os.close(self.errors.end)
        self.watchdog = threading.Timer(seconds, self.process.kill)
        self.watchdog.start()

    def said(self):
        """The lines of its standard error so far, with their times."""
        return list(self.errors.lines)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.watchdog.cancel()
        self.process.kill()
        self.process.communicate()
        self.errors.close()

    def line(self):
        """The next line; it is empty once the program has ended."""
        return self.process.stdout.readline().strip()

    def tell(self, line=""):
        try:
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it has ended, and its next line is empty

    def ask(self, request):
        answer = ctl.ask_process(self.directory, self.process.pid, request)
        return answer if answer is not None else {"error": "no control socket"}


def run_work(work, config, log, sleeps):
    """Runs a program. Returns its digest, the bytes of each sleep, and why the first sleep failed."""
    found, refusal = [], ""
    with programs.private_dir() as directory, Program(
            config, work.words, log, work.variables, PROGRAM_SECONDS, directory) as program:
        while (line := program.line()).startswith("step"):
            if sleeps:
                answer = program.ask("sleep 5000")
                found.append(answer.get("device_bytes", 0))
                refusal = refusal or answer.get("error", "")
            program.tell()
    if line.startswith("skip: "):
        return line, [], ""
    return line.removeprefix("digest ") if line.startswith("digest ") else None, found, refusal


def check_works(results, config, out, jobs):
    """All programs at once: each one alone leaves most of the GPU idle, and most of its time is that of its start."""
    there = [work for work in works() if is_there(work)]
    for work in works():
        if work not in there:
            results.note(f"{work.name}: not here, left out", work.module)
    raw = programs.Config("raw")
    with concurrent.futures.ThreadPoolExecutor(max(jobs, 1)) as pool:
        slept = {work.name: pool.submit(run_work, work, config, log_of(out, work.name), True) for work in there}
        plain = {work.name: pool.submit(run_work, work, raw, log_of(out, work.name + " raw"), False)
                 for work in there if not work.same_as}
    for work in there:
        wanted = plain[work.same_as or work.name].result()[0]
        digest, sleeps, refusal = slept[work.name].result()
        if wanted is not None and wanted.startswith("skip: "):
            results.note(f"{work.name}: left out", wanted.removeprefix("skip: "))
            continue
        count = sum(1 for n in sleeps if n)
        results.check(f"{work.name}: asleep and awake {work.pauses}", sleeps and count == len(sleeps),
                      f"{count} of {len(sleeps)} {refusal[:90]}".strip())
        results.check(f"{work.name}: the same result to the last digit", wanted is not None and digest == wanted,
                      (digest or "none")[:12])
        results.note(f"{work.name}: bytes of a sleep", max(sleeps, default=0) // MIB, "MiB")


def host_left():
    """Bytes of host memory that are left to this machine, or this control group."""
    left = next(int(line.split()[1]) << 10 for line in open("/proc/meminfo") if line.startswith("MemAvailable:"))
    try:
        with open("/sys/fs/cgroup/memory.max") as most, open("/sys/fs/cgroup/memory.current") as current:
            left = min(left, int(most.read()) - int(current.read()))
    except (OSError, ValueError):
        pass
    return left


def rounds_of(text):
    """The rounds that sleep_turns printed, as (seconds out, GiB/s out, seconds in, GiB/s in, MiB resident)."""
    return [tuple(float(value) for value in found[1:]) for found in ROUND.findall(text)]


def check_times(results, library, out, mib, kept, seconds):
    """With kept, the first sleep finds no pinned memory, and the next ones do."""
    name = f"{mib / 1024:g} GiB, {'kept' if kept else 'cold'}"
    variables = {"GPUPOOL_POOL": "vmm", "GPUPOOL_SLEEP_KEEP": "on" if kept else "off", "GPUPOOL_LOG": "info"}
    words = [programs.BIN / "sleep_turns", "times", mib, 3 if kept else 1]
    log = log_of(out, name)
    done = programs.run_program(programs.Config(name, library, variables), words, log, seconds)
    rounds = rounds_of(done.text)
    why = reason_in(log.with_suffix(".err")) if done.status else ""
    results.check(f"{name}: content is right", done.status == 0 and rounds, f"status {done.status} {why}".strip())
    if not rounds:
        return
    warm = rounds[1:] if kept else []
    results.bar(f"{name}: first sleep", rounds[0][1], "GiB/s", ">=", GIB_A_SECOND_COLD)
    results.note(f"{name}: first sleep took", rounds[0][0], "s")
    results.note(f"{name}: first wake took", rounds[0][2], "s")
    results.bar(f"{name}: resident asleep beyond the context", max(row[4] for row in rounds), "MiB", "<=", RESIDENT_MIB)
    if warm:
        results.note(f"{name}: sleep with pinned memory", max(row[1] for row in warm), "GiB/s")
        results.note(f"{name}: wake with pinned memory", max(row[3] for row in warm), "GiB/s")
    if warm and mib == 64 << 10:
        results.bar(f"{name}: asleep", min(row[0] for row in warm), "s", "<=", SECONDS_OF_64_GIB)
        results.bar(f"{name}: awake", min(row[2] for row in warm), "s", "<=", SECONDS_OF_64_GIB)


def check_programs(results, library, out, mib):
    """Programs that put themselves to sleep, and say what was right."""
    variables = {"GPUPOOL_POOL": "vmm", "GPUPOOL_SLEEP_KEEP": "on", "GPUPOOL_LOG": "info"}
    for name, words in (("sleep_turns", ["graphs", mib, REPLAYS]), ("sleep_probe", [0])):
        done = programs.run_program(programs.Config(name, library, variables), [programs.BIN / name, *words],
                                    log_of(out, name), PROGRAM_SECONDS)
        for line in done.text.splitlines():
            what, _, verdict = line.rpartition(" ")
            if verdict in ("right", "WRONG"):
                results.check(f"{name}: {what.strip()}", verdict == "right")
        results.check(f"{name}: finished", done.status == 0, f"status {done.status}")


def run_stat(stat, directory, words, log):
    """Runs gpupool-stat. Returns its exit status, its output, and the seconds that it took."""
    begun = time.monotonic()
    done = subprocess.run([str(word) for word in (stat, *words)], capture_output=True, text=True, timeout=DEEP_SECONDS, check=False,
                          env={**programs.Config("stat").environment(directory, {}), "GPUPOOL_RUNTIME_DIR": directory})
    with log.open("a") as file:
        print(*words, done.returncode, done.stdout, done.stderr, file=file)
    return done.returncode, " ".join((done.stdout + done.stderr).split()), time.monotonic() - begun


def check_deep(results, library, out, mib, seconds):
    """The memory of a process as NVML sees it awake, asleep and deep asleep; its content; and calls that wait meanwhile."""
    stat = programs.stat_program(library)
    if not stat:
        results.note("deep: left out: gpupool-stat was not built", "Jansson is missing")
        return
    device, log = nvml.Device(), log_of(out, "deep stat")
    variables = {"GPUPOOL_POOL": "vmm", "GPUPOOL_SLEEP_KEEP": "on", "GPUPOOL_LOG": "info"}
    config, before = programs.Config("deep", library, variables), device.used_bytes()
    with programs.private_dir() as directory, Program(
            config, [programs.BIN / "deep_probe", mib], log_of(out, "deep"), {}, seconds, directory) as program:
        pid = program.process.pid

        def note(when, took=None):
            results.note(f"deep: device memory {when}, beyond what others use", (device.used_bytes() - before) // MIB, "MiB")
            results.note(f"deep: of the process by NVML, {when}", (device.bytes_of(pid) or 0) // MIB, "MiB")
            if took is not None:
                results.note(f"deep: seconds of gpupool-stat until {when}", took, "s")

        results.check("deep: the program is ready", program.line().startswith("ready "))
        note("awake")
        for nth in range(DEEP_ROUNDS):
            if nth == 0:
                status, text, took = run_stat(stat, directory, ["sleep", pid, "--timeout=5"], log)
                results.check("deep: asleep", status == 0, text[:110])
                note("asleep", took)
            status, text, took = run_stat(stat, directory, ["sleep", pid, "--deep", "--timeout=5"], log)
            results.check(f"deep: deep asleep, round {nth + 1}", status == 0 and "took out" in text, text[:200])
            if status:
                return
            note("deep asleep", took)
            results.bar("deep: left of the process on the device", (device.used_bytes() - before) // MIB, "MiB", "<=", 0)
            program.tell("call")
            results.check("deep: the program makes calls", program.line() == "called")
            time.sleep(0.3)
            listed = run_stat(stat, directory, ["list"], log)[1]
            results.check("deep: the process answers, and is shown as deep asleep", " deep " in f"{listed} ", listed[-110:])
            status, text, took = run_stat(stat, directory, ["wake", pid, "--timeout=5"], log)
            results.check(f"deep: awake, round {nth + 1}", status == 0, text[:200])
            note("awake again", took)
            program.tell("join")
            results.check("deep: calls that waited go on", program.line() == "joined 3")
            program.tell("check")
            program.line()
            line = program.line()
            results.check("deep: content of the pool's memory and of the driver's is right", line == "returned 3 wrong 0", line)


def run_works(results, library, out, options):
    config = programs.Config("sleep", library, {"GPUPOOL_POOL": "vmm", "GPUPOOL_LOG": "info"})
    check_works(results, config, out, jobs=max(options.jobs, 4))


def run_programs(results, library, out, options):
    del options
    check_programs(results, library, out, 256)


def run_times(results, library, out, options):
    del options
    for gib, kept, seconds in ((16, True, 25), (16, False, 25), (32, True, 40), (64, True, 60)):
        left = host_left()
        results.note(f"host memory left before {gib} GiB", left // GIB, "GiB")
        if left >= (gib + 8) * GIB:
            check_times(results, library, out, gib << 10, kept, seconds)
        else:
            results.note(f"{gib} GiB: too little host memory, left out", left // GIB, "GiB")


def run_launches(results, library, out, options):
    with programs.private_dir() as directory:
        def start(config, words):
            log = log_of(out, f"launches {config.name}")
            return Program(config, words, log, {}, launches.PROGRAM_SECONDS, directory)
        launches.check(results, library, start, seconds=launches.SECONDS * options.scale)


def run_turns(results, library, out, options):
    """Without a plan, fewer turns if the part has less time left."""
    plan = getattr(options, "turns", None)
    if not plan:
        phases = int((options.end - time.monotonic()) / (TURN_SECONDS + turns.SWITCH_SECONDS)) - 3
        plan = turns.Plan(TURN_MIB, LEFT_MIB, TURN_SECONDS * options.scale, min(SWITCHES, phases))
    if host_left() < 2 * (plan.mib / 1024 + 4) * GIB or plan.switches <= 1:
        results.note("turns: left out for lack of host memory, or of time", host_left() // GIB, "GiB")
        return
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(programs.private_dir())

        def start(config, name, words, seconds):
            return stack.enter_context(Program(config, words, log_of(out, name), {}, seconds, directory))
        turns.check(results, library, start, plan, host_left, lambda name: reason_in(log_of(out, name)))


def run_deep(results, library, out, options):
    del options
    check_deep(results, library, out, DEEP_MIB, DEEP_SECONDS)


STEPS = {"works": run_works, "programs": run_programs, "launches": run_launches, "deep": run_deep, "turns": run_turns,
         "times": run_times}


def run(results, out, options, names=tuple(STEPS)):
    """Runs the steps, or those with the names."""
    library, started = programs.preload_library(), time.monotonic()
    options.end = started + PART_SECONDS
    for name in names:
        begun = time.monotonic()
        STEPS[name](results, library, out, options)
        results.note(f"{name}: seconds", time.monotonic() - begun, "s")


def parse_arguments():
    parser = argparse.ArgumentParser(description="Runs steps of the part `sleep`, after scripts/gpu-test --build.")
    parser.add_argument("steps", nargs="+", choices=STEPS, metavar="STEP", help=", ".join(STEPS))
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR", help="for the output of all programs")
    parser.add_argument("--scale", type=float, default=1, help="multiplies the number of rounds")
    parser.add_argument("--phase", type=float, default=TURN_SECONDS, metavar="SECONDS", help="turns: length of a phase")
    parser.add_argument("--switches", type=int, default=SWITCHES, metavar="N", help="turns: switches between the two")
    parser.add_argument("--mib", type=int, default=TURN_MIB, help="turns: memory of each of the two")
    parser.add_argument("--touch", type=int, default=0, metavar="GIB",
                        help="turns: host memory that is touched before, as a virtual machine may get it only then")
    parser.add_argument("--left", type=int, default=LEFT_MIB, metavar="MIB", help="turns: memory left to both")
    options = parser.parse_args()
    options.turns = turns.Plan(options.mib, options.left, options.phase, options.switches, min(10, options.phase),
                               touched_gib=options.touch)
    options.jobs = 3
    return options


def main():
    options = parse_arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    found = Results(options.out, "sleep")
    run(found, options.out, options, options.steps)
    sys.exit(0 if all(row.get("ok", True) for row in load(options.out, ["sleep"])) else 1)


if __name__ == "__main__":
    main()
