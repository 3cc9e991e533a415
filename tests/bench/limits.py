# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
The smallest limit under which a training loop finishes, found by trying several limits at the same time and narrowing
the range, and the memory in use on the device at its peak under that limit. gpupool's limit counts all memory of the process; that of PyTorch's own pool leaves out what other
libraries allocate. So only the device's count compares them.
"""

import concurrent.futures
import dataclasses

import programs
from memory_watch import MemoryWatch

LOOPS = ("transformer", "gpt")
LOW_MIB, HIGH_MIB, STEP_MIB = 1024, 2048, 8
PROBES = 3
RUN_SECONDS, JOBS = 90, 12
WAYS = {
    "own": (None, {}),
    "expandable": (None, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    "split": ("split", {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}),
    "auto": ("auto", {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}),
}


def least(works, low=LOW_MIB, high=HIGH_MIB, step=STEP_MIB):
    """
    The smallest value that works, at most step too large; None if high does not. works(values) says it for each of them.
    Where a smaller value works and a larger one fails, the result lies above the latter.
    """
    last = [high]
    while high - low > step or last:
        values = [low + (high - low) * n // (PROBES + 1) for n in range(1, PROBES + 1)] + last
        results = dict(zip(values, works(values)))
        if last and not results[high]:
            return None
        last = []
        low = max((value for value in values if not results[value]), default=low)
        high = min((value for value in values if value > low), default=high)
    return high


@dataclasses.dataclass
class Search:
    """A loop with one way to allocate."""

    loop: str
    way: str
    peer: object  # of peers.Setup.script
    log: object  # a folder

    def run(self, mib):
        words = [*self.peer.words, self.loop]
        variables = {**self.peer.variables, "GPUPOOL_LOG": "off", "GPUPOOL_OOM_WAIT": "0", "OMP_NUM_THREADS": "1"}
        if self.peer.preload:
            variables["GPUPOOL_LIMIT"] = f"{mib}MiB"
        else:
            words.append(mib)
        config = programs.Config(self.way, self.peer.preload, variables)
        more = {} if self.peer.preload else variables
        log = self.log / f"limits-{self.loop}-{self.way}-{mib}.txt"
        return programs.run_program(config, words, log, RUN_SECONDS, more).status == 0

    def least(self, runs):
        """runs: the executor that runs the programs."""
        return least(lambda values: list(runs.map(self.run, values)))

    def device_peak_mib(self, mib):
        """None if it cannot be read, or the run fails."""
        with MemoryWatch() as memory:
            has_finished = self.run(mib)
        peak = memory.peak()
        return peak / 2**20 if has_finished and peak else None


def measure(book, setup, folder, selected):
    """The searches run side by side, each run within its own limit; the peaks are measured one after another."""
    searches = []
    for way, (kind, variables) in WAYS.items():
        peer = setup.script(way, "torch", "play_limits.py", kind, variables=variables)
        if selected and way not in selected:
            continue
        if peer.why_missing:
            book.miss("smallest limit", "", way, peer.why_missing)
            continue
        searches += [Search(loop, way, peer, folder) for loop in LOOPS]
    with concurrent.futures.ThreadPoolExecutor(JOBS) as runs, \
            concurrent.futures.ThreadPoolExecutor(max(len(searches), 1)) as pool:
        found = list(pool.map(lambda search: search.least(runs), searches))
    for search, mib in zip(searches, found):
        if mib is None:
            book.miss("smallest limit", search.loop, search.way, f"fails with {HIGH_MIB} MiB")
            continue
        book.value(f"smallest limit, {search.loop}, {search.way}", mib, "MiB")
        peak = search.device_peak_mib(mib)
        if peak is not None:
            book.value(f"peak on the device under it, {search.loop}, {search.way}", peak, "MiB")
