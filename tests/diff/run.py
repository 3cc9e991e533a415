# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Runs the programs raw and under every configuration, and compares their output line by line.

    run.py --library libgpupool.so --programs DIRECTORY [--sim DIRECTORY] [--program NAME]... [--config NAME]...

With --sim the programs run on the simulated GPU, whose drivers are in that directory; otherwise on the machine's GPU.
Prints TAP: a test for each program and configuration, and the differences. Programs are the executables diff_NAME of
the directory.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import compare
import deviations
import suite

PROGRAM_LIMIT_S = 500
SCENARIO_LIMIT_S = 240  # the machine may be busy
EMULATOR = os.environ.get("GPUPOOL_TEST_EMULATOR", "").split()
SIMULATOR_COMPLAINS = "status 99"  # races, deadlocks or invalid uses


@dataclasses.dataclass
class Run:
    text: str
    status: int
    errors: str
    is_served: bool  # the library logged that it serves the process
    seconds: float

    @property
    def answers(self):
        return compare.parse_answers(self.text)


@dataclasses.dataclass
class Invocation:
    """The paths of one invocation, and the machine that it runs on."""

    preload: pathlib.Path
    programs: pathlib.Path
    sim: pathlib.Path | None
    devices: int
    limit_s: int
    is_brief: bool

    @property
    def name(self):
        return "sim" if self.sim else "gpu"

    def environment(self, way, config, directory):
        foreign = ("GPUPOOL", "SIMGPU_", "MALLOC_", "LD_PRELOAD", "LD_LIBRARY_PATH" if self.sim else "LD_PRELOAD")
        env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        if self.sim:
            env |= {"LD_LIBRARY_PATH": str(self.sim), "SIMGPU_DEVICES": str(way.devices)}
            env["SIMGPU_STRICT"] = str(int(way.is_strict))
        env |= {"APP_LIMIT_S": str(self.limit_s), **way.env}
        if config.variables is not None:
            env |= {"GPUPOOL_LOG": "info", "GPUPOOL_LOG_FILE": f"{directory}/log", "GPUPOOL_RUNTIME_DIR": directory}
            env |= {"LD_PRELOAD": str(self.preload), **config.variables}
        return env


def run_once(invocation, program, way, config):
    words = [*EMULATOR, str(invocation.programs / f"diff_{program}"), *way.arguments]
    with tempfile.TemporaryDirectory(prefix="gpupool-diff-", dir="/tmp") as directory:
        started = time.monotonic()
        files = [pathlib.Path(directory, name) for name in ("out", "err", "log")]
        with files[0].open("w") as out, files[1].open("w") as err:
            try:
                done = subprocess.run(words, env=invocation.environment(way, config, directory), cwd=directory,
                                      stdin=subprocess.DEVNULL, stdout=out, stderr=err, pass_fds=suite.PASSED_FDS,
                                      timeout=PROGRAM_LIMIT_S, check=False)
                status = done.returncode
            except subprocess.TimeoutExpired:
                status = 124
        text, errors, log = (f.read_text(errors="replace") if f.exists() else "" for f in files)
    return Run(text, status, errors + log, "serves this process" in log, time.monotonic() - started)


@dataclasses.dataclass
class Result:
    """A line of the report, with further lines below it."""

    program: str
    config: str
    ok: bool = True
    note: str = ""
    answers: int = 0
    meant: int = 0
    unexpected: list = dataclasses.field(default_factory=list)  # (question, raw answer, other answer)
    lines: list = dataclasses.field(default_factory=list)  # further lines of the report
    seconds: float = 0.0


def plain(differences):
    return [(d.question, d.raw, d.answer) for d in differences if not d.deviation]


def raw_result(name, raw, again):
    unexpected = plain(compare.compare(raw.answers, again.answers, "raw", ()))
    complaints = [question for question, answer in raw.answers.items() if answer == SIMULATOR_COMPLAINS]
    lines = [f"{question}: the simulator saw a race, a deadlock or an invalid use" for question in complaints]
    ok = bool(raw.answers) and raw.status == 0 and not unexpected and not complaints
    if not ok:
        lines += raw.errors.splitlines()[-20:]
    note = "" if raw.status == 0 else f"status {raw.status}"
    return Result(name, "raw", ok, note, len(raw.answers), 0, unexpected, lines, raw.seconds)


def config_result(name, config, raw, run, differences):
    unexpected = plain(differences)
    problems = []
    if run.status != raw.status:
        problems.append(f"status {run.status}")
    if run.is_served != config.is_pooled:
        problems.append("the library " + ("did not serve" if config.is_pooled else "served") + " the process")
    ok = not unexpected and not problems and bool(raw.answers)
    lines = [] if ok else ["the last lines of stderr and of the library's log:", *run.errors.splitlines()[-30:]]
    meant = len(differences) - len(unexpected)
    note = ", ".join(problems)
    return Result(name, config.name, ok, note, len(run.answers), meant, unexpected, lines, run.seconds)


def table_result(name, rows, differences_by_config):
    idle = compare.idle_rows(rows, differences_by_config)
    lines = [f"{config}: no answer differs as this row says: {row}" for row, config in idle]
    return Result(name, "table", not idle, "", len(rows), lines=lines)


def ways_of(invocation, program):
    """(name, way, reason to skip it) for each way to run a program."""
    for way in suite.needs_of(program):
        reason = ""
        if not invocation.sim and way.is_simulated:
            reason = "needs the simulator"
        elif not invocation.sim and way.devices > invocation.devices:
            reason = f"needs {way.devices} devices"
        yield f"{program}.{way.name}" if way.name else program, way, reason


