# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
The bars, that is, the targets of gpupool: each with its figure and a verdict. A bar whose figure was not measured is
not reached, and a peer that was not measured does not count as beaten.
"""

import dataclasses
import statistics

import limits
from figures import median_interval

STATIC, SHARED = "split", "split, shared"
PEERS = ("async", "cub", "torch", "torch expandable", "torch async", "rmm")
UP_TO_1_MIB = ("512 B", "4 KiB", "64 KiB", "1 MiB", "mixed")
FIRST_CALLS = "first calls of a process"
FIRST_CELLS = ("first allocation", "first free", "first release")
RUNS = 15
ALONE = ", alone"  # ends the name of a group of runs alone, for the memory in use on the device
STREAM_ORDER = ", in stream order"  # ends the name of a group of programs that allocate in stream order
ASYNC_KINDS, ASYNC_RUNS = ("split", "vmm"), 7
ASYNC_NS = {"": 110, ", shared": 60}  # of a pair, by the runtime of the peer
ASYNC_CELLS = ("pingpong 512 B", "pingpong 64 KiB", "pingpong 1 MiB", "pingpong 64 MiB", "window 64 KiB, 16 live",
               "pingpong 64 KiB, 4 streams alive")
ASYNC_PROGRAMS = ("PyTorch training", "CuPy step", "JAX step", "RMM step", "RMM step over the default pool")
COMPARE = {
    "<=": lambda value, limit: value <= limit,
    "<": lambda value, limit: value < limit,
    ">=": lambda value, limit: value >= limit,
    ">": lambda value, limit: value > limit,
    "=": lambda value, limit: value == limit,
}


@dataclasses.dataclass
class Bar:
    what: str
    unit: str
    compare: str
    limit: float
    measure: object  # function of a book: returns the figure, or None
    note: object = None  # function of a book: returns a remark for the report


def median(book, group, cell, peer, key="ns"):
    found = book.figure(group, cell, peer, key)
    return found.median if found else None


def worst(book, group, cells, peer, key="ns"):
    found = [median(book, group, cell, peer, key) for cell in cells]
    return max(found) if found and None not in found else None


def ratio(book, group, cell, above, below, key="ns"):
    found = book.ratios(group, cell, above, below, key)
    return statistics.median(found) if found else None


def best_peer(book, group, cell, peers=PEERS):
    found = {peer: median(book, group, cell, peer) for peer in peers}
    found = {peer: value for peer, value in found.items() if value is not None}
    return min(found, key=found.get) if found else None


def lead_over_best(book, group, cells, own, peers=PEERS):
    """The time of the best peer over that of the peer own: the smallest such ratio of all cells."""
    found = []
    for cell in cells:
        peer = best_peer(book, group, cell, peers)
        found.append(ratio(book, group, cell, peer, own) if peer else None)
    return min(found) if found and None not in found else None


def windows():
    return [f"window {size}" for size in UP_TO_1_MIB]


def missing_note(group, peers=PEERS):
    def note(book):
        missing = [peer for peer in peers if peer not in book.peers(group)]
        return f"not compared with {', '.join(missing)}" if missing else ""
    return note


def record_cost_note(book):
    """The remark with the cost of recording an event: the time with streams alive less the time without."""
    alone, alive = (worst(book, group, windows(), STATIC) for group in ("one thread", "four streams alive"))
    return f"{alive - alone:.0f} ns more than without streams" if None not in (alone, alive) else ""


def thread_cell(n):
    return f"window 64 KiB, {n} threads"


def thread_growth(book):
    one, sixteen = (median(book, "threads", thread_cell(n), STATIC) for n in (1, 16))
    return sixteen / one if one and sixteen else None


def interval(book, group, peer, base):
    return median_interval(book.ratios(group, "step", peer, base))


def time_upper(group, peer, base="own"):
    def measure(book):
        found = interval(book, group, peer, base)
        return found[1] if found and len(book.ratios(group, "step", peer, base)) >= RUNS else None
    return measure


def time_note(group, peer, base="own"):
    def note(book):
        found, n = interval(book, group, peer, base), len(book.ratios(group, "step", peer, base))
        return f"{n} pairs of runs" + (f", interval {found[0]:.4f} to {found[1]:.4f}" if found else "")
    return note


def time_median(group, peer, base="own"):
    return lambda book: ratio(book, group, "step", peer, base)


def most_bytes(book, group, peer, keys):
    """The largest number of bytes in any run."""
    found = [value for key in keys for value in book.rounds(group, "step", peer, key).values()]
    return max((value for value in found if value is not None), default=None)


def peak_ratio(peer, base, group="PyTorch training"):
    """
    Peak memory of gpupool over that of the program's own pool, or of the driver's default pool. These do not count memory
    that other libraries of the process take from the driver, and gpupool does, so that memory is subtracted first. The
    figures come from the runs that take turns, or from the runs of the program alone if the former lack a column.
    """
    def measure_in(book, group):
        pool_bytes, other_bytes = (most_bytes(book, group, peer, [key]) for key in ("pool_peak", "beside"))
        own_bytes = most_bytes(book, group, base, ["own_peak"])
        return (pool_bytes - other_bytes) / own_bytes if pool_bytes and own_bytes and other_bytes is not None else None

    def measure(book):
        found = measure_in(book, group)
        return measure_in(book, group + ALONE) if found is None else found
    return measure


def outside_note(peer, base, group="PyTorch training"):
    """
    The remark with the same ratio for memory in use on the device, CUDA context included, in runs of the program alone.
    A sample is taken every 10 ms, so what a pool holds for less time may be missed.
    """
    def note(book):
        pool_bytes, own_bytes = (most_bytes(book, group + ALONE, name, ["outside_peak"]) for name in (peer, base))
        return f"in use on the device: {pool_bytes / own_bytes:.3f}" if pool_bytes and own_bytes else ""
    return note


def throughput(book):
    group, name = "kernels and copies on four streams", "overlap 4 MiB"
    peer = best_peer(book, group, name, ("torch", "async"))
    return ratio(book, group, name, peer, STATIC) if peer else None


def pinned_worst(book):
    cells = book.cells("pinned")
    return worst(book, "pinned", cells, STATIC) if "pinned 256 MiB" in cells else None


def pinned_cached(book):
    found = [row["value"] for row in book.rows if row["type"] == "value" and row["name"].startswith("pinned")]
    return max(found) if found else None


def loop_over_hoisted(book):
    """The time of the loop that allocates over that of the loop that does not. One process runs both, in each round."""
    group = "kernels on one stream"
    with_pool = book.rounds(group, "kernel 1 GiB", STATIC)
    hoisted = book.rounds(group, "hoisted 1 GiB", STATIC)
    found = [with_pool[nth] / hoisted[nth] for nth in with_pool if nth in hoisted]
    return statistics.median(found) if found else None


def loop_note(book):
    found = ratio(book, "kernels on one stream", "kernel 1 GiB", "raw", STATIC)
    return f"raw takes {found:.0f} times as long" if found else ""


def calls(book):
    rows = [row for row in book.rows if row["type"] == "calls"]
    counts = [sum(row["calls"].get(name, 0) for name in ("memory", "fence")) for row in rows]
    return sum(counts) if counts else None


def calls_note(book):
    worst_row = max((row for row in book.rows if row["type"] == "calls"), default=None,
                    key=lambda row: (row["calls"].get("memory", 0) + row["calls"].get("fence", 0)) / row["pairs"])
    return f"most calls a pair: {worst_row['peer']}, {worst_row['name']}" if worst_row else ""


def value(name):
    return lambda book: book.value_of(name)


def per_ms(name):
    def measure(book):
        found = book.value_of(name)
        return found / 1000 if found is not None else None
    return measure


def worst_trace(book, kind):
    found = [row["value"] for row in book.rows if row["type"] == "value" and row.get("kind") == kind]
    return max(found) if found else None


def trace_ratio(kind, base):
    """The largest ratio among the traces that were replayed through both."""
    def measure(book):
        found = {name: {row["trace"]: row["value"] for row in book.rows
                        if row["type"] == "value" and row.get("kind") == name} for name in (kind, base)}
        ratios = [ratio / found[base][trace] for trace, ratio in found[kind].items() if trace in found[base]]
        return max(ratios, default=None)
    return measure


def first_calls_ms(book):
    """The longest first allocation, free or release of a process, with any kind of pool."""
    kinds = [peer for peer in book.peers(FIRST_CALLS) if peer != "raw"]
    found = [worst(book, FIRST_CALLS, FIRST_CELLS, kind) for kind in kinds]
    return max(found) / 1e6 if found and None not in found else None


def cold_slowest(book):
    """The slowest rate in GiB/s from 64 MiB on."""
    found = [book.value_of(f"cold pinned memory, {size} MiB, split") for size in (64, 256, 1024, 4096)]
    return min(found) if None not in found else None


def cold_note(book):
    found = {peer: book.value_of(f"cold pinned memory, 4096 MiB, {peer}") for peer in ("raw", "torch, registering")}
    return ", ".join(f"{peer}: {rate:.1f} at 4 GiB" for peer, rate in found.items() if rate is not None)


def cold_256_ms(book):
    rate = book.value_of("cold pinned memory, 256 MiB, split")
    return 0.25 / rate * 1000 if rate else None


def start_delay(book):
    beside, alone = (book.value_of(f"start of a process, {what}") for what in ("beside gpupool", "alone"))
    return beside - alone if None not in (beside, alone) else None


def start_note(book):
    beside, alone = (book.value_of(f"start of a process, {what}") for what in ("beside raw", "alone"))
    return f"beside raw: {beside - alone:.0f}" if None not in (beside, alone) else ""


def limit_over(loop, base):
    """Memory on the device at the peak of a training loop under its smallest limit: with auto, over that with the base."""
    def measure(book):
        own, other = (book.value_of(f"{limits.PEAK}, {loop}, {way}") for way in ("auto", base))
        return own / other if own and other else None
    return measure


def async_median(group, kind):
    """The median of the ratios of runs that took turns, since the machine drifts from run to run."""
    def measure(book):
        found = book.ratios(group, "step", kind, "raw")
        return statistics.median(found) if len(found) >= ASYNC_RUNS else None
    return measure


def answers(group):
    """The number of different answers of all runs; 1 if all are equal."""
    def measure(book):
        found = {}
        for row in book.samples():
            if row["group"] == group and "answer" in row["found"]:
                found.setdefault(row["peer"], set()).add(row["found"]["answer"])
        return len(set.union(*found.values())) if {"raw", *ASYNC_KINDS} <= set(found) else None
    return measure


def async_bars():
    """Allocations in stream order: pairs, and programs relative to the driver's default pool (raw)."""
    for runtime, ns in ASYNC_NS.items():
        for kind in ASYNC_KINDS:
            yield Bar(f"pair in stream order, {kind}, {'shared' if runtime else 'static'} runtime: the slowest", "ns", "<=", ns,
                      lambda book, peer=kind + runtime: worst(book, "in stream order", ASYNC_CELLS, peer))
    for program in ASYNC_PROGRAMS:
        group = program + STREAM_ORDER
        for kind in ASYNC_KINDS:
            yield Bar(f"{group}, {kind} over the driver: time, median", "times", "<=", 1.02, async_median(group, kind),
                      time_note(group, kind, "raw"))
            yield Bar(f"{group}, {kind} over the driver: peak memory", "times", "<=", 1,
                      peak_ratio(kind, "raw", group), outside_note(kind, "raw", group))
        yield Bar(f"{group}: number of different answers", "", "=", 1, answers(group))


