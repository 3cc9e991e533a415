# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
The answers that are meant to differ from those of the program without the library. Everything else must be equal.

Each deviation names the switch that takes it back: a configuration of suite.py in which none of its rows holds, so
that there the answers must be the raw ones. run.py fails on a row that nothing matches.
"""

import dataclasses

import suite

KINDS = ("none", "simple", "binned", "split", "vmm", "ordered", "completed", *suite.BACKENDS)
CACHING = KINDS[1:]
OTHER_BACKENDS = tuple(name for name in suite.BACKENDS if name != "device")
ONCE_EACH = tuple(name for name in suite.ONCE_EACH if name != "off")
SYNCING = ("syncfree", "debug")  # where a free waits
SPLITTING = ("split", "ordered", "completed", *suite.BACKENDS, *SYNCING, "unpinned")  # all that run the kind split
CUTTING = ("vmm", *SPLITTING)  # all whose blocks are parts of something larger
EXPORTING_SPLIT = tuple(name for name in SPLITTING if name not in suite.BACKENDS)


@dataclasses.dataclass(frozen=True)
class Row:
    """
    Where it shows. The patterns are for the whole of the program's name (without "diff_"), of the question
    ("scenario/question"), and of the answer (None: any, or none at all).
    """

    program: str
    question: str
    configs: tuple
    answer: str | None
    where: str = "both"  # or "sim", "gpu": the only place where it shows
    is_certain: bool = True  # or what was asked of the driver before decides


@dataclasses.dataclass(frozen=True)
class Deviation:
    what: str
    why: str
    switch: str | None  # the configuration that takes it back, or None
    kept: str  # the row of gpupool(7), in the table of what is kept and what changes
    manual: str  # how gpupool(7) begins to tell it
    rows: tuple


SERVED_IN_CAPTURE = "0, mode kept, end 0, wrong words 0"
BY_POOL = (*CACHING, *SYNCING)
FREED_BY_POOL = (*KINDS, *SYNCING)
KEPT = (*CACHING, "unpinned")  # where threads keep what they freed

DEVIATIONS = (
    Deviation(
        "a kernel's error is reported by a later call than the free that would have waited for it",
        "a free does not wait; the next call that needs the driver reports the error",
        "syncfree",
        "a kernel's error shows at a free",
        "An error of a running kernel is therefore reported by a later call",
        (
            Row("errors", r"first-free/(free|malloc)", (*KINDS, "unpinned"), "0"),
            Row("errors", r"first-host-free/host (free|malloc)", KINDS, "0"),
            Row("errors", r"pending/free before", (*KINDS, "unpinned"), "0"),
            Row("errors", r"(trap|address)/again", (*KINDS, "unpinned"), "1", "sim"),
            Row("errors", r"(trap|address)/again", (*KINDS, "unpinned"), "1", "gpu", is_certain=False),
            # What a thread keeps for itself asks for no fence.
            Row("errors", r"pending/free after", KEPT, "0", is_certain=False),
            Row("errors", r"other-context/other free", KEPT, "0", "gpu", is_certain=False),
        ),
    ),
    Deviation(
        "after a kernel's error an allocation that the cache serves succeeds",
        "a hit asks the driver nothing; what is then done with the block fails",
        "none",
        "a kernel's error shows at a malloc",
        "An allocation that the cache serves asks the driver nothing",
        (
            Row("errors", r"(trap|address)/malloc of what is cached.*", ("simple", "binned", *SYNCING), "0"),
            Row("errors", r"(trap|address)/malloc of what is cached.*", CUTTING, "0", is_certain=False),
            Row("errors", r"first-malloc/malloc", (*CACHING, *SYNCING, "unpinned"), "0"),
            # On an H200 an error in one context is one in all of the process.
            Row("errors", r"other-context/other malloc", (*KEPT, *SYNCING), "0", "gpu", is_certain=False),
        ),
    ),
    Deviation(
        "a program that hangs in a free may finish",
        "nobody waits in a free, and so other threads can launch what a running kernel waits for",
        "atonce",
        "a free keeps others from launching",
        "Nor do they keep other threads from launching",
        (
            Row("waits", r".*/outcome", (*KINDS, *SYNCING), "finishes, 0 wrong"),
            # Device memory cannot be allocated while another thread waits in a free of that context (measured).
            Row("deadlock_threads", r"free.*/outcome", (*KINDS, *SYNCING, "unpinned"), "finishes, 0 wrong"),
            Row("deadlock.*", r".*", (*KINDS, *SYNCING, "unpinned"), "finishes, 0 wrong", "gpu", is_certain=False),
        ),
    ),
    Deviation(
        "a free is no barrier",
        "the program goes on at once, and the GPU sees to the order",
        "syncfree",
        "a free makes the host wait",
        "cudaFree and cudaFreeHost do not make the host wait",
        (
            Row("stream(_.*)?", r"barrier/free .*", (*KINDS, "unpinned"), "flag 0, stream 600"),
            Row("stream(_.*)?", r"barrier/host free .*", KINDS, "flag 0, stream 600"),
        ),
    ),
    Deviation(
        "addresses of large blocks are multiples of a page of the host only",
        "a block of a segment begins where the one before it ends",
        "none",
        "large blocks are 2 MiB aligned",
        "Addresses of blocks of more than 1 MiB",
        (
            Row("memory(_.*)?", r"alignment/.* to 2 MiB", CUTTING, "[0-7] of 8"),
            # Seen on an H200: every block is the driver's own then, and it promises no 2 MiB.
            Row("memory(_.*)?", r"alignment/1048577 to 2 MiB", ("atonce",), "7 of 8", "gpu", is_certain=False),
        ),
    ),
    Deviation(
        "small blocks cannot be exported as dma-bufs in the kind split",
        "they lie 512 bytes behind a page, because of the guard, and the driver exports whole pages only",
        "none",
        "small blocks have a dma-buf, by luck",
        "A block of up to 1 MiB can be exported as a dma-buf only if it begins at a page",
        (
            Row("dmabuf", r"small_blocks/export of .*", EXPORTING_SPLIT, "1", "sim"),
            # Where the driver's own small blocks begin is its own business.
            Row("dmabuf", r"small_blocks/export of .*", ("vmm", *EXPORTING_SPLIT), "[01]", "gpu", is_certain=False),
        ),
    ),
    Deviation(
        "new memory holds old data",
        "a block comes from an owner before; on a real GPU that can happen without a pool as well",
        "none",
        "new memory is zero, by luck",
        "New memory holds old data",
        (Row("memory(_.*)?", r"contents/.*", (*CACHING, *SYNCING, "unpinned"), "1", "sim"),),
    ),
    Deviation(
        "whether new memory of the driver's holds old data",
        "a real driver clears some of it and not all, with and without the library",
        None,
        "new memory is zero, by luck",
        "New memory holds old data",
        (Row("memory(_.*)?", r"contents/.*", suite.CONFIG_NAMES, "[01]", "gpu", is_certain=False),),
    ),
    Deviation(
        "a copy or set that ends after the block is not refused",
        "what follows the block in its segment is memory too; the driver knows the end of the segment only",
        "none",
        "copies beyond a block fail",
        "A copy or a set that reaches beyond the end of a block",
        (
            Row("memory(_.*)?", r"beyond/.* (2097152|8388608).*", SPLITTING, "0"),
            # A large block takes whole pages, whether the driver's own would have them or not.
            Row("dmabuf", r"rounded_up/export of .*", ("vmm", *EXPORTING_SPLIT), "0", "gpu", is_certain=False),
            # There is a zone behind every block, and what was written to it is told of.
            Row("memory(_.*)?", r"beyond/.* 67108864.*", ("debug",), "0"),
        ),
    ),
    Deviation(
        "freed memory is still there",
        "it is pending or cached, and the driver knows nothing of the free",
        "atonce",
        "freed memory is unknown",
        "Freed memory can still be asked about",
        (
            Row("query(_.*)?", r"freed/.* of a (large|small) one", (*KINDS, *SYNCING, "unpinned"), "0"),
            Row("query(_.*)?", r"freed/.* of a pinned one", (*KINDS, *SYNCING), "0"),
            Row("host", r"registering/unregister it when free", (*KINDS, *SYNCING), "1"),
        ),
    ),
    Deviation(
        "small pinned blocks report the flags of others",
        "the driver keeps small pinned blocks in one chunk and reports the chunk's flags; a cached block keeps it alive",
        "unpinned",
        "flags of small pinned blocks",
        "The flags of a small pinned block",
        (
            Row("host", r"flags-small/65536 with flags [1357]", (*KINDS, *SYNCING), "flags 0 [26].*", "gpu",
                is_certain=False),
        ),
    ),
    Deviation(
        "functions of the driver are found in the whole program although it was opened for one handle",
        "the library exports those that it stands in for, to everybody",
        None,
        "the driver's names keep to their handle",
        "The functions that the library stands in for are found",
        (
            Row("lookup", r"default-scope/opened for itself, hooked", suite.CONFIG_NAMES, "1", "sim"),
            Row("lookup", r"default-scope/opened for itself, hooked", suite.CONFIG_NAMES, "1", "gpu", is_certain=False),
        ),
    ),
    Deviation(
        "a limit is kept",
        "that is what it is for: what is over it is out of memory, and the device looks as large as the limit",
        "off",
        "all of the device can be had",
        "Under a limit",
        (
            Row("fill", r"info/total", ONCE_EACH, "12884901888"),
            Row("limits", r"info/.*", (*KINDS, *SYNCING, "unpinned", "atonce"), "1"),
            Row("limits", r"device/device block (9|1.|2.)", (*KINDS, *SYNCING, "unpinned", "atonce"), "2, 0 1"),
            Row("limits", r"pinned/pinned MiB (9|1.|2.)", (*KINDS, *SYNCING), "2, NULL 1"),
        ),
    ),
    Deviation(
        "what is around blocks counts against a limit",
        "with GPUPOOL_DEBUG=guard a block takes more than the program asked for",
        "syncfree",
        "blocks count as they were asked for",
        "What is watched around a block counts",
        (
            Row("limits", r"device/device block 8", ("debug",), "2, 0 1"),
            Row("limits", r"pinned/pinned MiB 8", ("debug",), "2, NULL 1"),
        ),
    ),
    Deviation(
        "memory of the kind vmm has no legacy IPC handles",
        "the driver has none for what is mapped, and says so when it is asked for the attribute",
        "split",
        "memory has a legacy IPC handle",
        "cannot be shared by legacy IPC handles",
        (
            Row("caches", r"exported/export", ("vmm",), "1"),
            Row("first_alone", r"imported.*", ("vmm",), None),
            Row("query(_.*)?", r"attributes/.*, attribute 10", ("vmm",), "0 0"),
        ),
    ),
    Deviation(
        "memory of GPUPOOL_BACKEND=managed says that it is managed",
        "so it is, and whoever asks may have to know: the host and every device reach it, other processes cannot",
        "device",
        "memory is as of cuMemAlloc",
        "The driver answers for such memory",
        (
            Row("query(_.*)?", r"attributes/(large|inside|small), attribute 4", ("managed",), "0 1"),
            Row("query(_.*)?", r"attributes/(large|inside|small), attribute 8", ("managed",), "0 1"),
            Row("query(_.*)?", r"attributes/(large|inside|small), attribute (10|15)", ("managed",), "0 0", "sim"),
            Row("query(_.*)?", r"attributes/(large|inside|small), attribute .*", ("managed",), None, "gpu",
                is_certain=False),
            Row("query(_.*)?", r"batch/.*", ("managed",), r".*, managed 1"),
            Row("devices_access", r"(never-enabled|disabled)/synchronise", ("managed",), "0", "sim"),
            Row("devices_access", r"(never-enabled|disabled)/.*", ("managed",), None, "gpu", is_certain=False),
            Row("runtime(_.*)?", r"attributes/(block|inside|small)", ("managed",), "type 3, .*, host pointer 1"),
        ),
    ),
    Deviation(
        "memory of GPUPOOL_BACKEND=async cannot be exported",
        "the driver has no legacy handles for stream-ordered memory, and says so when it is asked for the attributes",
        "device",
        "memory is as of cuMemAlloc",
        "The driver answers for such memory",
        (
            Row("query(_.*)?", r"attributes/(large|inside|small), attribute (10|15)", ("async",), "0 0", "sim"),
            Row("query(_.*)?", r"attributes/(large|inside|small), attribute .*", ("async",), None, "gpu",
                is_certain=False),
        ),
    ),
    Deviation(
        "what only memory of the driver's own kind can do is refused with another backend",
        "synchronous copies, tokens for remote access, descriptors: the driver's answers for managed and stream-ordered memory",
        "device",
        "memory is as of cuMemAlloc",
        "The driver answers for such memory",
        (
            Row("query(_.*)?", r"tokens/.*", OTHER_BACKENDS, "1 0|0 2 0", "sim"),
            Row("query(_.*)?", r"(sync-memops|ids|tokens)/.*", OTHER_BACKENDS, None, "gpu", is_certain=False),
        ),
    ),
    Deviation(
        "synchronous copies and tokens for remote access cannot be had of memory of the kind vmm",
        "the driver refuses CU_POINTER_ATTRIBUTE_SYNC_MEMOPS and CU_POINTER_ATTRIBUTE_P2P_TOKENS for what is mapped",
        "split",
        "synchronous memory operations",
        "CU_POINTER_ATTRIBUTE_SYNC_MEMOPS",
        (
            Row("query(_.*)?", r"sync-memops/[0-9]+, (set|then)", ("vmm",), "801|0"),
            Row("first_alone", r"sync_memops/shared", ("vmm",), "801"),
            Row("query(_.*)?", r"tokens/.*", ("vmm",), "1 0|0 2 0", "sim"),
            Row("first_alone", r"tokens/.*", ("vmm",), None, "sim"),
            Row("(query(_.*)?|first_alone)", r"tokens/.*", ("vmm",), None, "gpu", is_certain=False),
        ),
    ),
    Deviation(
        "a second free of a block that was freed in a stream is refused",
        "an H200's driver crashes the program then",
        "off",
        "double frees in a stream may crash",
        "A second free of a block that was freed in a stream",
        (
            Row("stream(_.*)?", r"freed-async.*", (*KINDS, *SYNCING, "unpinned", "atonce"), None, "gpu",
                is_certain=False),
        ),
    ),
    Deviation(
        "a segment that is partly in use cannot be given back",
        "a request larger than any free piece fails where the driver's own layout would have served it",
        "binned",
        "free segments serve any request",
        "In the kind split a driver allocation that is partly in use",
        (Row("fill", r"take-free/nine tenths, with blocks in use", ("split", *SYNCING), r"failed [1-9].*"),),
    ),
    Deviation(
        "what the pool answers by itself succeeds during a capture",
        "the driver refuses the call, and destroys the capture, as any unsafe call; the pool does neither",
        "off",
        "allocations fail during captures",
        "An allocation that the cache serves, and a free,",
        (
            Row("capture", r"refused/.*, (malloc|pitch)", (*BY_POOL, "unpinned"), SERVED_IN_CAPTURE),
            Row("capture", r"many-refused/.*, many", (*BY_POOL, "unpinned"), SERVED_IN_CAPTURE),
            Row("capture", r"refused/.*, (free|freeasync)", (*FREED_BY_POOL, "unpinned", "atonce"), SERVED_IN_CAPTURE),
            Row("capture", r"passed-on/(global|local) by .*, miss", ("vmm", "async"), SERVED_IN_CAPTURE),
            Row("capture", r"refused/.*, hostalloc", BY_POOL, SERVED_IN_CAPTURE),
            Row("capture", r"refused/.*, freehost", FREED_BY_POOL, SERVED_IN_CAPTURE),
        ),
    ),
)


def table():
    """The deviations as a table in Markdown."""
    switches = {config.name: config.variables for config in suite.CONFIGS}
    yield "| what differs | why | switch | gpupool(7) |"
    yield "|---|---|---|---|"
    for deviation in DEVIATIONS:
        settings = switches[deviation.switch].items() if deviation.switch else ()
        switch = "`" + " ".join(f"{name}={value}" for name, value in settings) + "`" if settings else "none"
        yield f"| {deviation.what} | {deviation.why} | {switch} | {deviation.manual} |"


if __name__ == "__main__":
    print("\n".join(table()))
