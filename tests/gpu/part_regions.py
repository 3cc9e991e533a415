# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Regions: memory freed in a region stays cached for that region, the fence rule holds in a region, and idle regions give
memory back before the program runs out. The program is tests/preload/app_region.c; its own test checks the same on the
simulated GPU.
"""

import programs
import scenarios

PROGRAM = programs.BIN / "app_region"  # the program of tests/preload
CONFIGS = {
    "simple": {"GPUPOOL_POOL": "simple"},
    "binned": {"GPUPOOL_POOL": "binned"},
    "split": {"GPUPOOL_POOL": "split"},
    "vmm": {"GPUPOOL_POOL": "vmm"},
    "without thread caches": {"GPUPOOL_THREAD_CACHE": "0"},
    "completed": {"GPUPOOL_REUSE": "completed"},
}
# On the simulated GPU the scenario nearly fills the device; here a limit takes the place of the device's size.
LIMIT = {"GPUPOOL_LIMIT": "1GiB", "GPUPOOL_RESERVE": "0"}
EINVAL = 22


class Expected:
    """The expected output of a scenario (None: any output), and the facts that it must report."""

    def __init__(self, facts, text="", variables=None):
        self.facts, self.text, self.variables = facts, text, variables or {}

    def differences(self, played):
        found = [f"status {played.status}"] if played.status else []
        if self.text is not None and played.text != self.text:
            found.append(repr(played.text))
        facts = {name: played.facts.get(name) for name in self.facts}
        return found + [f"{name}: {facts[name]}" for name, value in self.facts.items() if facts[name] != value]


NESTED = ("inner again", "inner differs from outer", "same region again", "outer again", "inner at depth 100",
          "outer after 99 ends", "inner in a recursion", "outer after 99999 ends")
THREADS = ("b got another block", "a got its block again", "b got its block again", "main thread still in a")
SCENARIOS = {
    "apart": Expected({"shared": 0, "misses on known sizes": 0}),
    "nest": Expected(dict.fromkeys(NESTED, 1) | dict.fromkeys(("one end too many", "end outside"), EINVAL)),
    "threads": Expected(
        dict.fromkeys(("end in another thread", "end in a new thread"), EINVAL)
        | dict.fromkeys(THREADS, 1)
    ),
    "fence": Expected({"wrong words": 0}),
    "full": Expected({"ooms": 1}, "after a: 0\nafter none: 0\nafter b: 0\ntoo much: 2\n", LIMIT),
    "behind": Expected({}, "in b: 0\n", LIMIT),
    "invalidate": Expected({"region serves again": 1, "cached again": 1, "unknown region": 0}),
    "reset": Expected({"total": 0, "second miss": 0, "not reused outside": 1}, None),
    "ends": Expected({"bad": 0, "used": 0, "freed now": 1, "total": 0}),
    "crowd": Expected({"failed": 0, "used": 0, "freed now": 1, "total": 0}),
    # 1000 iterations with two blocks each, and a result that stays allocated for a while.
    "loop-region": Expected({}),
}


def play(results, out, library, name, scenario):
    expected = SCENARIOS[scenario]
    config = programs.Config(name, library, CONFIGS[name] | expected.variables)
    played = scenarios.Played(out / "regions", PROGRAM, config, scenario)
    found = expected.differences(played)
    results.check(f"{name}: {scenario}", not found, "; ".join(found))
    for fact in ("misses", "peak") if scenario == "loop-region" else ():
        results.note(f"{name} | {scenario}: {fact}", played.facts.get(fact))


def run(results, out, options):
    del options
    library = programs.preload_library()
    scenarios.build(PROGRAM)
    for name in CONFIGS:
        for scenario in SCENARIOS:
            play(results, out, library, name, scenario)
