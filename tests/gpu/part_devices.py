# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Two GPUs, of which the other may be first to touch memory: the programs of tests/diff that need
them, raw against every configuration. And a library that believes itself alone, which must be found
out by the programs that clear the real one; a second context and another process do for that where
there is one GPU.
"""

import re

import part_semantics
import programs

ANSWER = re.compile(r"(\w+)/wrong words: (\d+)(?:, handed out early: (\d+))?")
# What the defect need not show in: memory that is not pooled in that way, a copy without peer access, which reaches the
# memory by way of its own context, in order (the simulator's does not), and where the next owner is that context.
UNTOUCHED = ("pinned", "managed", "copied_late", "awaited")
LIMIT_S = 120


def wrong_of(text):
    """Wrong words, and blocks that were handed out early, of each scenario."""
    found = ANSWER.findall(text)
    return {scenario: (int(wrong), int(early or 0)) for scenario, wrong, early in found}


def judge_alone(results, config, program, status, text):
    found = {name: pair for name, pair in wrong_of(text).items() if name not in UNTOUCHED}
    unseen = [name for name, (wrong, early) in found.items() if not wrong and not early]
    name = f"{config.name}: {program}: found out"
    value = f"not in {', '.join(unseen)}" if unseen else f"{len(found)} scenarios, status {status}"
    results.check(name, bool(found) and not unseen and status == 0, value)
    words = sum(wrong for wrong, _ in found.values())
    results.check(f"{config.name}: {program}: wrong words", words > 0, words)


def run_alone(results, out, names):
    try:
        library = programs.alone_library()
    except programs.Trouble as trouble:
        results.check("the library that is alone", False, str(trouble).splitlines()[-1])
        return
    for pool in ["simple", "binned", "split"]:
        config = programs.Config(f"alone/{pool}", library, {"GPUPOOL_POOL": pool})
        for name in names:
            log = out / "devices" / f"alone-{pool}-{name}.txt"
            words = [part_semantics.DIFF_BIN / f"diff_{name}", "--all"]
            done = programs.run_program(config, words, log, LIMIT_S)
            judge_alone(results, config, name, done.status, done.text)


def run(results, out, options):
    names = ["first_alone"]
    if part_semantics.count_devices() > 1:
        part_semantics.compare(results, out, "devices", options.jobs)
        names.append("first")
    else:
        print("devices: skipped but for one check: needs two GPUs", flush=True)
        results.note("programs for two GPUs", "skipped: there is one")
        part_semantics.build()
    run_alone(results, out, names)
