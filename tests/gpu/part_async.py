# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Allocations in stream order: by default the pool serves all of them that a program makes through a static and
a shared runtime, and their content is right. Where some are left to the driver, the rows say why.
"""

import part_sleep
import programs

PROGRAMS = {"static": programs.BIN / "async_served", "shared": programs.BIN / "async_served_shared"}
SECONDS = 60


def configs(library):
    yield programs.Config("raw")
    for kind in ("binned", "split", "vmm", "auto"):
        yield programs.Config(kind, library, {"GPUPOOL_POOL": kind})


def numbers_of(line):
    """Parses 'allocations=N wrong=N'. Other lines have no numbers."""
    pairs = [word.partition("=") for word in line.split()]
    return {name: int(value) for name, _, value in pairs if value.isdigit()}


def served_by(status):
    """The number of allocations in stream order that the pool has served, and {reason: number left to the driver}."""
    served = sum(device.get("stream_allocs", 0) for device in status.get("devices", []))
    left = status.get("async", {}).get("left", [])
    return served, {row["name"]: row["count"] for row in left if row["count"]}


def check(results, out, runtime, config):
    name = f"{config.name}, {runtime} runtime"
    log = out / "async" / f"{runtime}-{config.name}.err"
    with programs.private_dir() as directory, part_sleep.Program(
            config, [PROGRAMS[runtime]], log, {}, SECONDS, directory) as program:
        numbers = numbers_of(program.line())
        status = program.ask("status") if config.preload else {}
        program.tell()
    results.check(f"{name}: the content is right", numbers.get("wrong") == 0, str(numbers))
    if not config.preload:
        return
    served, left = served_by(status)
    results.check(f"{name}: the pool serves all allocations", served == numbers.get("allocations"),
                  ", ".join([f"{served} served", *(f"{count} left: {why}" for why, count in left.items())]))


def run(results, out, options):
    del options
    library = programs.preload_library()
    for runtime in PROGRAMS:
        for config in configs(library):
            check(results, out, runtime, config)
