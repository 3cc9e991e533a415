# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
CuPy, PyTorch and Numba over gpupool, with their own pools (or their queues of pending frees) switched off, compared with
their own pools: the answers have to be equal, the speed too, and memory has to be similar. Memory is measured through
the control socket and on the device, never by the program itself.
"""

import dataclasses
import functools
import importlib.util
import json
import statistics
import subprocess
import sys
import threading

import ctl
import programs
from memory_watch import MemoryWatch

RUNS = 5
RUN_SECONDS = 90
TIME_RATIO = 1.10
MEMORY_RATIO = 1.25
MIB = 1 << 20
# Families of functions that submit work: shim/driver/submit.def has all functions of the driver, and the runtime's
# functions call these (order_ends).
SUBMIT_FAMILIES = ("cudaLaunch", "cuLaunch", "cudaMemcpy", "cuMemcpy", "cudaMemset", "cuMemset", "cudaGraphLaunch",
                   "cuGraphLaunch")
FAILURES = (programs.Trouble, OSError, ValueError, subprocess.TimeoutExpired)


@dataclasses.dataclass
class Work:
    name: str
    needs: str
    script: str
    off_words: list  # arguments that switch its own pool off
    off_variables: dict
    has_memory_bar: bool


WORKS = [
    Work("torch", "torch", "work_torch.py", [], {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, True),
    Work("cupy", "cupy", "work_cupy.py", ["none"], {}, False),
    Work("numba", "numba_cuda", "work_numba.py", [], {"NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT": "0"}, False),
]


@dataclasses.dataclass
class Outcome:
    ms: float
    answer: str
    own_peak: int | None
    outside_peak: int | None  # bytes in use on the device, less those before the program
    outside_end: int | None
    pool_peak: int | None
    pool_total: int | None


def look_inside(config, directory, pid):
    if not config.preload:
        return None, None
    status = ctl.ask_process(directory, pid, "status")
    if not status:
        raise programs.Trouble("no control socket: is the program under the preload?")
    peak = ctl.device_sum(status, "peak_total_bytes")
    return peak, ctl.device_sum(status, "total_bytes")


def run_once(work, config, words, variables, log):
    """Runs the program until it waits, observes it, and lets it finish."""
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(programs.SOURCES / work.script), *words]
    with programs.private_dir() as directory, log.open("a") as err, MemoryWatch() as memory:
        env = config.environment(directory, variables)
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, env=env, text=True
        )
        watchdog = threading.Timer(RUN_SECONDS, process.kill)
        watchdog.start()
        try:
            line = process.stdout.readline()
            if not line.startswith("{"):
                raise programs.Trouble(f"no result: {line.strip() or 'see ' + log.name}")
            found = json.loads(line)
            outside_end = memory.now()
            peak, total = look_inside(config, directory, process.pid)
            process.communicate("\n", timeout=30)
        finally:
            watchdog.cancel()
            process.kill()
            process.wait()
        outside_peak = memory.peak()
    err_line = f"{config.name}: {line}"
    with log.open("a") as file:
        file.write(err_line)
    return Outcome(
        ms=statistics.median(found["ms"]),
        answer=found["answer"],
        own_peak=found["own_peak_bytes"],
        outside_peak=outside_peak,
        outside_end=outside_end,
        pool_peak=peak,
        pool_total=total,
    )


def variants(work, library):
    """Yields (name, config, words, variables, runs)."""
    raw = programs.Config("raw")
    pool = programs.Config("gpupool", library)
    yield "own", raw, [], {}, True
    yield "gpupool", pool, work.off_words, work.off_variables, True
    yield "raw", raw, work.off_words, work.off_variables, False
    yield "own over gpupool", pool, [], {}, False


def collect(results, work, library, out, runs):
    """
    Runs own pool and gpupool in turn, so that drift of the machine affects both, and the other configurations once.
    """
    outcomes = {}
    for nth in range(runs):
        for name, config, words, variables, is_repeated in variants(work, library):
            if nth and not is_repeated:
                continue
            try:
                log = out / "python" / f"{work.name}.txt"
                outcomes.setdefault(name, []).append(run_once(work, config, words, variables, log))
            except FAILURES as error:
                results.check(f"{work.name}, {name}: run {nth + 1}", False, str(error)[:60])
    return outcomes


def median_of(outcomes, name, field):
    values = [getattr(outcome, field) for outcome in outcomes.get(name, [])]
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def ratio(a, b):
    return a / b if a is not None and b else None


def check_from_outside(results, work, outcomes):
    """Checks that gpupool does not report more memory than the device has in use."""
    wrong = [o for o in outcomes if o.outside_end is not None and o.pool_total > o.outside_end]
    found = [f"{o.pool_total / MIB:.0f} > {o.outside_end / MIB:.0f} MiB" for o in wrong[:1]]
    ok = bool(outcomes) and not wrong
    results.check(f"{work.name}: total_bytes is at most the memory in use on the device", ok, "".join(found))


def judge(results, work, outcomes):
    for name in outcomes:
        results.note(f"{name} | {work.name} ms a step", median_of(outcomes, name, "ms"))
        for field in ["own_peak", "pool_peak", "pool_total", "outside_peak", "outside_end"]:
            value = median_of(outcomes, name, field)
            if value is not None:
                results.note(f"{name} | {work.name} {field} MiB", round(value / MIB, 1))
    answers = {outcome.answer for found in outcomes.values() for outcome in found}
    found = " / ".join(sorted(answers))[:70]
    results.check(f"{work.name}: the same answer in every configuration", len(answers) == 1, found)
    gpupool, own = (functools.partial(median_of, outcomes, name) for name in ["gpupool", "own"])
    name = f"{work.name}: time of a step, gpupool over own pool"
    results.bar(name, ratio(gpupool("ms"), own("ms")), "", "<=", TIME_RATIO)
    name = f"{work.name}: peak memory, gpupool over own pool"
    memory = ratio(gpupool("pool_peak"), own("own_peak"))
    if work.has_memory_bar:
        results.bar(name, memory, "", "<=", MEMORY_RATIO)
    else:
        results.note(name, memory)
    seen = ratio(gpupool("outside_peak"), own("outside_peak"))
    results.note(f"{work.name}: peak in use on the device, gpupool over own pool", seen)
    check_from_outside(results, work, outcomes.get("gpupool", []))


def run_submit_calls(results, out):
    """
    Checks that libraries submit work only by functions in headers of the runtime or driver, not by private interfaces.
    """
    if not importlib.util.find_spec("torch"):
        results.note("work of libraries: skipped, torch is not installed", None)
        return
    config = programs.Config("raw")
    command = [sys.executable, programs.SOURCES / "submit_calls.py"]
    done = programs.run_program(config, command, out / "python" / "submit_calls.txt",
                                timeout=RUN_SECONDS)
    rows = [pairs for word, pairs in programs.parse_lines(done.text) if word == "submit_calls"]
    results.check("work of libraries: the program ended well", done.status == 0 and len(rows) >= 5,
                  f"status {done.status}, {len(rows)} libraries")
    for pairs in rows:
        calls = pairs["by"].split(",")
        unseen = [call for call in calls if not call.startswith(SUBMIT_FAMILIES)]
        results.check(f"work of libraries: {pairs['name']}: all {pairs['works']} works by functions in headers",
                      int(pairs["works"]) > 0 and not unseen, ", ".join(unseen))


def run(results, out, options):
    library = programs.preload_library()
    run_submit_calls(results, out)
    for work in WORKS:
        if not importlib.util.find_spec(work.needs):
            results.note(f"{work.name}: skipped, not installed", None)
            continue
        runs = max(1, round(RUNS * options.scale))
        judge(results, work, collect(results, work, library, out, runs))
