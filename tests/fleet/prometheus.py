# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Usage: prometheus.py GUEST LIBRARY SIM GPUPOOL-STAT

A real Prometheus scrapes the exporter every 5 s, while ten processes of 1 s each have 7 out-of-memory errors, and half of
them are killed. The counter of the node must rise by 70. Then prints how long scrapes of 50 processes take, while none
and while one of them is stopped. Exits with 77 if there is no Prometheus.
"""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

import fleet
from fleet import Skip, find, folder, start

SCRAPE_S, PROCESSES, ERRORS = 5, 10, 7
MANY, SCRAPES = 50, 40
COUNTER = "gpupool_node_out_of_memory_errors_total"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def query(port, text, what="query", **more):
    words = urllib.parse.urlencode({"query": text, **more})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{what}?{words}", timeout=10) as answer:
        return json.load(answer)["data"]["result"]


def try_query(port, text):
    try:
        return query(port, text)
    except OSError:
        return []


def start_exporter(path):
    child = subprocess.Popen([fleet.STAT, "export", "--listen=127.0.0.1:0"], env=fleet.environment(path), text=True,
                             stdout=subprocess.PIPE)
    line = child.stdout.readline()
    if not line:
        raise Skip("gpupool-stat was built without HTTP")
    return child, line.strip()


def start_prometheus(store, url):
    port = free_port()
    target = re.match(r"http://([^/]+)/", url).group(1)
    config = pathlib.Path(store) / "prometheus.yml"
    config.write_text(json.dumps({"global": {"scrape_interval": f"{SCRAPE_S}s"}, "scrape_configs": [
        {"job_name": "gpupool", "static_configs": [{"targets": [target]}]}]}))
    return port, subprocess.Popen(
        [find("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={store}/data",
         f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def count_errors(path, port):
    """Runs the processes, and returns the value of the counter before and after them, and its increase."""
    fleet.await_true(lambda: try_query(port, COUNTER), "Prometheus has scraped the exporter")
    before = float(query(port, COUNTER)[0]["value"][1])
    guests = [start(path, f"fail={ERRORS}", "sleep=1", *["kill"] * (nth % 2)) for nth in range(PROCESSES)]
    for guest in guests:
        guest.communicate()
    assert sorted({guest.returncode for guest in guests}) == [-signal.SIGKILL, 0], [guest.returncode for guest in guests]
    scrapes = "count_over_time(%s[5m])" % COUNTER
    seen = float(query(port, scrapes)[0]["value"][1])
    fleet.await_true(lambda: float(query(port, scrapes)[0]["value"][1]) >= seen + 2, "two more scrapes")
    return before, float(query(port, COUNTER)[0]["value"][1]), float(query(port, f"increase({COUNTER}[1m])")[0]["value"][1])


def scrape_ms(url):
    """The times of some scrapes, sorted, and the last text."""
    times = []
    for _ in range(SCRAPES):
        begin = time.monotonic()
        with urllib.request.urlopen(url, timeout=60) as answer:
            text = answer.read().decode()
        times.append((time.monotonic() - begin) * 1000)
    return sorted(times), text


def time_scrapes(path, url):
    guests = [start(path, "hold=1", "cache=1", "say=ready", "await") for _ in range(MANY)]
    try:
        for guest in guests:
            guest.stdout.readline()
        for what in ("none stopped", "one stopped"):
            times, text = scrape_ms(url)
            p95 = times[len(times) * 95 // 100]
            print(f"# {MANY} processes, {what}: median {times[len(times) // 2]:.0f} ms, p95 {p95:.0f} ms, "
                  f"most {times[-1]:.0f} ms; {len(text)} bytes")
            os.kill(guests[0].pid, signal.SIGSTOP)
        assert f'gpupool_up{{pid="{guests[0].pid}"}} 0' in text
        assert re.search(r'gpupool_used_bytes\{pid="%d"' % guests[0].pid, text)
        assert re.search(r'gpupool_process_info\{pid="%d"' % guests[0].pid, text)
    finally:
        for guest in guests:
            fleet.end(guest)


def main():
    children = []
    find("prometheus")
    with folder() as path, tempfile.TemporaryDirectory(prefix="gpupool-fleet-") as store:
        try:
            exporter, url = start_exporter(path)
            children.append(exporter)
            port, server = start_prometheus(store, url)
            children.append(server)
            before, after, increase = count_errors(path, port)
            print(f"# the counter of the node: {before:.0f} -> {after:.0f}; increase() of a minute {increase:.1f}")
            assert after - before == PROCESSES * ERRORS, (before, after)
            assert increase > 0
            time_scrapes(path, url)
        finally:
            for child in children:
                child.kill()
                child.wait()
    print("ok")


try:
    main()
except Skip as why:
    print(f"skipped: {why}")
    sys.exit(77)
