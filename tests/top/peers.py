# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""Processes with control sockets that give predefined answers, valid or not, and log the requests they receive."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import sys
import threading

GIB = 1 << 30

COUNTERS = {"requested_bytes": GIB, "pending_bytes": 0, "returning_bytes": 0, "hits": 9, "misses": 1, "ooms": 0,
            "limit_bytes": None}


def status(command="./solver --steps 9", used=4 * GIB, cached=2 * GIB, growth=None, **more):
    """An answer to "status": one device of 16 GiB, of which 1 GiB is used outside the pools."""
    device = {"index": 0, "device_total_bytes": 16 * GIB, "device_free_bytes": 15 * GIB - used - cached,
              **COUNTERS, "used_bytes": used, "cached_bytes": cached, "unused_bytes": cached,
              "total_bytes": used + cached, **more}
    return {"schema": "gpupool.status/2", "version": "0.1.0", "command": command, "pool": "split",
            "reuse": "ordered", "bypass": None, "devices": [device], "pinned": {**COUNTERS, "total_bytes": 0},
            "growth": growth or {}}


LEAKS = {"schema": "gpupool.leaks/1", "stacks": {"is_on": True, "depth": 8, "sample": 1}, "n_blocks": 3,
         "bytes": 4 * GIB, "objects": [{"path": "/opt/app/solver", "build_id": None, "base": "0x1000"}], "places": [],
         "sites": [{"blocks": 2, "bytes": 3 * GIB, "oldest_ns": 5_000_000_000, "frames": [[0, 4096]]}],
         "without_stack": {"blocks": 1, "bytes": GIB, "oldest_ns": None},
         "sizes": [{"from_bytes": GIB, "blocks": 3, "bytes": 4 * GIB, "oldest_ns": None}], "ages": []}

MAP = {"schema": "gpupool.map/2", "truncated": False, "sites": [], "objects": [], "places": [],
       "pools": [{"device": 0, "kind": "device", "n_segments": 1, "n_blocks": 3, "largest_cached_bytes": 2 * GIB,
                  "largest_unused_bytes": 2 * GIB, "segments": [
                      {"address": "0x7f0000000000",
                       "blocks": [[3 * GIB, "used", 3 * GIB], [2 * GIB, "cached"], [GIB, "used", GIB]]}]}]}

ANSWERS = {"status": status(), "leaks": LEAKS, "map": MAP,
           "reclaim": {"schema": "gpupool.reclaim/1", "released_bytes": 2 * GIB}}


class Peer:
    """One process. The file request_log has a line for each request that it received."""

    def __init__(self, folder, answers=None, env=None):
        self.answers = {**ANSWERS, **(answers or {})}
        ready, child = os.pipe()
        self.request_log = pathlib.Path(folder) / f"request_log-{os.urandom(4).hex()}"
        self.request_log.touch()
        script = self.request_log.with_suffix(".json")
        script.write_text(json.dumps(self.answers))
        self.pid = os.fork()
        if self.pid == 0:
            words = [sys.executable, "-B", __file__, str(folder), str(self.request_log), str(script), str(child)]
            os.set_inheritable(child, True)
            os.execve(sys.executable, words, {**os.environ, **(env or {})})
        os.close(child)
        os.read(ready, 1)
        os.close(ready)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.pid = 0

    def requests(self):
        return self.request_log.read_text().split("\n")


def grown(answer, number):
    """The answer number N to "status": the time and the members in `growth`, of each device, have grown N times."""
    growth = answer.get("growth", {})
    devices = [{**device, **{key: device.get(key, 0) + number * step for key, step in growth.items()}}
               for device in answer["devices"]]
    return {**answer, "uptime_ns": number * 1_000_000_000, "devices": devices}


def answer_requests(client, answers, request_log, n_requests):
    with contextlib.suppress(OSError), client, client.makefile("r") as lines:
        for line in lines:
            n_requests[0] += 1
            with request_log.open("a") as log:
                log.write(line)
            error = {"schema": "gpupool.error/1", "reason": "unknown", "error": "unknown command"}
            answer = answers.get(line.split()[0], error)
            while answer == "endless":
                client.sendall(b"x" * 65536)
            if isinstance(answer, dict) and answer["schema"] == "gpupool.status/2":
                answer = grown(answer, n_requests[0])
            text = answer if isinstance(answer, str) else json.dumps(answer)
            client.sendall(text.encode("utf-8", "surrogatepass") + b"\n")


def serve(folder, request_log, script, ready):
    start = pathlib.Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19]
    listener = socket.socket(socket.AF_UNIX)
    os.chdir(folder)
    listener.bind(f"{os.getpid()}.{start}.sock")
    listener.listen(8)
    answers, n_requests = json.loads(script.read_text()), [0]
    os.write(ready, b"x")
    os.close(ready)
    while True:
        client, _ = listener.accept()
        threading.Thread(target=answer_requests, args=(client, answers, request_log, n_requests), daemon=True).start()


if __name__ == "__main__":
    serve(sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), int(sys.argv[4]))
