# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
The programs of tests/preload on a real driver: each scenario prints results, and writes facts to another descriptor.
"""

import part_semantics
import programs

PRELOAD = programs.ROOT / "tests" / "preload"
SECONDS = 60


def build(program):
    """Builds a program of tests/preload, by its name, linked with the driver."""
    sources = [PRELOAD / f"{program.name}.c", *part_semantics.SHARED, part_semantics.DRIVER]
    if part_semantics.is_fresh(program, sources):
        return
    program.parent.mkdir(parents=True, exist_ok=True)
    words = ["cc", "-std=gnu11", "-O2", "-D_GNU_SOURCE", f"-I{programs.ROOT}", "-o", program, *sources]
    words += [f"-L{part_semantics.toolkit() / 'lib64' / 'stubs'}", "-lcuda", "-ldl", "-lpthread"]
    programs.run_tool(words, programs.WORK / "log" / f"{program.name}.log")


class Played:
    """Runs a scenario of the program; returns its output, the library's log, and the facts."""

    def __init__(self, out, program, config, scenario):
        log = out / f"{scenario}-{config.name.replace(' ', '-')}.txt"
        facts = log.with_suffix(".facts")
        log.parent.mkdir(parents=True, exist_ok=True)
        words = ["sh", "-c", 'exec "$0" "$1" 3>"$2" 4</dev/null', program, scenario, facts]
        done = programs.run_program(config, words, log, timeout=SECONDS)
        self.status, self.text = done.status, done.text
        self.errors = log.with_suffix(".err").read_text(errors="replace")
        lines = facts.read_text().splitlines() if facts.exists() else []
        pairs = [line.rpartition(" ") for line in lines]
        self.facts = {name: int(value) for name, _, value in pairs if value.isdigit()}
