# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""Measurements other than pairs of malloc and free: a process without CUDA, watching, recordings, and driver calls."""

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import tempfile
import threading

import player
import programs
from figures import figure, paired_ratios

WATCH_S = 0.01

# Counters of a status answer, by the names of stub_driver.h.
CALLS = {
    "memory": ("driver_allocs", "driver_frees"),
    "fence": ("fence_queries", "fence_orders", "fence_waits"),
    "record": ("fence_records",),
}


def output_of(words, **more):
    """Runs a program and returns its output. Raises Trouble with the last line of its output if it fails."""
    words = [str(word) for word in words]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, **more)
    except (subprocess.SubprocessError, OSError) as error:
        raise programs.Trouble(str(error)) from None
    if done.returncode:
        messages = done.stderr.splitlines() or [f"{words[0]} ended with {done.returncode}"]
        raise programs.Trouble(messages[-1])
    return done.stdout


def startup(book, folder, library, rounds):
    """Additional time from start to end, threads and files of a process without CUDA under the preload."""
    lines = programs.parse_lines(output_of([folder / "startup", library, rounds, folder / "nothing"]))
    found = [{key: float(value) for key, value in pairs.items()} for _, pairs in lines]
    for key, name in [("us", "wall"), ("cpu_us", "processor")]:
        more = figure([pairs[f"preload_{key}"] - pairs[f"raw_{key}"] for pairs in found])
        book.value(f"preload without CUDA: {name} time", more.median, "us", low=more.low, high=more.high)
    counts = {}
    for name, lib in [("raw", None), ("preload", library)]:
        with programs.private_dir() as directory:
            env = programs.Config(name, lib).environment(directory, {})
            (_, counts[name]), = programs.parse_lines(output_of([folder / "nothing", "count"], env=env))
            counts[name]["made"] = len(list(pathlib.Path(directory).iterdir()))
    for key in ("threads", "files", "made"):
        what = {"threads": "threads", "files": "open files", "made": "files made"}[key]
        book.value(f"preload without CUDA: {what}", int(counts["preload"][key]) - int(counts["raw"][key]))


def first_calls(book, peers, rounds, group="first calls of a process"):
    """Times of the first calls of a process: a row for each call, a new process for each figure, all peers in turn."""
    for nth in range(rounds):
        for peer in peers:
            with programs.private_dir() as directory:
                env = programs.Config(peer.name, peer.preload, peer.variables).environment(directory, peer.variables)
                try:
                    lines = list(programs.parse_lines(output_of(peer.words, env=env)))
                except programs.Trouble as trouble:
                    book.miss(group, "", peer.name, str(trouble))
                    continue
            for what, pairs in lines:
                cell = player.Cell(what.replace("-", " "), {})
                book.sample(group, cell, peer.name, nth, {"ns": float(pairs["ns"])})


def start_of_neighbour(book, what, loop, start, rounds):
    """The time in which a process gets its context while another one runs the loop; loop is None: while it is alone."""
    found = []
    with contextlib.ExitStack() as stack:
        if loop:
            env = programs.Config(loop.name, loop.preload, loop.variables).environment(
                stack.enter_context(programs.private_dir()), loop.variables)
            words = [str(word) for word in loop.words]
            running = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            stack.callback(running.wait)
            stack.callback(running.kill)
            if not running.stdout.readline():
                raise programs.Trouble(f"{what}: the other process has ended")
            threading.Thread(target=running.stdout.read, daemon=True).start()
        for _ in range(rounds):
            with programs.private_dir() as directory:
                env = programs.Config(start.name, start.preload, start.variables).environment(directory, start.variables)
                ((_, pairs),) = programs.parse_lines(output_of(start.words, env=env))
            found.append(float(pairs["ns"]) / 1e6)
        if loop and running.poll() is not None:
            raise programs.Trouble(f"{what}: the other process has ended with {running.returncode}")
    middle = figure(found)
    book.value(what, middle.median, "ms", low=middle.low, high=middle.high)


class Watch:
    """Watches a process with gpupool-stat --watch. If that was not built, requests the status at the same rate."""

    def __init__(self, stat, running):
        self.running, self.process, self.is_over = running, None, threading.Event()
        self.words = [stat, "status", "--json", "--watch", str(WATCH_S), str(running.process.pid)] if stat else None
        self.thread = threading.Thread(target=self._request_status)

    @property
    def description(self):
        return f"gpupool-stat --watch {WATCH_S}" if self.words else f"a status request every {WATCH_S} s"

    def _request_status(self):
        while not self.is_over.wait(WATCH_S):
            self.running.status()

    def __enter__(self):
        if self.words:
            config = programs.Config("stat", None, {})
            env = {**config.environment("", {}), "GPUPOOL_RUNTIME_DIR": self.running.directory}
            words = [str(word) for word in self.words]
            self.process = subprocess.Popen(words, stdout=subprocess.PIPE, env=env)
            self.process.stdout.readline()
            threading.Thread(target=self.process.stdout.read, daemon=True).start()
        else:
            self.thread.start()

    def __exit__(self, *_):
        if self.process:
            alive = self.process.poll() is None
            self.process.kill()
            self.process.wait()
            if not alive:
                raise programs.Trouble(f"{self.description} has ended with {self.process.returncode}")
        else:
            self.is_over.set()
            self.thread.join()


