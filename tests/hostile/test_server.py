# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""A process whose control socket answers wrongly in every way. Each command of gpupool-stat that asks processes is
tried with each way to answer. It must end with a documented exit code, in bounded memory, and with bounded text that
does not control a terminal. Without --all every fourth pair of a command and a way is tried.

Usage: test_server.py GPUPOOL-STAT SANITIZER [--all]
"""

import contextlib
import json
import os
import pathlib
import socket
import sys
import tempfile
import threading
import unittest

import hostile
from hostile import MIB

STAT = hostile.stat_from_arguments()
IS_ALL = "--all" in sys.argv and not sys.argv.remove("--all")
ANSWER_MAX = MIB  # the most that gpupool-stat reads of most answers
MEMORY = 512 * MIB
PRINTED_BASE, PRINTED_FACTOR = 64 << 10, 4  # bytes in any case, and per byte of an answer

COMMANDS = (
    ("status",), ("status", "--json"), ("list",), ("list", "--by=job"), ("list", "--by=pod", "--json"), ("list", "--query=pid,user,command,pool,labels", "--format=csv"),
    ("metrics",), ("check",), ("blocks",), ("map",), ("leaks",), ("oom",), ("debug",), ("config",), ("region",),
    ("limit",),
)

# Characters that control a terminal, turn text around, end lines, or have a meaning in CSV, HTML or JSON.
CONTROL_TEXT = ("\x1b]0;title\x07\x1b[31mred\x1b[0m \x9b31m \x85 \x7f \u061c\u200e\u202eback\u2066 \u2028 "
            "<script>alert(1)</script> \"quoted\" \\ ,comma,\n newline \r return =cmd|' /C calc'!A0 {a=\"b\"} "
            "\U000e0041 ]]>")


def line(answer):
    return (answer if isinstance(answer, bytes) else json.dumps(answer).encode()) + b"\n"


def answer_of(schema, **members):
    return {"schema": f"gpupool.{schema}/1", **members}


def device(**members):
    return {"index": 0, "uuid": "GPU-0", "used_bytes": 1, "cached_bytes": 2, "pending_bytes": 3, "total_bytes": 6,
            "unused_bytes": 1, **members}


def padded(schema, filler):
    """Returns an answer just below the size that gpupool-stat reads at most, filled with small values."""
    head = json.dumps(answer_of(schema, x=1))[:-1].encode() + b',"y":['
    return head + filler * ((ANSWER_MAX - 1000) // len(filler)) + filler.rstrip(b",") + b"]}"


NUMBERS = (-1, -2**63, 2**63 - 1, 1e300, -1e300, 0.5, True, None, "0", "9" * 40, [], {}, [[]])


def wrong_types(schema):
    names = ("command", "pool", "devices", "pinned", "uptime_ns", "blocks", "sites", "pools", "settings", "regions",
             "segments", "last", "stacks", "objects", "places", "reports", "n_blocks", "bytes", "is_on", "check")
    values = (5, "x", None, True, [], {}, [1, None, "x", {}, []])
    return [answer_of(schema, **dict.fromkeys(names, value)) for value in values]


def unusual_numbers(schema):
    def each(*names, **members):
        return [{**dict.fromkeys(names, value), **members} for value in NUMBERS]

    segments = [{"address": value, "blocks": [[value, "used", value, value], [512, "cached"], [value]]}
                for value in NUMBERS]
    return answer_of(
        schema, pid=-1, uptime_ns=2**63 - 1, pinned=device(total_bytes=-1), n_blocks=2**63 - 1, bytes=-1, is_on=True,
        n_ooms=-1, stacks={"is_on": True, "depth": -1, "sample": 0, "since_ns": -1},
        devices=each("index", "used_bytes", "cached_bytes", "total_bytes", "device_total_bytes", "limit_bytes"),
        blocks=each("size_bytes", "requested_bytes", "device", "serial", address="0x7f00"),
        sites=[{"blocks": value, "bytes": value, "oldest_ns": value, "frames": [[value, value], [value]]}
               for value in NUMBERS],
        pools=each("device", "n_segments", "largest_unused_bytes", kind="device", segments=segments),
        regions=each("device", "used_bytes", "hits", name="r"),
        last={"requested_bytes": -1, "rounds": each("ns", "gained_bytes", name="x")})


def control_texts(schema):
    def texts(*names, **members):
        return {**dict.fromkeys(names, CONTROL_TEXT), **members}

    return answer_of(
        schema, uptime_ns=1, n_blocks=1, bytes=1, n_ooms=1, is_on=True, pinned={"used_bytes": 1},
        stacks={"is_on": True, "depth": 8, "sample": 1, "since_ns": 1},
        **texts("version", "command", "pool", "reuse", "bypass"),
        devices=[device(uuid=CONTROL_TEXT, retries=[texts("name", count=1, ns=1, gained_bytes=1)],
                        by_region=[texts("name", used_bytes=1)])],
        blocks=[texts("address", "kind", "region", "caller", size_bytes=512, requested_bytes=5, device=0, serial=1)],
        sites=[{"blocks": 1, "bytes": 1, "oldest_ns": 1, "frames": [[0, 1], [-2, 0]]}],
        objects=[texts("path", "build_id", "base")], places=[texts("function", "file", line=1)],
        settings=[texts("name", "value", "source")], regions=[texts("name", device=0, used_bytes=1)],
        pools=[texts("kind", device=0, n_segments=1, segments=[texts("address", blocks=[[512, CONTROL_TEXT]])])],
        last=texts("cause", "kind", requested_bytes=1, rounds=[texts("name")], frames=[[0, 1]]),
        frameworks=[texts("name", "library", "switch", own_pool=True)],
        **{"async": {"on": True, "left": [texts("name", count=1)]}},
        reports=[texts("what", "seen", "block", "kind", "bytes", times=1)])


# Each function returns the bytes that a process sends in answer to a command.
ANSWERS = {
    "no answer before the connection ends": lambda schema: b"",
    "half of an answer": lambda schema: line(answer_of(schema, x=1))[:-5],
    "an empty line": lambda schema: b"\n",
    "bytes that are not text": lambda schema: bytes(range(128, 256)) * 4 + b"\n",
    "bytes that control a terminal": lambda schema: b"\x1b[31m\x9b31m not JSON\n",
    "a NUL": lambda schema: b'{"schema":"gpupool.%s/1","command":"a\\u0000b\x1b\x00"}\n' % schema.encode(),
    "numbers out of range": lambda schema: b'{"schema":"gpupool.%s/1","n":1%s}\n' % (schema.encode(), b"0" * 400),
    "duplicate members": lambda schema: b'{"schema":"gpupool.%s/1","pid":1,"pid":2}\n' % schema.encode(),
    "arrays in arrays": lambda schema: b'{"schema":"gpupool.%s/1","x":%s\n' % (schema.encode(), b"[" * 100000),
    "a million arrays": lambda schema: line(padded(schema, b"[],")),
    "a million objects": lambda schema: line(padded(schema, b"{},")),
    "a long text": lambda schema: line(answer_of(schema, command="A" * (ANSWER_MAX // 2), pool="B" * 1000)),
    "more bytes than are read": lambda schema: b"[" * (9 * ANSWER_MAX),
    "an array": lambda schema: b"[]\n",
    "a schema of another version": lambda schema: line({"schema": f"gpupool.{schema}/7"}),
    "a schema that controls a terminal": lambda schema: line({"schema": "gpupool.\x1b[31mx/1"}),
    "an error that controls a terminal": lambda schema: line(answer_of("error", reason="usage", error=CONTROL_TEXT)),
    "an error of wrong types": lambda schema: line(answer_of("error", reason=[], error={})),
    "texts that control a terminal": lambda schema: line(control_texts(schema)),
    "unusual numbers": lambda schema: line(unusual_numbers(schema)),
    **{f"wrong types {nth}": lambda schema, nth=nth: line(wrong_types(schema)[nth]) for nth in range(7)},
}

# Ways to answer in which the answer never ends.
STALLS = ("silence", "a byte at a time", "an endless answer")

OK, FAILED, USAGE, NO_ANSWER, OTHER_VERSION = 0, 1, 2, 5, 6
CHECK_UNKNOWN = 3

# The exit codes to which a way to answer may lead. A way that is not listed leads to FAILED.
CODES = {
    "a million arrays": {OK, FAILED},  # all values are read, or there are too many
    "a million objects": {OK, FAILED},
    "a long text": {OK},
    "texts that control a terminal": {OK},
    "unusual numbers": {OK},
    **{f"wrong types {nth}": {OK} for nth in range(7)},
    "a schema of another version": {OTHER_VERSION},
    "an error that controls a terminal": {USAGE},
    "silence": {NO_ANSWER},
    "a byte at a time": {NO_ANSWER},
    "an endless answer": {FAILED, NO_ANSWER},
}


def codes_of(command, way):
    """
    The expected exit code. check and metrics have other codes than the rest for a process with a malformed answer.
    """
    codes = CODES.get(way, {FAILED})
    if command[0] == "metrics":
        return {OK}
    if command[0] == "check":
        return {OK if code == OK else CHECK_UNKNOWN for code in codes}
    return codes


class Server:
    """Makes this process listen at a control socket in a separate directory, and answer in one way."""

    def __init__(self, way):
        self.way = way
        self.folder = tempfile.TemporaryDirectory(prefix="gpupool-hostile-")
        start = pathlib.Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19]
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(f"{self.folder.name}/{os.getpid()}.{start}.sock")
        self.socket.listen()
        # Keep the tool away from the directories in which other processes of the machine may have sockets.
        self.env = dict(os.environ, GPUPOOL_RUNTIME_DIR=self.folder.name, TMPDIR=self.folder.name, XDG_RUNTIME_DIR="")
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            with client, contextlib.suppress(OSError):
                words = client.recv(4096).split()
                self.answer(client, words[0].decode() if words else "status")

    def answer(self, client, schema):
        if self.way == "silence":
            client.recv(1)  # until the other side has closed
        elif self.way == "a byte at a time":
            client.settimeout(0.01)
            while True:
                client.sendall(b" ")
                with contextlib.suppress(TimeoutError):
                    if not client.recv(1):
                        return
        elif self.way == "an endless answer":
            while True:
                client.sendall(b"[" * 65536)
        else:
            client.sendall(ANSWERS[self.way](schema))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join()
        self.folder.cleanup()


def chosen_commands(nth_way):
    return [command for nth, command in enumerate(COMMANDS) if IS_ALL or (nth + nth_way) % 4 == 0]


class HostileServer(unittest.TestCase):
    def check(self, server, command, way):
        seconds = "0.1" if way in STALLS else "60"
        code, out, err = STAT.run(*command, f"--timeout={seconds}", env=server.env, memory=MEMORY)
        self.assertIn(code, codes_of(command, way), err)
        self.assertEqual(hostile.control_characters(out) + hostile.control_characters(err), [])
        n_answer_bytes = len(ANSWERS[way](command[0])) if way in ANSWERS else ANSWER_MAX
        self.assertLessEqual(len(out) + len(err), PRINTED_BASE + PRINTED_FACTOR * n_answer_bytes)
        if "--json" in command and out:
            self.assertIsInstance(json.loads(out), dict)

    def test_commands_survive_every_answer_of_a_hostile_process(self):
        for nth, way in enumerate((*ANSWERS, *STALLS)):
            with Server(way) as server:
                for command in chosen_commands(nth):
                    with self.subTest(way=way, command=" ".join(command)):
                        self.check(server, command, way)

    def test_each_command_is_tried_with_an_answer_that_it_shows(self):
        shown = {command for nth, way in enumerate(ANSWERS) if CODES.get(way) == {OK}
                 for command in chosen_commands(nth)}
        self.assertEqual(shown, set(COMMANDS))


if __name__ == "__main__":
    unittest.main()
