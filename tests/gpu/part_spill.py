# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Memory in the host: a program that needs 1.25 times what a ballast leaves. It gives right results, and its steps are
measured without the ballast, with a fifth of its memory in the host, and after that has come back.

* A light step touches a tenth of what is in the host, once. This adds the same time to a long step and to a short one,
  so several lengths have rows, and the shortest length that would still reach the bar is computed.
* The hot case touches all of it in each step. The link allows the native time of the rest, plus the time for that
  memory in the direction that is slower. Both directions are measured in the same run, with kernels that only read and only write
  memory of the host that the program has mapped itself.
* Managed memory is compared with a ballast that leaves twice what the program needs, so that the driver never has to
  move any of it for lack of room. As much as would be spilled is in the host because the program advises the driver so.
  Only the place of the memory is compared: which memory goes, and when, is for the program to say there.
"""

import re
import time

import part_sleep
import programs

GIB = 1 << 30
LIGHT_SHARE, LINK_SHARE = 0.9, 0.8
SIZES_MIB = (8 << 10, 32 << 10)  # what the ballast leaves; only the first is measured with all lengths
PROGRAM_SECONDS = 60
PART_SECONDS = 125
SKIPPED = 77

SPILLS = {"GPUPOOL_POOL": "vmm", "GPUPOOL_SPILL": "64GiB", "GPUPOOL_LOG": "info"}
FAILS = {"GPUPOOL_POOL": "vmm", "GPUPOOL_LOG": "info"}
MANAGED = {"GPUPOOL_POOL": "split", "GPUPOOL_BACKEND": "managed", "GPUPOOL_LOG": "info"}
WORDS = {"link", "full", "light", "spilled", "advised", "allocated", "back", "block"}


class Measured:
    """The lines of results that a run of the program printed."""

    def __init__(self, text):
        self.values, self.full, self.light, self.checks = {}, {}, {}, []
        for line in text.splitlines():
            what, _, verdict = line.rpartition(" ")
            if verdict in ("right", "WRONG"):
                self.checks.append((what.strip(), verdict == "right"))
        lines = "\n".join(line for line in text.splitlines() if line.partition(" ")[0] in WORDS and "=" in line)
        for word, pairs in programs.parse_lines(lines):
            if word == "full":
                self.full[pairs["where"]] = float(pairs["ms"])
            elif word == "light":
                self.light.setdefault(pairs["where"], {})[int(pairs["passes"])] = float(pairs["ms"])
            else:
                self.values.setdefault(word, {name: float(value) for name, value in pairs.items()})


def run_probe(name, library, variables, out, words):
    log = out / "spill" / (re.sub(r"[^A-Za-z0-9]+", "-", name) + ".txt")
    config = programs.Config(name, library, variables)
    return programs.run_program(config, [programs.BIN / "spill_probe", *words], log, PROGRAM_SECONDS)


def is_skipped(results, name, done):
    if done.status == SKIPPED:
        results.note(f"{name}: left out", done.text.strip().splitlines()[-1].partition(": ")[2])
    return done.status == SKIPPED


def add_checks(results, name, done, measured):
    for what, is_right in measured.checks:
        results.check(f"{name}: {what}", is_right)
    results.check(f"{name}: finished", done.status == 0, f"status {done.status}")


def allowed_ms(measured):
    """The milliseconds of a step over all that the link allows: it reads and writes what is in the host at once."""
    link, spilled = measured.values["link"], measured.values["spilled"]
    on_device = measured.full["native"] * (1 - spilled["gib"] / spilled["of"])
    return on_device + spilled["gib"] / min(link["read"], link["write"]) * 1e3


def add_light(results, name, native, slow, touched, bar):
    """Rows for light steps: the longest one has a bar."""
    for passes in sorted(native, reverse=True):
        share, words = native[passes] / slow[passes], f"{name}: light step of {native[passes]:.1f} ms, share of native speed"
        if bar and passes == max(native):
            results.bar(words, share, "", ">=", LIGHT_SHARE)
        else:
            results.note(words, share)
    # The time that the link adds is the same for every length.
    more = min(slow[passes] - native[passes] for passes in native)
    results.note(f"{name}: {touched:.2f} GiB in the host, touched once, add", more, "ms")
    results.note(f"{name}: shortest light step at {LIGHT_SHARE} of native speed", more * LIGHT_SHARE / (1 - LIGHT_SHARE), "ms")


def check_spill(results, library, out, mib, has_lengths):
    """Returns what was measured, or None."""
    name = f"{mib / 1024:g} GiB"
    done = run_probe(name, library, SPILLS, out, [mib] + ["lengths"] * has_lengths)
    if is_skipped(results, name, done):
        return None
    measured = Measured(done.text)
    add_checks(results, name, done, measured)
    if not {"native", "spilled", "back"} <= measured.full.keys() or not {"link", "spilled"} <= measured.values.keys():
        return None
    native, spilled = measured.full["native"], measured.full["spilled"]
    for what, value in measured.values["link"].items():
        results.note(f"{name}: kernels {'read and write' if what == 'both' else what} a host-mapped piece", value, "GiB/s")
    results.note(f"{name}: in the host", measured.values["spilled"]["gib"], "GiB")
    add_light(results, name, measured.light["native"], measured.light["spilled"], measured.values["spilled"]["touched"], True)
    results.note(f"{name}: hot: all touched in each step, native", native, "ms")
    results.note(f"{name}: hot: all touched in each step, spilled", spilled, "ms")
    results.note(f"{name}: hot: share of native speed", native / spilled)
    results.bar(f"{name}: hot: share of what the link allows", allowed_ms(measured) / spilled, "", ">=", LINK_SHARE)
    results.note(f"{name}: back after the ballast has ended", measured.values.get("back", {}).get("seconds"), "s")
    results.note(f"{name}: back: a step over all, share of native speed", native / measured.full["back"])
    return measured


def check_without(results, library, out, mib):
    """The control: the same program has to run out of memory if it may not spill."""
    name = f"{mib / 1024:g} GiB without GPUPOOL_SPILL"
    done = run_probe(name, library, FAILS, out, [mib, "only"])
    if not is_skipped(results, name, done):
        results.check(f"{name}: runs out of memory", done.status == 1 and ": error 2" in done.text, f"status {done.status}")


def check_contexts(results, library, out, mib):
    """The memory of two contexts of a device goes and comes back, and each of them finds its content."""
    name = f"{mib / 1024:g} GiB, contexts"
    done = run_probe(name, library, SPILLS, out, [mib, "only", "contexts"])
    if not is_skipped(results, name, done):
        add_checks(results, name, done, Measured(done.text))


def check_managed(results, library, out, mib, spill):
    """spill: what was measured of the same program and sizes with GPUPOOL_SPILL."""
    name = "managed"
    done = run_probe(name, library, MANAGED, out, [mib, "managed", "lengths"])
    if is_skipped(results, name, done):
        return
    measured = Measured(done.text)
    add_checks(results, name, done, measured)
    if spill is None or not {"managed", "advised"} <= measured.full.keys():
        return
    native = spill.full["native"]
    results.note(f"{name} on the device: step over all, share of native", native / measured.full["managed"])
    results.note(f"{name} in the host by advice", measured.values["advised"]["gib"], "GiB")
    results.note(f"{name} in the host: step over all", measured.full["advised"], "ms")
    results.note(f"{name} in the host: time of spilled over its time", spill.full["spilled"] / measured.full["advised"])
    for passes, ms in sorted(measured.light["advised"].items(), reverse=True):
        before = spill.light["native"].get(passes)
        if before:
            results.note(f"{name} in the host: light step of {before:.1f} ms, share", before / ms)


def has_host_memory(results, mib):
    """A quarter of the size goes to the host."""
    left = part_sleep.host_left()
    if left >= mib // 4 * (1 << 20) + 8 * GIB:
        return True
    results.note(f"{mib / 1024:g} GiB: too little host memory, left out", left // GIB, "GiB")
    return False


def run(results, out, options):
    del options
    library, started = programs.preload_library(), time.monotonic()
    first = SIZES_MIB[0]
    if has_host_memory(results, first):
        spill = check_spill(results, library, out, first, True)
        check_without(results, library, out, first)
        check_contexts(results, library, out, first)
        check_managed(results, library, out, first, spill)
    for mib in SIZES_MIB[1:]:
        left = PART_SECONDS - (time.monotonic() - started)
        if left < PROGRAM_SECONDS:
            results.note(f"{mib / 1024:g} GiB: left out for lack of time", left, "s")
        elif has_host_memory(results, mib):
            check_spill(results, library, out, mib, False)
    results.note("seconds in all", time.monotonic() - started, "s")
