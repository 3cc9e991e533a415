# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
The walks: programs that follow the examples in the documents of other memory managers, and their expected output. The
figures are those of the documents, except where a comment says why they differ. The simulated GPU and a real one give
the same output.
"""

import dataclasses
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
API = HERE.parents[1] / "api"
EFFECTIVE = re.compile(r"Effective GPU memory usage: ([\d.]+)% \(([\d.]+) (\w+)/([\d.]+) (\w+)\)")
UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclasses.dataclass
class Walk:
    program: str
    kinds: tuple
    expected: str
    variables: dict = dataclasses.field(default_factory=dict)
    simulated: dict = dataclasses.field(default_factory=dict)  # settings of the simulated GPU
    is_simulated: bool = False  # needs the simulated GPU

    @property
    def name(self):
        values = [f" {name.removeprefix('GPUPOOL_')}={value}" for name, value in self.variables.items()]
        values += [f" {value}" for name, value in self.simulated.items() if name == "SIMGPU_FAULT"]
        return self.program + "".join(values)

    def environment(self, kind):
        """Variables for a walk. The log level hides the warnings of an out-of-memory that is part of the walk."""
        fixed = {"GPUPOOL_POOL": kind, "GPUPOOL_LOG": "error", "PYTHONPATH": str(API), "PYTHONDONTWRITEBYTECODE": "1"}
        return {**fixed, **self.variables}

    def command(self):
        return [sys.executable, "-S", str(HERE / f"walk_{self.program}.py")]


STATUS = """\
Effective
CUDA GPU memory usage: 0 bytes
Memory pool usage: 0 bytes (0 bytes allocated, 0 bytes cached)
Effective
CUDA GPU memory usage: 8.000 KiB
Memory pool usage: 8.000 KiB (8.000 KiB allocated, 0 bytes cached)
Effective
CUDA GPU memory usage: 8.000 KiB
Memory pool usage: 8.000 KiB (0 bytes allocated, 8.000 KiB cached)
8192
Effective
CUDA GPU memory usage: 0 bytes
Memory pool usage: 0 bytes (0 bytes allocated, 0 bytes cached)
"""

# Pool types that cut blocks from larger driver allocations hold, and release, the whole allocation.
STATUS_CUT = """\
Effective
CUDA GPU memory usage: 0 bytes
Memory pool usage: 0 bytes (0 bytes allocated, 0 bytes cached)
Effective
CUDA GPU memory usage: 2.000 MiB
Memory pool usage: 2.000 MiB (8.000 KiB allocated, 1.992 MiB cached)
Effective
CUDA GPU memory usage: 2.000 MiB
Memory pool usage: 2.000 MiB (0 bytes allocated, 2.000 MiB cached)
2097152
Effective
CUDA GPU memory usage: 0 bytes
Memory pool usage: 0 bytes (0 bytes allocated, 0 bytes cached)
"""

PRESSURE = """\
used 240
used 0 cached True
fits True out of memory 0
"""

# Used and total bytes on the device, and free blocks of pinned memory.
POOLS = """\
start 0 0 0
bytes 400
on the device 512 512 1
freed 0 512 1
free 1 512
released 0 0 0
"""

# The parts that remain free before and after a block that was cut from a larger one count as free blocks, too.
POOLS_CUT = POOLS.replace(" 512 1\n", " 2097152 1\n").replace("free 1 512", "free {} 2097152")

# Pinned memory is not pooled: nothing of it is cached after the free.
POOLS_OFF = """\
start 0 0 0
bytes 400
on the device 512 512 0
freed 0 512 0
free 1 512
released 0 0 0
"""

LIMITS = """\
limit 1073741824
reported total 1073741824
device 0 1073741824
device 1 2147483648
the whole limit fits True a byte more False
limit is a quarter True
64 and 65 MiB fit into 64 MiB True False
no limit 0 True
"""
LIMITS_HALF = LIMITS.replace("limit 1073741824", "limit half").replace("total 1073741824", "total half")

QUEUE = """\
queue lengths 1 2 3 4 5 6 7 8 9 10 0 1
queue lengths of large blocks 1 2 0 1 2 0
before memory is full 1 fits True
deferred 15
still deferred 15
memory is full, fits True 1
at the end 0
held 0
"""
QUEUE_LONGER = QUEUE.replace(" 10 0 1\n", " 10 11 12 13 14 15 16 17 18 19 20 0 1\n")
QUEUE_LARGER = QUEUE.replace("queue lengths of large blocks 1 2 0 1 2 0", "queue lengths of large blocks 1 2 3 4 5 0")
QUEUE_ERROR = """\
queued 0 deallocations 11
held 0
fits True 12
"""

# After this error the context is unusable, and no further memory can be freed in it.
QUEUE_UNUSABLE = """\
queued 0 deallocations 3
Input/output error
held 0
CUDA error 719
"""

WHOLE = ("simple", "binned", "none")
CUT = ("split", "vmm")
CACHING = ("simple", "binned", "split", "vmm")
GIB = {"GPUPOOL_LIMIT": "1GiB"}
TWO_OF_2G = {"SIMGPU_MEMORY": "2GiB", "SIMGPU_DEVICES": "2"}

WALKS = (
    Walk("status", WHOLE, STATUS),
    Walk("status", CUT, STATUS_CUT),
    Walk("pressure", CACHING, PRESSURE, {"GPUPOOL_LIMIT": "256MiB"}),
    Walk("pools", WHOLE, POOLS),
    Walk("pools", ("split",), POOLS_CUT.format(3)),
    Walk("pools", ("vmm",), POOLS_CUT.format(2)),
    Walk("pools", ("none",), POOLS_OFF, {"GPUPOOL_PINNED": "0"}),
    Walk("limits", ("simple",), LIMITS, {"GPUPOOL_LIMIT": "1073741824"}, TWO_OF_2G),
    Walk("limits", ("simple",), LIMITS_HALF, {"GPUPOOL_LIMIT": "50%"}, TWO_OF_2G),
    Walk("queue", ("none",), QUEUE, GIB),
    Walk("queue", ("none",), QUEUE_LONGER, {"GPUPOOL_PENDING_COUNT": "20", **GIB}),
    Walk("queue", ("none",), QUEUE_LARGER, {"GPUPOOL_PENDING_RATIO": "0.5", **GIB}),
    Walk("queue_error", ("none",), QUEUE_ERROR, {}, {"SIMGPU_FAULT": "cuMemFree_v2:3=1"}, True),
    Walk("queue_error", ("none",), QUEUE_UNUSABLE, {}, {"SIMGPU_FAULT": "cuMemFree_v2:3=719"}, True),
)


def check_effective(match):
    """Checks that the percentage matches the two amounts, and that at least the context's memory is in use. The amount
    is not compared, because it includes the memory of other processes."""
    share, used, total = float(match[1]), float(match[2]) * UNITS[match[3]], float(match[4]) * UNITS[match[5]]
    is_right = 0 < used <= total and abs(share - 100 * used / total) < 0.1
    return "Effective" if is_right else match[0]


def differences(walk, status, text, devices):
    """The lines that differ, each with the expected line."""
    expected = walk.expected.splitlines()
    if devices == 1:
        expected = [line for line in expected if not line.startswith("device 1 ")]
    lines = EFFECTIVE.sub(check_effective, text).splitlines()
    lines += [""] * (len(expected) - len(lines))
    expected += [""] * (len(lines) - len(expected))
    found = [f"'{line}', not '{wanted}'" for line, wanted in zip(lines, expected) if line != wanted]
    return found + ([f"exit status {status}"] if status else [])


BATCHES_KINDS = ("none", "simple", "binned", "split", "vmm")
BATCHES = re.compile(r"batches n=64 bytes=(\d+) wrong=96 early_bytes=(\d+) peak_bytes=(\d+) ns=(\d+)\n")
AT_MOST = 6  # batches in memory at a time, with those that the GPU still uses
LIMIT_BATCHES = 8


@dataclasses.dataclass
class Batches:
    """The memory, in batches, and the time of a run through all batches."""

    early: int
    peak: int
    ns: int

    @classmethod
    def of(cls, status, text):
        """The figures in the program's output, or None if the program failed or its counts are wrong."""
        match = BATCHES.fullmatch(text)
        if status or not match:
            return None
        size = int(match[1])
        return cls(int(match[2]) / size, int(match[3]) / size, int(match[4]))

    def is_flat(self):
        """True if memory did not grow with the number of batches. It may vary by one batch with the GPU's progress."""
        return 1 <= self.peak <= min(AT_MOST, self.early + 1)
