# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Two GPUs, where work of the second GPU may touch memory of the first: the programs of tests/diff that need them, raw
compared with every configuration. A defective build that ignores other devices, contexts and processes must fail the
same programs. With one GPU a second context and another process take the place of the second GPU.
"""

import re

import part_semantics
import programs

ANSWER = re.compile(r"(\w+)/wrong words: (\d+)(?:, handed out early: (\d+))?")
# Scenarios in which the defect need not show:
# - memory that is not pooled in that way;
# - a copy without peer access, which a GPU makes in the order of the memory's own context (the simulator does not);
# - a next owner in the same context.
UNTOUCHED = ("pinned", "managed", "copied_late", "awaited")
LIMIT_S = 120


def wrong_of(text):
    """The numbers of wrong words and of blocks that were handed out early, for each scenario."""
    found = ANSWER.findall(text)
    return {scenario: (int(wrong), int(early or 0)) for scenario, wrong, early in found}


def judge_alone(results, config, program, status, text):
    found = {name: pair for name, pair in wrong_of(text).items() if name not in UNTOUCHED}
    unseen = [name for name, (wrong, early) in found.items() if not wrong and not early]
    name = f"{config.name}: {program}: the defect is found"
    value = f"not in {', '.join(unseen)}" if unseen else f"{len(found)} scenarios, status {status}"
    results.check(name, bool(found) and not unseen and status == 0, value)
    words = sum(wrong for wrong, _ in found.values())
    results.check(f"{config.name}: {program}: wrong words", words > 0, words)


def run_alone(results, out, names):
    try:
        library = programs.alone_library()
    except programs.Trouble as trouble:
        results.check("the defective build alone", False, str(trouble).splitlines()[-1])
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
        part_semantics.compare(results, out, "devices", options)
        names.append("first")
    else:
        print("devices: skipped except for one check: needs two GPUs", flush=True)
        results.note("programs for two GPUs", "skipped: there is only one")
        part_semantics.build()
    run_alone(results, out, names)
