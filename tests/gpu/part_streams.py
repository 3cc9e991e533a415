# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Checks that memory does not reach a new owner too early, on every pair of streams, and that the library sees every
submission. Measures whether a free waits.
"""

import programs
import submissions

SEED = 20261121
LIMIT, MORE_THAN_LIMIT = "256MiB", 512 << 20
# Functions that make defective builds; and the share of exposed rounds in which the defect has to show.
DEFECTIVE = {"broken": programs.broken_library, "unreported": programs.unreported_library}
WRONG_SHARE = 0.5

# Rounds (in fill for each of three sizes) and players of a run of the matrix.
FILL, FREE, PLAIN = (2000, 2), (4200, 3), (500, 1)
RAW_ROUNDS = 300
INFLIGHT_ROUNDS = 20
# The pool types whose frees are checked one by one.
WAITED_KINDS = ("none", "simple", "binned", "split")
BLOCKING = {"CUDA_LAUNCH_BLOCKING": "1"}
INFLIGHT = [("graph", 64 << 20, {}), ("graph", 64 << 10, {}), ("kernel", 64 << 20, BLOCKING),
            ("kernel", 64 << 10, BLOCKING), ("kernel", 64 << 20, {})]
ORDER_ENDS = ["stream", "used", "memset", "copy", "graph", "thread", "early", "legacy", "none"]


def modes(config, scale):
    """The command lines of one configuration."""

    def rounds(count):
        return max(20, int(count * scale))

    if config.name == "raw":
        yield ["fill", SEED, rounds(RAW_ROUNDS), FILL[1], 128 << 20]
        return
    is_broken = config.name in DEFECTIVE
    fill = (FILL[0] // 2, 1) if is_broken else FILL
    yield ["fill", SEED, rounds(fill[0]), fill[1], MORE_THAN_LIMIT]
    if not is_broken:
        yield ["free", SEED, rounds(FREE[0]), FREE[1]]
        yield ["plain", SEED, rounds(PLAIN[0])]


def configs(library, defective, options):
    yield programs.Config("raw")
    for kind in programs.kinds(["split", "vmm", "binned", "simple"], options):
        for reuse in ["ordered", "completed"]:
            variables = {"GPUPOOL_POOL": kind, "GPUPOOL_REUSE": reuse}
            yield programs.Config(f"{kind}/{reuse}", library, variables)
    (kind,) = programs.kinds(["split"], options)
    yield programs.Config(kind, library, {"GPUPOOL_POOL": kind})
    for name, broken in defective.items():
        variables = {"GPUPOOL_POOL": kind, "GPUPOOL_REUSE": "ordered"}
        yield programs.Config(name, broken, variables)


def judge(results, config, pairs):
    """Adds the rows of one summary line."""
    count = {key: int(value) for key, value in pairs.items() if value.isdigit()}
    size = f" {count['bytes'] >> 10} KiB" if count["bytes"] else ""
    name = f"{config.name}: {pairs['mode']}{size}"
    wrong = count["wrong_rounds"] + count["stray"]
    exposed = count["exposed"]
    if config.name in DEFECTIVE:
        share = count["wrong_exposed"] / exposed if exposed else None
        name += f": share of wrong rounds among {exposed} exposed rounds"
        results.bar(name, share, "", ">", WRONG_SHARE)
        return
    results.check(f"{name}: wrong rounds", wrong == 0, f"{wrong} of {count['rounds']}")
    results.note(f"{config.name} | {pairs['mode']}{size} wrong bytes", count["wrong_bytes"])
    results.note(f"{config.name} | {pairs['mode']}{size} reused", count["reused"])
    results.note(f"{config.name} | {pairs['mode']}{size} reused in flight", count["inflight"])
    results.note(f"{config.name} | {pairs['mode']}{size} exposed", exposed)
    results.note(f"{config.name} | {pairs['mode']}{size} seconds", float(pairs["seconds"]))
    if config.preload and pairs["mode"] == "fill":
        failed = count["oom"]
        results.check(f"{name}: every request was served", failed == 0, f"{failed} failed")
        is_ordered = config.name.endswith("/ordered")
        reused = exposed if is_ordered else count["reused"]
        what = "reused under unfinished work" if is_ordered else "reused"
        results.check(f"{name}: {what}", reused > 0, f"{reused} of {count['rounds']}")


def run_matrix(results, out, config, mode):
    log = out / "streams" / f"{config.name.replace('/', '-')}-{mode[0]}.txt"
    more = {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}
    if mode[0] == "fill" and config.preload:
        more["GPUPOOL_LIMIT"] = LIMIT
    limited = programs.Config(config.name, config.preload, {**config.variables, **more})
    words = [programs.BIN / "stream_matrix", *mode]
    done = programs.run_program(limited, words, log, timeout=75, more=more)
    summaries = [pairs for word, pairs in programs.parse_lines(done.text) if word == "summary"]
    for pairs in summaries:
        judge(results, config, pairs)
    expected = 3 if mode[0] == "fill" else 1
    ok = done.status == 0 and len(summaries) == expected and done.is_pooled == bool(config.preload)
    if not ok or mode[0] != "plain":
        results.check(f"{config.name}: {mode[0]} finished", ok, f"status {done.status}")


def run_free_wait(results, out, config):
    log = out / "streams" / f"free_wait-{config.name.replace('/', '-')}.txt"
    done = programs.run_program(config, [programs.BIN / "free_wait"], log, timeout=60)
    rows = [pairs for word, pairs in programs.parse_lines(done.text) if word == "free_wait"]
    for pairs in rows:
        question = f"{pairs['kind']} {int(pairs['bytes']) >> 10} KiB"
        for call, key in [("free under a kernel", "free_ms"), ("malloc after it", "malloc_ms")]:
            results.note(f"{config.name} | {call}, {question}, ms", float(pairs[key]))
    if not config.preload:
        waited = bool(rows) and all(p["busy_after_free"] == "0" for p in rows)
        results.check("raw: a free waits for the kernel", waited, f"status {done.status}")
        return
    still_busy = bool(rows) and all(p["busy_after_free"] == "1" for p in rows)
    results.check(f"{config.name}: the kernel still ran when it returned", still_busy)


def run_order_ends(results, out, config):
    """Serial mode: memory is reused under unfinished work on default streams, until other work ends the order."""
    for way in ORDER_ENDS:
        log = out / "streams" / f"order_ends-{config.name}-{way}.txt"
        done = programs.run_program(config, [programs.BIN / "order_ends", way], log, timeout=60)
        rows = [pairs for word, pairs in programs.parse_lines(done.text) if word == "order_ends"]
        results.check(f"{config.name}: serial mode ends by {way}: no wrong bytes",
                      len(rows) == 1 and rows[0]["wrong"] == "0", f"status {done.status}")
        is_used_again = len(rows) == 1 and rows[0]["busy"] == rows[0]["same"] == "1"
        if config.name not in ("raw", "none"):
            results.check(f"{config.name}: serial mode ends by {way}: reused under unfinished work", is_used_again)


def run_inflight(results, out, config):
    """Another thread frees a block while the call that submits work on it has not returned."""
    for mode, size, variables in INFLIGHT:
        name = f"{mode} of {size >> 10} KiB" + (", launches wait" if variables else "")
        log = out / "streams" / f"inflight-{config.name}-{name.replace(' ', '-').replace(',', '')}.txt"
        words = [programs.BIN / "inflight", mode, size, INFLIGHT_ROUNDS]
        done = programs.run_program(config, words, log, timeout=60, more=variables)
        rows = [pairs for word, pairs in programs.parse_lines(done.text) if word == "inflight"]
        results.check(f"{config.name}: freed before its launch returns, {name}: no wrong rounds",
                      len(rows) == 1 and rows[0]["wrong"] == "0", f"status {done.status}")
        for pairs in rows:
            results.note(f"{config.name} | {name}: rounds freed before the launch returned", int(pairs["inside"]))


def run(results, out, options):
    programs.build_programs()
    library = programs.preload_library()
    defective = {}
    for name, make in DEFECTIVE.items():
        try:
            defective[name] = make()
        except programs.Trouble as trouble:
            results.check(f"the defective build {name}", False, str(trouble).splitlines()[-1])
    for config in programs.kind_configs(library, options, WAITED_KINDS):
        run_free_wait(results, out, config)
        run_order_ends(results, out, config)
        run_inflight(results, out, config)
        if config.name not in ("raw", "none"):
            submissions.run(results, out, config)
    for config in configs(library, defective, options):
        for mode in modes(config, options.scale):
            run_matrix(results, out, config, mode)
