# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Programs of frameworks that have a pool of their own, raw and started by gpupool-run: with that pool in front, and with
--own-pools=off. Each way has to give the same results. Time and memory are compared with the raw program. A framework
that is not on this machine is named and not run.

Kokkos and AMReX have no packages with CUDA: build_frameworks.sh builds their programs into build-gpu/frameworks, or into
the folder that GPUPOOL_FRAMEWORKS names.
"""

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import shlex
import signal
import statistics
import subprocess
import sys
import threading
import time

import ctl
import memory_watch
import programs

PART_SECONDS = 380
RUN_SECONDS = 60
END_SECONDS = 20
LEAST_SECONDS = 2
IDLE_SECONDS, IDLE_BYTES = 5, 8 << 20
MIB = 1 << 20
VERSION = "version of "
FAILURES = (programs.Trouble, OSError, ValueError, subprocess.SubprocessError)


@dataclasses.dataclass
class Way:
    """A way to start a program. pool: the pool type of gpupool, None without gpupool."""

    name: str
    pool: str | None = None
    is_own_off: bool = False
    is_repeated: bool = True


WAYS = [
    Way("raw"),
    Way("split below", "split"),
    Way("vmm below", "vmm"),
    Way("split", "split", True),
    Way("vmm", "vmm", True),
    Way("cudaMalloc", None, True, False),
]
BASE = "raw"
MAIN_WAYS = tuple(way.name for way in WAYS if way.pool or not way.is_own_off)
HEADINGS = {
    "raw": "without gpupool",
    "split below": "on, above `split`",
    "vmm below": "on, above `vmm`",
    "split": "off, `split`",
    "vmm": "off, `vmm`",
    "cudaMalloc": "off, without gpupool",
}


@dataclasses.dataclass
class Framework:
    """
    words: the command; off_words: the command that has the framework's own pool off, where gpupool-run cannot; package:
    the Python package that tells the version.
    """

    name: str
    words: list
    rounds: int
    modules: tuple = ()
    off_words: list | None = None
    ways: tuple = tuple(way.name for way in WAYS)
    is_answer_exact: bool = True
    may_fail: tuple = ()  # ways in which a failure is an answer, too
    package: str | None = None


def script(name):
    return [sys.executable, str(programs.SOURCES / name)]


def folder():
    return pathlib.Path(os.environ.get("GPUPOOL_FRAMEWORKS", programs.WORK / "frameworks")).resolve()


def frameworks():
    """The programs, the most important ones first: the part stops when its time is over."""
    kokkos, kokkos_async, amrex = (str(folder() / name) for name in ("work_kokkos", "work_kokkos_async", "work_amrex"))
    return [
        Framework("PyTorch", script("work_torch.py"), 2, ("torch",), ways=("raw", "split below", "split", "vmm"),
                  package="torch"),
        Framework("TensorFlow", script("work_tensorflow.py"), 2, ("tensorflow",), ways=MAIN_WAYS, package="tensorflow"),
        Framework("Kokkos", [kokkos_async], 3, off_words=[kokkos]),
        Framework("AMReX", [amrex], 3, off_words=[amrex, "amrex.the_arena_init_size=0"]),
        Framework("RMM", script("work_rmm.py"), 3, ("rmm", "cupy"), package="rmm-cu13"),
        Framework("cuDF", script("work_cudf.py"), 2, ("cudf",), package="cudf-cu13"),
        Framework("JAX", script("work_jax.py"), 2, ("jax",), ways=("raw", "split below", "vmm below", "split"),
                  package="jax"),
        Framework("Numba", script("work_numba.py"), 2, ("numba_cuda",), package="numba-cuda"),
        Framework("CuPy", script("work_cupy.py"), 2, ("cupy",), package="cupy-cuda13x"),
        Framework("DALI", script("work_dali.py"), 2, ("nvidia.dali",), ways=MAIN_WAYS,
                  package="nvidia-dali-cuda130"),
        Framework("torch.compile", script("work_torch_compile.py"), 1, ("torch",), is_answer_exact=False,
                  ways=("raw", "split below", "split", "vmm", "cudaMalloc"), may_fail=("split", "vmm", "cudaMalloc")),
    ]


def is_there(module):
    """True if this Python finds the module, which may be one of a package that is not there."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def missing(framework):
    """Returns what this machine lacks for the framework, or None."""
    for module in framework.modules:
        if not is_there(module):
            return f"the Python package {module}"
    for words in filter(None, (framework.words, framework.off_words)):
        if not os.access(words[0], os.X_OK):
            return pathlib.Path(words[0]).name
    return None


def find_gpupool_run():
    build = pathlib.Path(os.environ.get("GPUPOOL_BUILD", programs.WORK / "preload")).resolve()
    for path in (os.environ.get("GPUPOOL_RUN"), build / "tools" / "gpupool-run"):
        if path and os.access(path, os.X_OK):
            return str(path)
    raise programs.Trouble(f"no gpupool-run in {build}/tools")


