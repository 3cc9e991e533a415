# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
GPUPOOL_BACKEND on managed and on stream-ordered memory: whether data are right, what calls return, which calls are
refused, and whether memory is left over. The programs are those of tests/preload (app_backend.c) and of tests/diff; the
one of tests/diff that uses another device's memory needs two devices.
"""

import part_semantics
import programs
import scenarios

PROGRAM = programs.BIN / "app_backend"  # the program of tests/preload
BACKENDS = ("managed", "async")
KINDS = ("none", "simple", "binned", "split")
SAME = ("devices_access", "free", "memory", "query", "runtime_static")
REFUSED = "use GPUPOOL_BACKEND=device to share memory"
LEFT_MIB = 32  # less than the memory that each context takes


def config_of(library, backend, kind="split"):
    return programs.Config(f"{backend} {kind}", library, {"GPUPOOL_BACKEND": backend, "GPUPOOL_POOL": kind})


def is_available(played):
    """True unless the library's log says that the device lacks this backend."""
    return "is not available" not in played.errors


def check_words(results, out, library):
    for backend in BACKENDS:
        for kind in KINDS:
            played = scenarios.Played(out / "backends", PROGRAM, config_of(library, backend, kind), "words")
            ok = played.status == 0 and played.text == "wrong words: 0\n" and is_available(played)
            results.check(f"{backend} {kind}: data are right", ok, f"status {played.status}: {played.text.strip()}")


def check_reuse(results, out, library):
    for backend in BACKENDS:
        played = scenarios.Played(out / "backends", PROGRAM, config_of(library, backend), "reuse")
        misses = played.facts.get("misses")
        results.check(f"{backend}: a loop asks the driver for memory only once", played.status == 0 and misses == 1,
                      f"{misses} of 200")


def check_export(results, out, library):
    for backend in BACKENDS:
        played = scenarios.Played(out / "backends", PROGRAM, config_of(library, backend), "export")
        ok = played.status == 0 and "handle: 0" not in played.text and "free: 0" in played.text
        results.check(f"{backend}: legacy handles are refused, and the log names the setting that has them",
                      ok and played.errors.count(REFUSED) == 1, played.text.replace("\n", ", "))


def check_ends(results, out, library):
    """
    Checks memory left over by created contexts. Memory that the driver keeps of a primary context is only noted, since it
    varies.
    """
    for config in (programs.Config("raw"), *(config_of(library, backend) for backend in BACKENDS)):
        played = scenarios.Played(out / "backends", PROGRAM, config, "ends")
        missing = played.facts.get("MiB missing after contexts")
        ok = played.status == 0 and missing is not None and missing < LEFT_MIB
        results.check(f"{config.name}: contexts leave no memory behind", ok, f"{missing} MiB, status {played.status}")
        for name, value in played.facts.items():
            results.note(f"{config.name} | {name}", value, "MiB")


def check_same(results, out, library, options):
    part_semantics.build()
    rows, status = part_semantics.run_suite(out / "backends", SAME, library, options, ["device", *BACKENDS], False)
    results.check("the runner finished", rows and status in (0, 1), f"{len(rows)} results, status {status}")
    part_semantics.take(results, [row for row in rows if row["config"] != "table"])
    part_semantics.print_unexpected(rows)


def run(results, out, options):
    library = programs.preload_library()
    scenarios.build(PROGRAM)
    check_words(results, out, library)
    check_reuse(results, out, library)
    check_export(results, out, library)
    check_ends(results, out, library)
    check_same(results, out, library, options)
