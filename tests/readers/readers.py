# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Shared by the tests with third-party readers: a fake process to query, gpupool-stat, and a runner of tests."""

import contextlib
import inspect
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import traceback

HOSTILE = 'a"b\\c\nd</script><b>\u202e'  # a name that every format has to escape


class Skip(Exception):
    """Raised by a test that cannot run on this machine; its text is the reason."""


def find(*names):
    """The path of the first of these programs that is installed."""
    for name in names:
        path = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
        if path:
            return path
    raise Skip("no " + " or ".join(names))


def unlisted_tests(functions, tests):
    """The names of functions that look like tests, that is, whose name is a sentence, and that are not in the list."""
    return sorted(name for name, value in functions.items() if inspect.isfunction(value) and value not in tests
                  and re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+){4,}", name) and not inspect.signature(value).parameters)


def main(tests):
    """Runs test functions, and reports them by name as TAP. A test of the program that is not in the list is a failure."""
    failed = False
    for name in unlisted_tests(vars(sys.modules["__main__"]), tests):
        failed = True
        print("# the list of tests lacks %s" % name, flush=True)
    print("1..%d" % len(tests))
    for number, test in enumerate(tests, 1):
        name = "%d - %s" % (number, test.__name__.replace("_", " "))
        try:
            test()
            print("ok %s" % name, flush=True)
        except Skip as why:
            print("ok %s # SKIP %s" % (name, why), flush=True)
        except Exception:
            failed = True
            print("not ok %s" % name)
            for line in traceback.format_exc().splitlines():
                print("# %s" % line, flush=True)
    sys.exit(1 if failed else 0)


COUNTERS = {
    "used_bytes": 805306368, "requested_bytes": 796917760, "cached_bytes": 484442112, "pending_bytes": 2097152,
    "returning_bytes": 0, "total_bytes": 1291845632, "unused_bytes": 486539264, "n_used_blocks": 312,
    "n_cached_blocks": 12, "n_pending_blocks": 1, "unpooled_bytes": 0, "limit_bytes": 8589934592,
    "peak_used_bytes": 943718400, "peak_total_bytes": 1291845632, "hits": 999, "misses": 1, "driver_allocs": 110,
    "driver_frees": 1, "driver_ns": 3210000, "fence_records": 9000, "fence_orders": 300, "fence_queries": 12000,
    "fence_waits": 2, "ooms": 2, "double_frees": 0, "invalid_frees": 1, "release_errors": 0,
    "retries": [{"round": 1, "name": "settle", "count": 3, "gained_bytes": 12582912, "ns": 1200000},
                {"round": 2, "name": "enough", "count": 1, "gained_bytes": 4096, "ns": 9000}],
}

STATUS = {
    "schema": "gpupool.status/2", "version": "0.1.0", "pid": 7, "command": HOSTILE + " --secret=1",
    "uptime_ns": 11520000000000, "pool": "split", "reuse": "ordered", "bypass": None,
    "devices": [{"index": 0, "contexts": 1, "device_total_bytes": 16904998912, "device_free_bytes": 15128363008,
                 "outside_bytes": 484790272, **COUNTERS},
                {"index": 1, "contexts": 1, "device_total_bytes": 16904998912, "device_free_bytes": None,
                 "outside_bytes": None, **COUNTERS}],
    "pinned": COUNTERS,
}

LEAKS = {
    "schema": "gpupool.leaks/1", "pid": 7,
    "stacks": {"is_on": True, "depth": 8, "sample": 1, "since_ns": 60000000000},
    "n_blocks": 7, "bytes": 7340032,
    "sites": [
        {"blocks": 2, "bytes": 2097152, "requested_bytes": 2000000, "oldest_ns": 3000000000, "newest_ns": 1000,
         "allocs": 5, "alloc_bytes": 5242880, "frames": [[0, 4096], [-2, 0], [0, 8192]]},
        {"blocks": 1, "bytes": 1048576, "requested_bytes": 1048576, "oldest_ns": 9000000000, "newest_ns": 1000,
         "allocs": 1, "alloc_bytes": 1048576, "frames": [[1, 64], [-2, 0], [0, 8192]]},
        {"blocks": 3, "bytes": 3145728, "requested_bytes": 3145728, "oldest_ns": None, "newest_ns": None,
         "allocs": 3, "alloc_bytes": 3145728, "frames": [[0, 12288], [0, 8192]]},
    ],
    "without_stack": {"blocks": 1, "bytes": 1048576, "oldest_ns": None},
    "sizes": [{"from_bytes": 1048576, "blocks": 7, "bytes": 7340032}],
    "ages": [{"from_ns": 1000000000, "blocks": 3, "bytes": 3145728}],
    "bad_frees": [],
    "places": [{"function": HOSTILE, "file": "/opt/app/net.py", "line": 12}],
    "objects": [{"path": "/opt/app/solver", "build_id": "00112233445566778899aabbccddeeff00112233", "base": "0x1000"},
                {"path": "/opt/app/lib;" + HOSTILE, "build_id": None, "base": "0x2000"}],
}

OOM = {
    "schema": "gpupool.oom/2", "pid": 7, "n_ooms": 1,
    "last": {"age_ns": 1000000000, "kind": "device", "device": 0, "requested_bytes": 1073741824, "cause": "full",
             "missing_bytes": 1048576, "used_bytes": 512, "limit_bytes": None,
             "rounds": [{"name": "settle", "gained_bytes": 1, "ns": 1200}], "frames": [[0, 4096]], "segments": [],
             "holders": [{"blocks": 1, "bytes": 512, "frames": None}]},
    "objects": LEAKS["objects"],
}

