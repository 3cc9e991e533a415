# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Under what each program runs, and what a program needs beyond the usual."""

import dataclasses
import fnmatch
import os

# Where the programs tell what they see, and wait for a word (tests/preload/app.h).
FACTS_FD, GO_FD = PASSED_FDS = 3, 4


def reserve_descriptors():
    """
    Lets nobody listen and nobody wait there, for programs that are given PASSED_FDS; without this they would be some
    file of the driver's.
    """
    null = os.open("/dev/null", os.O_RDWR)
    for fd in PASSED_FDS:
        if fd != null:
            os.dup2(null, fd)
        os.set_inheritable(fd, True)


@dataclasses.dataclass(frozen=True)
class Config:
    """variables: what the library is told; None: it is not there at all."""

    name: str
    variables: dict | None = None

    @property
    def is_pooled(self):
        return self.variables is not None and self.variables.get("GPUPOOL") != "off"


RAW = Config("raw")
CONFIGS = [
    Config("none", {"GPUPOOL_POOL": "none"}),
    Config("simple", {"GPUPOOL_POOL": "simple"}),
    Config("binned", {"GPUPOOL_POOL": "binned"}),
    Config("split", {"GPUPOOL_POOL": "split"}),
    Config("vmm", {"GPUPOOL_POOL": "vmm"}),
    Config("ordered", {"GPUPOOL_POOL": "split", "GPUPOOL_REUSE": "ordered"}),
    Config("completed", {"GPUPOOL_POOL": "split", "GPUPOOL_REUSE": "completed"}),
    # Switches that take a deviation back (deviations.py).
    Config("syncfree", {"GPUPOOL_SYNC_FREE": "1"}),
    Config("unpinned", {"GPUPOOL_PINNED": "off"}),
    Config("atonce", {"GPUPOOL_POOL": "none", "GPUPOOL_PENDING_COUNT": "0", "GPUPOOL_PINNED": "off"}),
    # What the segments are made of.
    Config("device", {"GPUPOOL_BACKEND": "device"}),
    Config("managed", {"GPUPOOL_BACKEND": "managed"}),
    Config("async", {"GPUPOOL_BACKEND": "async"}),
    # Every block with zones around it, and every free checked.
    Config("debug", {"GPUPOOL_DEBUG": "poison,guard"}),
    Config("off", {"GPUPOOL": "off"}),
]
CONFIG_NAMES = tuple(config.name for config in CONFIGS)
BACKENDS = ("device", "managed", "async")
# Above the segments all is the same: only programs that can see what they are made of run with each backend.
USUAL_NAMES = tuple(name for name in CONFIG_NAMES if name not in BACKENDS)


@dataclasses.dataclass(frozen=True)
class Needs:
    """
    A way to run a program; one with several ways is run in each. The environment is the raw program's too. What
    begins with SIMGPU_ can only be had on the simulator, so that there is no such run on a real GPU.
    """

    name: str = ""  # of this way, where there are several
    env: dict = dataclasses.field(default_factory=dict)
    devices: int = 1
    configs: tuple = USUAL_NAMES
    is_alone: bool = False  # counts on all of the GPU's memory
    essential: tuple = ("none", "simple", "binned", "split", "vmm", "completed")  # of configs: see is_essential
    is_strict: bool = True  # races and invalid uses on the simulator are no part of it
    arguments: tuple = ("--all",)

    @property
    def is_simulated(self):
        return any(name.startswith("SIMGPU_") for name in self.env)


USUAL = (Needs(),)
KINDS = ("none", "simple", "binned", "split", "vmm", "completed")
WITH_BACKENDS = Needs(configs=CONFIG_NAMES, essential=(*KINDS, "managed", "async"))
# There freed memory is filled, and a simulated GPU has to have all of it then.
NOT_DEBUG = tuple(name for name in USUAL_NAMES if name != "debug")
FEW = ("none", "split", "off")
ONCE_EACH = ("none", "simple", "binned", "split", "vmm", "syncfree", "atonce", "off")

# Where next to nothing may be pending every allocation insists, and every free flushes.
TIGHT = {"GPUPOOL_PENDING_RATIO": "0.0001"}
INSISTING = ("none", "simple", "binned", "split", "vmm", "ordered", "completed")
# Who asks for the mode ordered says that nobody else is there.
NOT_ORDERED = tuple(name for name in USUAL_NAMES if name != "ordered")


def around_spinning(devices=1, is_alone=False, configs=USUAL_NAMES):
    return (
        Needs(configs=configs, devices=devices, is_alone=is_alone, essential=INSISTING),
        Needs(name="tight", env=TIGHT, configs=INSISTING, devices=devices, is_alone=is_alone, essential=INSISTING),
    )


# What waits for completion everywhere, in the kinds that have no such configuration.
IN_COMPLETED = ("none", "simple", "binned", "vmm")


def on_completion(is_alone=False, devices=1):
    return Needs(name="completed", env={"GPUPOOL_REUSE": "completed"}, configs=IN_COMPLETED, devices=devices,
                 is_alone=is_alone, essential=())


