# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
The smallest limit under which a training loop finishes, found by trying several limits at the same time and narrowing
the range, and the memory in use on the device at its peak under that limit. gpupool's limit counts all memory of the
process; that of PyTorch's own pool leaves out what other libraries allocate. So only the device's count compares them.
"""

import concurrent.futures
import dataclasses
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))

import programs
from memory_watch import MemoryWatch

LOOPS = ("transformer", "gpt")
SMALLEST, PEAK = "smallest limit", "peak on the device under it"  # names of figures
LOW_MIB, STEP_MIB = 1024, 8
HIGHS_MIB = (1536, 2048)  # the loops are expected to finish below the first; the second is tried if one does not
PROBES = 3
PEAK_STEPS = 8  # above the smallest limit, for the run alone whose peak is measured
RUN_SECONDS, JOBS = 90, 12
WAYS = {
    "auto": ("auto", {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}),
    "expandable": (None, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    "split": ("split", {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}),
    "own": (None, {}),
}
BAR_WAYS = ("auto", "expandable")  # of a bar: their figures are complete before the other ways begin


def least(works, low, high, step=STEP_MIB):
    """
    The smallest value that works, at most step too large; None if high does not. works(values) says it for each of them.
    Where a smaller value works and a larger one fails, the result lies above the latter. high is tried last, and only if
    no smaller value has worked.
    """
    most = high
    while high - low > step:
        values = [low + (high - low) * n // (PROBES + 1) for n in range(1, PROBES + 1)]
        results = dict(zip(values, works(values)))
        low = max((value for value in values if not results[value]), default=low)
        high = min((value for value in values if value > low), default=high)
    return high if high < most or works([most])[0] else None


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
        low = LOW_MIB
        for high in HIGHS_MIB:
            found = least(lambda values: list(runs.map(self.run, values)), low, high)
            if found is not None:
                return found
            low = high
        return None

    def measure_peak(self, book, mib):
        """
        Measures the peak on the device in a run alone. The need of a loop varies by some MiB from run to run, so a run
        may fail under the smallest limit. Then larger ones follow, until a run finishes.
        """
        for nth in range(PEAK_STEPS + 1):
            limit = mib + nth * STEP_MIB
            with MemoryWatch() as memory:
                has_finished = self.run(limit)
            if not has_finished:
                continue
            peak = memory.peak()
            if peak:
                book.value(f"{PEAK}, {self.loop}, {self.way}", peak / 2**20, "MiB")
                book.value(f"limit of that run, {self.loop}, {self.way}", limit, "MiB")
            else:
                book.miss(PEAK, self.loop, self.way, "the memory in use on the device cannot be read")
            return
        book.miss(PEAK, self.loop, self.way, f"fails alone with {mib} to {mib + PEAK_STEPS * STEP_MIB} MiB")


def measure_together(book, searches):
    """The searches run side by side, each run within its own limit; the peaks are measured one after another."""
    with concurrent.futures.ThreadPoolExecutor(JOBS) as runs, \
            concurrent.futures.ThreadPoolExecutor(max(len(searches), 1)) as pool:
        found = list(pool.map(lambda search: search.least(runs), searches))
    for search, mib in zip(searches, found):
        if mib is None:
            book.miss(SMALLEST, search.loop, search.way, f"fails with {HIGHS_MIB[-1]} MiB")
            continue
        book.value(f"{SMALLEST}, {search.loop}, {search.way}", mib, "MiB")
        search.measure_peak(book, mib)


def measure(book, setup, folder, selected, loops=LOOPS):
    searches = []
    for way, (kind, variables) in WAYS.items():
        peer = setup.script(way, "torch", "play_limits.py", kind, variables=variables)
        if selected and way not in selected:
            continue
        if peer.why_missing:
            book.miss(SMALLEST, "", way, peer.why_missing)
            continue
        searches += [Search(loop, way, peer, folder) for loop in loops]
    for is_of_bar in (True, False):
        measure_together(book, [search for search in searches if (search.way in BAR_WAYS) == is_of_bar])
