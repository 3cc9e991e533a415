# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
GPUPOOL_DEBUG: whether every write outside a live block is reported, whether correct programs get no report, and its
cost. The programs are those of tests/preload (app_debug.c) and of tests/diff.
"""

import part_semantics
import programs
import scenarios
from part_semantics import suite

PROGRAM = programs.BIN / "app_debug"  # the program of tests/preload
MODE = "poison,guard"
KINDS = ("split", "binned", "simple", "vmm")
CUTTING = ("split", "vmm")
WRONG = {
    "after-free-copy": "write after a free of",
    "after-free-kernel": "write after a free of",
    "after-free-cpu": "write after a free of",
    "past-end-copy": "write past the end of",
    "past-end-kernel": "write past the end of",
    "past-end-cpu": "write past the end of",
    "before-start-copy": "write before the start of",
    "before-start-kernel": "write before the start of",
}
REPORT = "error: write"
CAPTURE = "begin: 0\nfree: 0\nalloc: 0\nfree: 0\nend: 0\ngraph: 1\n"
EXACT = "range: 1 {}\naligned: 1\nfree inside: 1\nfree below: 1\nfree: 0\nfree again: 1\n"
SIZES = (1, 512, 1000, 1 << 20, (3 << 20) + 4)
SAME = ("free", "host", "life", "memory", "query", "runtime_static", "stream")
SECONDS = 60


class Watched:
    """Runs a scenario of the program under a kind of pool; returns its output and the library's log."""

    def __init__(self, out, library, kind, scenario, more=None):
        variables = {"GPUPOOL_POOL": kind, "GPUPOOL_DEBUG": MODE, "GPUPOOL_STACKS": "off"} | (more or {})
        config = programs.Config(kind, library, variables)
        log = out / "debug" / f"{scenario}-{variables['GPUPOOL_DEBUG'].replace(',', '-')}-{kind}.txt"
        done = programs.run_program(config, [PROGRAM, scenario], log, SECONDS, pass_fds=suite.PASSED_FDS)
        self.status, self.text = done.status, done.text
        lines = log.with_suffix(".err").read_text(errors="replace").splitlines()
        self.reports = [line for line in lines if REPORT in line]
        self.messages = [line for line in lines if line.startswith("gpupool")]


def check_wrong(results, out, library):
    """Each scenario writes to two blocks, a small one and a large one."""
    for kind in KINDS:
        for scenario, report in WRONG.items():
            if scenario.startswith("before") and kind not in CUTTING:
                continue
            run_ = Watched(out, library, kind, scenario)
            found = sum(report in line for line in run_.reports)
            ok = run_.status == 0 and found == len(run_.reports) == 2
            results.check(f"{kind}: {scenario} is reported", ok, f"{found} of 2, status {run_.status}")


def check_innocent(results, out, library):
    for kind in KINDS:
        for more in ({}, {"GPUPOOL_DEBUG": f"{MODE},full"}):
            run_ = Watched(out, library, kind, "innocent", more)
            ok = run_.status == 0 and run_.text == "wrong words: 0\n" and not run_.messages
            results.check(f"{kind}{' full' * bool(more)}: a correct program gets no report", ok, len(run_.messages))
        run_ = Watched(out, library, kind, "exact")
        ok = run_.text == "".join(EXACT.format(size) for size in SIZES) and not run_.reports
        results.check(f"{kind}: queries of a guarded block answer with its requested size", ok)
        run_ = Watched(out, library, kind, "capture")
        results.check(f"{kind}: a capture is not disturbed", run_.text.startswith(CAPTURE), f"status {run_.status}")


def note_costs(results, out, library):
    configs = [programs.Config("raw"), programs.Config("split", library)]
    for mode in ("poison", "guard", MODE, f"{MODE},full"):
        configs.append(programs.Config(mode, library, {"GPUPOOL_DEBUG": mode}))
    for config in configs:
        log = out / "debug" / f"cost-{config.name.replace(',', '-')}.txt"
        done = programs.run_program(config, [PROGRAM, "cost"], log, timeout=SECONDS)
        costs = [pairs for word, pairs in programs.parse_lines(done.text) if word == "cost"]
        for pairs in costs:
            results.note(f"{config.name} | {pairs['memory']} {pairs['bytes']}", float(pairs["ns"]), "ns")
        results.check(f"{config.name}: costs", done.status == 0 and len(costs) == 9, f"status {done.status}")


def check_same(results, out, library, options):
    """Checks that programs get the same answers as raw, except for differences that a waiting free explains."""
    part_semantics.build()
    rows, status = part_semantics.run_suite(out / "debug", SAME, library, options, configs=["debug"], is_brief=False)
    results.check("the runner finished", rows and status in (0, 1), f"{len(rows)} results, status {status}")
    part_semantics.take(results, [row for row in rows if row["config"] != "table"])
    part_semantics.print_unexpected(rows)


def run(results, out, options):
    library = programs.preload_library()
    scenarios.build(PROGRAM)
    suite.reserve_descriptors()
    check_wrong(results, out, library)
    check_innocent(results, out, library)
    note_costs(results, out, library)
    check_same(results, out, library, options)