MAP = {
    "schema": "gpupool.map/2", "pid": 7, "truncated": False, "sites": [{"frames": [[0, 4096]]}],
    "objects": LEAKS["objects"],
    "pools": [{"device": 0, "kind": "device", "n_segments": 1, "n_blocks": 4, "largest_cached_bytes": 100663296,
               "largest_unused_bytes": 100663296,
               "segments": [{"address": "0x7f0000000000",
                             "blocks": [[33554432, "cached"], [16777216, "pending"], [67108864, "used", 67000000, 0],
                                        [100663296, "cached"]]}]}],
}

ANSWERS = {answer["schema"].split(".")[1].split("/")[0]: answer for answer in (STATUS, LEAKS, OOM, MAP)}


class Process:
    """A fake of a process under gpupool: this process answers on a control socket in a temporary directory."""

    def __init__(self, answers=None, folder=None):
        self.answers = answers or ANSWERS
        self.folder = None if folder else tempfile.TemporaryDirectory(prefix="gpupool-readers-")
        self.path = pathlib.Path(folder or self.folder.name)
        stat = pathlib.Path("/proc/self/stat").read_text()
        start = stat.rsplit(")", 1)[1].split()[19]
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(self.path / ("%d.%s.sock" % (os.getpid(), start))))
        self.socket.listen()
        # gpupool-stat searches only this directory, so it does not find other processes of the machine.
        self.env = dict(os.environ, GPUPOOL_RUNTIME_DIR=str(self.path), TMPDIR=str(self.path), XDG_RUNTIME_DIR="")
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            with client, contextlib.suppress(OSError):
                words = client.recv(4096).decode().split()
                if words:
                    unknown = {"schema": "gpupool.error/1", "reason": "unknown", "error": "what?"}
                    client.sendall(json.dumps(self.answers.get(words[0], unknown)).encode() + b"\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        if self.folder:
            self.folder.cleanup()


def stat(program, *words, env=None, expected=0):
    """Runs gpupool-stat, and returns its output as bytes."""
    done = subprocess.run([program, *map(str, words)], env=env, capture_output=True, timeout=120, check=False)
    assert done.returncode == expected, (words, done.returncode, done.stderr)
    return done.stdout


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def fold(value):
    return value << 1 if value >= 0 else (-value << 1) - 1


PAGE = 4096  # of the recorded machine; versions without thread caches did not record it


class Recording:
    """A writer of recordings (common/record_format.h). Each record is a microsecond after the previous one."""

    TITLE, TITLE_STACKS, TITLE_PLAIN = (b"gpupool-recording %d\n" % version for version in (1, 2, 3))
    LONG = {"EXIT": 31, "OBJECT": 32, "PLACE": 33, "STACK": 34}
    KINDS = {"PROCESS": (0, "uu"), "THREAD": (1, "u"), "POOL": (2, "u" * 15), "USE": (3, "u"), "ALLOC": (4, "busuuu"),
             "FREE": (5, "buuuu"), "DROP": (13, ""), "UNPOOLED": (15, "uu"), "RESERVE": (19, "gus"), "RELEASE": (20, "gsu"), "LIMIT": (26, "uu"),
             "EXIT": (31, "")}

    def __init__(self, has_stacks=False, is_old=True):
        """is_old: without stacks, as versions wrote that did not record the command."""
        self.bytes = bytearray(self.TITLE_STACKS if has_stacks else self.TITLE if is_old else self.TITLE_PLAIN)
        self.has_long_records = has_stacks or not is_old
        self.last = {"b": 0, "g": 0}
        self.put("PROCESS", 4711, 1700000000)

    def put(self, kind, *fields):
        if self.has_long_records and kind in self.LONG:
            return self.put_long(self.LONG[kind], b"")
        number, letters = self.KINDS[kind]
        out = [number | min(len(fields), 7) << 5]
        body = b"".join(self.encode(letter, value) for letter, value in zip(letters, fields))
        more = varint(len(fields)) if len(fields) >= 7 else b""
        self.bytes += bytes(out) + more + varint(1000) + body
        return self

    def put_long(self, number, body):
        self.bytes += bytes([31]) + varint(number) + varint(1000) + varint(len(body)) + body
        return self

    def object(self, number, path, build_id=b""):
        name = path.encode("utf-8", "surrogateescape")
        return self.put_long(32, varint(number) + varint(len(name)) + name + varint(len(build_id)) + build_id)

    def place(self, number, function, file, line):
        names = b"".join(varint(len(name.encode())) + name.encode() for name in (function, file))
        return self.put_long(33, varint(number) + names + varint(line))

    def stack(self, number, *frames):
        """Defines a stack, the innermost frame first: (number of an object, -1 or -2; address or number of a place)."""
        return self.put_long(34, varint(number) + b"".join(varint(fold(a)) + varint(b) for a, b in frames))

    def encode(self, letter, value):
        if letter == "u":
            return varint(value)
        if letter == "s":
            return varint(fold(value))
        last, self.last[letter] = self.last[letter], value
        return varint(fold(value - last))

    NO_LIMIT = (1 << 64) - 1

    def pool(self, number, device=0, pinned=0, kind=3, limit=NO_LIMIT):
        self.put("POOL", number, device, pinned, kind, 2 << 20, 16 << 30, limit, self.NO_LIMIT, self.NO_LIMIT, 0, 0, 0, 0, 0,
                 PAGE)
        return self.put("USE", number)

    def save(self, path):
        pathlib.Path(path).write_bytes(self.bytes)
        return path
