# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""The configurations in which each program runs, and the special needs of some programs."""

import dataclasses
import fnmatch
import os

# The descriptors on which the programs report facts, and on which they wait for a go-ahead (tests/preload/app.h).
FACTS_FD, GO_FD = PASSED_FDS = 3, 4


def reserve_descriptors():
    """
    Opens /dev/null as PASSED_FDS for the programs, so that their reports are dropped and they wait for no go-ahead.
    Without this the numbers would belong to some file of the driver.
    """
    null = os.open("/dev/null", os.O_RDWR)
    for fd in PASSED_FDS:
        if fd != null:
            os.dup2(null, fd)
        os.set_inheritable(fd, True)


@dataclasses.dataclass(frozen=True)
class Config:
    """
    variables: the environment variables that configure the library; None: the library is not loaded. like: the names of
    configurations. This one runs in place of the first of them that a way lists. It has the deviations of like[0].
    """

    name: str
    variables: dict | None = None
    like: tuple = ()

    @property
    def listed_name(self):
        return self.like[0] if self.like else self.name

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
    # The backends: the kinds of memory that segments consist of.
    Config("device", {"GPUPOOL_BACKEND": "device"}),
    Config("managed", {"GPUPOOL_BACKEND": "managed"}),
    Config("async", {"GPUPOOL_BACKEND": "async"}),
    # Every block has guard zones around it, and every free checks them.
    Config("debug", {"GPUPOOL_DEBUG": "poison,guard"}),
    # Memory that the program maps itself does not stay mapped.
    Config("uncached", {"GPUPOOL_VMM_CACHE": "off"}),
    # The driver serves allocations in stream order.
    Config("asyncoff", {"GPUPOOL_ASYNC": "off"}),
    Config("off", {"GPUPOOL": "off"}),
]
CONFIG_NAMES = tuple(config.name for config in CONFIGS)
# Runs only on request. Where the device and the driver allow it, auto is vmm.
AUTO = Config("auto", {"GPUPOOL_POOL": "auto"}, like=("vmm", "split"))
BACKENDS = ("device", "managed", "async")
# Only the segments depend on the backend, so only programs that can see the kind of memory run with each backend.
USUAL_NAMES = tuple(name for name in CONFIG_NAMES if name not in (*BACKENDS, "uncached", "asyncoff"))


@dataclasses.dataclass(frozen=True)
class Needs:
    """
    A way to run a program; a program with several ways is run in each. The raw program gets the environment, too.
    Variables that begin with SIMGPU_ work only on the simulator, so there is no such run on a real GPU.
    """

    name: str = ""  # of this way, if the program has several
    env: dict = dataclasses.field(default_factory=dict)
    devices: int = 1
    configs: tuple = USUAL_NAMES
    is_alone: bool = False  # no other process may use the GPU meanwhile
    essential: tuple = ("none", "simple", "binned", "split", "vmm", "completed")  # of configs: those of --brief, too
    is_strict: bool = True  # races and invalid uses on the simulator are errors
    arguments: tuple = ("--all",)

    @property
    def raw_key(self):
        """Equal for ways in which the raw program runs alike: it does not read the variables of the library."""
        variables = tuple((name, value) for name, value in self.env.items() if not name.startswith("GPUPOOL"))
        return variables, self.devices, self.is_strict, self.arguments

    @property
    def is_simulated(self):
        return any(name.startswith("SIMGPU_") for name in self.env)


USUAL = (Needs(),)
KINDS = ("none", "simple", "binned", "split", "vmm", "completed")
WITH_BACKENDS = Needs(configs=(*USUAL_NAMES, *BACKENDS), essential=(*KINDS, "managed", "async"))
# The configuration debug fills freed memory, for which the simulated GPU needs real memory of the host.
NOT_DEBUG = tuple(name for name in USUAL_NAMES if name != "debug")
FEW = ("none", "split", "off")
ONCE_EACH = ("none", "simple", "binned", "split", "vmm", "syncfree", "atonce", "off")

