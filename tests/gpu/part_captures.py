# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Stream captures:
- the programs of tests/diff about captures and unpooled memory, raw compared with every configuration;
- a library that finds no context-wide fences, as on a driver before CUDA 12.5, under programs of every kind;
- graphs that PyTorch and CuPy capture while memory is allocated and freed, PyTorch also without its own cache.
"""

import importlib.util
import sys

import part_semantics
import part_streams
import programs

FENCELESS = ["free", "memory", "capture_ends", "capture_memory", "capture_threads"]
FENCELESS_CONFIGS = ["none", "split"]
SCALE = 0.1  # arguments of the stream matrix, with the library that finds no context-wide fences
FEW_ADDRESSES = 64  # of 96 rounds; more addresses mean that freed memory is not reused
GRAPHS = [
    ("torch", "torch", "work_torch_graph.py", ("raw", "none", "simple", "binned", "split", "split/comp")),
    ("torch", "torch without its cache", "work_torch_uncached_graph.py",
     ("raw", "none", "simple", "binned", "split", "vmm", "split/comp")),
    ("cupy", "cupy", "work_cupy_graph.py", ("raw", "none", "split", "split/comp")),
]
GRAPH_SECONDS = 90


def run_fenceless(results, out, options):
    try:
        library = programs.fenceless_library()
    except programs.Trouble as trouble:
        results.check("old driver: its library", False, str(trouble).splitlines()[-1])
        return
    directory = out / "captures" / "old"
    rows, status = part_semantics.run_suite(directory, FENCELESS, library, options, FENCELESS_CONFIGS)
    results.check("old driver: the runner finished", rows and status in (0, 1), f"status {status}")
    part_semantics.take(results, rows, "old driver, ")
    part_semantics.print_unexpected(rows)
    (kind,) = programs.kinds(["split"], options)
    config = programs.Config("old", library, {"GPUPOOL_POOL": kind})
    for mode in part_streams.modes(config, SCALE * options.scale):
        part_streams.run_matrix(results, out, config, mode)


def addresses_of(directory):
    """The largest number of addresses that a loop of allocations got, by the programs' facts."""
    counts = []
    for path in directory.glob("*.facts"):
        for line in path.read_text().splitlines():
            name, _, value = line.rpartition(" ")
            counts += [int(value)] if name.startswith("addresses after ") else []
    return max(counts, default=None)


def run_facts(results, out, options):
    """Checks by facts, not by answers, that memory is still reused after every kind of end of a capture."""
    library = programs.preload_library()
    for kind in programs.kinds(["simple", "split"], options):
        config = programs.Config(kind, library, {"GPUPOOL_POOL": kind})
        directory = out / "captures" / "facts" / kind
        for name in ["capture_ends", "capture_threads"]:
            log = directory / f"{name}.txt"
            log.parent.mkdir(parents=True, exist_ok=True)
            # The programs write facts to descriptor 3.
            words = ["sh", "-c", 'exec "$0" --all 3>"$1"', part_semantics.DIFF_BIN / f"diff_{name}"]
            programs.run_program(config, [*words, log.with_suffix(".facts")], log, timeout=120)
        found = addresses_of(directory)
        ok = found is not None and found <= FEW_ADDRESSES
        results.check(f"{kind}: memory is reused after captures", ok, f"{found} addresses of 96")


def run_graphs(results, out, options):
    library = programs.preload_library()
    for module, name, script, wanted in GRAPHS:
        if not importlib.util.find_spec(module):
            results.note(f"{name}'s graphs: skipped, not installed", None)
            continue
        answers = {}
        for config in programs.pool_configs(library, options):
            if config.name not in (*wanted, "auto", "auto/comp"):
                continue
            log = out / "captures" / f"{name}-{config.name}.txt".replace("/", "-").replace(" ", "-")
            words = [sys.executable, programs.SOURCES / script]
            done = programs.run_program(config, words, log, timeout=GRAPH_SECONDS)
            answers[config.name] = done.text
            ok = done.status == 0 and done.is_pooled == bool(config.preload)
            results.check(f"{config.name}: {name}'s graphs finished", ok, f"status {done.status}")
        raw = answers["raw"]
        differ = [config for config, text in answers.items() if text != raw]
        lines = len(raw.splitlines())
        results.check(f"{name}'s graphs: the same results in every configuration", lines and not differ,
                      ", ".join(differ) or f"{lines} lines")


def run(results, out, options):
    part_semantics.compare(results, out, "captures", options)
    run_facts(results, out, options)
    run_fenceless(results, out, options)
    run_graphs(results, out, options)