def command_of(framework, way, gpupool_run, library):
    words = framework.off_words if way.is_own_off and framework.off_words else framework.words
    if not way.pool and not way.is_own_off:
        return words
    options = ["--summary", f"--pool={way.pool}"] if way.pool else ["-q", "--enable=off"]
    options += [f"--library={library}"] if library else []
    options += ["--own-pools=off"] if way.is_own_off else []
    return [gpupool_run, *options, *words]


@dataclasses.dataclass
class Outcome:
    ms: float
    answer: str
    peak: int | None  # bytes in use on the device, less those before the program
    hits: int | None
    misses: int | None
    found: dict


def counts(directory):
    """(hits, misses) of the process that has most, since a framework may start helpers."""
    best = (None, None)
    for path in ctl.sockets(directory):
        with contextlib.suppress(OSError, ValueError):
            status = ctl.ask(path, "status")
            found = ctl.device_sum(status, "hits"), ctl.device_sum(status, "misses")
            best = max(best, found, key=lambda pair: sum(pair) if pair[0] is not None else -1)
    return best


def read_result(stream):
    """The first line of a program that is a JSON object. A framework may print lines before it."""
    for line in stream:
        if line.startswith("{"):
            return json.loads(line)
    raise programs.Trouble("no result")


def last_words(path, start):
    """The last line of a log that tells an error, without the lines before this run."""
    with path.open(errors="replace") as file:
        file.seek(start)
        lines = [line.strip() for line in file if line.strip()]
    errors = [line for line in lines if "Error" in line or "error" in line]
    return (errors or lines or ["it said nothing"])[-1]


def kill_group(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def observe(process, directory, log, start, seconds):
    """The result of a program that has been started, and (hits, misses). Then lets the program finish."""
    watchdog = threading.Timer(seconds, kill_group, [process])
    watchdog.start()
    try:
        found = read_result(process.stdout)
        pair = counts(directory)
        process.communicate("\n", timeout=END_SECONDS)
        return found, pair
    except programs.Trouble as trouble:
        is_late = not watchdog.is_alive()
        raise programs.Trouble(f"no result within {seconds:.0f} s" if is_late else last_words(log, start)) from trouble
    finally:
        watchdog.cancel()
        kill_group(process)


def run_once(command, environment, log, seconds):
    """Runs the program until it waits, observes it, and lets it finish."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with programs.private_dir() as directory, log.open("a") as err, memory_watch.MemoryWatch() as memory:
        err.write(f"\n$ {shlex.join(map(str, command))}\n")
        err.flush()
        start = err.tell()
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, text=True,
                              env={**environment, "GPUPOOL_RUNTIME_DIR": directory}, start_new_session=True) as process:
            found, (hits, misses) = observe(process, directory, log, start, seconds)
    if process.returncode:
        raise programs.Trouble(f"exit status {process.returncode}: {last_words(log, start)}")
    with log.open("a") as file:
        file.write(f"{json.dumps(found)}\n")
    return Outcome(statistics.median(found["ms"]), found["answer"], memory.peak(), hits, misses, found)


def base_environment(out):
    """The environment without settings of gpupool. Compilers keep what they made for the next way."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GPUPOOL")}
    for variable in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        environment[variable] = str(out / "frameworks" / "cache")
    return environment


class Idle:
    """Waits until the memory of the program before is free again, which can be later than its end."""

    def __init__(self, reader, seconds=IDLE_SECONDS):
        self.reader, self.seconds = reader, seconds
        self.lowest = reader.read() if reader else None

    def wait(self):
        end = time.monotonic() + self.seconds
        while self.reader:
            now = self.reader.read()
            self.lowest = min(self.lowest, now)
            if now <= self.lowest + IDLE_BYTES or time.monotonic() > end:
                break
            time.sleep(0.02)


class Clock:
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return self.end - time.monotonic()


class Runs:
    """The runs of one framework, and what came of them."""

    def __init__(self, results, framework, start):
        self.results, self.framework, self.start = results, framework, start
        self.outcomes, self.failed, self.longest = {}, set(), 0.0

    def fail(self, way, nth, error):
        self.failed.add(way.name)
        name = f"{self.framework.name}, {way.name}: run {nth + 1}"
        if way.name in self.framework.may_fail:
            self.results.note(f"{name} failed", str(error)[:300])
            self.results.note(f"{way.name} | {self.framework.name} result", "fails")
        else:
            self.results.check(name, False, str(error)[:300])

    def run(self, way, nth, clock):
        before = clock.left()
        if before < self.longest + LEAST_SECONDS:
            if not nth:
                self.results.note(f"{way.name} | {self.framework.name} runs", "no time")
            return
        try:
            outcome = self.start(self.framework, way, min(RUN_SECONDS, before))
            self.outcomes.setdefault(way.name, []).append(outcome)
        except FAILURES as error:
            self.fail(way, nth, error)
        self.longest = max(self.longest, before - clock.left())

    def run_round(self, nth, clock):
        """Runs the ways in turn, so that drift of the machine affects all of them."""
        for way in WAYS:
            is_wanted = way.name in self.framework.ways and way.name not in self.failed
            if is_wanted and (way.is_repeated or not nth):
                self.run(way, nth, clock)


