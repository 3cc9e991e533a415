# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Synthetic nodes: the metrics of many nodes from those of one, which the real exporter has written for real processes.

A node differs from the first one in process ids, UUIDs and jobs, and its values change from scrape to scrape. All nodes
are served on one port of the loopback address, by paths: /7/metrics.
"""

import contextlib
import gzip
import http.server
import re
import threading
import urllib.request

import fleet

GPUS, PROCESSES_A_GPU = 8, 4
MIB = 1 << 20
PIDS = 1 << 22  # process ids of Linux are below it


@contextlib.contextmanager
def guests(path, n_gpus=GPUS, n_a_gpu=PROCESSES_A_GPU):
    """Runs the processes of one node, of which those of four devices make one job."""
    children = []
    try:
        for nth in range(n_gpus * n_a_gpu):
            gpu = nth % n_gpus
            children.append(fleet.start(
                path, f"device={gpu}", f"hold={64 + nth}", f"cache={32 + nth}", f"hits={100 + nth}", "say=ready", "await",
                SIMGPU_DEVICES=str(n_gpus), SLURM_JOB_ID=str(8812 + gpu // 4), SLURM_PROCID=str(nth)))
        for child in children:
            assert child.stdout.readline() == "ready\n"
        yield children
    finally:
        for child in children:
            fleet.end(child)


def fetch(url, **headers):
    """The bytes of an answer as they were sent."""
    request = urllib.request.Request(url, headers={"Accept": "application/openmetrics-text;version=1.0.0", **headers})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


def samples(text):
    return [line for line in text.splitlines() if line and not line.startswith("#")]


class Node:
    """The metrics of one node; number 0 is the real one, apart from values."""

    CHANGING = re.compile(r"^(gpupool_(?:used|cached|total)_bytes\{[^}]*\}|gpupool_\w+_total(?:\{[^}]*\})?) (\d+)$", re.M)

    def __init__(self, text, number):
        self.number, self.n_scrapes = number, 0
        text = re.sub(r'pid="(\d+)"', lambda match: 'pid="%d"' % self.pid(int(match[1])), text)
        text = re.sub(r'"GPU-[0-9a-f]{8}', '"GPU-%08x' % (0x10000000 + number), text)
        self.text = re.sub(r'hpc_job="(\d+)"', lambda match: 'hpc_job="%d"' % (int(match[1]) + 10 * number), text)

    def pid(self, pid):
        """Another pid for each pid: an odd factor maps no two numbers to one."""
        return (pid * (2 * self.number + 1) + self.number) % PIDS

    def scrape(self):
        self.n_scrapes += 1
        lines = iter(range(1 << 30))

        def change(match):
            step = (self.n_scrapes * 37 + self.number * 11 + next(lines)) % 64
            by = self.n_scrapes * step if "_total{" in match[0] or "_total " in match[0] else 2 * MIB * step
            return f"{match[1]} {int(match[2]) + by}"
        return self.CHANGING.sub(change, self.text)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        match = re.fullmatch(r"/(\d+)/metrics", self.path)
        if not match or int(match[1]) >= len(self.server.nodes):
            self.send_error(404)
            return
        plain = self.server.nodes[int(match[1])].scrape().encode()
        is_packed = "gzip" in self.headers.get("Accept-Encoding", "")
        body = gzip.compress(plain, 6) if is_packed else plain
        with self.server.lock:
            self.server.n_plain += len(plain)
            self.server.n_sent += len(body)
            self.server.n_requests += 1
        self.send_response(200)
        self.send_header("Content-Type", "application/openmetrics-text; version=1.0.0; charset=utf-8")
        if is_packed:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True


@contextlib.contextmanager
def serve(text, n):
    """Serves n nodes made of the metrics of one. Yields the server, whose port is server_address[1]."""
    server = Server(("127.0.0.1", 0), Handler)
    server.nodes = [Node(text, number) for number in range(n)]
    server.lock = threading.Lock()
    server.n_plain = server.n_sent = server.n_requests = 0
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
