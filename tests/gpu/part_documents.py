# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Behaviour that other memory managers document, on this machine's GPU: the walks of tests/documents, and a data set of
4 GiB that is processed in batches within a limit of 512 MiB, raw and under each kind of pool.
"""

import sys

import part_semantics
import programs

DOCUMENTS = programs.ROOT / "tests" / "documents"
sys.path.append(str(DOCUMENTS))

import walks

PROGRAM = programs.BIN / "batches"
SECONDS = 60


def build():
    sources = [DOCUMENTS / "batches.c", *part_semantics.SHARED]
    if part_semantics.is_fresh(PROGRAM, sources):
        return
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    stubs = part_semantics.toolkit() / "lib64" / "stubs"
    words = ["cc", "-std=gnu11", "-O2", "-D_GNU_SOURCE", f"-I{programs.ROOT}", "-o", PROGRAM, *sources]
    programs.run_tool([*words, f"-L{stubs}", "-lcuda", "-ldl", "-lpthread"], programs.WORK / "log" / "batches.log")


def judge_walk(results, walk, kind, done, devices):
    found = walks.differences(walk, done.status, done.text, devices)
    results.check(f"{kind}: {walk.name}", not found, "; ".join(found))


def walk_all(results, out, library, devices):
    for number, walk in enumerate(walks.WALKS):
        for kind in () if walk.is_simulated else walk.kinds:
            config = programs.Config(kind, library, walk.environment(kind))
            log = out / "documents" / f"{number}-{walk.program}-{kind}.txt"
            judge_walk(results, walk, kind, programs.run_program(config, walk.command(), log, SECONDS), devices)


def judge_batches(results, name, done, raw):
    """The figures of the batches, or None if the program failed. Copies overlap only if a free does not wait."""
    batches = walks.Batches.of(done.status, done.text)
    results.check(f"{name}: batches: flat", bool(batches and batches.is_flat()), done.text.strip())
    if not batches:
        return None
    results.note(f"{name} | ms for all batches", batches.ns / 1e6, "ms")
    results.note(f"{name} | batches in memory", batches.peak)
    if raw and name != "none":
        results.check(f"{name}: batches: faster than raw", batches.ns < raw.ns, batches.ns / raw.ns)
    return batches


def run_batches(results, out, library):
    limit = {"GPUPOOL_LIMIT": f"{walks.LIMIT_BATCHES * 64}MiB"}
    raw = None
    for kind in (None, *walks.BATCHES_KINDS):
        name = kind or "raw"
        config = programs.Config(name, library if kind else None, {"GPUPOOL_POOL": kind, **limit} if kind else {})
        log = out / "documents" / f"batches-{name}.txt"
        batches = judge_batches(results, name, programs.run_program(config, [PROGRAM, "large"], log, SECONDS), raw)
        raw = raw or batches


def run(results, out, options):
    del options
    library = programs.preload_library()
    build()
    walk_all(results, out, library, part_semantics.count_devices())
    run_batches(results, out, library)
