# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Usage: scale.py GUEST LIBRARY SIM GPUPOOL-STAT [--nodes=N] [--save]

A real Prometheus scrapes N synthetic nodes of 8 GPUs and 32 processes (nodes.py) every 5 s for a minute. Prints series
and bytes of a node and the memory of Prometheus for a series, and what 10,000 such nodes take. With --save it writes
them to tests/fleet/results/scale.json and makes docs/scale.md of that. Exits with 77 if there is no Prometheus.
"""

import contextlib
import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WORDS = sys.argv[5:]
sys.argv = sys.argv[:5]
sys.path.insert(0, str(ROOT / "tests/pages"))

import fleet  # noqa: E402
import nodes  # noqa: E402
import result_file  # noqa: E402
import scale_page  # noqa: E402

SCRAPE_S, SCRAPES = 5, 12
NODES_MAX = 100


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def exporter(path):
    child = subprocess.Popen([fleet.STAT, "export", "--listen=127.0.0.1:0"], env=fleet.environment(path), text=True,
                             stdout=subprocess.PIPE)
    try:
        line = child.stdout.readline().strip()
        if not line:
            raise fleet.Skip("gpupool-stat was built without HTTP")
        yield line
    finally:
        child.kill()
        child.wait()


@contextlib.contextmanager
def prometheus(targets):
    """Runs a Prometheus that scrapes (address, path, instance). Yields a function that reads its own metrics."""
    port = free_port()
    jobs = [{"job_name": "gpupool", "static_configs": [
        {"targets": [address], "labels": {"__metrics_path__": path, "instance": instance}}
        for address, path, instance in targets]}]
    with tempfile.TemporaryDirectory(prefix="gpupool-scale-") as store:
        config = pathlib.Path(store) / "prometheus.yml"
        config.write_text(json.dumps({"global": {"scrape_interval": f"{SCRAPE_S}s"}, "scrape_configs": jobs}))
        child = subprocess.Popen(
            [fleet.find("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={store}/data",
             f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def own():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                    text = answer.read().decode()
            except OSError:
                return None
            return {match[1]: float(match[2]) for match in re.finditer(r"(?m)^(\w+) (\S+)$", text)}
        try:
            fleet.await_true(own, "Prometheus answers")
            yield own
        finally:
            child.terminate()
            child.wait()


def describe(own):
    return {"series": int(own["prometheus_tsdb_head_series"]), "rss": own["process_resident_memory_bytes"],
            "heap": own["go_memstats_heap_inuse_bytes"], "cpu_s": own["process_cpu_seconds_total"]}


def measure_idle():
    with prometheus([]) as own:
        time.sleep(2 * SCRAPE_S)
        return describe(own())


def measure(text, n):
    """Lets Prometheus scrape n nodes. Returns its figures, and bytes on the wire a scrape, plain and sent."""
    with nodes.serve(text, n) as server:
        address = "127.0.0.1:%d" % server.server_address[1]
        with prometheus([(address, f"/{number}/metrics", f"node{number}") for number in range(n)]) as own:
            fleet.await_true(lambda: server.n_requests >= n * SCRAPES, "all scrapes", 3 * SCRAPES * SCRAPE_S)
            figures = describe(own())
        return figures, server.n_plain / server.n_requests, server.n_sent / server.n_requests


def scrape_one_node():
    """The metrics that the exporter writes for a node, and the bytes that it sends: plain and with gzip."""
    with fleet.folder() as path, nodes.guests(path), exporter(path) as url:
        plain = nodes.fetch(url)
        return plain.decode(), len(plain), len(nodes.fetch(url, **{"Accept-Encoding": "gzip"}))


def main(n, is_saved):
    fleet.find("prometheus")
    text, plain, packed = scrape_one_node()
    idle = measure_idle()
    figures, mean_plain, mean_sent = measure(text, n)
    series = len(nodes.samples(text))
    scraped = figures["series"] / n
    values = [
        ("node_series", "series of a node from the exporter", series),
        ("node_series_stored", "series of a node in Prometheus, with those of its scrapes", scraped),
        ("node_plain_bytes", "bytes of a scrape", plain),
        ("node_gzip_bytes", "bytes of a scrape with gzip", packed),
        ("nodes", "synthetic nodes", n),
        ("stored_series", "series in Prometheus", figures["series"]),
        ("rss_bytes", "resident memory of Prometheus", figures["rss"]),
        ("idle_rss_bytes", "the same without nodes", idle["rss"]),
        ("heap_bytes", "heap of Prometheus in use", figures["heap"]),
        ("idle_heap_bytes", "the same without nodes", idle["heap"]),
        ("cpu_seconds", f"processor time of Prometheus for {SCRAPES} scrapes of each node", figures["cpu_s"] - idle["cpu_s"]),
        ("mean_plain_bytes", "bytes of a scrape of a synthetic node", mean_plain),
        ("mean_sent_bytes", "the same as sent, with gzip", mean_sent),
    ]
    document = {"runs": [result_file.describe_run(
        ROOT, f"scripts/fleet-test --scale={n} --save", hardware="no GPU: the simulated GPU",
        software=result_file.output("prometheus", "--version").splitlines()[0].split(" (")[0].replace("prometheus,", "Prometheus"),
        )], "values": [{"name": name, "what": what, "value": round(value, 3)} for name, what, value in values]}
    for value in document["values"]:
        print(f"# {value['what']}: {value['value']:,}")
    for line in scale_page.paper_lines(document):
        print(f"# {line}")
    if is_saved:
        print("#", result_file.save(ROOT / scale_page.DATA, "scale", document))
        result_file.update(scale_page.files(ROOT), False, scale_page.COMMAND)
    assert scale_page.is_within_bar(document), "more than an eighth of the series and memory"
    print("ok")


def parse():
    n, is_saved = 60, False
    for word in WORDS:
        if word == "--save":
            is_saved = True
        elif re.fullmatch(r"--nodes=[1-9]\d*", word) and int(word[8:]) <= NODES_MAX:
            n = int(word[8:])
        else:
            print(f"scale.py: {word}: not --save or --nodes=N, up to {NODES_MAX}", file=sys.stderr)
            sys.exit(2)
    return n, is_saved


try:
    main(*parse())
except fleet.Skip as why:
    print(f"skipped: {why}")
    sys.exit(77)
