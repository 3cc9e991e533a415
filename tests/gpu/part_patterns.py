# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""The time of a pair of malloc and free in several patterns, raw and under each kind of pool."""

import programs

PAIR_NS = 600  # with a static runtime, for the patterns and sizes below
BAR_PATTERNS = ("pingpong", "window")
BAR_BYTES = 64 << 20
LOOP_RATIO = 1.3  # a loop of malloc, kernel and free over a loop of the kernel alone

SERVED = "a shared runtime, version"  # the library's log line about it

UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def format_bytes(count):
    for unit, name in UNITS:
        if count >= unit:
            return f"{count / unit:g} {name}"
    return f"{count} B"


def describe(word, pairs):
    """A name for the measurement in a line of the program."""
    size = format_bytes(int(pairs["bytes"]))
    return f"{pairs['pattern']} {size}" if word == "pair" else f"{pairs['n']} threads {size}"


def take_line(results, config, word, pairs, build):
    if word == "loop":
        ratio = float(pairs["ratio"])
        results.note(f"{config.name} | loop ratio, {build}", ratio)
        results.note(f"{config.name} | loop ns, {build}", float(pairs["inside_ns"]), "ns")
        if config.name == "split":
            name = f"{config.name}, {build}: loop with malloc over hoisted"
            results.bar(name, ratio, "", "<=", LOOP_RATIO)
    elif word in ("pair", "threads"):
        value = float(pairs["ns"])
        results.note(f"{config.name} | {describe(word, pairs)}, {build}", value, "ns")
        has_bar = pairs.get("pattern") in BAR_PATTERNS and int(pairs["bytes"]) <= BAR_BYTES
        if has_bar and config.name == "split" and build == "static":
            results.bar(f"split, static: {describe(word, pairs)}", value, "ns", "<", PAIR_NS)


def run(results, out, options):
    del options
    programs.build_programs()
    for config in programs.pool_configs(programs.preload_library(), options):
        for build, program in [("static", "pairs"), ("shared", "pairs_shared")]:
            log = out / "patterns" / f"{config.name.replace('/', '-')}-{build}.txt"
            more = {"GPUPOOL_LOG": "info"} if build == "shared" else {}
            done = programs.run_program(config, [programs.BIN / program], log, timeout=60, more=more)
            lines = list(programs.parse_lines(done.text))
            for word, pairs in lines:
                take_line(results, config, word, pairs, build)
            is_pooled = done.is_pooled == bool(config.preload)
            ok = done.status == 0 and is_pooled and len(lines) > 20
            results.check(f"{config.name}, {build}: finished", ok, f"status {done.status}")
            if config.name == "split" and build == "shared":
                ok = SERVED in log.with_suffix(".err").read_text(errors="replace")
                results.check("split, shared: cached blocks are served without the runtime", ok)
