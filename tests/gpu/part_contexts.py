# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
The driver's behaviour with green contexts, attached contexts, and contexts that have ended. The pool relies on it, and
the simulated GPU imitates it (tests/unit/test_sim_green.c). Programs in such contexts are in the part semantics.
"""

import difflib

import programs

PROBES = ["context_probe", "green_probe"]
PROBE_SECONDS = 400
EXPECTED = programs.SOURCES / "contexts.txt"


def parse(text):
    """Parses lines under '== group' as {group: [line]}."""
    groups = {}
    for line in text.splitlines():
        if line.startswith("== "):
            group = groups.setdefault(line.removeprefix("== "), [])
        elif line and not line.startswith("#"):
            group.append(line)
    return groups


def differences(expected, found):
    """The expected groups whose answers differ, each with the lines that differ."""
    for group, lines in expected.items():
        changes = difflib.unified_diff(lines, found.get(group, []), n=0, lineterm="")
        changed = [line for line in changes if not line.startswith(("---", "+++", "@@"))]
        if changed:
            yield group, changed


def run(results, out, options):
    del options
    found = {}
    for name in PROBES:
        log = out / "contexts" / f"{name}.txt"
        done = programs.run_program(programs.Config("raw"), [programs.BIN / name], log, timeout=PROBE_SECONDS)
        results.check(f"{name}: finished", done.status == 0, f"status {done.status}")
        found |= parse(done.text)
    expected = parse(EXPECTED.read_text())
    surprises = dict(differences(expected, found))
    for group in expected:
        results.check(f"contexts: {group}", group not in surprises, f"{len(surprises.get(group, []))} differ")
    for group, lines in surprises.items():
        print("\n".join([f"    {group}", *[f"    {line}" for line in lines]]))
    for group in found:
        if group not in expected:
            results.note(f"contexts: {group}", " | ".join(found[group]))
