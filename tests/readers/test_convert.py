# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Usage: test_convert.py GPUPOOL_STAT PROFILE_PROTO TRACES

Reads the output of gpupool-stat convert with Python's own modules, with a walk through a snapshot like that of
PyTorch's viewer, and with protoc, pprof and PyTorch's _memory_viz.py, if they are installed.

A reader that is not installed can be given by a variable: GPUPOOL_TEST_MEMORY_VIZ names PyTorch's _memory_viz.py, which
runs without the rest of PyTorch, and GPUPOOL_TEST_RMM a checkout of RMM, whose replay benchmark has a parser to
compile.
"""

import csv
import gzip
import importlib.util
import json
import os
import pathlib
import pickle
import pickletools
import re
import subprocess
import sys
import tempfile

import readers
from readers import LEAKS, Process, Recording, Skip, find

STAT, PROTO, TRACES = sys.argv[1:4]
MIB = 1 << 20
BASE = 0x7f0000000000
FOLDER = tempfile.TemporaryDirectory(prefix="gpupool-readers-")

# The pickle opcodes that PyTorch's viewer supports.
OPCODES = {"APPEND", "APPENDS", "BINFLOAT", "BINGET", "BININT", "BININT1", "BININT2", "BINPUT", "BINUNICODE", "DICT",
           "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "FRAME", "LIST", "LONG1", "LONG_BINGET", "LONG_BINPUT", "MARK",
           "MEMOIZE", "NEWFALSE", "NEWTRUE", "NONE", "PROTO", "SETITEM", "SETITEMS", "SHORT_BINUNICODE", "STOP",
           "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"}


def path(name):
    return os.path.join(FOLDER.name, name)


def convert(source, to, *words, env=None):
    return readers.stat(STAT, "convert", source, "--to=" + to, *words, env=env)


def make_recording():
    """A recording of two devices, pinned memory, a mapped pool, a refusal, a context that ends, and a live block."""
    r = Recording().pool(0)
    r.put("RESERVE", BASE, 20 * MIB, 0).put("ALLOC", BASE, MIB + 1, 0).put("ALLOC", BASE + 4 * MIB, 2 * MIB, 0)
    r.put("RESERVE", BASE + 64 * MIB, 1 << 40, -12).put("ALLOC", 0, 1 << 40, -12)
    r.put("FREE", BASE, 0, 0).put("THREAD", 3).put("ALLOC", BASE, 512, 0)
    r.pool(1, device=1).put("RESERVE", BASE + 128 * MIB, 2 * MIB, 0).put("ALLOC", BASE + 128 * MIB, 2 * MIB, 0)
    r.pool(2, pinned=1, kind=2).put("RESERVE", 512 * MIB, MIB, 0).put("ALLOC", 512 * MIB, MIB, 0)
    r.pool(3, device=1, kind=4).put("RESERVE", 512 * 7, 2 * MIB, 0).put("ALLOC", BASE + 256 * MIB, MIB, 0)
    r.put("ALLOC", BASE + 258 * MIB, MIB, 0).put("FREE", BASE + 256 * MIB, 0, 0).put("RELEASE", 512 * 7, 0, 0)
    r.put("USE", 1).put("DROP").put("USE", 0)
    r.put("FREE", BASE + 4 * MIB, 0, 0).put("RESERVE", BASE + 64 * MIB, 2 * MIB, 0).put("RELEASE", BASE + 64 * MIB, 0, 0)
    return r.put("EXIT").save(path("made.rec"))


def load_snapshot(data):
    """Unpickles the snapshot, after checking its opcodes."""
    for opcode, value, _ in pickletools.genops(data):
        assert opcode.name in OPCODES, opcode.name
        assert opcode.name != "PROTO" or value == 2
        assert opcode.name != "LONG1" or value.bit_length() < 64
    return pickle.loads(data)


def check_segments(segments):
    for segment in segments:
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at and block["size"] > 0
            assert block["state"] in ("active_allocated", "active_pending_free", "inactive")
            assert 0 <= block["requested_size"] <= block["size"]
            assert block["frames"][0].keys() == {"name", "filename", "line"}
            at += block["size"]
        assert at == segment["address"] + segment["total_size"]
        active = [block for block in segment["blocks"] if block["state"] == "active_allocated"]
        assert segment["allocated_size"] == sum(block["size"] for block in active)
        assert segment["active_size"] == sum(b["size"] for b in segment["blocks"] if b["state"] != "inactive")
        assert segment["requested_size"] == sum(block["requested_size"] for block in active)


def walk_back(snapshot, device):
    """Walks from the last event back, as the viewer does. Before each event every block must be in a segment."""
    segments = {s["address"]: s["total_size"] for s in snapshot["segments"] if s["device"] == device}
    blocks = {b["address"]: b["size"] for s in snapshot["segments"] if s["device"] == device for b in s["blocks"]
              if b["state"] == "active_allocated"}
    freed = None
    for event in reversed(snapshot["device_traces"][device]):
        action, size = event["action"], event["size"]
        if action == "free_completed":
            assert event["addr"] not in blocks
            freed = blocks[event["addr"]] = size
        elif action == "free_requested":
            assert blocks[event["addr"]] == size == freed
        elif action == "alloc":
            assert blocks.pop(event["addr"]) == size
        elif action == "segment_alloc":
            assert segments.pop(event["addr"]) == size
            assert not any(event["addr"] <= block < event["addr"] + size for block in blocks)
        elif action == "segment_free":
            assert event["addr"] not in segments
            segments[event["addr"]] = size
        else:
            assert action == "oom" and event["device_free"] >= 0
        if action.startswith("free"):
            assert any(start <= event["addr"] and event["addr"] + size <= start + length
                       for start, length in segments.items())
    return segments, blocks


def a_snapshot_of_a_recording_can_be_walked_through_by_the_viewer():
    snapshot = load_snapshot(convert(make_recording(), "torch"))
    check_segments(snapshot["segments"])
    assert len(snapshot["device_traces"]) == 2
    for device in (0, 1):
        assert walk_back(snapshot, device) == ({}, {})
    sizes = {(s["device"], s["address"]): s["total_size"] for s in snapshot["segments"]}
    assert sizes == {(0, BASE): 20 * MIB, (1, BASE + 258 * MIB): MIB}, sizes
    oom = [event for event in snapshot["device_traces"][0] if event["action"] == "oom"]
    assert [event["size"] for event in oom] == [1 << 40]
    assert {event["frames"][0]["line"] for event in snapshot["device_traces"][0]} == {0, 3}


def an_event_of_a_snapshot_has_the_stream_of_its_call():
    r = Recording().pool(0)
    r.put("RESERVE", BASE, 20 * MIB, 0).put("ALLOC", BASE, MIB, 0, 0, 0, 29).put("ALLOC", BASE + MIB, MIB, 0)
    r.put("FREE", BASE, 1, 0, 0, 31).put("FREE", BASE + MIB, 1, 0)
    (trace,) = load_snapshot(convert(r.put("EXIT").save(path("streams.rec")), "torch"))["device_traces"]
    streams = [(event["action"], event["addr"] - BASE, event["stream"]) for event in trace]
    assert streams == [("segment_alloc", 0, 0), ("alloc", 0, 29), ("alloc", MIB, 0), ("free_requested", 0, 31),
                       ("free_completed", 0, 31), ("free_requested", MIB, 0), ("free_completed", MIB, 0)], streams


def a_snapshot_limited_to_the_last_events_can_be_walked_through():
    for limit in (1, 5, 1500, 3001):
        snapshot = load_snapshot(convert(TRACES + "/cupy.txt.gz", "torch", "-n", limit))
        check_segments(snapshot["segments"])
        assert limit <= len(snapshot["device_traces"][0]) <= 2 * limit
        walk_back(snapshot, 0)


def the_map_of_a_process_becomes_a_snapshot_with_its_stacks():
    with Process() as process:
        snapshot = load_snapshot(convert(os.getpid(), "torch", env=process.env))
    (segment,) = snapshot["segments"]
    check_segments([segment])
    assert (segment["address"], segment["active_size"] - segment["allocated_size"]) == (BASE, 16 * MIB)
    states = [(block["size"] // MIB, block["state"]) for block in segment["blocks"]]
    assert states == [(32, "inactive"), (16, "active_pending_free"), (64, "active_allocated"), (96, "inactive")]
    assert segment["blocks"][2]["frames"] == [{"name": "solver+0x1000", "filename": "", "line": 0}]
    assert snapshot["device_traces"] == [[]]


def memory_viz():
    """PyTorch's module _memory_viz, without the rest of PyTorch."""
    file = os.environ.get("GPUPOOL_TEST_MEMORY_VIZ")
    if not file:
        torch = importlib.util.find_spec("torch")
        if not torch or not torch.origin:
            raise Skip("no Python module torch, and no GPUPOOL_TEST_MEMORY_VIZ")
        file = os.path.join(os.path.dirname(torch.origin), "cuda/_memory_viz.py")
    spec = importlib.util.spec_from_file_location("_memory_viz", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def snapshots():
    """Yields snapshots, each with the bytes of its segments, and with those of them that the program holds."""
    yield pickle.loads(convert(make_recording(), "torch")), 21 * MIB, MIB + 512
    snapshot = pickle.loads(convert(TRACES + "/cupy.txt.gz", "torch"))
    yield snapshot, *(sum(s[key] for s in snapshot["segments"]) for key in ("total_size", "allocated_size"))
    with Process() as process:
        yield pickle.loads(convert(os.getpid(), "torch", env=process.env)), 208 * MIB, 67000000


def pytorchs_memory_viz_reads_the_snapshots():
    viz = memory_viz()
    for snapshot, reserved, held in snapshots():
        # segsum adds up the blocks, and raises an exception if the sum differs from that of the segments.
        text = viz.segsum(snapshot)
        assert "\ntotal_reserved: %s\n" % viz.Bytes(reserved) in text, (reserved, text)
        assert "\ntotal_allocated: %s\n" % viz.Bytes(held) in text, (held, text)
        trace = viz.trace(snapshot)
        events = [event["action"] for trace in snapshot["device_traces"] for event in trace]
        assert trace.count(" = cudaMalloc(") == events.count("segment_alloc")
        assert trace.count("\nraise OutOfMemoryError") == events.count("oom")
        assert "MEM[" not in trace and "{" not in trace, "an unknown event, or an event outside all segments"
        # Both print the input of flame graphs: a line for each stack, from the root, with its bytes.
        for stacks in (viz.segments, viz.memory):
            lines = stacks(snapshot, lambda text: text).splitlines()
            assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == reserved, lines
        for plot in (viz.trace_plot, viz.segment_plot):
            assert "MemoryViz.js" in plot(snapshot)


def a_chrome_trace_has_a_track_for_each_kind_of_memory_and_its_peaks():
    trace = json.loads(convert(make_recording(), "chrome"))
    events = trace["traceEvents"]
    tracks = {}
    for event in events:
        assert event["pid"] == 4711 and event["ph"] in "MCi"
        if event["ph"] == "C":
            tracks.setdefault(event["name"], []).append(event)
    assert tracks.keys() == {"device 0 memory", "device 1 memory", "pinned memory"}
    for track in tracks.values():
        times = [event["ts"] for event in track]
        assert times == sorted(times)
        assert all(value >= 0 for event in track for value in event["args"].values())
    assert max(event["args"]["used"] for event in tracks["device 0 memory"]) == 3 * MIB + 512
    assert max(sum(event["args"].values()) for event in tracks["device 0 memory"]) == 22 * MIB
    assert max(sum(event["args"].values()) for event in tracks["device 1 memory"]) == 4 * MIB
    (instant,) = [event for event in events if event["ph"] == "i"]
    assert instant["args"] == {"requested_bytes": 1 << 40} and instant["s"] == "p"


def a_long_chrome_trace_is_thinned_out_and_keeps_its_peak():
    peak = live = 0
    sizes = {}
    for action, pointer, size in rmm_rows(TRACES + "/gpt.txt.gz"):
        size = -(-size // 512) * 512
        sizes[pointer] = size if action == "allocate" else 0
        live += size if action == "allocate" else -size
        peak = max(peak, live)
    trace = json.loads(convert(TRACES + "/gpt.txt.gz", "chrome", "-n", 100))
    used = [event["args"]["used"] for event in trace["traceEvents"] if event["ph"] == "C"]
    assert max(used) == peak and len(used) <= 310, (max(used), peak, len(used))


def rmm_rows(source):
    lines = convert(source, "rmm").decode().splitlines()
    rows = list(csv.DictReader(lines))
    assert lines[0] == "Thread,Time,Action,Pointer,Size,Stream" and len(rows) == len(lines) - 1
    for row in rows:
        assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{6}", row["Time"]) and int(row["Thread"]) >= 0
        assert int(row["Stream"]) == 0 and row["Action"] in ("allocate", "free", "allocate failure")
        yield row["Action"], 0 if row["Pointer"] == "(nil)" else int(row["Pointer"], 16), int(row["Size"])


def each_free_in_an_rmm_log_has_the_size_of_its_allocation():
    for source in (make_recording(), TRACES + "/cupy.txt.gz"):
        live = {}
        for action, pointer, size in rmm_rows(source):
            if action == "allocate":
                assert pointer and pointer not in live
                live[pointer] = size
            elif action == "free":
                assert live.pop(pointer) == size
            else:
                assert not pointer and size == 1 << 40
    assert 512 * MIB not in {pointer for _, pointer, _ in rmm_rows(make_recording())}


RMM_PROGRAM = """
#include <algorithm>
#include <iostream>
#include "log_parser.hpp"

int main(int argc, char **argv)
{
	for (auto const &event : rmm::detail::parse_csv(argv[1]))
		std::cout << int(event.act) << ' ' << event.pointer << ' ' << event.size << ' ' << event.thread_id << '\\n';
}
"""

# The only macro of the library that the parser uses.
RMM_ERROR = "#pragma once\n#define RMM_EXPECTS(condition, what) ((condition) ? (void)0 : throw std::logic_error(what))\n"


def rmms_parser_reads_the_log():
    checkout = os.environ.get("GPUPOOL_TEST_RMM")
    if not checkout:
        raise Skip("no GPUPOOL_TEST_RMM")
    compiler, program, log = find("c++", "g++", "clang++"), path("parse"), path("log.csv")
    os.makedirs(path("rmm/detail"))
    pathlib.Path(path("rmm/detail/error.hpp")).write_text(RMM_ERROR)
    pathlib.Path(path("parse.cpp")).write_text(RMM_PROGRAM)
    subprocess.run([compiler, "-std=c++20", "-I" + FOLDER.name, "-I" + checkout + "/cpp/benchmarks/utilities", "-o", program,
                    path("parse.cpp")], check=True)
    for source in (make_recording(), TRACES + "/cupy.txt.gz"):
        pathlib.Path(log).write_bytes(convert(source, "rmm"))
        lines = subprocess.run([program, log], capture_output=True, check=True).stdout.decode().splitlines()
        acts = ["allocate", "free", "allocate failure"]
        found = [(acts[int(act)], int(pointer), int(size)) for act, pointer, size, _ in map(str.split, lines)]
        assert found == list(rmm_rows(source)), found[:10]


def saved_leaks():
    file = path("leaks.json")
    pathlib.Path(file).write_text(json.dumps(LEAKS))
    return file


def folded_stacks_begin_at_the_root_and_add_up():
    text = convert(saved_leaks(), "folded").decode()
    rows = [re.fullmatch(r"(.+) (\d+)", line).groups() for line in text.splitlines()]
    assert sum(int(number) for _, number in rows) == LEAKS["bytes"]
    assert rows[0][0].split(";")[::2] == ["solver+0x2000", "solver+0x1000"], rows[0]
    assert len(rows) == 4 and rows[3] == ("(no stack)", str(MIB))
    with Process() as process:
        assert convert(os.getpid(), "folded", env=process.env).decode() == text


def pprof_file():
    file = path("heap.pb.gz")
    done = subprocess.run([STAT, "convert", saved_leaks(), "--to=pprof", "-o", file], capture_output=True, check=False)
    if b"without pprof" in done.stderr:
        raise Skip("built without protobuf-c")
    assert done.returncode == 0 and not done.stdout, done.stderr
    return file


def decode_profile(path_of_profile):
    protoc = find("protoc")
    folder, name = os.path.split(PROTO)
    with gzip.open(path_of_profile) as file:
        done = subprocess.run([protoc, "--proto_path=" + folder, "--decode=perftools.profiles.Profile", name],
                              input=file.read(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def protoc_decodes_the_profile():
    text = decode_profile(pprof_file())
    assert not re.search(r"^\s*\d+:", text, re.M), "an unknown field"
    assert text.count("sample {") == 4 and text.count("sample_type {") == 4
    for word in ('string_table: ""', '"inuse_space"', '"bytes"', '"net.py"'):
        assert word in text, word


def pprof_shows_the_profile():
    file = pprof_file()
    try:
        words = [find("pprof")]
    except Skip:
        words = [find("go"), "tool", "pprof"]
    env = dict(os.environ, PPROF_TMPDIR=FOLDER.name, HOME=FOLDER.name)
    done = subprocess.run([*words, "-symbolize=none", "-top", "-sample_index=inuse_space", "-unit=B", file], env=env,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"%d" % LEAKS["bytes"] in done.stdout and b"solver+0x1000" in done.stdout, done.stdout


def make_stacks():
    """A recording with two stacks, a block without a stack, and two devices. Its peak is neither its end nor its last."""
    r = Recording(True).pool(0)
    r.object(1, "/opt/app/solver", bytes(range(20))).object(2, "/opt/app/lib;" + readers.HOSTILE)
    r.place(9, "Net.forward;" + readers.HOSTILE, "/src/net.py", 12)
    r.stack(4, (1, 0x1000), (-2, 9), (1, 0x2000)).stack(7, (2, 0x40), (-1, 0x7fff))
    r.put("RESERVE", BASE, 64 * MIB, 0)
    r.put("ALLOC", BASE, 4 * MIB, 0, 0, 4).put("ALLOC", BASE + 8 * MIB, 2 * MIB, 0, 0, 7)
    r.put("ALLOC", BASE + 12 * MIB, MIB + 1, 0).put("ALLOC", BASE + 16 * MIB, 3 * MIB, 0, 0, 4)
    r.put("FREE", BASE, 0, 0).put("ALLOC", BASE, MIB, 0, 0, 7)
    r.pool(1, device=1).put("RESERVE", BASE + (1 << 30), 2 * MIB, 0).put("ALLOC", BASE + (1 << 30), MIB, 0, 0, 7)
    r.pool(2, pinned=1, kind=2).put("RESERVE", 512 * MIB, MIB, 0).put("ALLOC", 512 * MIB, MIB, 0, 0, 4)
    return r.put("EXIT").save(path("stacks.rec"))


def folded_bytes(*words):
    """The bytes of each stack by the name of its innermost frame."""
    lines = convert(make_stacks(), "folded", *words).decode().splitlines()
    return {line.rsplit(";", 1)[-1].rsplit(" ", 1)[0].split("+")[0]: int(line.rsplit(" ", 1)[1]) for line in lines}


def a_recording_with_stacks_shows_the_holders_of_memory_at_a_moment():
    solver, none = "solver", "(no stack)"
    peak = {solver: 7 * MIB, "0x7fff": 2 * MIB, none: MIB + 512}
    text = convert(make_stacks(), "folded").decode()
    assert [line.rsplit(" ", 1)[1] for line in text.splitlines()] == [str(n) for n in (7 * MIB, 2 * MIB, MIB + 512)]
    assert text.startswith("solver+0x2000;Net.forward:a"), text
    assert sum(folded_bytes().values()) == sum(peak.values()) == sum(folded_bytes("--at=peak").values())
    end = folded_bytes("--at=end")
    assert (end[solver], end[none], sum(end.values())) == (3 * MIB, MIB + 512, 8 * MIB + 512), end
    assert sum(folded_bytes("--device=1").values()) == MIB and list(folded_bytes("--pinned")) == [solver]
    assert folded_bytes("--at=0") == {} == folded_bytes("--device=63")
    assert folded_bytes("--at=1000") == end and sum(folded_bytes("--at=0.000011").values()) == 6 * MIB


def a_profile_of_a_recording_has_the_peak_and_the_allocations_before_it():
    file = path("recorded.pb.gz")
    done = subprocess.run([STAT, "convert", make_stacks(), "--to=pprof", "-o", file], capture_output=True, check=False)
    if b"without pprof" in done.stderr:
        raise Skip("built without protobuf-c")
    assert done.returncode == 0, done.stderr
    samples = re.findall(r"value: (\d+)\n  value: (\d+)\n  value: (\d+)\n  value: (\d+)\n", decode_profile(file))
    # Objects and bytes that were allocated, objects and bytes that are held.
    assert [tuple(map(int, sample)) for sample in samples] == [
        (2, 7 * MIB, 2, 7 * MIB), (1, 2 * MIB, 1, 2 * MIB), (1, MIB + 512, 1, MIB + 512)], samples


def a_moment_that_cannot_be_shown_is_refused():
    file, leaks = make_stacks(), saved_leaks()
    for expected, words in ((2, (file, "--to=folded", "--at=never")), (2, (file, "--to=folded", "--at=-1")),
                            (2, (file, "--to=folded", "--device=64")), (2, (file, "--to=folded", "--device=0", "--pinned")),
                            (2, (file, "--to=chrome", "--at=end")), (2, (leaks, "--to=folded", "--at=end")),
                            (1, (make_recording(), "--to=folded", "--at=end")), (1, (TRACES + "/cupy.txt.gz", "--to=folded"))):
        done = subprocess.run([STAT, "convert", *words], capture_output=True, check=False)
        assert done.returncode == expected and done.stderr and not done.stdout, (words, done)
    assert b"gpupool-run --record=FILE --stacks" in done.stderr, done.stderr


def a_stack_that_is_not_defined_counts_as_no_stack():
    r = Recording(True).pool(0).stack(2, (-1, 0x10)).put("ALLOC", BASE, MIB, 0, 0, 1).put("ALLOC", BASE + MIB, MIB, 0, 0, 3)
    r.put("ALLOC", BASE + 2 * MIB, MIB, 0, 0, 1 << 40).stack(1, (-1, 0x20)).put("FREE", BASE, 0, 0)
    file = r.put("ALLOC", BASE, MIB, 0, 0, 2).save(path("undefined.rec"))
    assert convert(file, "folded", "--at=end").decode() == f"0x10 {MIB}\n(no stack) {2 * MIB}\n"


def unsuitable_inputs_and_formats_are_refused():
    recording, leaks, missing = make_recording(), saved_leaks(), path("none/x")
    for expected, words in ((2, (recording,)), (2, (recording, "--to=xml")), (1, (recording, "--to=pprof")),
                            (1, (recording, "--to=folded")), (1, (leaks, "--to=rmm")), (1, (leaks, "--to=torch")),
                            (1, (leaks, "--to=folded", "-o", missing)), (1, (missing, "--to=rmm")),
                            (3, ("999999999", "--to=folded")), (2, ("--to=rmm",)), (2, (leaks, "--to=rmm", "--json"))):
        done = subprocess.run([STAT, "convert", *words], capture_output=True, check=False)
        assert done.returncode == expected and done.stderr and not done.stdout, (words, done)


def an_output_path_equal_to_the_input_is_refused():
    link = path("link.rec")
    for words in (("convert", "--to=rmm"), ("convert", "--to=torch"), ("report",)):
        file = make_recording()
        before = pathlib.Path(file).read_bytes()
        pathlib.Path(link).unlink(missing_ok=True)
        os.link(file, link)
        for out in (file, link):
            readers.stat(STAT, *words, file, "-o", out, expected=1)
            assert pathlib.Path(file).read_bytes() == before, (words, out)


def recordings_and_saved_answers_can_be_read_from_a_pipe():
    recording = make_recording()
    for file, words in ((recording, ("convert", "--to=rmm")), (recording, ("replay", "--json")),
                        (TRACES + "/cupy.txt.gz", ("convert", "--to=chrome")),
                        (saved_leaks(), ("convert", "--to=folded"))):
        expected = readers.stat(STAT, *words, file)
        for name in ("-", "/dev/stdin"):
            done = subprocess.run([STAT, *words, name], input=pathlib.Path(file).read_bytes(), capture_output=True,
                                  check=False)
            assert done.returncode == 0 and done.stdout == expected, (words, name, done.stderr)
        with open(file, "rb") as plain:
            done = subprocess.run([STAT, *words, "-"], stdin=plain, capture_output=True, check=False)
            assert done.stdout == expected, (words, done.stderr)


def a_damaged_recording_is_read_up_to_the_damage():
    head = Recording().pool(0).put("RESERVE", BASE, 20 * MIB, 0).put("ALLOC", BASE, 2 * MIB, 0)
    head.put("FREE", BASE, 0, 0).put("ALLOC", BASE, MIB, 0)
    whole, at = head.save(path("head.rec")), len(head.bytes)
    head.bytes += b"\xff\x7f\x01"
    damaged, out = head.put("ALLOC", BASE + 4 * MIB, MIB, 0).save(path("damaged.rec")), path("damaged.out")
    message = f"gpupool-stat: {damaged}: it is damaged at byte {at}; the part before that was read.\n"
    for words in (("replay",), ("replay", "--json"), ("convert", "--to=rmm"), ("convert", "--to=chrome"),
                  ("convert", "--to=torch"), ("report",)):
        done = subprocess.run([STAT, *words, damaged], capture_output=True, check=False)
        assert done.returncode == 1 and done.stderr.decode().startswith(message), (words, done.stderr)
        assert b"Next: " in done.stderr, done.stderr
        if words[0] == "convert":
            assert done.stdout == readers.stat(STAT, *words, whole), words
            readers.stat(STAT, *words, damaged, "-o", out, expected=1)
            assert pathlib.Path(out).read_bytes() == done.stdout, words
        elif words[0] == "report":
            note = f"The recording is incomplete: it is damaged at byte {at}. The report shows all"
            assert note.encode() in done.stdout and b"</html>" in done.stdout
    answer = json.loads(readers.stat(STAT, "replay", "--json", damaged, expected=1))
    assert (answer["n_allocs"], answer["n_frees"], answer["has_end"], answer["is_damaged"]) == (2, 1, False, True)
    assert {run["device"]["used_bytes"] for run in answer["runs"]} == {MIB}
    assert not json.loads(readers.stat(STAT, "replay", "--json", whole))["is_damaged"]


def a_failed_write_leaves_no_file_behind():
    damaged, out = path("damaged.rec"), path("nothing.out")
    pathlib.Path(damaged).write_bytes(pathlib.Path(make_recording()).read_bytes()[:20] + b"\xff" * 12)
    for to in ("torch", "chrome", "rmm"):
        readers.stat(STAT, "convert", damaged, "--to=" + to, "-o", out, expected=1)
        assert not os.path.exists(out)
    readers.stat(STAT, "convert", make_recording(), "--to=rmm", "-o", "/dev/full", expected=1)


def the_size_of_the_written_file_is_printed():
    recording, out = make_recording(), path("written.out")
    for words in (("convert", "--to=rmm"), ("report",)):
        done = subprocess.run([STAT, *words, recording, "-o", out], capture_output=True, text=True, check=True)
        size = os.path.getsize(out)
        unit = "KiB" if size >= 1024 else "B"
        assert re.fullmatch(rf"gpupool-stat: wrote {re.escape(out)}, [0-9.]+ {unit}\.\n", done.stderr), done.stderr
        assert not done.stdout
        done = subprocess.run([STAT, *words, recording, "-o", "/dev/null"], capture_output=True, text=True, check=True)
        assert done.stderr == "gpupool-stat: wrote /dev/null.\n", done.stderr
        done = subprocess.run([STAT, *words, recording], capture_output=True, check=True)
        assert not done.stderr, done.stderr


readers.main([
    a_snapshot_of_a_recording_can_be_walked_through_by_the_viewer,
    an_event_of_a_snapshot_has_the_stream_of_its_call,
    a_snapshot_limited_to_the_last_events_can_be_walked_through,
    the_map_of_a_process_becomes_a_snapshot_with_its_stacks,
    pytorchs_memory_viz_reads_the_snapshots,
    a_chrome_trace_has_a_track_for_each_kind_of_memory_and_its_peaks,
    a_long_chrome_trace_is_thinned_out_and_keeps_its_peak,
    each_free_in_an_rmm_log_has_the_size_of_its_allocation,
    rmms_parser_reads_the_log,
    folded_stacks_begin_at_the_root_and_add_up,
    a_recording_with_stacks_shows_the_holders_of_memory_at_a_moment,
    a_profile_of_a_recording_has_the_peak_and_the_allocations_before_it,
    a_moment_that_cannot_be_shown_is_refused,
    a_stack_that_is_not_defined_counts_as_no_stack,
    protoc_decodes_the_profile,
    pprof_shows_the_profile,
    unsuitable_inputs_and_formats_are_refused,
    an_output_path_equal_to_the_input_is_refused,
    recordings_and_saved_answers_can_be_read_from_a_pipe,
    a_damaged_recording_is_read_up_to_the_damage,
    a_failed_write_leaves_no_file_behind,
    the_size_of_the_written_file_is_printed,
])