def watch(book, peer, stat, log, rounds, ms, key):
    """Time of a pair in a busy process while it is watched, over the time without watching, measured in turn."""
    cell = player.Cell("window", {"pattern": "window", "bytes": 65536, "live": 32})
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(programs.private_dir())
        busy = player.start(peer, directory, log)
        stack.callback(busy.close)
        player.turn(busy, cell, ms)
        with_watch, without = {}, {}
        for nth in range(rounds):
            without[nth] = player.turn(busy, cell, ms)[key]
            watching = Watch(stat, busy)
            with watching:
                with_watch[nth] = player.turn(busy, cell, ms)[key]
    found = figure(paired_ratios(with_watch, without))
    book.value("watched every 10 ms: time of a pair", found.median, "of the time unwatched", low=found.low,
               high=found.high, how=watching.description)


def watched(peer, stat, name):
    """The same peer, watched during each of its turns but the first, before which it has no control socket."""
    def around(running):
        return Watch(stat, running) if running.status() else contextlib.nullcontext()
    return dataclasses.replace(peer, name=name, around=around)


@contextlib.contextmanager
def recording(peer, name=None):
    """The same peer with GPUPOOL_RECORD; the recordings are deleted at the end."""
    with tempfile.TemporaryDirectory() as folder:
        variables = {**peer.variables, "GPUPOOL_RECORD": f"{folder}/%p"}
        yield dataclasses.replace(peer, name=name or f"{peer.name}, recording", variables=variables)


def recording_growth(book, peer, cells, log, ms):
    """Size of a recording, all records included, over the number of allocations and frees."""
    for cell in cells:
        with contextlib.ExitStack() as stack:
            directory = stack.enter_context(programs.private_dir())
            name = pathlib.Path(directory) / "recording"
            variables = {**peer.variables, "GPUPOOL_RECORD": str(name)}
            try:
                running = player.start(dataclasses.replace(peer, variables=variables), directory, log)
                stack.callback(running.close)
                pairs = player.turn(running, cell, ms)["pairs"] + cell.request.get("live", 0)
                running.close()  # the end of the process completes the recording
            except programs.Trouble as trouble:
                book.miss("recording", cell.name, peer.name, str(trouble))
                continue
            book.value(f"recording, {cell.name}: growth", name.stat().st_size / (2 * pairs), "B an event", pairs=pairs)


def replay_through_peer(book, stat, path, peer):
    """Peak memory that another pool takes from the driver for the same allocations and frees."""
    if peer.why_missing:
        book.miss("traces", path.name, peer.name, peer.why_missing)
        return
    try:
        events = output_of([stat, "convert", "--to=rmm", path])
        (_, found), = programs.parse_lines(output_of(peer.words, input=events, env={**os.environ, **peer.variables}))
        ratio = int(found["reserved"]) / int(found["allocated"])
    except (programs.Trouble, ValueError, KeyError, ZeroDivisionError) as error:
        book.miss("traces", path.name, peer.name, str(error))
        return
    book.value(f"trace {path.name}, {peer.name}: peak reserved over peak allocated", ratio, kind=peer.name,
               trace=path.name)


def traces(book, stat, folder, peers=()):
    """Peak memory that each kind takes from the driver, by gpupool-stat replay of the traces in a folder."""
    names = sorted(folder.glob("*.gz"))
    if not stat or not names or "replay" not in output_of([stat, "--help"]):
        book.miss("traces", "", "gpupool-stat replay", "gpupool-stat has no replay, or there is no trace")
        return
    for path in names:
        try:
            answer = json.loads(output_of([stat, "replay", "--json", path]))
        except (programs.Trouble, ValueError) as error:
            book.miss("traces", path.name, "gpupool-stat replay", str(error))
            continue
        for run in answer["runs"]:
            ratio = run["device"]["total_over_live"]
            if ratio is not None:
                book.value(f"trace {path.name}, {run['pool']}: peak reserved over peak live", ratio, kind=run["pool"],
                           trace=path.name)
        for peer in peers:
            replay_through_peer(book, stat, path, peer)


def count_driver_calls(running, found):
    """
    Counts of driver calls, as a pair (so far, in the last run), of which one is None. gpupool counts all calls that it
    has made so far; the stub driver counts the calls of the last run.
    """
    if "memory_calls" in found:
        return None, {key.removesuffix("_calls"): count for key, count in found.items() if key.endswith("_calls")}
    devices = (running.status() or {}).get("devices", [])
    return {what: sum(device.get(key) or 0 for device in devices for key in keys)
            for what, keys in CALLS.items()}, None


def steady_calls(book, peer, cells, log, ms):
    """Driver calls of a loop in its fourth round, when it has reached its steady state."""
    for cell in cells:
        with contextlib.ExitStack() as stack:
            directory = stack.enter_context(programs.private_dir())
            running = player.start(peer, directory, log)
            stack.callback(running.close)
            for _ in range(3):
                found = player.turn(running, cell, ms)
            before, _ = count_driver_calls(running, found)
            found = player.turn(running, cell, ms)
            after, calls = count_driver_calls(running, found)
            book.calls(cell.name, peer.name, found["pairs"],
                       calls or {name: after[name] - before[name] for name in after})
