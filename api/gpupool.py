# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Queries and controls the pool of GPU memory of this process: gpupool(3) for Python, with names from other libraries.

    CuPy      get_default_memory_pool().used_bytes() total_bytes() free_bytes() n_free_blocks() free_all_blocks()
              get_limit() set_limit(size=, fraction=); get_default_pinned_memory_pool()
    CUDA.jl   memory_status(), reclaim()
    Numba     with defer_cleanup():
    AMDGPU.jl with no_caching(): with caching_region(name): invalidate_region(name)

One file without dependencies. In a process that runs without gpupool is_active() is False, scopes do nothing, amounts
are 0, and setting a limit raises NotActive.
"""

import contextlib
import ctypes
import errno
import os
import sys

__all__ = ("ALL_DEVICES", "PINNED", "MemoryPool", "NotActive", "PinnedMemoryPool", "Status",
           "caching_region", "cold", "defer_cleanup", "free_now", "get_default_memory_pool", "get_default_pinned_memory_pool",
           "invalidate_region", "is_active", "memory_status", "no_caching", "reclaim", "set_oom_hook", "sleep", "status",
           "version", "wake")

ALL_DEVICES = -1
PINNED = -2
_NO_LIMIT = 2**64 - 1
_OWNER, _TYPE = b"gpupool\0", 1


class NotActive(RuntimeError):
    """gpupool does not serve this process."""

    def __init__(self):
        super().__init__("gpupool does not serve this process; start it with gpupool-run")


class Status(ctypes.Structure):
    """The state of the pools of a device, or of pinned memory: struct gpupool_status."""

    _fields_ = [(name, ctypes.c_uint64) for name in (
        "used_bytes", "requested_bytes", "cached_bytes", "pending_bytes", "returning_bytes", "total_bytes",
        "unpooled_bytes", "limit_bytes", "device_total_bytes", "device_free_bytes", "peak_used_bytes",
        "peak_total_bytes", "n_used_blocks", "n_cached_blocks", "n_pending_blocks", "hits", "misses", "ooms")]

    def __repr__(self):
        return "Status(%s)" % ", ".join("%s=%d" % (name, getattr(self, name)) for name, _ in self._fields_)


_HOOK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64)

# CFUNCTYPE releases the interpreter's lock, since a function may wait for the GPU or call a hook. errno stays as it is.
_FUNCTIONS = (
    ("version", ctypes.CFUNCTYPE(ctypes.c_char_p)),
    ("status", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(Status), ctypes.c_size_t)),
    ("reclaim", ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int)),
    ("free_now", ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int)),
    ("get_limit", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_uint64))),
    ("set_limit", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_uint64)),
    ("set_limit_percent", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_double)),
    ("defer", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)),
    ("no_cache", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)),
    ("set_oom_hook", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)),
    ("region", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p)),
    ("region_invalidate", ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p)),
    ("sleep", ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64)),
    ("wake", ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64)),
    ("sleep_as", ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_size_t)),
    ("cold", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64)),
)


class _Table(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint64)] + list(_FUNCTIONS)


class _Header(ctypes.Structure):
    """A program header of ELF."""

    _fields_ = [("type", ctypes.c_uint32), ("flags", ctypes.c_uint32)] + [
        (name, ctypes.c_uint64) for name in ("offset", "vaddr", "paddr", "filesz", "memsz", "align")]


class _Object(ctypes.Structure):
    """An object of the process. The loader lists the program first, then preloaded libraries, then the others."""


_Object._fields_ = [("base", ctypes.c_uint64), ("name", ctypes.c_char_p), ("dynamic", ctypes.c_void_p),
                    ("next", ctypes.POINTER(_Object)), ("previous", ctypes.c_void_p)]


def _table_in(start, size, align):
    """Returns the address of the table that a note among these bytes leads to, or None."""
    at = start
    while at + 12 <= start + size:
        name_size, distance_size, kind = (ctypes.c_uint32 * 3).from_address(at)
        distance_at = at + 12 + (name_size + align - 1) // align * align
        if kind == _TYPE and name_size == len(_OWNER) and ctypes.string_at(at + 12, name_size) == _OWNER:
            return distance_at + ctypes.c_int64.from_address(distance_at).value
        at = distance_at + (distance_size + align - 1) // align * align
    return None


def _table_of(base):
    """Returns the address of the table in the object that is loaded at base, or None."""
    headers = base + ctypes.c_uint64.from_address(base + 32).value
    count = ctypes.c_uint16.from_address(base + 56).value
    for header in (_Header * count).from_address(headers):
        if header.type == 4:  # PT_NOTE
            table = _table_in(base + header.vaddr, header.memsz, 8 if header.align == 8 else 4)
            if table:
                return table
    return None


def _find():
    """Returns the functions that the library has, by name."""
    if not sys.platform.startswith("linux") or ctypes.sizeof(ctypes.c_void_p) != 8:
        return {}
    # dl_iterate_phdr could deadlock: its callback needs the interpreter's lock while it holds the loader's.
    at = ctypes.cast(ctypes.CDLL(None)._handle, ctypes.POINTER(_Object))
    while at and b"libgpupool" not in os.path.basename(at.contents.name or b""):
        at = at.contents.next
    address = _table_of(at.contents.base) if at else None
    if not address:
        return {}
    table = _Table.from_address(address)
    return {name: getattr(table, name) for name, _ in _FUNCTIONS if getattr(_Table, name).offset + 8 <= table.bytes}


_functions = _find()


def _call(name, *arguments):
    """Returns the result of the function, or -ENOSYS if the library lacks it."""
    function = _functions.get(name)
    return function(*arguments) if function else -errno.ENOSYS


def _check(result):
    if result == -errno.ENOSYS:
        raise NotActive()
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


def version():
    """Returns the version of the library in this process, or None without gpupool."""
    function = _functions.get("version")
    return function().decode() if function else None


def is_active():
    """Returns True if gpupool serves this process."""
    return _call("status", PINNED, ctypes.byref(Status()), ctypes.sizeof(Status)) == 0


def status(device=0):
    """Returns the Status of a device, or of PINNED memory; all 0 without gpupool."""
    result = Status()
    code = _call("status", device, ctypes.byref(result), ctypes.sizeof(result))
    if code != -errno.ENOSYS:
        _check(code)
    return result


def _release(name, device):
    code = _call(name, device)
    return 0 if code == -errno.ENOSYS else _check(code)


def reclaim(device=ALL_DEVICES):
    """Gives cached memory back to the driver without waiting for the GPU, and returns the bytes."""
    return _release("reclaim", device)


def free_now(device=ALL_DEVICES):
    """
    Like reclaim(), but first waits for the GPU. Only cached memory that shares an allocation with used blocks remains.
    """
    return _release("free_now", device)


class _SleepOptions(ctypes.Structure):
    _fields_ = [("timeout_ms", ctypes.c_uint64), ("is_dropping_all", ctypes.c_uint64),
                ("drop", ctypes.POINTER(ctypes.c_char_p)), ("n_drop", ctypes.c_uint64)]


def sleep(timeout=1.0, drop=(), to="host"):
    """
    Moves pooled device memory to host memory until the program submits work again, and returns the bytes. timeout: how
    many seconds to wait for the GPU. drop: regions whose content is not kept; to="none": no content is. Dropped memory
    is zero when it comes back. Raises OSError if the GPU is busy, the memory cannot sleep, or a region does not exist.
    0 without gpupool.
    """
    if to not in ("host", "none"):
        raise ValueError("to=%r is neither 'host' nor 'none'" % (to,))
    names = [drop] if isinstance(drop, str) else list(drop)
    if not names and to == "host":
        code = _call("sleep", int(timeout * 1000))
    else:
        array = (ctypes.c_char_p * len(names))(*[name.encode() for name in names])
        options = _SleepOptions(int(timeout * 1000), to == "none", array, len(names))
        code = _call("sleep_as", ctypes.addressof(options), ctypes.sizeof(options))
    return 0 if code == -errno.ENOSYS else _check(code)


def wake(timeout=10.0):
    """
    Brings the memory back now, and returns the bytes. timeout: how many seconds to wait for device memory that other
    processes have taken. Raises OSError if it did not come back, also in a process that is deep asleep (gpupool-stat
    sleep --deep). 0 without gpupool.
    """
    code = _call("wake", int(timeout * 1000))
    return 0 if code == -errno.ENOSYS else _check(code)


def cold(pointer, size=0):
    """
    Says that the GPU will seldom use these bytes, until the program frees their block (0: up to the block's end). With
    GPUPOOL_SPILL they go to host memory before others when the device is full. Raises OSError if pointer is not in a
    block of device memory, or if the memory cannot go to the host. Nothing without gpupool.
    """
    code = _call("cold", pointer, size)
    if code != -errno.ENOSYS:
        _check(code)


class _Pool:
    def __init__(self, device):
        self.device = device

    def used_bytes(self):
        """Bytes in blocks that the program holds."""
        return status(self.device).used_bytes

    def free_bytes(self):
        """Bytes that the pool holds and the program does not use: cached and pending."""
        now = status(self.device)
        return now.cached_bytes + now.pending_bytes

    def total_bytes(self):
        """Bytes taken from the driver."""
        return status(self.device).total_bytes

    def n_free_blocks(self):
        now = status(self.device)
        return now.n_cached_blocks + now.n_pending_blocks

    def free_all_blocks(self, stream=None):
        """Gives free memory back, as free_now(). `stream` is ignored, since these pools do not depend on streams."""
        free_now(self.device)

    def get_limit(self):
        """Returns the limit in bytes; 0: no limit."""
        limit = ctypes.c_uint64()
        code = _call("get_limit", self.device, ctypes.byref(limit))
        if code != -errno.ENOSYS:
            _check(code)
        return 0 if limit.value == _NO_LIMIT else limit.value

    def set_limit(self, size=None, fraction=None):
        """Sets the limit, in bytes or as a share of the device's or machine's memory; 0, or no argument: no limit."""
        if size is not None and fraction is not None:
            raise ValueError("pass size or fraction, not both")
        if fraction is not None and not 0 <= fraction <= 1:
            raise ValueError("fraction must be from 0 to 1")
        if size is not None and size < 0:
            raise ValueError("size must be a number of bytes that is not negative")
        if fraction:
            _check(_call("set_limit_percent", self.device, 100.0 * fraction))
        else:
            _check(_call("set_limit", self.device, size or _NO_LIMIT))


class MemoryPool(_Pool):
    """The memory of a device."""

    def __init__(self, device=0):
        super().__init__(device)


class PinnedMemoryPool(_Pool):
    """Pinned host memory."""

    def __init__(self):
        super().__init__(PINNED)


def get_default_memory_pool(device=0):
    return MemoryPool(device)


def get_default_pinned_memory_pool():
    return PinnedMemoryPool()


def _amount(count):
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return "%d %s" % (count, unit) if unit == "bytes" else "%.3f %s" % (count, unit)
        count /= 1024


def memory_status(device=0, file=None):
    """Prints the memory in use on the device, this process's part of it, and the state of its pool."""
    now = status(device)
    used = now.device_total_bytes - now.device_free_bytes if now.device_free_bytes else 0
    share = 100.0 * used / now.device_total_bytes if now.device_total_bytes else 0.0
    print("Effective GPU memory usage: %.2f%% (%s/%s)"
          % (share, _amount(used), _amount(now.device_total_bytes)), file=file)
    print("CUDA GPU memory usage: %s" % _amount(now.total_bytes + now.unpooled_bytes), file=file)
    print("Memory pool usage: %s (%s allocated, %s cached)"
          % tuple(map(_amount, (now.total_bytes, now.used_bytes, now.cached_bytes + now.pending_bytes))), file=file)
    if now.limit_bytes not in (0, _NO_LIMIT):
        print("Memory limit: %s" % _amount(now.limit_bytes), file=file)


@contextlib.contextmanager
def _scope(name, *arguments):
    code = _call(name, 1, *arguments)
    if code != -errno.ENOSYS:
        _check(code)
    try:
        yield
    finally:
        if code == 0:
            _check(_call(name, 0, *(None for _ in arguments)))


def defer_cleanup():
    """A scope in which freed memory stays queued beyond the queue's limits."""
    return _scope("defer")


def no_caching():
    """A scope in which this thread allocates from the driver and frees to it, without a cache."""
    return _scope("no_cache")


def caching_region(name):
    """A scope in which this thread's device memory comes from a cache of that name, and returns to it."""
    return _scope("region", name.encode())


def invalidate_region(name):
    """Frees a region's cached memory and returns its bytes. Blocks still in use are not cached when they are freed."""
    code = _call("region_invalidate", name.encode())
    return 0 if code == -errno.ENOSYS else _check(code)


_hook = None


def set_oom_hook(function):
    """
    Sets a function(device, bytes) that is called when an allocation is about to fail; None: no function. If it returns
    a true value the allocation is tried again. An exception in it is printed, as in any ctypes callback, and the
    allocation fails.
    """
    global _hook
    hook = _HOOK(lambda arg, device, count: bool(function(device, count))) if function else None
    _check(_call("set_oom_hook", ctypes.cast(hook, ctypes.c_void_p) if hook else None, None))
    _hook = hook  # keeps the previous hook alive until the library has the new one
