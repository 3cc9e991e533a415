# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Makes docs/scale.md of the result file in tests/fleet/results.

Usage: scale_page.py ROOT [--check]
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import result_file

COMMAND = "scripts/fleet-test --scale --save"
PAGE = pathlib.Path("docs/scale.md")
DATA = pathlib.Path("tests/fleet/results")
NODES, INTERVAL_S = 10000, 30
GIB = 1 << 30

# An exporter that writes every counter of each process on each device: 3,521 series and 347 kB for the same node, and
# 2.41 KiB of memory of Prometheus for a series.
ALL = {"series": 35.2e6, "memory": 81 * GIB, "sent": 116e6}
BAR = 8

INTRO = """# From one node to ten thousand

`{command}` makes this page. It runs 32 programs on the eight simulated GPUs of a node, four on
each, and scrapes the exporter. It makes the metrics of other nodes from that answer, with other process ids, UUIDs, jobs
and changing values, and serves them on the loopback address to a real Prometheus, every 5 s for a minute.

## Measured
"""

PAPER = """## Ten thousand nodes, on paper

The figures above times {nodes:,} nodes, scraped every {interval} s: a calculation, not a run. *All counters* is an exporter
that writes every counter of each process and each device, without compression: 3,521 series for this node, and 2.41 KiB
of memory for a series, measured with 100 such nodes.
"""

AFTER = """* Memory is the resident memory of Prometheus, less that of an idle one. It is for processes that stay: Prometheus
  keeps the series of an ended process for two to three hours, so short jobs need more.
* `--collect=all` writes several times as many series, and is for single nodes.
* For less, scrape less often, or keep only the recording rules of `gpupool-rules.yml` in a second Prometheus.

## Command, date, commit and machine
"""


def values_of(document):
    return {value["name"]: value["value"] for value in document["values"]}


def on_paper(document):
    """Series, memory in bytes, and bytes a second of all nodes."""
    v = values_of(document)
    series_bytes = (v["rss_bytes"] - v["idle_rss_bytes"]) / v["stored_series"]
    return {"series": v["node_series_stored"] * NODES, "memory": v["node_series_stored"] * NODES * series_bytes,
            "sent": v["node_gzip_bytes"] * NODES / INTERVAL_S, "samples": v["node_series_stored"] * NODES / INTERVAL_S,
            "series_bytes": series_bytes, "cpu": v["cpu_seconds"] / (12 * v["nodes"]) * NODES / INTERVAL_S}


def is_within_bar(document):
    paper = on_paper(document)
    return all(paper[key] <= ALL[key] / BAR for key in ("series", "memory"))


def paper_lines(document):
    paper = on_paper(document)
    return [f"{NODES:,} nodes: {paper['series'] / 1e6:.2f} million series, {paper['memory'] / GIB:.1f} GiB; "
            f"an eighth of all counters is {ALL['series'] / BAR / 1e6:.2f} million and {ALL['memory'] / BAR / GIB:.1f} GiB"]


def part(value, all_of_it):
    return f"1/{all_of_it / value:.1f}"


def paper_rows(document):
    paper = on_paper(document)
    return [
        ["series", f"{paper['series'] / 1e6:.2f} million", f"{ALL['series'] / 1e6:.1f} million",
         part(paper["series"], ALL["series"])],
        ["memory of Prometheus", f"{paper['memory'] / GIB:.1f} GiB", f"{ALL['memory'] / GIB:.0f} GiB",
         part(paper["memory"], ALL["memory"])],
        ["scraped", f"{paper['sent'] / 1e6:.2f} MB/s", f"{ALL['sent'] / 1e6:.0f} MB/s", part(paper["sent"], ALL["sent"])],
        ["samples a second", f"{paper['samples'] / 1e3:,.0f} thousand", f"{ALL['series'] / INTERVAL_S / 1e3:,.0f} thousand",
         part(paper["samples"], ALL["series"] / INTERVAL_S)],
        ["processors of Prometheus", f"{paper['cpu']:.1f}", "", ""],
    ]


def measured_rows(document):
    v = values_of(document)
    return [
        ["series of a node, 8 GPUs and 32 processes", f"{v['node_series']:,.0f}"],
        ["the same in Prometheus, with those of the scrape itself", f"{v['node_series_stored']:,.1f}"],
        ["bytes of a scrape of the node, plain", f"{v['node_plain_bytes']:,.0f}"],
        ["bytes of a scrape of the node, with gzip", f"{v['node_gzip_bytes']:,.0f}"],
        ["synthetic nodes", f"{v['nodes']:,.0f}"],
        ["series in Prometheus", f"{v['stored_series']:,.0f}"],
        ["resident memory of Prometheus; idle", f"{v['rss_bytes'] / 2**20:.0f} MiB; {v['idle_rss_bytes'] / 2**20:.0f} MiB"],
        ["heap of Prometheus in use; idle", f"{v['heap_bytes'] / 2**20:.0f} MiB; {v['idle_heap_bytes'] / 2**20:.0f} MiB"],
        ["resident memory for a series", f"{on_paper(document)['series_bytes'] / 1024:.2f} KiB"],
    ]


def files(root):
    """{path: content} of the page."""
    documents = result_file.load(root / DATA)
    document = documents["scale"]
    lines = [INTRO.format(command=COMMAND), *result_file.table(["figure", "value"], measured_rows(document)), "",
             PAPER.format(nodes=NODES, interval=INTERVAL_S),
             *result_file.table(["", "basic metrics, gzip", "all counters", "part"], paper_rows(document)), "", AFTER,
             *result_file.table(result_file.RUN_HEAD, result_file.run_rows(documents))]
    return {root / PAGE: "\n".join(lines) + "\n"}


if __name__ == "__main__":
    if sys.argv[2:] not in ([], ["--check"]):
        sys.exit(__doc__.strip())
    is_same = result_file.update(files(pathlib.Path(sys.argv[1])), sys.argv[2:] == ["--check"], COMMAND)
    sys.exit(0 if is_same or sys.argv[2:] != ["--check"] else 1)
