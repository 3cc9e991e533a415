# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Makes docs/benchmarks.md and its charts of the result files in tests/bench/results.

Usage: benchmarks.py ROOT [--check]
"""

import dataclasses
import pathlib
import re
import sys
import textwrap

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import chart
import result_file

COMMAND = "scripts/bench --report"
PAGE = pathlib.Path("docs/benchmarks.md")
CHARTS = pathlib.Path("docs/charts")
DATA = pathlib.Path("tests/bench/results")
SIMULATED = "the simulated GPU"

# Names of peers (tests/bench/README.md) as the page writes them, in its order of columns.
PEERS = {
    "raw": "raw",
    "raw, shared": "raw, shared runtime",
    "split": "`split`, static runtime",
    "split, shared": "`split`, shared runtime",
    "vmm": "`vmm`, static runtime",
    "vmm, shared": "`vmm`, shared runtime",
    "binned": "`binned`, static runtime",
    "binned, shared": "`binned`, shared runtime",
    "own": "own pool",
    "expandable": "own pool, expandable segments",
    "platform": "`platform`",
    "platform, split": "`platform` under `split`",
    "async": "`cudaMallocAsync`",
    "cub": "CUB",
    "rmm": "RMM's pool",
    "torch": "PyTorch from C++",
    "torch expandable": "its expandable segments",
    "torch async": "its async backend",
    "UNSAFE floor": "floor, static",
    "UNSAFE floor, shared": "floor, shared",
}

PROGRAM_CELL = "step"  # the cell of a program, which its group names

# Patterns of cells (tests/bench/README.md) in the words of the page.
CELLS = (
    (r"pingpong (.*)", r"malloc and free, \1"),
    (r"window mixed", "window of 32 live blocks of up to 1 MiB"),
    (r"window (\S+ \S+), (\d+) live", r"window of \2 live blocks of \1"),
    (r"window (\S+ \S+), (\d+) threads", r"\2 threads, each a window of 32 live blocks of \1"),
    (r"handover (\S+ \S+), (\d+) threads", r"\2 threads, in pairs: one allocates \1, the other frees it"),
    (r"window (\S+ \S+)", r"window of 32 live blocks of \1"),
    (r"batch (\S+ \S+) of (\d+)", r"\2 blocks of \1 allocated, then freed"),
    (r"pinned (.*)", r"pinned memory, window of 4 live blocks of \1"),
    (r"hoisted (.*)", r"the kernel alone, with one block of \1 allocated before the loop"),
    (r"kernel (.*)", r"loop of malloc \1, kernel, free"),
    (r"overlap (.*)", r"copies and kernels that overlap, blocks of \1"),
)


@dataclasses.dataclass
class Section:
    title: str
    parts: tuple
    about: str
    chart: str = ""  # the file of the chart, and its text for readers who cannot see it
    alt: str = ""


SECTIONS = (
    Section("Pairs of malloc and free", ("pairs", "many", "streams"),
            "Nanoseconds of a pair of malloc and free in one thread. In a *window* a random one of the live blocks is freed "
            "and replaced by a new block. Rows with *four streams alive* were measured while the process had four other streams.",
            "pairs.svg", "Time of a pair of malloc and free by allocator, with one thread"),
    Section("Allocations in stream order", ("async", "async-pytorch", "async-cupy", "async-jax", "async-rmm", "async-memory"),
            "`cudaMallocAsync` and `cudaFreeAsync` from the driver's default pool (raw), and from gpupool: nanoseconds of a pair, "
            "or of a step of a program. A machine drifts by up to 30 % within minutes, so the times of programs are compared by the ratio of runs that took turns. "
            "*RMM step* allocates from a pool that RMM makes."),
    Section("Several threads", ("threads",),
            "Nanoseconds of a pair as each thread sees it: wall time, times threads, over pairs.",
            "threads.svg", "Time of a pair of malloc and free by allocator, with 16 threads"),
    Section("Loops with kernels and copies", ("loops",), "Nanoseconds of a turn of the loop."),
    Section("Pinned memory", ("pinned",), "Nanoseconds of a pair of `cudaMallocHost` and `cudaFreeHost`."),
    Section("Pinned memory that no cache has", ("cold",), "Nanoseconds of a call that finds nothing in a cache."),
    Section("Whole programs", ("programs", "torch", "cupy", "jax"),
            "Programs with their own pool, without a pool (raw), and with gpupool instead of it."),
    Section("Peak memory of a program", ("memory",),
            "Peak memory in use while PyTorch trained a transformer, as the device reports it, each run alone on it.",
            "memory.svg", "Peak memory in use on the device while PyTorch trained, by allocator"),
    Section("Smallest memory of a training loop", ("limits-transformer", "limits-gpt"),
            "The smallest limit under which a training loop of PyTorch finishes, and the peak memory in use on the device in a "
            "run alone. PyTorch's own limit leaves out what other libraries allocate, so only the peak compares the ways: "
            "`auto` is gpupool, *expandable* PyTorch's expandable segments. A run needs some MiB more or less than another, so "
            "the run alone may need a larger limit, which is shown."),
    Section("Memory of recorded programs", ("traces",),
            "Peak memory taken from the driver over peak live memory, for the same allocations and frees. 1.00 would be "
            "perfect. `tests/traces/README.md` describes the programs, and why some memory is left over.",
            "traces.svg", "Peak memory taken over peak live memory on seven traces, by allocator"),
    Section("Costs of optional features", ("costs", "recorded", "guest"),
            "Times of a pair as multiples of the time of a pair without the feature."),
    Section("First calls of a process", ("first",), "Nanoseconds of the first calls."),
    Section("Driver calls in a steady loop", ("steady",), "Driver calls for each pair of malloc and free."),
    Section("Targets that were missed", ("missed",), ""),
    Section("Targets that were reached", ("reached",), ""),
)

INTRO = """# Benchmarks