# A driver before CUDA 12.5.
OLD = {"SIMGPU_HIDE": "cuCtxRecordEvent,cuCtxWaitEvent"}


def on_old_drivers(is_alone=False, devices=1):
    return Needs(name="old", env=OLD, configs=("none", "split"), devices=devices, is_alone=is_alone)


def somebody_first(devices):
    tight = tuple(name for name in INSISTING if name in NOT_ORDERED)
    return (
        Needs(configs=NOT_ORDERED, devices=devices),
        Needs(name="tight", env=TIGHT, configs=tight, devices=devices),
    )


# Programs by pattern, without "diff_"; the first that fits counts. A program that is not here needs nothing.
NEEDS = {
    # There a free waits by itself, and keeps other threads and contexts waiting: they are left out.
    "deadlock": (*around_spinning(configs=(*NOT_DEBUG, "managed", "async")), on_completion(), on_old_drivers()),
    # While other processes make contexts, a context that comes late may wait for the spinning kernel (seen raw, too).
    "deadlock_contexts": (
        *around_spinning(is_alone=True),
        on_completion(is_alone=True),
        on_old_drivers(is_alone=True),
    ),
    "deadlock_devices": (*around_spinning(devices=2), on_completion(devices=2), on_old_drivers(devices=2)),
    "deadlock_memory": (
        *around_spinning(is_alone=True, configs=NOT_DEBUG),
        Needs(name="limited", env={"GPUPOOL_LIMIT": "2GiB"}, is_alone=True, configs=INSISTING),
        Needs(name="unreserved", env={"GPUPOOL_RESERVE": "0"}, is_alone=True, configs=INSISTING),
        on_completion(is_alone=True),
        on_old_drivers(is_alone=True),
    ),
    "deadlock_threads": (*around_spinning(), on_completion(), on_old_drivers()),
    # With a limit that holds only if what ended with its context is not charged any more.
    "leaks": (
        Needs(is_alone=True, configs=ONCE_EACH),
        Needs(name="limited", env={"GPUPOOL_LIMIT": "300MiB"}, is_alone=True, configs=ONCE_EACH),
    ),
    "devices": (Needs(name="two", devices=2), Needs(name="four", devices=4)),
    "devices_info": (Needs(devices=2, is_alone=True),),
    "devices_access": (Needs(devices=2, is_strict=False, configs=(*USUAL_NAMES, "managed", "async")),),
    "first": somebody_first(devices=2),
    "first_alone": somebody_first(devices=1),
    # Each hang takes its time.
    "waits": (Needs(configs=("none", "split", "completed", "syncfree", "atonce")),),
    # The same programs, reaching the driver in other ways: what depends on the pool has been asked already.
    "*_dlsym": (Needs(configs=FEW),),
    "*_getproc": (Needs(configs=FEW),),
    "*_perthread": (Needs(configs=FEW),),
    "fill": (
        Needs(is_alone=True, configs=ONCE_EACH),
        Needs(name="limited", env={"GPUPOOL_LIMIT": "12GiB"}, is_alone=True, configs=ONCE_EACH),
    ),
    "fill_*": (Needs(is_alone=True, configs=ONCE_EACH),),
    "limits": (Needs(env={"GPUPOOL_LIMIT": "512MiB", "GPUPOOL_PINNED_LIMIT": "8MiB"}),),
    # A trap of one process holds up the others of the device for long.
    "errors": (Needs(is_strict=False, is_alone=True),),
    "capture_ends": (Needs(), on_old_drivers()),
    "capture_memory": (Needs(configs=NOT_DEBUG, is_alone=True), on_old_drivers(is_alone=True)),
    "capture_threads": (Needs(), on_old_drivers()),
    "free": (WITH_BACKENDS, on_old_drivers()),
    "memory": (WITH_BACKENDS, on_old_drivers()),
    "query": (WITH_BACKENDS,),
    "host": (WITH_BACKENDS,),
    "capture": (WITH_BACKENDS,),
    "life": (WITH_BACKENDS,),
    "runtime_static": (WITH_BACKENDS,),
    "unpooled": (Needs(is_alone=True, configs=ONCE_EACH),),
    "caches": (
        Needs(configs=("simple", "binned", "split", "vmm", "ordered", "completed", "syncfree"), is_alone=True),
        Needs(
            name="limited",
            env={"GPUPOOL_LIMIT": "256MiB"},
            configs=("simple", "binned", "split", "vmm"),
            is_alone=True,
        ),
    ),
    "stream": (Needs(), Needs(name="old", env=OLD)),
    # Exit handlers that run after the driver's own, which a real one has not.
    "exit": (Needs(), Needs(name="gone", env={"SIMGPU_DEINIT_AT_EXIT": "1"})),
}


def needs_of(program):
    for pattern, ways in NEEDS.items():
        if fnmatch.fnmatchcase(program, pattern):
            return ways
    return USUAL