def is_wanted(invocation, program, way, config):
    """
    Returns True if the program runs in this configuration. --brief is for machines on which a process takes long to
    start: it leaves only the essential configurations, and those that take back a deviation of this program.
    """
    name = next((name for name in config.like or (config.name,) if name in way.configs), None)
    if not name or not invocation.is_brief or name in way.essential:
        return bool(name)
    return any(d.switch == name for d, _ in compare.rows_for(deviations.DEVIATIONS, program, invocation.name))


def judge_program(invocation, program, runs, configs):
    """
    Yields the results of a program. Its ways share the table of deviations: each row must show in at least one way.
    runs returns the Run for a way, a configuration and a number. Ways in which the raw program is the same share its
    runs, and its result comes once.
    """
    rows = compare.rows_for(deviations.DEVIATIONS, program, invocation.name)
    shown, is_whole, seen = {}, True, set()
    for name, way, reason in ways_of(invocation, program):
        if reason:
            is_whole = False
            yield Result(name, "all", note=f"SKIP {reason}")
            continue
        wanted = [config for config in configs if is_wanted(invocation, program, way, config)]
        if not wanted:
            continue
        raw = runs(way, suite.RAW, 0)
        if way.raw_key not in seen:
            seen.add(way.raw_key)
            yield raw_result(name, raw, runs(way, suite.RAW, 1))
        for config in wanted:
            run = runs(way, config, 0)
            differences = compare.compare(raw.answers, run.answers, config.listed_name, rows)
            shown.setdefault(config.listed_name, []).extend(differences)
            yield config_result(name, config, raw, run, differences)
    if is_whole and rows and shown:
        yield table_result(program, rows, shown)


def start_all(invocation, program, configs, pool):
    """Submits all runs of a program, and returns a function that waits for one of them and returns it."""
    futures = {}

    def key(way, config, nth):
        return (way.raw_key if config is suite.RAW else way.name), config.name, nth

    for _, way, reason in ways_of(invocation, program):
        wanted = [] if reason else [(c, 0) for c in configs if is_wanted(invocation, program, way, c)]
        for config, nth in [(suite.RAW, 0), (suite.RAW, 1), *wanted] if wanted else []:
            if key(way, config, nth) not in futures:
                futures[key(way, config, nth)] = pool.submit(run_once, invocation, program, way, config)

    def result(way, config, nth):
        return futures[key(way, config, nth)].result()

    return result


class Tap:
    def __init__(self):
        self.n = 0

    def show(self, result):
        self.n += 1
        note = f" # {result.note}" if result.note.startswith("SKIP") else ""
        counts = f"{result.answers} answers, {result.meant} expected differences, {len(result.unexpected)} unexpected"
        print(f"{'ok' if result.ok else 'not ok'} {self.n} {result.program} {result.config}{note}")
        print(f"# {counts}{'; ' + result.note if result.note and not note else ''}")
        for question, raw, answer in result.unexpected:
            print(f"# {question}\n#   raw:  {raw}\n#   here: {answer}")
        for line in result.lines:
            print(f"# {line}")
        sys.stdout.flush()

    def end(self):
        print(f"1..{self.n}")


def find_programs(directory, wanted):
    found = sorted(p.name.removeprefix("diff_") for p in directory.glob("diff_*") if os.access(p, os.X_OK))
    found = [name for name in found if (directory / f"diff_{name}").is_file()]
    for name in wanted or []:
        if name not in found:
            raise SystemExit(f"run.py: no program diff_{name} in {directory}")
    return wanted or found


def append_result(path, result):
    if path:
        with path.open("a") as file:
            file.write(json.dumps(dataclasses.asdict(result)) + "\n")


def parse_arguments():
    parser = argparse.ArgumentParser(prog="run.py")
    parser.add_argument("--library", dest="preload", type=pathlib.Path, required=True)
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--sim", type=pathlib.Path)
    parser.add_argument("--program", action="append")
    parser.add_argument("--config", action="append", choices=(*suite.CONFIG_NAMES, suite.AUTO.name))
    parser.add_argument("--devices", type=int, default=1, help="the number of GPUs of the machine")
    parser.add_argument("--jobs", type=int, default=1, help="run this many processes at the same time")
    parser.add_argument("--limit", type=int, default=SCENARIO_LIMIT_S, help="end a scenario after this many seconds")
    parser.add_argument("--brief", action="store_true", help="run the essential configurations only")
    parser.add_argument("--json", type=pathlib.Path, help="append each result to this file, as one line of JSON")
    return parser.parse_args()


def main():
    options = parse_arguments()
    suite.reserve_descriptors()
    invocation = Invocation(options.preload.resolve(), options.programs.resolve(),
                  options.sim.resolve() if options.sim else None, options.devices, options.limit, options.brief)
    configs = [c for c in (*suite.CONFIGS, suite.AUTO) if c.name in (options.config or suite.CONFIG_NAMES)]
    names = find_programs(invocation.programs, options.program)
    tap, results = Tap(), []
    alone = [name for name in names if any(way.is_alone for way in suite.needs_of(name))]
    for some, jobs in (([name for name in names if name not in alone], options.jobs), (alone, 1)):
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            started = [(name, start_all(invocation, name, configs, pool)) for name in some]
            for name, runs in started:
                for result in judge_program(invocation, name, runs, configs):
                    results.append(result)
                    tap.show(result)
                    append_result(options.json, result)
    tap.end()
    return 0 if results and all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
