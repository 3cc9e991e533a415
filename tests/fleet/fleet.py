# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Shared by the tests of many processes: guests under the library on the simulated GPU, and their counter pages."""

import contextlib
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "readers"))
from readers import Skip, find, main  # noqa: E402,F401

GUEST, LIBRARY, SIM, STAT = sys.argv[1:5]
LIMIT_S = 60  # for a condition that must come true

# common/counter_page.h
TEXT, DEVICES = 64, 16
STATS = ("used_bytes", "requested_bytes", "cached_bytes", "pending_bytes", "returning_bytes", "total_bytes", "unused_bytes",
         "peak_used_bytes", "peak_total_bytes", "hits", "misses", "driver_allocs", "driver_frees", "driver_ns")
MEMORY = STATS + ("ooms", "unpooled_bytes", "limit_bytes", "yields", "yielded_bytes", "asleep_bytes")
PEAKS_FORM = struct.Struct("=65Q")
HEADER = struct.Struct(f"=QIIQQQ{TEXT}s{TEXT}s{TEXT}s" + f"{TEXT}s" * 4)
MEMORY_FORM = struct.Struct(f"={len(MEMORY)}Q")
DEVICE_BYTES = 32 + MEMORY_FORM.size
FIGURES_BYTES = 40 + MEMORY_FORM.size + DEVICES * DEVICE_BYTES
FIGURES_AT = HEADER.size + 8 + PEAKS_FORM.size
PAGE_BYTES = FIGURES_AT + 2 * FIGURES_BYTES
MAGIC, VERSION = 0x656761706c6f6f70, 1

TMPFS = 0x01021994


def is_in_memory(path):
    done = subprocess.run(["stat", "-f", "-c", "%t", path], capture_output=True, text=True, check=True)
    return int(done.stdout, 16) == TMPFS


@contextlib.contextmanager
def folder():
    """A socket directory where processes can have a counter page."""
    for parent in (tempfile.gettempdir(), "/dev/shm"):
        if os.access(parent, os.W_OK) and is_in_memory(parent):
            with tempfile.TemporaryDirectory(prefix="gpupool-fleet-", dir=parent) as path:
                yield pathlib.Path(path)
            return
    raise Skip("no file system for counter pages")


def environment(path, **variables):
    return {**os.environ, "GPUPOOL_RUNTIME_DIR": str(path), "TMPDIR": str(path), "XDG_RUNTIME_DIR": "",
            "LD_LIBRARY_PATH": SIM, "SIMGPU_MEMORY": "1G", "GPUPOOL_OOM_FILE": "off", "GPUPOOL_LOG_FILE": "/dev/null",
            **variables}


def start(path, *words, **variables):
    """Starts a guest under the library."""
    return subprocess.Popen([GUEST, *words], env=environment(path, LD_PRELOAD=LIBRARY, **variables), text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def run(path, *words, **variables):
    """Runs a guest to its end. Returns its exit code."""
    guest = start(path, *words, **variables)
    guest.communicate(timeout=LIMIT_S)
    return guest.returncode


def end(guest):
    guest.kill()
    guest.communicate()


def await_true(condition, what, limit_s=LIMIT_S):
    """Waits for a condition that another process makes true."""
    limit = time.monotonic() + limit_s
    while not (value := condition()):
        assert time.monotonic() < limit, what
        time.sleep(0.01)
    return value


def memory_at(data, at):
    return dict(zip(MEMORY, MEMORY_FORM.unpack_from(data, at)))


class Page:
    """The newest figures of a page."""

    def __init__(self, path):
        data = path.read_bytes()
        assert len(data) == PAGE_BYTES, (len(data), PAGE_BYTES)
        magic, version, size, self.pid, self.start, self.started_s, *texts = HEADER.unpack_from(data)
        assert (magic, version, size) == (MAGIC, VERSION, PAGE_BYTES)
        self.texts = [text.split(b"\0")[0].decode() for text in texts]
        self.count, = struct.unpack_from("=Q", data, HEADER.size)
        self.peaks = PEAKS_FORM.unpack_from(data, HEADER.size + 8)
        at = FIGURES_AT + self.count % 2 * FIGURES_BYTES
        self.written_s, self.oom_s, self.oom_bytes, self.oom_device = struct.unpack_from("=QQQQ", data, at)
        self.pinned = memory_at(data, at + 32)
        n_devices, = struct.unpack_from("=Q", data, at + 32 + MEMORY_FORM.size)
        at += 40 + MEMORY_FORM.size
        self.devices = [memory_at(data, at + nth * DEVICE_BYTES + 32) for nth in range(n_devices)]

    @property
    def ooms(self):
        return sum(device["ooms"] for device in self.devices) + self.pinned["ooms"]


def pages(path):
    return sorted(path.glob("*.page"))


def only_page(path):
    found, = pages(path)
    return Page(found)


def make_page(path, pid, start_ticks, ooms=0, hits=0, written_s=None, used_bytes=0, texts=(), is_whole=True):
    """Writes the page of a process that never was."""
    memory = dict.fromkeys(MEMORY, 0)
    memory.update(ooms=ooms, hits=hits, used_bytes=used_bytes, limit_bytes=2 ** 64 - 1)
    texts = [text.encode() for text in texts] or [b"0.1.0", b"split", b"train.py"]
    data = bytearray(PAGE_BYTES)
    HEADER.pack_into(data, 0, MAGIC, VERSION, PAGE_BYTES, pid, start_ticks, 0, *texts, *[b""] * (7 - len(texts)))
    at = FIGURES_AT
    struct.pack_into("=Q", data, at, int(time.time()) if written_s is None else written_s)
    struct.pack_into("=Q", data, at + 32 + MEMORY_FORM.size, 1)
    MEMORY_FORM.pack_into(data, at + 40 + MEMORY_FORM.size + 32, *memory.values())
    file = path / f"{pid}.{start_ticks}.page"
    file.write_bytes(data if is_whole else data[:1000])
    file.chmod(0o600)
    return file
