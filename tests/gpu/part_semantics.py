# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Checks that calls return the same under gpupool as raw: the programs of tests/diff, built against the real driver and
runtime, and compared by their runner (tests/diff/run.py). Some of these programs belong to other parts.
"""

import concurrent.futures
import ctypes
import fnmatch
import json
import os
import pathlib
import subprocess
import sys

import exports
import programs

DIFF = programs.ROOT / "tests" / "diff"
sys.path.append(str(DIFF))

import suite

DIFF_BIN = programs.BIN / "diff"
SHARED = [programs.ROOT / "tests" / "preload" / name for name in ("app.c", "app_all.c")]
DRIVER = programs.ROOT / "tests" / "preload" / "app_driver.c"
PEER = programs.ROOT / "tests" / "preload" / "app_peer.c"
HEADERS = [DIFF, programs.ROOT / "tests" / "preload", programs.ROOT / "tests" / "apps"]
WAYS = {
    "dlsym": [],
    "getproc": ["-DDIFF_GET_PROC"],
    "perthread": ["-DDIFF_GET_PROC", "-DDIFF_PER_THREAD"],
}
# Programs that belong to other parts, since the time of each part is limited.
OTHERS = {
    "deadlocks": ("deadlock*", "waits"),
    "captures": ("capture", "capture_*", "unpooled"),
    "lives": ("fill", "fill_*", "first_alone", "leaks", "life", "life_*"),
    "ways": ("runtime*", "*_dlsym", "*_getproc", "*_perthread"),
}
LIMIT_S = 480
# Time limits of a scenario: for programs in which a hang is a possible answer, and for all others.
HANGING_LIMIT_S, SCENARIO_LIMIT_S = 25, 90


def toolkit():
    return pathlib.Path(programs.find_nvcc()).resolve().parents[1]


def runtime_flags(kind):
    library = toolkit() / "lib64"
    if kind == "static":
        return [f"-L{library}", "-lcudart_static", "-lrt"]
    return [f"-L{library}", "-lcudart", f"-Wl,-rpath,{library}"]


def common_sources():
    """Objects that several programs share. Each links all of them, and the linker drops unused sections."""
    return sorted(p for p in DIFF.glob("*.c") if not p.name.startswith(("diff_", "test_", "ways")))


def recipes(source):
    """Yields (program, sources, flags) for each program."""
    name = source.stem.removeprefix("diff_")
    if name.startswith("runtime"):
        for kind in ("static", "shared"):
            flags = runtime_flags(kind)
            yield f"{name}_{kind}", [source, *SHARED], flags
            per_thread = ["-DCUDA_API_PER_THREAD_DEFAULT_STREAM", *flags]
            yield f"{name}_{kind}_perthread", [source, *SHARED], per_thread
        return
    if name.endswith("_runtime"):
        yield name, [source, *SHARED], runtime_flags("static")
        return
    stubs = toolkit() / "lib64" / "stubs"
    sources = [source, *SHARED, DRIVER]
    if any(f'"{path.stem}.h"' in source.read_text() for path in common_sources()):
        sources += common_sources()
    sources += [PEER] if '/app_peer.h"' in source.read_text() else []
    yield name, sources, ["-Wl,--as-needed", f"-L{stubs}", "-lcuda"]
    if name in (DIFF / "ways.txt").read_text().split():
        for way, flags in WAYS.items():
            yield f"{name}_{way}", [source, DIFF / "ways.c", *SHARED, DRIVER], flags


def is_fresh(target, sources):
    headers = [path for folder in HEADERS for path in folder.glob("*.h")]
    newest = max(path.stat().st_mtime for path in [*sources, *headers])
    return target.exists() and target.stat().st_mtime > newest


def compile_program(name, sources, flags):
    target = DIFF_BIN / f"diff_{name}"
    if is_fresh(target, sources):
        return
    words = ["cc", "-std=gnu11", "-O2", "-D_GNU_SOURCE", f"-I{programs.ROOT}", "-o", target]
    words += ["-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections", *sources, *flags]
    programs.run_tool([*words, "-ldl", "-lpthread"], programs.WORK / "log" / f"{target.name}.log")


def all_recipes():
    return [row for source in sorted(DIFF.glob("diff_*.c")) for row in recipes(source)]


def build():
    DIFF_BIN.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for job in [pool.submit(compile_program, *row) for row in all_recipes()]:
            job.result()


def count_devices():
    count = ctypes.c_int(0)
    driver = ctypes.CDLL("libcuda.so.1")
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        raise programs.Trouble("the driver counts no devices")
    return count.value


def part_of(name):
    """The part to which a program belongs."""
    if all(way.devices > 1 for way in suite.needs_of(name)):
        return "devices"
    for part, patterns in OTHERS.items():
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            return part
    return "semantics"


def scenario_limit(names):
    may_hang = any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in OTHERS["deadlocks"])
    return HANGING_LIMIT_S if may_hang else SCENARIO_LIMIT_S


def run_suite(out, names, library, options, configs=(), is_brief=True):
    """
    Runs the runner; returns its results, which may be incomplete, and its exit status. Its report goes to a file. With
    options.auto the configuration auto runs in place of the given or all ones.
    Processes create contexts one after the other, and most programs spend most of their time on that, so with many jobs
    some exceed their limit.
    """
    out.mkdir(parents=True, exist_ok=True)
    answer = out / "results.jsonl"
    answer.write_text("")
    words = [sys.executable, DIFF / "run.py", "--library", library, "--programs", DIFF_BIN]
    words += ["--devices", count_devices(), "--jobs", options.jobs, "--json", answer]
    words += ["--limit", scenario_limit(names), *(["--brief"] if is_brief else [])]
    for name in names:
        words += ["--program", name]
    for config in programs.kinds(configs, options):
        words += ["--config", config]
    with (out / "report.txt").open("w") as report:
        try:
            words = [str(word) for word in words]
            done = subprocess.run(words, stdout=report, stderr=report, timeout=LIMIT_S, check=False)
            status = done.returncode
        except subprocess.TimeoutExpired:
            status = 124
    return [json.loads(line) for line in answer.read_text().splitlines()], status


def cell(row):
    """The numbers of answers, of differences that deviations explain, and of other differences."""
    if row["note"].startswith("SKIP"):
        return "skipped"
    return f"{row['answers']}:{row['meant']}:{len(row['unexpected'])}"


def take(results, rows, prefix=""):
    """Adds the notes for the table of programs and configurations, and the checks."""
    # "all" stands for programs that no configuration could run.
    configs = list(dict.fromkeys(row["config"] for row in rows if row["config"] != "all"))
    for row in rows:
        if row["config"] != "table":
            results.note(f"{row['config']} | {prefix}{row['program']}", cell(row))
    for config in configs:
        config_rows = [row for row in rows if row["config"] == config]
        bad = [row["program"] for row in config_rows if not row["ok"]]
        answers = sum(row["answers"] for row in config_rows)
        value = ", ".join(bad) if bad else f"{answers} answers"
        what = "deviations that do not show" if config == "table" else "same answers as raw"
        results.check(f"{prefix}{config}: {what}", not bad and (answers > 0 or config == "table"), value)
    results.note(f"{prefix}seconds of all programs", sum(row["seconds"] for row in rows), "s")


def print_unexpected(rows):
    """Lines with each difference once, the configurations that show it, and the runner's remarks."""
    found = {}
    for row in rows:
        for question, raw, answer in row["unexpected"]:
            found.setdefault((row["program"], question, raw, answer), []).append(row["config"])
    for (program, question, raw, answer), configs in found.items():
        print(f"    {program}: {question}: {', '.join(configs)}\n      raw:  {raw}\n      pool: {answer}")
    for row in rows:
        if not row["ok"] and not row["unexpected"]:
            print(f"    {row['program']}, {row['config']}: {row['note']}", *row["lines"][:12], sep="\n      ")


def run_probes(results, out):
    log = out / "semantics" / "probes.txt"
    done = programs.run_program(programs.Config("raw"), [programs.BIN / "probes"], log, timeout=60)
    for word, pairs in programs.parse_lines(done.text):
        if word == "cost":
            results.note(f"gpu {pairs['gpu']} | {pairs['call']}", float(pairs["ns"]), "ns")
        else:
            text = " ".join(f"{key}={value}" for key, value in pairs.items())
            results.note(f"probe {word}", text)
    results.check("probes: finished", done.status == 0, f"status {done.status}")


def compare(results, out, part, options):
    programs.build_programs()
    build()
    names = [row[0] for row in all_recipes() if part_of(row[0]) == part]
    rows, status = run_suite(out / part, names, programs.preload_library(), options)
    results.check("the runner finished", rows and status in (0, 1), f"{len(rows)} results, status {status}")
    take(results, rows)
    print_unexpected(rows)


def run(results, out, options):
    compare(results, out, "semantics", options)
    run_probes(results, out)
    raw_and_kinds = programs.kind_configs(programs.preload_library(), options)
    exports.run(results, out, DIFF_BIN / "diff_dmabuf", raw_and_kinds)