`scripts/bench --report` makes this page and its charts of the result files in `tests/bench/results`. The last section
says how to renew them. `tests/bench/README.md` explains the method, the allocators and the rows.

Times are medians of the rounds of one run, in which all allocators take turns. Machines differ, and other work on the
same processor makes the short rows up to twice as long at times, for all columns alike (half the middle half of the
rounds is up to 44 % of the median). So compare columns, not days. The table of commands below names the GPU, the date
and the commit of each section. `floor` is gpupool without its fences, which is unsafe: it shows the runtime's part and
the pool's.
"""

OUTRO = """## Renew this page

On a machine with a GPU:

    scripts/bench --part pairs --save tests/bench/results    # measures, and writes pairs.json there
    scripts/bench --report                                   # makes this page again

Each part of `scripts/bench` replaces the file of its name. The files `programs`, `missed` and `reached` are tables in
words, edited by hand. Results of the simulated GPU are refused, except those of `traces`, which do not depend on the
GPU.

`meson setup build-bench --buildtype=release && meson test -C build-bench --benchmark` measures what gpupool itself
costs, without a GPU.
"""


def number(value):
    """60281 as 60 281 with a space that does not break, and 1.04 as it is."""
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 10 else f"{value:.3f}".rstrip("0").rstrip(".")
    return f"{int(value):,}".replace(",", "\u00a0")


def cell_words(cell):
    for pattern, words in CELLS:
        if re.fullmatch(pattern, cell):
            found = re.sub(pattern, words, cell)
            return re.sub(r"\d{5,}", lambda match: number(int(match.group())), found)
    return cell


def in_order(peers):
    known = list(PEERS)
    return sorted(dict.fromkeys(peers), key=lambda peer: known.index(peer) if peer in known else len(known))


def row_words(cell):
    words = cell_words(cell["cell"])
    if cell["group"] == "four streams alive":
        return f"{words}, four streams alive"
    return f"four streams: {words}" if "four streams" in cell["group"] else words


def peer_words(peer):
    return PEERS.get(peer, peer)


def program_peer(peer):
    """The name of a peer of a program, whose runtime does not matter."""
    return peer_words(peer).replace(", static runtime", "")


def program_words(cell):
    return cell["group"].removesuffix(", in stream order")


def cell_tables(parts, documents):
    """Tables of all cells of these parts, programs in the second: a line for each cell, a column for each peer."""
    cells = [cell for part in parts for cell in documents[part].get("cells", [])]
    for is_program, label_of, name_of in ((False, row_words, peer_words), (True, program_words, program_peer)):
        chosen = [cell for cell in cells if (cell["cell"] == PROGRAM_CELL) == is_program]
        peers, found = in_order(cell["peer"] for cell in chosen), {}
        for cell in chosen:
            found.setdefault(label_of(cell), {})[cell["peer"]] = number(cell["ns"])
        if found:
            yield result_file.table(["", *map(name_of, peers)],
                                [[label, *(row.get(peer, "") for peer in peers)] for label, row in found.items()])


def ratio_table(document):
    rows = []
    for ratio in document.get("ratios", []):
        interval = f"{ratio['low']:.3f} to {ratio['high']:.3f}" if ratio.get("low") is not None else ""
        rows.append([ratio["group"], row_words(ratio), program_peer(ratio["peer"]), program_peer(ratio["base"]),
                     f"{ratio['median']:.3f}", interval, ratio["n"]])
    return result_file.table(["program", "", "allocator", "compared with", "time, median ratio", "95 % interval", "rounds"],
                         rows) if rows else []


PEAKS = {"outside_peak": "in use on the device", "own_peak": "taken by the program's own pool",
         "pool_peak": "taken by gpupool", "beside": "of which libraries other than the program's allocator took"}


def peak_words(peak):
    if (peak["peer"], peak["key"]) == ("raw", "own_peak"):
        return "taken by the driver's pool"
    return PEAKS.get(peak["key"], peak["key"])


def peak_table(document):
    rows = [[peak["group"], program_peer(peak["peer"]), peak_words(peak), f"{number(peak['mib'])} MiB"]
            for peak in document.get("peaks", [])]
    return result_file.table(["program", "allocator", "peak memory", ""], rows) if rows else []


def trace_values(document):
    """{trace: {kind: ratio}}"""
    found = {}
    for value in document.get("values", []):
        if "trace" in value:
            found.setdefault(value["trace"].split(".")[0], {})[value["kind"]] = value["value"]
    return found


def ratio_words(value):
    """Two decimals, or three if the third is not 0."""
    return re.sub("0$", "", f"{value:.3f}")


TRACE_KINDS = {"torch": "PyTorch's pool", "split": "`split`", "torch expandable": "with expandable segments",
               "vmm": "`vmm`"}


def value_table(document):
    traces = trace_values(document)
    if traces:
        kinds = [*TRACE_KINDS, *(kind for kind in ("none", "simple", "binned") if any(kind in row for row in traces.values()))]
        return result_file.table(["trace", *(TRACE_KINDS.get(kind, f"`{kind}`") for kind in kinds)],
                             [[f"`{trace}`", *(ratio_words(row[kind]) if kind in row else "" for kind in kinds)]
                              for trace, row in traces.items()])
    rows = [[value["name"], f"{number(value['value'])} {value['unit']}".strip()] for value in document.get("values", [])
            if isinstance(value["value"], (int, float))]
    return result_file.table(["", "value"], rows) if rows else []


def call_table(document):
    rows = [[peer_words(row["peer"]), cell_words(row["name"]), ", ".join(
        f"{name} {number(float(count) / row['pairs'])}" for name, count in row["calls"].items())]
        for row in document.get("calls", [])]
    return result_file.table(["allocator", "loop", "calls for a pair"], rows) if rows else []


def word_table(document):
    return result_file.table(document["head"], document["rows"]) if document.get("rows") else []


def wrap(words):
    return [*textwrap.wrap(words, 120, break_long_words=False, break_on_hyphens=False), ""]


def part_lines(parts, documents):
    lines = []
    tables = list(cell_tables(parts, documents))
    tables += [word_table(documents[part]) for part in parts]
    joined = {key: [row for part in parts for row in documents[part].get(key, [])] for key in ("ratios", "peaks")}
    tables += [ratio_table(joined), peak_table(joined)]
    for part in parts:
        tables += [value_table(documents[part]), call_table(documents[part])]
    for table in filter(None, tables):
        lines += [*table, ""]
    for part in parts:
        for note in documents[part].get("notes", []):
            lines += wrap(note)
    return lines


# Charts.


def cell_of(documents, part, cell, peer):
    for found in documents.get(part, {}).get("cells", []):
        if (found["cell"], found["peer"]) == (cell, peer):
            return found["ns"]
    return None


def time_words(ns):
    for limit, unit in ((1e6, "ms"), (1e3, "us")):
        if ns >= limit:
            return f"{ns / limit:.3g} {unit}"
    return f"{ns:.0f} ns"


CHART_PEERS = (("raw", "cudaMalloc, cudaFree"), ("async", "cudaMallocAsync"), ("cub", "CUB"), ("rmm", "RMM's pool"),
               ("torch", "PyTorch's pool, C++"), ("split", "gpupool, static runtime"),
               ("split, shared", "gpupool, shared runtime"))
TICKS = ((10, "10 ns"), (100, "100 ns"), (1e3, "1 us"), (1e4, "10 us"), (1e5, "100 us"), (1e6, "1 ms"), (1e7, "10 ms"))


def machine(document):
    run = document["runs"][0]
    return f"{run.get('hardware', result_file.UNKNOWN).split(',')[0]}, {run.get('date', result_file.UNKNOWN)}"


def time_chart(documents, part, cell, title):
    rows = []
    for peer, label in CHART_PEERS:
        ns = cell_of(documents, part, cell, peer)
        if ns is not None:
            rows.append(chart.Row(label, [ns], time_words(ns), peer.startswith("split")))
    about = f"{machine(documents[part])}; logarithmic axis, shorter is better"
    if not rows:
        return None
    ticks = [tick for tick in TICKS if tick[0] < max(row.values[0] for row in rows) * 10]
    return chart.lollipops(title, about, rows, chart.Axis(ticks[0][0], ticks[-1][0], ticks, True))


MEMORY_PEERS = (("own", "PyTorch's pool"), ("split", "gpupool, split"), ("expandable", "expandable segments"),
                ("vmm", "gpupool, vmm"))


def memory_chart(documents):
    document = documents["memory"]
    found = {peak["peer"]: peak["mib"] for peak in document["peaks"] if peak["key"] == "outside_peak"}
    rows = [chart.Row(label, [found[peer]], f"{number(found[peer])} MiB", "gpupool" in label)
            for peer, label in MEMORY_PEERS if peer in found]
    most = max((row.values[0] for row in rows), default=0)
    step = next(step for step in (250, 500, 1000, 2000, 5000, 10000, 100000) if most / step <= 5)
    axis = chart.Axis(0, most * 1.05, [(at, f"{number(at)} MiB") for at in range(0, int(most) + 1, step)])
    about = f"{machine(document)}; in use on the device, less is better"
    return chart.bars("Peak memory, PyTorch training a transformer", about, rows, axis) if rows else None


def trace_chart(documents):
    traces = trace_values(documents["traces"])
    names = ("PyTorch's pool", "gpupool, split", "expandable segments", "gpupool, vmm")
    rows = [chart.Row(trace, [found.get(kind) for kind in TRACE_KINDS]) for trace, found in traces.items()]
    axis = chart.Axis(0.95, 8, [(1, "1.0"), (1.2, "1.2"), (1.5, "1.5"), (2, "2"), (3, "3"), (4, "4"), (6, "6"), (8, "8")], True)
    return chart.dots("Peak memory taken over peak live memory", names, rows, axis) if rows else None


def charts(documents):
    """{file: SVG}, without those that have no data."""
    found = {
        "pairs.svg": "pairs" in documents and time_chart(
            documents, "pairs", "window 64 KiB", "A malloc and a free of 64 KiB, 32 blocks live"),
        "threads.svg": "threads" in documents and time_chart(
            documents, "threads", "window 64 KiB, 16 threads", "A malloc and a free of 64 KiB in each of 16 threads"),
        "memory.svg": "memory" in documents and memory_chart(documents),
        "traces.svg": "traces" in documents and trace_chart(documents),
    }
    return {name: svg for name, svg in found.items() if svg}


def refuse_simulated(documents):
    for part, document in documents.items():
        if part != "traces" and any(run.get("hardware") == SIMULATED for run in document["runs"]):
            sys.exit(f"bench: {DATA / part}.json has times of the simulated GPU, which mean nothing")


def files(root):
    """{path: content} of the page and its charts."""
    documents = result_file.load(root / DATA)
    refuse_simulated(documents)
    drawn, lines, shown = charts(documents), [INTRO], []
    for section in SECTIONS:
        parts = [part for part in section.parts if part in documents]
        if not parts:
            continue
        shown += parts
        lines += [f"## {section.title}", ""]
        if section.about:
            lines += wrap(section.about)
        if section.chart in drawn:
            lines += [f"![{section.alt}]({CHARTS.name}/{section.chart})", ""]
        lines += part_lines(parts, documents)
    unknown = sorted(set(documents) - set(shown))
    if unknown:
        sys.exit(f"bench: no section of {PAGE} shows {', '.join(unknown)}")
    lines += ["## Commands, dates, commits and machines", "",
              *result_file.table(result_file.RUN_HEAD, result_file.run_rows({part: documents[part] for part in shown})), "", OUTRO]
    found = {root / PAGE: "\n".join(lines).rstrip("\n") + "\n"}
    return found | {root / CHARTS / name: svg for name, svg in drawn.items()}


if __name__ == "__main__":
    if sys.argv[2:] not in ([], ["--check"]):
        sys.exit(__doc__.strip())
    is_same = result_file.update(files(pathlib.Path(sys.argv[1])), sys.argv[2:] == ["--check"], COMMAND)
    sys.exit(0 if is_same or sys.argv[2:] != ["--check"] else 1)