BARS = [
    Bar("window of 32, up to 1 MiB, one thread, static", "ns", "<=", 60,
        lambda book: worst(book, "one thread", windows(), STATIC)),
    Bar("window of 32, up to 1 MiB, one thread: best peer over gpupool", "times", ">=", 4,
        lambda book: lead_over_best(book, "one thread", windows(), STATIC), missing_note("one thread")),
    Bar("window of 32, up to 1 MiB, four streams alive", "ns", "<=", 260,
        lambda book: worst(book, "four streams alive", windows(), STATIC), record_cost_note),
    Bar("window of 32, four streams alive: best peer over gpupool", "times", ">", 1,
        lambda book: lead_over_best(book, "four streams alive", windows(), STATIC),
        missing_note("four streams alive")),
    Bar("window of 32, up to 1 MiB, shared runtime", "ns", "<=", 40,
        lambda book: worst(book, "one thread", windows(), SHARED)),
    Bar("ping-pong of 64 MiB and 1 GiB", "ns", "<=", 400,
        lambda book: worst(book, "large blocks", ["pingpong 64 MiB", "pingpong 1 GiB"], STATIC)),
    *(Bar(f"ping-pong of 64 MiB and 1 GiB: {peer} over gpupool", "times", ">", 1,
          lambda book, peer=peer: lead_over_best(book, "large blocks", ["pingpong 64 MiB", "pingpong 1 GiB"], STATIC,
                                                 [peer]))
      for peer in ("cub", "async")),
    Bar("a window in each of 16 threads, streams alive", "ns", "<=", 500,
        lambda book: median(book, "threads", thread_cell(16), STATIC)),
    Bar("a window in each of 16 threads, over one thread", "times", "<", 1.5, thread_growth),
    Bar("PyTorch training over its own cache: time, upper end", "times", "<=", 1.02,
        time_upper("PyTorch training", "split"), time_note("PyTorch training", "split")),
    Bar("PyTorch training over its own cache: time, median", "times", "<=", 1.00,
        time_median("PyTorch training", "split")),
    Bar("peak memory: split over PyTorch's native", "times", "<", 1, peak_ratio("split", "own"),
        outside_note("split", "own")),
    Bar("peak memory: vmm over its expandable segments", "times", "<=", 1, peak_ratio("vmm", "expandable"),
        outside_note("vmm", "expandable")),
    Bar("CuPy step over its own pool: time, upper end", "times", "<=", 1.02, time_upper("CuPy step", "split"),
        time_note("CuPy step", "split")),
    Bar("CuPy step over its own pool: time, median", "times", "<=", 1.00, time_median("CuPy step", "split")),
    *(Bar(f"GPUPOOL_RECORD over none, {program}: median", "times", "<=", 1.05,
          time_median(f"{program}, recorded", "recording", "split"),
          time_note(f"{program}, recorded", "recording", "split"))
      for program in ("CuPy step", "PyTorch training")),
    Bar("four streams overlapping: throughput over the best of torch, async", "times", ">=", 0.97, throughput,
        missing_note("kernels and copies on four streams", ("torch", "async"))),
    Bar("pinned, window of 4, 4 KiB to 256 MiB", "ns", "<", 1000, pinned_worst),
    Bar("pinned: cached and pending over live", "times", "<=", 2, pinned_cached),
    Bar("malloc 1 GiB, kernel of 10 us, free, over hoisted", "times", "<=", 1.10, loop_over_hoisted, loop_note),
    *(Bar(f"traces, {kind}: peak reserved over peak live", "times", "<=", limit,
          lambda book, kind=kind: worst_trace(book, kind)) for kind, limit in (("split", 1.15), ("vmm", 1.05))),
    Bar("traces, vmm: that ratio over PyTorch's expandable segments", "times", "<=", 1,
        trace_ratio("vmm", "torch expandable")),
    Bar("driver calls in the steady state, without event records", "calls", "=", 0, calls, calls_note),
    Bar("preload without CUDA: additional time", "ms", "<", 0.2, per_ms("preload without CUDA: wall time")),
    Bar("preload without CUDA: additional threads", "", "=", 0, value("preload without CUDA: threads")),
    Bar("preload without CUDA: additional open files", "", "=", 0, value("preload without CUDA: open files")),
    Bar("longest of the first allocation, free and release of a process", "ms", "<=", 1, first_calls_ms),
    Bar("pinned memory that no cache has, from 64 MiB on", "GiB/s", ">=", 10, cold_slowest, cold_note),
    Bar("pinned memory that no cache has, 256 MiB", "ms", "<=", 25, cold_256_ms),
    *(Bar(f"smallest memory of the loop {loop} on the device: auto over expandable segments", "times", "<=", 1,
          limit_over(loop, "expandable")) for loop in limits.LOOPS),
    *async_bars(),
    Bar("delay of another process's start meanwhile", "ms", "<=", 50, start_delay, start_note),
    Bar("watched every 10 ms: time of a pair", "times", "<", 1.01, value("watched every 10 ms: time of a pair")),
]


def judge(book):
    """A row for each bar."""
    rows = []
    for bar in BARS:
        figure = bar.measure(book)
        verdict = "not measured"
        if figure is not None:
            verdict = "reached" if COMPARE[bar.compare](figure, bar.limit) else "NOT REACHED"
        note = bar.note(book) if bar.note else ""
        rows.append({"what": bar.what, "unit": bar.unit, "bar": f"{bar.compare} {bar.limit:g}", "value": figure,
                     "verdict": verdict, "note": note})
    return rows


def format_bars(rows):
    width = max((len(row["what"]) for row in rows), default=0)
    lines = [f"{'bar':<{width}} {'figure':>10} {'':<6} {'bar':>8}  verdict"]
    for row in rows:
        figure = "-" if row["value"] is None else f"{row['value']:.4g}"
        note = f" ({row['note']})" if row["note"] else ""
        lines.append(f"{row['what']:<{width}} {figure:>10} {row['unit']:<6} {row['bar']:>8}  {row['verdict']}{note}")
    return lines
