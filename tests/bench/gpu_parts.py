# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
The parts of scripts/bench. Each fills a book in less than nine minutes; README.md describes them.
"""

import contextlib
import dataclasses
import functools
import statistics

import ctl
import extras
import limits
import player
import programs
from cells import GIB, KIB, MIB, cell, thread_groups
from memory_watch import MemoryWatch
from player import Cell, Group, Stage

ROUNDS, MS = 15, 10
LOOP_MS = 60
RUNS, WINDOWS = 15, 5  # runs of each program; windows of steps in each run
SHORT_WINDOWS = 15  # for programs whose window takes some ten milliseconds
KERNEL_US, OVERLAP_US = 10, 50
PINNED = (4 * KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB)
UP_TO_1_MIB = (512, 4 * KIB, 64 * KIB, MIB, 0)
# Libraries that ask the driver for memory themselves, beside the program's allocator. The bars subtract their memory from
# gpupool's peak. A library that is not named here counts for gpupool.
OTHER_LIBRARIES = ("libcublas", "libcudnn", "libcufft", "libcurand", "libcusolver", "libcusparse", "libnccl")
PROGRAM = Cell("step", {"pattern": "step"})


def scaled(count, options, least=2):
    return max(least, round(count * options.scale))


def stage(book, setup, options, log, peers, ms=MS):
    # Times on the simulated GPU are meaningless, so one millisecond is enough to show that everything runs.
    return Stage(book, peers, log, scaled(ROUNDS, options), 1 if setup.is_sim else ms, options.peer,
                 options.before)


def run_pairs(book, setup, options, log):
    cells = [*(cell("pingpong", size) for size in (512, 64 * KIB, MIB)),
             *(cell("window", size, live=32) for size in UP_TO_1_MIB),
             *(cell("batch", 64 * KIB, f" of {n}", live=n) for n in (32, 1000))]
    large = [*(cell("pingpong", size) for size in (64 * MIB, GIB, 2 * GIB)), cell("window", 64 * MIB, live=32)]
    peers = [*setup.all(), *setup.floor()]
    stage(book, setup, options, log, peers).run([Group("one thread", cells), Group("large blocks", large)])


def run_many(book, setup, options, log):
    n = 1000 if setup.is_sim else 100000
    cells = [cell("window", size, f", {n} live", live=n) for size in (512, 16 * KIB)]
    stage(book, setup, options, log, setup.all()).run([Group("many live blocks", cells)])


def run_threads(book, setup, options, log):
    groups = thread_groups((("window", (1, 4, 16)), ("handover", (2, 16))))
    stage(book, setup, options, log, setup.all(), ms=2).run(groups)


def run_streams(book, setup, options, log):
    alive = [cell("pingpong", 64 * KIB, streams=4), *(cell("window", size, live=32, streams=4) for size in UP_TO_1_MIB)]
    stage(book, setup, options, log, setup.all()).run([Group("four streams alive", alive)])


def run_loops(book, setup, options, log):
    one = [cell("kernel", GIB, kernel_us=KERNEL_US), cell("hoisted", GIB, kernel_us=KERNEL_US, live=1)]
    four = [cell("kernel", 16 * MIB, kernel_us=KERNEL_US, streams=4),
            cell("hoisted", 16 * MIB, kernel_us=KERNEL_US, streams=4, live=4)]
    overlap = [cell("overlap", 4 * MIB, kernel_us=OVERLAP_US, streams=4)]
    # A pool may grow until its queue is full, so not all pools fit on one device with blocks of 1 GiB.
    few = [peer for peer in setup.all() if not peer.name.startswith("binned")]
    stage(book, setup, options, log, few, ms=LOOP_MS).run([Group("kernels on one stream", one)])
    stage(book, setup, options, log, setup.all(), ms=LOOP_MS).run([
        Group("kernels on four streams", four), Group("kernels and copies on four streams", overlap)])


def pinned_peers(setup):
    return [setup.raw(), setup.peer("split", "player_runtime_static", "split")]


def run_pinned(book, setup, options, log):
    """The cells for pinned memory, and the ratio of cached to live bytes while a window is live."""
    cells = [cell("pinned", size, live=4) for size in (PINNED[:3] if setup.is_sim else PINNED)]
    stage(book, setup, options, log, pinned_peers(setup)).run([Group("pinned", cells)])
    for what in cells:
        with contextlib.ExitStack() as stack:
            directory = stack.enter_context(programs.private_dir())
            running = player.start(pinned_peers(setup)[1], directory, log)
            stack.callback(running.close)
            player.turn(running, what, MS)
            pinned = (running.status() or {}).get("pinned") or {}
            if pinned.get("used_bytes"):
                share = (pinned["cached_bytes"] + pinned["pending_bytes"]) / pinned["used_bytes"]
                book.value(f"{what.name}: cached and pending over live", share)


def run_steady(book, setup, options, log):
    cells = [cell("pingpong", GIB), *(cell("window", size, live=32) for size in (64 * KIB, 0)),
             cell("batch", 64 * KIB, " of 32", live=32), cell("window", 0, ", 4 streams alive", live=32, streams=4),
             cell("kernel", GIB, kernel_us=KERNEL_US),
             cell("overlap", 4 * MIB, ", 4 streams", kernel_us=OVERLAP_US, streams=4)]
    for peer in (setup.peer("split", "player_runtime_static", "split"),
                 setup.peer("split, shared", "player_runtime_shared", "split")):
        extras.steady_calls(book, peer, cells, log, 1 if setup.is_sim else LOOP_MS)


def run_guest(book, setup, options, log):
    extras.startup(book, setup.folder, setup.preload, scaled(500, options, 20))
    peer = setup.peer("split", "player_runtime_static", "split")
    cells = [cell("window", 64 * KIB, live=32), cell("window", 0, live=32)]
    with extras.recording(peer) as recording:
        stage(book, setup, options, log, [peer, recording]).run([Group("recording", cells)])
    extras.watch(book, peer, setup.stat, log, scaled(25, options, 3), 10 if setup.is_sim else 100, "ns")


def run_first(book, setup, options, log):
    kinds = [setup.peer(kind, "first", kind) for kind in ("none", "simple", "binned", "split", "vmm", "auto")]
    extras.first_calls(book, [setup.peer("raw", "first"), *kinds], scaled(20, options))


COLD = "pinned memory that no cache has"


def run_cold(book, setup, options, log):
    """
    Pinned memory that no cache has, by size: the driver's, gpupool's and that of PyTorch's pool, which registers it. Then
    the start of another process meanwhile.
    """
    sizes = (16, 64) if setup.is_sim else (16, 64, 256, 1024, 4096)
    all_threads = {"GPUPOOL_PINNED_THREADS": "auto"}
    peers = [setup.peer("raw", "cold"), setup.peer("split", "cold", "split", all_threads),
             setup.peer("split, one thread", "cold", "split", {"GPUPOOL_PINNED_THREADS": "1"})]
    torch = setup.script("torch, registering", "torch", "cold_torch.py", words=sizes, variables={
        "PYTORCH_CUDA_ALLOC_CONF": "pinned_use_cuda_host_register:True,pinned_num_register_threads:16"})
    runs = [dataclasses.replace(peer, words=[*peer.words, *sizes]) for peer in peers]
    if torch.why_missing:
        book.miss(COLD, "", torch.name, torch.why_missing)
    else:
        runs.append(torch)
    extras.first_calls(book, runs, scaled(3, options, 1), COLD)
    for size in sizes:
        for peer in book.peers(COLD):
            found = book.figure(COLD, f"allocation of {size} MiB", peer)
            if found:
                book.value(f"cold pinned memory, {size} MiB, {peer}", size / 1024 / (found.median / 1e9), "GiB/s")
    start = dataclasses.replace(peers[0], words=[*peers[0].words, "start"])
    at_once = {"GPUPOOL_POOL": "none", "GPUPOOL_PENDING_COUNT": "0", **all_threads}  # each free gives the memory back
    loops = {"alone": None, "beside raw": peers[0], "beside gpupool": setup.peer("none", "cold", "none", at_once)}
    for what, loop in loops.items():
        if loop:
            loop = dataclasses.replace(loop, words=[*loop.words, "loop", 64 if setup.is_sim else 1024])
        extras.start_of_neighbour(book, f"start of a process, {what}", loop, start, scaled(7, options, 2))


COSTS = {
    "stacks": {"GPUPOOL_STACKS": "16"},
    "stacks, sample": {"GPUPOOL_STACKS": "16,sample=100"},
    "debug": {"GPUPOOL_DEBUG": "poison,guard"},
}


def run_costs(book, setup, options, log):
    """The cost of each optional feature, compared with the same process without any of them."""
    def peer(name, variables=None):
        return setup.peer(name, "player_runtime_static", "split", variables)

    cells = [cell("window", 64 * KIB, live=32), cell("window", 0, live=32)]
    four = [cell("window", 0, ", 4 streams", live=32, streams=4),
            cell("kernel", MIB, ", 4 streams", kernel_us=KERNEL_US, streams=4)]
    with extras.recording(peer("split alone"), "recording") as recording:
        peers = [peer("split alone"), *(peer(name, variables) for name, variables in COSTS.items()), recording,
                 extras.watched(peer("split alone"), setup.stat, "watched")]
        stage(book, setup, options, log, peers, ms=LOOP_MS).run([Group("costs", cells), Group("costs", four)])
    extras.recording_growth(book, peer("split"), [*cells, *four], log, 1 if setup.is_sim else LOOP_MS)


# Programs.


def add_peaks(found, running):
    """
    Adds the peak of gpupool, if the program runs under it. Then the peak of the program's own pool is dropped: it is
    gpupool's answer for the default pool, or the figure of a pool that is not in use.
    """
    status = running.status()
    if status:
        found.pop("own_peak", None)
        found["pool_peak"] = ctl.device_sum(status, "peak_total_bytes")
        found["beside"] = running.bytes_of_libraries(OTHER_LIBRARIES)


def run_once(book, group, nth, players, windows):
    """One run of each program: windows of steps in turn; the median window counts. Removes players that fail."""
    found = {name: [] for name in players}
    for window in range(1 + windows):  # the first window does not count
        order = list(players)
        for i in range(len(order)):
            name = order[(i + nth) % len(order)]
            try:
                turned = player.turn(players[name], PROGRAM, 0)
                player.check_kind(players[name])
                found[name] += [turned] if window else []
            except programs.Trouble as trouble:
                book.miss(group, PROGRAM.name, name, str(trouble))
                del players[name]
    for name, running in players.items():
        turns = found[name]
        result = {**turns[-1], "ns": statistics.median(turn["ns"] for turn in turns),
                  "cpu_ns": statistics.median(turn["cpu_ns"] for turn in turns)}
        add_peaks(result, running)
        book.sample(group, PROGRAM, name, nth, result)


def run_programs(book, options, log, group, peers, runs=RUNS, windows=WINDOWS):
    """Pairs of runs: in each, all programs start anew, side by side, and then take turns."""
    left = player.select_peers(peers, options.peer, lambda name, why: book.miss(group, "", name, why))
    for nth in range(scaled(runs, options)):
        with contextlib.ExitStack() as stack:
            directory = stack.enter_context(programs.private_dir())
            players = player.start_all(left, directory, log, lambda name, why: book.miss(group, "", name, why))
            for found in players.values():
                stack.callback(found.close)
            player.share_processors(players.values(), nth)
            run_once(book, group, nth, players, windows)
            left = [peer for peer in left if peer.name in players]


def torch_peers(setup):
    off = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    own = [("own", {}), ("expandable", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
           ("async", {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"})]
    return [*(setup.script(name, "torch", "play_torch.py", variables=variables) for name, variables in own),
            *(setup.script(kind, "torch", "play_torch.py", kind, variables=off) for kind in ("split", "vmm"))]


def run_torch(book, setup, options, log):
    run_programs(book, options, log, "PyTorch training", torch_peers(setup))


def run_alone(book, options, log, group, peers, runs=3):
    """Each program alone, so that the memory in use on the device belongs to it."""
    for peer in player.select_peers(peers, options.peer, lambda name, why: book.miss(group, "", name, why)):
        for nth in range(scaled(runs, options, 1)):
            with contextlib.ExitStack() as stack:
                directory = stack.enter_context(programs.private_dir())
                memory = stack.enter_context(MemoryWatch())
                try:
                    running = player.start(peer, directory, log)
                    stack.callback(running.close)
                    player.turn(running, PROGRAM, 0)
                    player.check_kind(running)
                    found = player.turn(running, PROGRAM, 0)
                except programs.Trouble as trouble:
                    book.miss(group, PROGRAM.name, peer.name, str(trouble))
                    break
                add_peaks(found, running)
                found["outside_peak"] = memory.peak()
                book.sample(group, PROGRAM, peer.name, nth, found)


def run_memory(book, setup, options, log):
    run_alone(book, options, log, "PyTorch training, alone", torch_peers(setup))


def run_cupy(book, setup, options, log):
    peers = [setup.script("own", "cupy", "play_cupy.py"),
             setup.script("async", "cupy", "play_cupy.py", words=["async"]),
             *(setup.script(kind, "cupy", "play_cupy.py", kind, ["none"]) for kind in ("split", "vmm"))]
    run_programs(book, options, log, "CuPy step", peers, windows=SHORT_WINDOWS)


def run_jax(book, setup, options, log):
    """
    Steps of JAX. Its allocator "platform" creates and maps memory for each array. gpupool keeps that memory mapped for the
    next array of the size. With "platform" XLA waits for the GPU in each step, so in the second group all steps do.
    """
    quiet = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    platform = {**quiet, "XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}
    for group, words in (("JAX step", []), ("JAX step that waits for its result", ["awaited"])):
        peers = [setup.script("own", "jax", "play_jax.py", words=words, variables=quiet),
                 setup.script("platform", "jax", "play_jax.py", words=words, variables=platform),
                 setup.script("platform, split", "jax", "play_jax.py", "split", words, platform)]
        run_programs(book, options, log, group, peers, 7)


ASYNC = {"GPUPOOL_ASYNC": "on"}
ASYNC_RUNS, ASYNC_WINDOWS = 7, 2
ASYNC_ALONE_RUNS = 1  # a run takes some eight seconds, most of them for its start


def run_async(book, setup, options, log):
    """Pairs of cudaMallocAsync and cudaFreeAsync: the driver's, and those of the pool."""
    programs_of = {"": "player_async", ", shared": "player_async_shared"}
    cells = [*(cell("pingpong", size) for size in (512, 64 * KIB, MIB, 64 * MIB)),
             cell("window", 64 * KIB, ", 16 live", live=16),
             cell("pingpong", 64 * KIB, ", 4 streams alive", streams=4)]
    peers = [setup.peer(f"{name}{label}", program, kind, ASYNC if kind else None)
             for name, kind in (("raw", None), ("split", "split"), ("vmm", "vmm"))
             for label, program in programs_of.items()]
    stage(book, setup, options, log, peers).run([Group("in stream order", cells)])