# If nearly nothing may be pending, every allocation has to wait for memory, and every free flushes.
TIGHT = {"GPUPOOL_PENDING_RATIO": "0.0001"}
TIGHT_CONFIGS = ("none", "simple", "binned", "split", "vmm", "ordered", "completed")
# A user who chooses the mode ordered promises that only work of the owning context touches the memory.
NOT_ORDERED = tuple(name for name in USUAL_NAMES if name != "ordered")


def around_spinning(devices=1, is_alone=False, configs=USUAL_NAMES):
    return (
        Needs(configs=configs, devices=devices, is_alone=is_alone, essential=TIGHT_CONFIGS),
        Needs(name="tight", env=TIGHT, configs=TIGHT_CONFIGS, devices=devices, is_alone=is_alone, essential=TIGHT_CONFIGS),
    )


# The pool types without a configuration that always waits for completion.
IN_COMPLETED = ("none", "simple", "binned", "vmm")


def on_completion(is_alone=False, devices=1):
    return Needs(name="completed", env={"GPUPOOL_REUSE": "completed"}, configs=IN_COMPLETED, devices=devices,
                 is_alone=is_alone, essential=())


# A driver before CUDA 12.5.
OLD = {"SIMGPU_HIDE": "cuCtxRecordEvent,cuCtxWaitEvent"}


def on_old_drivers(is_alone=False, devices=1):
    return Needs(name="old", env=OLD, configs=("none", "split"), devices=devices, is_alone=is_alone)


def first_access_needs(devices):
    tight = tuple(name for name in TIGHT_CONFIGS if name in NOT_ORDERED)
    return (
        Needs(configs=NOT_ORDERED, devices=devices),
        Needs(name="tight", env=TIGHT, configs=tight, devices=devices),
    )


# The driver serves allocations in stream order.
BY_DRIVER = {"GPUPOOL_ASYNC": "off"}


def async_off(**other):
    return Needs(name="async off", env=BY_DRIVER, configs=("split", "vmm"), **other)


def registered():
    # Large pinned memory is registered, not allocated by the driver.
    return Needs(name="registered", env={"GPUPOOL_PINNED_THREADS": "2"}, configs=("none", "split", "vmm"))