def collect(all_runs, scale, clock):
    """Runs each framework once, then again those that need more runs, as long as there is time."""
    rounds = [max(1, round(runs.framework.rounds * scale)) for runs in all_runs]
    for nth in range(max(rounds, default=0)):
        for runs, wanted in zip(all_runs, rounds):
            if nth < wanted:
                runs.run_round(nth, clock)


def median_of(outcomes, field):
    values = [getattr(outcome, field) for outcome in outcomes]
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def note_way(results, framework, name, outcomes, base):
    def note(question, value):
        results.note(f"{name} | {framework.name} {question}", value)

    ms, base_ms = median_of(outcomes, "ms"), median_of(base, "ms")
    note("runs", len(outcomes))
    note("ms a step", ms)
    note("time relative to raw", ms / base_ms if base_ms else None)
    peak = median_of(outcomes, "peak")
    note("peak on the device MiB", round(peak / MIB) if peak is not None else None)
    hits, misses = outcomes[-1].hits, outcomes[-1].misses
    if hits is not None:
        note("allocations served", hits + misses)
        note("allocations served without the driver", hits)
    for key, value in outcomes[-1].found.items():
        if key not in ("ms", "answer", "own_peak_bytes"):
            note(key, value)


def note_version(results, framework):
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        results.note(f"{VERSION}{framework.name}", importlib.metadata.version(framework.package))


def judge(results, framework, outcomes):
    if framework.package and outcomes:
        note_version(results, framework)
    for name, found in outcomes.items():
        note_way(results, framework, name, found, outcomes.get(BASE, []))
    answers = {outcome.answer for found in outcomes.values() for outcome in found}
    text = " / ".join(sorted(answers))[:200]
    name = f"{framework.name}: the same answer in every way"
    if framework.is_answer_exact:
        results.check(name, len(answers) == 1, text)
    else:
        results.note(name, "yes" if len(answers) == 1 else f"no: {text}")
    for way in WAYS:
        if way.pool and outcomes.get(way.name):
            served = [outcome.hits is not None for outcome in outcomes[way.name]]
            results.check(f"{framework.name}, {way.name}: gpupool was there", all(served))


def cell(notes, way, name):
    """A way of a framework in a table: the time relative to the raw program, and the memory."""
    found = {question: notes.get(f"{way} | {name} {question}") for question in ("time relative to raw", "peak on the device MiB")}
    time_ratio, peak = found.values()
    if not isinstance(time_ratio, (int, float)):
        return notes.get(f"{way} | {name} result", "")
    return f"{time_ratio:.2f}" + (f", {peak} MiB" if peak is not None else "")


def table(rows):
    """The head and the rows of a table with a line for each framework that ran."""
    notes = {row["name"]: row["value"] for row in rows if row["type"] == "note"}
    lines = []
    for framework in frameworks():
        runs = [notes.get(f"{way.name} | {framework.name} runs") for way in WAYS]
        runs = [n for n in runs if isinstance(n, int) and n > 0]
        if runs:
            few, many = min(runs), max(runs)
            lines.append([framework.name, *(cell(notes, way.name, framework.name) for way in WAYS),
                          str(few) if few == many else f"{few} to {many}"])
    return ["program", *(HEADINGS[way.name] for way in WAYS), "runs"], lines


def software(rows):
    """The frameworks that ran, and their versions as far as they are known."""
    return [f"{row['name'].removeprefix(VERSION)} {row['value']}" for row in rows if row["name"].startswith(VERSION)]


def find_runs(results, out, programs_of):
    """The runs of the frameworks that are there. The others are named."""
    library, gpupool_run, environment = programs.preload_library(), find_gpupool_run(), base_environment(out)
    idle, all_runs = Idle(memory_watch.find_reader()), []
    for framework in programs_of():
        lacking = missing(framework)
        if lacking:
            results.note(f"{framework.name}: not there: this machine lacks {lacking}", None)
            continue
        log = out / "frameworks" / f"{framework.name.lower()}.txt"

        def start(framework, way, seconds, log=log):
            idle.wait()
            return run_once(command_of(framework, way, gpupool_run, library), environment, log, seconds)

        all_runs.append(Runs(results, framework, start))
    return all_runs


def run(results, out, options, programs_of=frameworks):
    all_runs = find_runs(results, out, programs_of)
    collect(all_runs, options.scale, Clock(PART_SECONDS * max(1.0, options.scale)))
    for runs in all_runs:
        judge(results, runs.framework, runs.outcomes)