def async_programs(setup):
    """Programs that allocate in stream order, by group: each raw, and from the pool."""
    scripts = {
        "JAX step": ("jax", "play_jax.py", (), {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async",
                                                "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}),
        "CuPy step": ("cupy", "play_cupy.py", ("async",), {}),
        "PyTorch training": ("torch", "play_torch.py", (), {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}),
        "RMM step": ("rmm", "play_cupy.py", ("rmm",), {}),
        "RMM step over the default pool": ("rmm", "play_cupy.py", ("rmm-default",), {}),
    }
    for group, (needs, script, words, variables) in scripts.items():
        yield group, [setup.script("raw", needs, script, words=words, variables=variables),
                      *(setup.script(kind, needs, script, kind, words, {**variables, **ASYNC})
                        for kind in ("split", "vmm"))]


def run_async_programs(book, setup, options, log, wanted):
    for group, peers in async_programs(setup):
        if group.startswith(wanted):
            run_programs(book, options, log, f"{group}, in stream order", peers, ASYNC_RUNS, ASYNC_WINDOWS)


def run_async_memory(book, setup, options, log):
    for group, peers in async_programs(setup):
        run_alone(book, options, log, f"{group}, in stream order, alone", peers, ASYNC_ALONE_RUNS)


def run_recorded(book, setup, options, log):
    """Whole programs, each without and with GPUPOOL_RECORD."""
    off = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    cupy = setup.script("split", "cupy", "play_cupy.py", "split", ["none"])
    torch = setup.script("split", "torch", "play_torch.py", "split", variables=off)
    for group, peer, runs, windows in (("CuPy step, recorded", cupy, RUNS, SHORT_WINDOWS),
                                       ("PyTorch training, recorded", torch, 5, WINDOWS)):
        with extras.recording(peer, "recording") as recording:
            run_programs(book, options, log, group, [peer, recording], runs, windows)


def run_traces(book, setup, options, log):
    extras.traces(book, setup.stat, programs.ROOT / "tests" / "traces", setup.torch_pools())


def run_limits(book, setup, options, log, loop):
    limits.measure(book, setup, book.path.parent / "limits", options.peer, [loop])


PARTS = {
    "pairs": run_pairs,
    "many": run_many,
    "threads": run_threads,
    "streams": run_streams,
    "loops": run_loops,
    "pinned": run_pinned,
    "steady": run_steady,
    "guest": run_guest,
    "torch": run_torch,
    "memory": run_memory,
    "cupy": run_cupy,
    "jax": run_jax,
    "recorded": run_recorded,
    "traces": run_traces,
    "costs": run_costs,
    "first": run_first,
    "cold": run_cold,
    **{f"limits-{loop}": functools.partial(run_limits, loop=loop) for loop in limits.LOOPS},
    "async": run_async,
    **{f"async-{name.lower()}": functools.partial(run_async_programs, wanted=name)
       for name in ("PyTorch", "CuPy", "RMM", "JAX")},
    "async-memory": run_async_memory,
}
