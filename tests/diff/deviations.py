# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
The answers that are meant to differ from those of the program without the library. Everything else must be equal.

Each deviation names the switch that takes it back: a configuration of suite.py in which none of its rows holds, so
that the answers must be the raw ones there. run.py fails if no answer matches a row.
"""

import dataclasses

import suite

KINDS = ("none", "simple", "binned", "split", "vmm", "ordered", "completed", *suite.BACKENDS)
CACHING = KINDS[1:]
OTHER_BACKENDS = tuple(name for name in suite.BACKENDS if name != "device")
ONCE_EACH = tuple(name for name in suite.ONCE_EACH if name != "off")
SYNCING = ("syncfree", "debug")  # where a free waits
# Where the pool serves allocations in stream order.
STREAMED = (*(name for name in CACHING if name not in OTHER_BACKENDS), "syncfree", "unpinned", "uncached")
SPLITTING = ("split", "ordered", "completed", *suite.BACKENDS, *SYNCING, "unpinned")  # all that run pool type split
CUTTING = ("vmm", *SPLITTING)  # all whose blocks are parts of a segment or a mapping
EXPORTING_SPLIT = tuple(name for name in SPLITTING if name not in suite.BACKENDS)


@dataclasses.dataclass(frozen=True)
class Row:
    """
    A row says where a deviation shows. Each pattern must match in full: program the program's name (without "diff_"),
    question the text "scenario/question", and answer the answer (None: any answer, or no answer at all).
    """

    program: str
    question: str
    configs: tuple
    answer: str | None
    platform: str = "both"  # or "sim" or "gpu", if it shows on that one alone
    is_certain: bool = True  # False: earlier calls of the driver decide if it shows


@dataclasses.dataclass(frozen=True)
class Deviation:
    what: str
    why: str
    switch: str | None  # the configuration that takes it back, or None
    kept: str  # the row in gpupool(7)'s table of behaviour that is kept or changes
    manual: str  # how the description in gpupool(7) begins
    rows: tuple


SERVED_IN_CAPTURE = "0, mode kept, end 0, wrong words 0"
POOLED = (*KINDS, *SYNCING)
KEPT = (*CACHING, "unpinned")  # where a thread cache keeps the blocks that the thread freed

DEVIATIONS = (
    Deviation(
        "a kernel's error is reported by a later call than the free that would have waited for the kernel",
        "a free does not wait for the kernel; the next call that needs the driver reports the error",
        "syncfree",
        "a kernel's error shows at a free",
        "An error of a running kernel is therefore reported by a later call",
        (
            Row("errors", r"first-free/(free|malloc)", (*KINDS, "unpinned"), "0"),
            Row("errors", r"first-host-free/host (free|malloc)", KINDS, "0"),
            Row("errors", r"pending/free before", (*KINDS, "unpinned"), "0"),
            Row("errors", r"(trap|address)/free of the large block again", (*KINDS, "unpinned"), "1", "sim"),
            Row("errors", r"(trap|address)/free of the large block again", (*KINDS, "unpinned"), "1", "gpu", is_certain=False),
            # A block that goes into a thread cache needs no fence.
            Row("errors", r"pending/free after", KEPT, "0", is_certain=False),
            Row("errors", r"other-context/other free", KEPT, "0", "gpu", is_certain=False),
        ),
    ),
    Deviation(
        "after a kernel's error an allocation that the cache serves succeeds",
        "a cache hit does not call the driver; the next call that works on the block fails",
        "none",
        "a kernel's error shows at a malloc",
        "An allocation that the cache serves asks the driver nothing",
        (
            Row("errors", r"(trap|address)/malloc of a cached size.*", ("simple", "binned", *SYNCING), "0"),
            Row("errors", r"(trap|address)/malloc of a cached size.*", CUTTING, "0", is_certain=False),
            # Split serves it from a chunk that is mapped already.
            Row("errors", r"(trap|address)/async", STREAMED, "0", is_certain=False),
            Row("errors", r"first-malloc/malloc", (*CACHING, *SYNCING, "unpinned"), "0"),
            # On an H200, an error in one context is an error in all contexts of the process.
            Row("errors", r"other-context/other malloc", (*KEPT, *SYNCING), "0", "gpu", is_certain=False),
        ),
    ),
    Deviation(
        "a program that hangs in a free may finish",
        "no thread waits in a free, so another thread can launch the work that a running kernel waits for",
        "atonce",
        "a free keeps other threads from launching",
        "They also do not keep other threads from launching",
        (
            Row("waits", r".*/outcome", (*KINDS, *SYNCING), "finishes, 0 wrong"),
            # The driver allocates no device memory while another thread waits in a free of that context (measured).
            Row("deadlock_threads", r"free.*/outcome", (*KINDS, *SYNCING, "unpinned"), "finishes, 0 wrong"),
            Row("deadlock.*", r".*", (*KINDS, *SYNCING, "unpinned"), "finishes, 0 wrong", "gpu", is_certain=False),
        ),
    ),
    Deviation(
        "memory that the program has unmapped can still be accessed",
        "the memory stays mapped, and serves the next array of its size",
        "uncached",
        "access to unmapped memory fails",
        "stays mapped after the program has unmapped it, and after it was mapped again",
        (Row("virtual", r"after-unmap/copy of unmapped memory", (*CACHING[:-3], "syncfree", "unpinned"), "0"),),
    ),
    Deviation(
        "a free is not a barrier for the host",
        "a free returns at once; only the reuse of the block waits for the GPU",
        "syncfree",
        "a free makes the host wait",
        "cudaFree and cudaFreeHost do not make the host wait",
        (
            Row("stream(_.*)?", r"barrier/free .*", (*KINDS, "unpinned"), "flag 0, stream 600"),
            Row("stream(_.*)?", r"barrier/host free .*", KINDS, "flag 0, stream 600"),
        ),
    ),
    Deviation(
        "the address of a large block is a multiple of the host's page size, but not of 2 MiB",
        "a block of a segment begins where the block before it ends",
        "none",
        "large blocks are 2 MiB aligned",
        "Addresses of blocks of more than 1 MiB",
        (
            Row("memory(_.*)?", r"alignment/.* to 2 MiB", CUTTING, "[0-7] of 8"),
        ),
    ),
    Deviation(
        "one of eight blocks of 1 MiB and 1 byte is not 2 MiB aligned, though each is an allocation of the driver",
        "the driver promises no such alignment, and chooses another place while freed blocks are still allocated",
        "off",
        "large blocks are 2 MiB aligned",
        "use the driver's addresses",
        (
            # Seen on an H200 with atonce, and on an H100 with none.
            Row("memory(_.*)?", r"alignment/1048577 to 2 MiB", ("atonce", "none"), "7 of 8", "gpu", is_certain=False),
        ),
    ),
    Deviation(
        "small blocks may lie off a page boundary where those of the driver do not",
        "the driver exports whole pages only, and does not promise where its small blocks begin",
        "none",
        "small blocks happen to have a dma-buf",
        "A block of up to 1 MiB can be exported as a dma-buf only if it begins at a page",
        (
            Row("dmabuf", r"small_blocks/export of .*", ("vmm", *EXPORTING_SPLIT), "[01]", "gpu", is_certain=False),
            # The guard zone behind each block moves the next one.
            Row("dmabuf", r"small_blocks/export of .*", ("debug",), "1", "sim"),
        ),
    ),
    Deviation(
        "new memory holds old data",
        "a reused block still holds what its last owner wrote; on a real GPU that also happens without a pool",
        "none",
        "new memory happens to be zero",
        "New memory holds old data",
        (Row("memory(_.*)?", r"contents/.*", (*CACHING, *SYNCING, "unpinned"), "1", "sim"),),
    ),
    Deviation(
        "new memory from a real driver may or may not hold old data",
        "a real driver clears some of its memory and not all, with and without the library",
        None,
        "new memory happens to be zero",
        "New memory holds old data",
        (Row("memory(_.*)?", r"contents/.*", suite.CONFIG_NAMES, "[01]", "gpu", is_certain=False),),
    ),
    Deviation(
        "a copy or set that ends after the block is not refused",
        "the memory behind the block belongs to the same segment; the driver knows only the end of the segment",
        "none",
        "copies beyond a block fail",
        "A copy or a set that reaches beyond the end of a block",
        (
            Row("memory(_.*)?", r"beyond/.* (2097152|8388608).*", SPLITTING, "0"),
            # A large block of the pool takes whole pages; one of the driver need not.
            Row("dmabuf", r"rounded_up/export of .*", ("vmm", *EXPORTING_SPLIT), "0", "gpu", is_certain=False),
            # Every block has a guard zone behind it, and the library reports writes to that zone.
            Row("memory(_.*)?", r"beyond/.* 67108864.*", ("debug",), "0"),
        ),
    ),
    Deviation(
        "the driver still knows memory that the program has freed",
        "the memory is pending or cached, and the driver does not know of the free",
        "atonce",
        "the driver knows that memory is free",
        "Freed memory can still be queried",
        (
            Row("query(_.*)?", r"freed/.* of a (large|small) block", (*KINDS, *SYNCING, "unpinned"), "0"),
            Row("query(_.*)?", r"freed/.* of a pinned block", (*KINDS, *SYNCING), "0"),
            Row("host", r"registering/unregister it when free", (*KINDS, *SYNCING), "1"),
        ),
    ),
    Deviation(
        "a small pinned block reports the flags of another block",
        "the driver keeps small pinned blocks in one chunk and reports the flags of the chunk, which a cached block "
        "keeps alive",
        "unpinned",
        "small pinned blocks have flags of their own",
        "The flags of a small pinned block",
        (
            Row("host", r"flags-small/65536 with flags [1357]", (*KINDS, *SYNCING), "flags 0 [26].*", "gpu",
                is_certain=False),
        ),
    ),
    Deviation(
        "dlsym finds driver functions in the global scope although the driver was opened with RTLD_LOCAL",
        "the library exports the functions that it hooks, and so all of the program sees them",
        None,
        "driver symbols stay in their handle's scope",
        "The functions that the library stands in for are found",
        (
            Row("lookup", r"default-scope/opened with RTLD_LOCAL, hooked", suite.CONFIG_NAMES, "1", "sim"),
            Row("lookup", r"default-scope/opened with RTLD_LOCAL, hooked", suite.CONFIG_NAMES, "1", "gpu",
                is_certain=False),
        ),
    ),
    Deviation(
        "requests beyond a configured limit fail",
        "that is the purpose of a limit: a request beyond it gets an out-of-memory error, and the device looks as "
        "large as the limit",
        "off",
        "all device memory can be allocated",
        "Under a limit",
        (
            Row("fill", r"info/total", ONCE_EACH, "12884901888"),
            Row("limits", r"info/.*", (*KINDS, *SYNCING, "unpinned", "atonce"), "1"),
            Row("limits", r"device/device block (9|1.|2.)", (*KINDS, *SYNCING, "unpinned", "atonce"), "2, 0 1"),
            Row("limits", r"pinned/pinned MiB (9|1.|2.)", (*KINDS, *SYNCING), "2, NULL 1"),
        ),
    ),
    Deviation(
        "the guard zones around blocks count against a limit",
        "with GPUPOOL_DEBUG=guard a block takes more memory than the program asked for",
        "syncfree",
        "blocks count with their requested size",
        "the guard bytes around a block count against a limit",
        (
            Row("limits", r"device/device block 8", ("debug",), "2, 0 1"),
            Row("limits", r"pinned/pinned MiB 8", ("debug",), "2, NULL 1"),
        ),
    ),
    Deviation(
        "memory of GPUPOOL_BACKEND=managed reports that it is managed",
        "the attributes are true: the host and every device reach such memory, and other processes cannot",
        "device",
        "memory has the attributes of cuMemAlloc",
        "The driver answers for such memory",
        (
            Row("query(_.*)?", r"attributes/(large|inside|small), attribute 4", ("managed",), "0 1"),
            Row("query(_.*)?", r"attributes/(large|inside|small), attribute 8", ("managed",), "0 1"),
            Row("query(_.*)?", r"attributes/(large|inside|small), attribute (10|15)", ("managed",), "0 0", "sim"),
            Row("query(_.*)?", r"attributes/(large|inside|small), attribute .*", ("managed",), None, "gpu",
                is_certain=False),
            Row("query(_.*)?", r"batch/.*", ("managed",), r".*, managed 1"),
            Row("devices_access", r"(never-enabled|disabled|copied-then-touched|other-nodes)/synchronise", ("managed",), "0", "sim"),
            Row("devices_access", r"sets/set", ("managed",), "0", "sim"),
            Row("devices_access", r"(never-enabled|disabled|copied-then-touched|other-nodes|sets)(/.*)?", ("managed",), None, "gpu",
                is_certain=False),
            Row("runtime(_.*)?", r"attributes/(block|inside|small)", ("managed",), "type 3, .*, host pointer 1"),
        ),
    ),
    Deviation(
        "memory of GPUPOOL_BACKEND=async cannot be exported",
        "the driver has no legacy handles for stream-ordered memory, and the pointer attributes say so",
        "device",
        "memory has the attributes of cuMemAlloc",
        "The driver answers for such memory",
        (
            Row("query(_.*)?", r"attributes/(large|inside|small), attribute (10|15)", ("async",), "0 0", "sim"),
            Row("query(_.*)?", r"attributes/(large|inside|small), attribute .*", ("async",), None, "gpu",
                is_certain=False),
        ),
    ),
    Deviation(
        "calls that need memory of cuMemAlloc are refused with the backends managed and async",
        "the driver refuses synchronous copies, tokens for remote access and descriptors of managed and stream-ordered "
        "memory",
        "device",
        "memory has the attributes of cuMemAlloc",
        "The driver answers for such memory",
        (
            Row("query(_.*)?", r"tokens/.*", ("managed",), "1 0|0 2 0", "sim"),
            Row("query(_.*)?", r"(sync-memops|ids|tokens)/.*", OTHER_BACKENDS, None, "gpu", is_certain=False),
        ),
    ),
    Deviation(
        "CU_POINTER_ATTRIBUTE_SYNC_MEMOPS of memory of the pool type vmm sets a flag of the context",
        "the driver refuses the attribute for mapped memory; the flag has its effect, for all memory of the context",
        "split",
        "a pointer's attribute sets no context's flags",
        "CU_POINTER_ATTRIBUTE_SYNC_MEMOPS",
        (
            Row("query(_.*)?", r"sync-memops/flags of the context that are new", ("vmm",), "128"),
        ),
    ),
    Deviation(
        "a second free of a block that was freed in a stream is refused",
        "the driver of an H200 crashes the program at the second free",
        "off",
        "double frees in a stream may crash",
        "A second free of a block that was freed in a stream",
        (
            Row("stream(_.*)?", r"freed-async.*", (*KINDS, *SYNCING, "unpinned", "atonce"), None, "gpu",
                is_certain=False),
        ),
    ),
    Deviation(
        "an allocation or a free in a default stream or a blocking stream is not a barrier between other streams",
        "the pool submits no work for it; what is freed there is reused on completion if that matters",
        "asyncoff",
        "an allocation in a stream is a barrier",
        "wait for each other at operations of the driver, and an allocation from the pool is not",
        (
            Row("async", r"barriers/.*, an allocation and a free", STREAMED, "flag 0", is_certain=False),
        ),
    ),
    Deviation(
        "memory of a default pool that cuMemFree has freed does not count as used",
        "the driver of an H100 counts it for as long as the process lives, even when all of it has gone back",
        "asyncoff",
        "freed memory may count as used in a pool",
        "The driver may go on counting memory as used after",
        (
            Row("async", r"pool-books/used after cuMemFree and the trim", STREAMED, "0", "gpu",
                is_certain=False),
        ),
    ),
    Deviation(
        "a copy on a stream of another device reaches memory of a pool that is not open to that device",
        "memory of cudaMalloc, too, is mapped then, and is opened for such copies",
        "split",
        "copies from a pool need access to it",
        "A copy on a stream of another device",
        (
            Row("devices_pools", r"(default|made)-copies/(to|from) .*", ("vmm",), "0"),
        ),
    ),
    Deviation(
        "a kernel reaches mapped memory of another device after a copy, or after its access was disabled",
        "the driver copies mapped memory only on devices with access to it, and until the copy ends",
        "split",
        "kernels need access that was enabled",
        "Until then a kernel of that device can touch the memory",
        (
            Row("devices_access", r"(copied-then-touched|disabled)/synchronise", ("vmm", "async"), "0"),
            Row("devices_access", r"disabled(/(devices_fill.*|wrong words|free|reset|the same handle))?",
                ("vmm", "async"), None, "gpu", is_certain=False),
        ),
    ),
    Deviation(
        "a memset of an executable graph can be changed to memory of another device",
        "mapped memory belongs to no context, so the driver does not compare that of the old memory and the new",
        "split",
        "executable graphs set one context's memory",
        "By contrast, the driver changes a memset of an executable graph",
        (
            Row("devices_access", r"changed-executables/(change|words that differ here)", ("vmm", "async"), "0"),
        ),
    ),
    Deviation(
        "a segment that is partly in use cannot be released to the driver",
        "a request larger than any free part of a segment fails where the driver's own layout would have served it",
        "binned",
        "each free block can go back alone",
        "In the pool type split a driver allocation that is partly in use",
        (Row("fill", r"take-free/nine tenths, with blocks in use", ("split", *SYNCING), r"failed [1-9].*"),),
    ),
    Deviation(
        "allocations and frees of pooled memory succeed during a capture",
        "the driver refuses such a call and destroys the capture, as with every unsafe call; the pool does neither",
        "off",
        "allocations fail during captures",
        "An allocation or a free of memory that is pooled",
        (
            Row("capture", r"refused/.*, (malloc|pitch|free|freeasync)", (*POOLED, "unpinned", "atonce"),
                SERVED_IN_CAPTURE),
            Row("capture", r"many-refused/.*, many", (*POOLED, "unpinned", "atonce"), SERVED_IN_CAPTURE),
            Row("capture", r"refused/.*, miss", (*POOLED, "unpinned", "atonce"), SERVED_IN_CAPTURE),
            Row("capture", r"refused/.*, (hostalloc|freehost)", POOLED, SERVED_IN_CAPTURE),
            # A free in stream order.
            Row("capture", r"passed-on/.*, freeasync-own", STREAMED, SERVED_IN_CAPTURE, is_certain=False),
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