# Each key is a pattern of program names, without "diff_". The first match counts; other programs have no special needs.
NEEDS = {
    # debug is left out: a free waits there, and makes other threads and contexts wait.
    "deadlock": (*around_spinning(configs=(*NOT_DEBUG, "managed", "async")), on_completion(), on_old_drivers()),
    # If other processes create contexts meanwhile, creating one here may wait for the spinning kernel (seen raw, too).
    "deadlock_contexts": (
        *around_spinning(is_alone=True),
        on_completion(is_alone=True),
        on_old_drivers(is_alone=True),
    ),
    "deadlock_devices": (*around_spinning(devices=2), on_completion(devices=2), on_old_drivers(devices=2)),
    "deadlock_memory": (
        *around_spinning(is_alone=True, configs=NOT_DEBUG),
        Needs(name="limited", env={"GPUPOOL_LIMIT": "2GiB"}, is_alone=True, configs=TIGHT_CONFIGS),
        Needs(name="unreserved", env={"GPUPOOL_RESERVE": "0"}, is_alone=True, configs=TIGHT_CONFIGS),
        # The size of an H100, on which cached segments are left in other sizes than on the default one.
        Needs(name="h100", env={"SIMGPU_MEMORY": "81079M"}, is_alone=True, configs=KINDS),
        on_completion(is_alone=True),
        on_old_drivers(is_alone=True),
    ),
    "deadlock_threads": (*around_spinning(), on_completion(), on_old_drivers()),
    # The limit suffices only if memory that ended with its context no longer counts against it.
    "leaks": (
        Needs(is_alone=True, configs=ONCE_EACH),
        Needs(name="limited", env={"GPUPOOL_LIMIT": "300MiB"}, is_alone=True, configs=ONCE_EACH),
    ),
    "devices": (Needs(name="two", devices=2), Needs(name="four", devices=4)),
    "devices_info": (Needs(devices=2, is_alone=True),),
    "devices_pools": (Needs(devices=2, configs=(*USUAL_NAMES, "asyncoff")),),
    "devices_access": (Needs(devices=2, is_strict=False, configs=(*USUAL_NAMES, "managed", "async")),),
    "first": first_access_needs(devices=2),
    "first_alone": first_access_needs(devices=1),
    # Few configurations, because each hang lasts until its timeout.
    "waits": (Needs(configs=("none", "split", "completed", "syncfree", "atonce")),),
    # The same programs, but they find the driver at run time: their other build has covered the pool types already.
    "*_dlsym": (Needs(configs=FEW),),
    "*_getproc": (Needs(configs=FEW),),
    "*_perthread": (Needs(configs=FEW),),
    "fill": (
        Needs(is_alone=True, configs=ONCE_EACH),
        Needs(name="limited", env={"GPUPOOL_LIMIT": "12GiB"}, is_alone=True, configs=ONCE_EACH),
        async_off(is_alone=True),
    ),
    "fill_*": (Needs(is_alone=True, configs=ONCE_EACH),),
    "limits": (Needs(env={"GPUPOOL_LIMIT": "512MiB", "GPUPOOL_PINNED_LIMIT": "8MiB"}),),
    # A trap in one process stalls the other processes of the device for a long time.
    "errors": (Needs(is_strict=False, is_alone=True), async_off(is_strict=False, is_alone=True)),
    "capture_ends": (Needs(), on_old_drivers()),
    "capture_memory": (
        Needs(configs=NOT_DEBUG, is_alone=True),
        on_old_drivers(is_alone=True),
        async_off(is_alone=True),
    ),
    "capture_threads": (Needs(), on_old_drivers(), async_off()),
    "free": (WITH_BACKENDS, on_old_drivers()),
    "memory": (WITH_BACKENDS, on_old_drivers(), async_off()),
    "query": (WITH_BACKENDS,),
    "host": (WITH_BACKENDS, registered()),
    "capture": (WITH_BACKENDS, async_off()),
    "life": (WITH_BACKENDS, async_off()),
    "life_fork": (Needs(), registered(), async_off()),
    "runtime_static": (WITH_BACKENDS, async_off()),
    "runtime_shared*": (Needs(), async_off()),
    "unpooled": (Needs(is_alone=True, configs=ONCE_EACH), async_off(is_alone=True)),
    "virtual": (Needs(is_alone=True, configs=(*USUAL_NAMES, "uncached")),),
    "caches": (
        Needs(configs=("simple", "binned", "split", "vmm", "ordered", "completed", "syncfree"), is_alone=True),
        Needs(
            name="limited",
            env={"GPUPOOL_LIMIT": "256MiB"},
            configs=("simple", "binned", "split", "vmm"),
            is_alone=True,
        ),
    ),
    "async": (
        Needs(configs=(*USUAL_NAMES, "asyncoff")),
        on_old_drivers(),
        Needs(name="old, async off", env=OLD | BY_DRIVER, configs=("split",)),
        # The record of an event is a barrier of its stream, as on an H100.
        Needs(name="recorded", env={"SIMGPU_RECORDS_ARE_OPERATIONS": "1"}, configs=("split", "vmm")),
    ),
    "made_pools": (Needs(configs=(*USUAL_NAMES, "asyncoff")),),
    "stream": (Needs(), Needs(name="old", env=OLD), async_off()),
    # "gone": exit handlers run after the simulated driver has shut down, which a real driver never does.
    "exit": (Needs(), Needs(name="gone", env={"SIMGPU_DEINIT_AT_EXIT": "1"})),
}


def needs_of(program):
    for pattern, ways in NEEDS.items():
        if fnmatch.fnmatchcase(program, pattern):
            return ways
    return USUAL
