# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""Fragments a heap on purpose. First it follows Robson: each phase doubles the size of blocks, and every second block
of the earlier phases stays, so that the gaps between them are too small. Then it allocates sizes that grow a little
each time, and a few small blocks that live among large ones. New blocks are written to when they are allocated.
"""

import random

import cupy
from cupy.cuda import runtime

KIB, MIB = 1024, 1024 * 1024
LIVE = 768 * MIB


class Heap:
    def __init__(self):
        self.live, self.bytes = {}, 0

    def alloc(self, size):
        ptr = runtime.malloc(size)
        runtime.memsetAsync(ptr, 1, min(size, 64 * KIB), 0)
        self.live[ptr] = size
        self.bytes += size
        return ptr

    def free(self, ptr):
        self.bytes -= self.live.pop(ptr)
        runtime.free(ptr)


def robson(heap):
    """Runs the phases. The blocks that stay leave gaps that are too small for the blocks of the next phase."""
    kept = []
    for phase in range(9):
        size = (256 * KIB << phase) - 512 * phase
        kept = [ptr for nth, ptr in enumerate(kept) if nth % 2 == 0 or heap.free(ptr)]
        while heap.bytes + size <= LIVE and len(kept) < 3000:
            kept.append(heap.alloc(size))
    return kept


def creeping(heap, old):
    """Replaces each block by one that is a little larger."""
    for nth, ptr in enumerate(list(old)):
        size = heap.live[ptr]
        heap.free(ptr)
        old[nth] = heap.alloc(size + 128 * KIB)
        if heap.bytes > LIVE:
            heap.free(old.pop())
            return


def mixed(heap, generator):
    """Mixes long lives with short ones, and sizes over five orders of magnitude."""
    short = []
    for nth in range(2500):
        size = int(512 * 2 ** generator.uniform(0, 17))
        while short and heap.bytes + size > LIVE:
            heap.free(short.pop(generator.randrange(len(short))))
        ptr = heap.alloc(size)
        if nth % 40:
            short.append(ptr)
    return short


def main():
    heap, generator = Heap(), random.Random(1)
    kept = robson(heap)
    for _ in range(4):
        creeping(heap, kept)
    for ptr in kept[::2]:
        heap.free(ptr)
    mixed(heap, generator)
    cupy.cuda.Device().synchronize()
    print(f"adversary: {len(heap.live)} blocks and {heap.bytes} bytes live at the end")


main()
