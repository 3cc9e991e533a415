# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Usage: test_nodes.py GUEST LIBRARY SIM GPUPOOL-STAT

Synthetic nodes are made of what the exporter really writes, and no two of them have a series in common.
"""

import gzip
import re
import subprocess

import fleet
import nodes

N_GPUS, N_NODES = 2, 3


def metrics():
    """The text that the exporter writes for a small node."""
    with fleet.folder() as path, nodes.guests(path, N_GPUS, 1) as children:
        text = subprocess.run([fleet.STAT, "metrics"], env=fleet.environment(path), capture_output=True, text=True, check=True).stdout
        assert all('pid="%d"' % child.pid in text for child in children)
    return text


def labels_of(text):
    return [line.rsplit(" ", 1)[0] for line in nodes.samples(text)]


def synthetic_nodes_have_the_series_of_the_real_node_with_names_of_their_own():
    text = metrics()
    made = [nodes.Node(text, number) for number in range(N_NODES)]
    pattern = re.compile(r'(pid|hpc_job|UUID)="[^"]*"')
    for node in made:
        labels = labels_of(node.scrape())
        assert len(labels) == len(set(labels)) == len(labels_of(text)), "a series is missing or twice"
        assert [pattern.sub(r'\1=""', line) for line in labels] == [pattern.sub(r'\1=""', line) for line in labels_of(text)]
    for name in "pid", "UUID", "hpc_job":
        values = [set(re.findall(name + '="([^"]*)"', node.text)) for node in made]
        assert all(values) and len(set.union(*values)) == sum(map(len, values)), (name, values)


def values_of_synthetic_nodes_change_and_their_counters_only_rise():
    node = nodes.Node(metrics(), 1)
    one, other = (dict(line.rsplit(" ", 1) for line in nodes.samples(node.scrape())) for _ in range(2))
    assert one.keys() == other.keys() and one != other
    counters = [name for name in one if re.match(r"\w+_total\b", name)]
    assert counters and all(float(other[name]) >= float(one[name]) for name in counters)


def nodes_are_served_by_their_paths_with_and_without_gzip():
    with nodes.serve(metrics(), N_NODES) as server:
        url = "http://127.0.0.1:%d/2/metrics" % server.server_address[1]
        plain = nodes.fetch(url).decode()
        packed = gzip.decompress(nodes.fetch(url, **{"Accept-Encoding": "gzip"})).decode()
        assert labels_of(plain) == labels_of(packed) == labels_of(server.nodes[2].text)
        assert server.n_requests == 2 and server.n_sent < server.n_plain
        try:
            nodes.fetch(url.replace("/2/", "/3/"))
        except OSError:
            return
        raise AssertionError("a node that is not there was served")


fleet.main([
    synthetic_nodes_have_the_series_of_the_real_node_with_names_of_their_own,
    values_of_synthetic_nodes_change_and_their_counters_only_rise,
    nodes_are_served_by_their_paths_with_and_without_gzip,
])
