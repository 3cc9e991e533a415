# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Exports of ordinary memory as dma-bufs, by tests/diff/diff_dmabuf.c: the numbers of successes raw and under each kind of
pool. Memory that the driver exports raw has to be exported under each kind. Blocks of up to 1 MiB are only counted,
since their alignment is a matter of chance, raw as well.
"""

import programs

SKIPPED = "skipped"
COUNTED_ONLY = "small_blocks"
TABLE = ["blocks", "one_at_a_time", "parts", "rounded_up", COUNTED_ONLY]
SECONDS = 90


def parse(text):
    """'scenario/question: answer' lines as (scenario, question, answer), in their order."""
    for line in text.splitlines():
        name, colon, answer = line.rpartition(": ")
        scenario, slash, question = name.partition("/")
        if colon and slash:
            yield scenario, question, answer.strip()


def lost(raw, found):
    """Questions that raw answers with 0, which is success, and the other with an error or not at all."""
    missing = [(scenario, question, "nothing") for scenario, question, _ in raw[len(found) :]]
    return [
        f"{scenario}: {question}: {answer}"
        for (scenario, question, before), (_, _, answer) in zip(raw, [*found, *missing])
        if before == "0" and answer != "0" and scenario != COUNTED_ONLY
    ]


def note_counts(results, name, answers):
    for scenario in TABLE:
        exports = [answer for asked_in, _, answer in answers if asked_in == scenario]
        results.note(f"{name} | dma-buf {scenario}", f"{exports.count('0')} of {len(exports)}")


def judge(results, name, raw, found, status):
    lines = lost(raw, found)
    ok = status == 0 and not lines and len(found) == len(raw)
    results.check(f"dma-buf, {name}: exports what raw exports", ok, f"{len(lines)} of {len(raw)} refused, status {status}")
    for line in lines:
        print(f"    {line}")


def run(results, out, program, configs):
    """Compares the configurations with the first, which is raw."""
    found = {}
    for config in configs:
        log = out / "semantics" / f"dmabuf-{config.name.replace('/', '-')}.txt"
        done = programs.run_program(config, [program, "--all"], log, timeout=SECONDS)
        found[config.name] = list(parse(done.text)), done.status
        if (TABLE[0], SKIPPED) in {(scenario, question) for scenario, question, _ in found[config.name][0]}:
            results.note("dma-buf: skipped, the device exports none", None)
            return
    for name, (answers, _) in found.items():
        note_counts(results, name, answers)
    raw, status = found.pop(configs[0].name)
    exported = [answer for scenario, _, answer in raw if scenario == "blocks"]
    ok = status == 0 and exported and set(exported) == {"0"}
    results.check("dma-buf, raw: exports ordinary blocks", ok, f"{exported.count('0')} of {len(exported)}")
    for name, (answers, code) in found.items():
        judge(results, name, raw, answers, code)
