# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Usage: test_metrics.py GPUPOOL_STAT DASHBOARD

Reads metrics and their exporter with plain sockets, and with Prometheus' own programs, if they are installed.
"""

import contextlib
import gzip
import http.client
import http.server
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import readers
from readers import STATUS, Process, Skip, find

PROGRAM, DASHBOARD = sys.argv[1:3]
OPENMETRICS = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}


@contextlib.contextmanager
def exporter(process, address="127.0.0.1:0", host="127.0.0.1"):
    """Runs an exporter, and yields its port."""
    child = subprocess.Popen([PROGRAM, "export", "--listen=" + address], env=process.env, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
    try:
        line = child.stdout.readline().decode()
        match = re.fullmatch(r"http://%s:(\d+)/metrics\n" % re.escape(host), line)
        if not line:
            why = child.stderr.read().decode()
            if "without HTTP" in why or "Cannot assign requested address" in why or "Address family" in why:
                raise Skip(why.strip())
        yield int(match.group(1))
        child.terminate()
        assert child.wait(60) == 0
    finally:
        child.kill()
        child.wait()


def fetch(port, path="/metrics", method="GET", headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, headers=headers or {})
    response = connection.getresponse()
    return response, response.read().decode()


def fetch_bytes(port, headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest("GET", "/metrics", skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    return response, response.read()


def start_child(folder, device):
    """Starts a process that answers with the memory of one device."""
    ready, said = os.pipe()
    child = os.fork()
    if child == 0:
        uuid = "GPU-1a2b3c4d-0000-0000-0000-%012d" % device
        with Process({"status": dict(STATUS, devices=[dict(STATUS["devices"][0], uuid=uuid)])}, folder):
            os.write(said, b"x")
            signal.pause()
    os.read(ready, 1)
    os.close(ready)
    os.close(said)
    return child


def samples(text):
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def promtool_accepts_the_names_of_the_metrics():
    with Process() as process:
        text = readers.stat(PROGRAM, "metrics", "--collect=all", "--to=prometheus", env=process.env)
    done = subprocess.run([find("promtool"), "check", "metrics"], input=text, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def the_parser_of_prometheus_client_accepts_the_metrics():
    try:
        from prometheus_client.openmetrics.parser import text_string_to_metric_families
    except ImportError as error:
        raise Skip("no Python module prometheus_client") from error
    with Process() as process:
        text = readers.stat(PROGRAM, "metrics", "--collect=all", env=process.env).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["gpupool_driver_seconds"].unit == "seconds"
    assert families["gpupool_hits"].type == "counter"
    values = {tuple(sorted(s.labels.items())): s.value for s in families["gpupool_used_bytes"].samples}
    assert len(values) == 2 and set(values.values()) == {805306368}
    assert len(families["gpupool_pinned_used_bytes"].samples) == 1


def both_formats_have_the_same_samples():
    with Process() as process:
        one = readers.stat(PROGRAM, "metrics", "--collect=all", env=process.env).decode()
        other = readers.stat(PROGRAM, "metrics", "--collect=all", "--to=prometheus", env=process.env).decode()
    assert samples(one) == samples(other)
    assert one.endswith("# EOF\n") and "# EOF" not in other
    assert len({line.rsplit(" ", 1)[0] for line in samples(one)}) == len(samples(one))


def each_repetition_of_a_watch_is_a_complete_exposition():
    with Process() as process:
        for words, end in ((("--to=openmetrics",), "# EOF\n"), (("--to=prometheus",), "\n\n")):
            once = readers.stat(PROGRAM, "metrics", "--collect=all", *words, env=process.env).decode()
            text = readers.stat(PROGRAM, "metrics", "--collect=all", "--watch=0.01", "--count=3", *words, env=process.env).decode()
            times = text.removesuffix(end).split(end)
            assert len(times) == 3, len(times)
            assert all([line.split(" ")[:-1] for line in each.splitlines()] ==
                       [line.split(" ")[:-1] for line in once.removesuffix(end).splitlines()] for each in times)


def each_step_has_a_count_and_a_time():
    steps = [{"name": "cache", "count": 750, "ns": 0}, {"name": "grow", "count": 250, "ns": 3210000}]
    answer = dict(STATUS, devices=[dict(STATUS["devices"][0], steps=steps)], pinned=None)
    with Process({"status": answer}) as process:
        text = readers.stat(PROGRAM, "metrics", "--collect=all", env=process.env).decode()
    labels = 'pid="%d",device="0"' % os.getpid()
    found = [line for line in samples(text) if line.startswith("gpupool_step_")]
    assert found == ['gpupool_step_allocs_total{%s,step="cache"} 750' % labels,
                     'gpupool_step_allocs_total{%s,step="grow"} 250' % labels,
                     'gpupool_step_seconds_total{%s,step="cache"} 0.000000000' % labels,
                     'gpupool_step_seconds_total{%s,step="grow"} 0.003210000' % labels], found


def each_reason_that_has_left_an_allocation_to_the_driver_has_its_count():
    left = [{"name": name, "count": count} for name, count in
            (("off", 0), ("capture", 3), ("capture", 4), (readers.HOSTILE, 5), (7, 6), ("other-pool", 1))]
    with Process({"status": dict(STATUS, **{"async": {"on": True, "left": left + [None]}})}) as process:
        text = readers.stat(PROGRAM, "metrics", "--collect=all", env=process.env).decode()
    found = [line for line in samples(text) if line.startswith("gpupool_stream_allocations_left")]
    assert found == [f'gpupool_stream_allocations_left_total{{pid="{os.getpid()}",reason="{name}"}} {count}'
                     for name, count in (("capture", 3), ("other-pool", 1))], found


def hostile_answers_of_a_process_cause_no_duplicate_series():
    device = STATUS["devices"][0]
    rounds = [{"name": name, "count": 1, "gained_bytes": 1, "ns": 1}
              for name in ("settle", "settle", "a" * 40, "a" * 41, readers.HOSTILE, "", "\u00e9", 7)]
    answer = dict(STATUS, devices=[dict(device, retries=rounds), device, dict(device, index=64), dict(device, index=-1),
                                   dict(device, index="0"), None, 7], pinned=[], pool=readers.HOSTILE, version=None,
                  uptime_ns=-1)
    with Process({"status": answer}) as process:
        text = readers.stat(PROGRAM, "metrics", "--collect=all", env=process.env).decode()
    names = [line.rsplit(" ", 1)[0] for line in samples(text)]
    assert len(set(names)) == len(names) and sum(name.startswith("gpupool_used_bytes") for name in names) == 1
    assert [name for name in names if name.startswith("gpupool_retries_total")] == \
        ['gpupool_retries_total{pid="%d",device="0",round="settle"}' % os.getpid()]


def each_region_has_its_series_once_up_to_the_limit_of_regions():
    def region(name, used=1):
        return {"name": name, "used_bytes": used, "cached_bytes": 2, "pending_bytes": 3}

    regions = [region('forward "pass"\\'), region("twice", 4), region("twice", 5), region(readers.HOSTILE), region(7), region("a" * 64), None]
    regions += [region(f"r{nth}") for nth in range(100)]
    with Process({"status": dict(STATUS, devices=[dict(STATUS["devices"][0], by_region=regions)])}) as process:
        texts = [readers.stat(PROGRAM, "metrics", "--collect=all", *words, env=process.env).decode() for words in ((), ("--to=prometheus",))]
    assert samples(texts[0]) == samples(texts[1])
    names = [line.rsplit(" ", 1)[0] for line in samples(texts[0]) if line.startswith("gpupool_region_")]
    assert len(set(names)) == len(names) and 3 * 50 < len(names) <= 3 * 64, len(names)
    label = r'region="forward \"pass\"\\"}'
    assert sum(name.endswith(label) for name in names) == 3, names[:3]
    assert [line for line in samples(texts[0]) if 'used_bytes{' in line and 'region="twice"' in line][0].endswith(" 4")


def debug_counters_are_exported_only_while_memory_debugging_is_on():
    debug = {"poison": True, "guard": True, "full": False, "errors": 3, "checks": 900, "skipped": 1, "ns": 12000000}
    for answer, expected in (({"debug": debug}, {"3", "900", "1", "0.012000000"}), ({"debug": None}, set()), ({}, set())):
        with Process({"status": dict(STATUS, **answer)}) as process:
            text = readers.stat(PROGRAM, "metrics", "--collect=all", env=process.env).decode()
        found = {line.split(" ")[1] for line in samples(text) if line.startswith("gpupool_debug_")}
        assert found == expected, found


def every_counter_of_a_pool_is_a_metric():
    table = (pathlib.Path(DASHBOARD).parents[2] / "pool/stats.def").read_text()
    rows = re.findall(r'^STAT\((\w+), (\w+), ([A-Z]+), (\w*), "([^"]*)"\)$', table, re.M)
    assert len(rows) > 20 and len(rows) == len(re.findall(r"^STAT\(", table, re.M)), rows
    device = dict(STATUS["devices"][0], **{row[0]: nth * 10 ** 9 for nth, row in enumerate(rows, 1)})
    with Process({"status": dict(STATUS, devices=[device])}) as process:
        text = readers.stat(PROGRAM, "metrics", "--collect=all", env=process.env).decode()
    found = {line.split("{")[0]: float(line.split(" ")[1]) for line in samples(text) if 'device="0"' in line}
    for nth, (_, metric, kind, unit, words) in enumerate(rows, 1):
        family = f"gpupool_{metric}" + (f"_{unit}" if unit else "")
        assert f"# HELP {family} {words}.\n" in text, family
        value = found[family + ("_total" if kind == "COUNTER" else "")]
        assert value == nth * (1 if unit == "seconds" else 10 ** 9), (family, value)


def a_device_has_the_uuid_that_other_exporters_use():
    devices = [dict(STATUS["devices"][0], index=nth, uuid=uuid)
               for nth, uuid in enumerate(("GPU-1a2b3c4d-0000", None, 7, 'x"} 1\n', "", "a" * 200))]
    with Process({"status": dict(STATUS, devices=devices)}) as process:
        text = readers.stat(PROGRAM, "metrics", "--collect=all", env=process.env).decode()
    names = [line.rsplit(" ", 1)[0].split(",", 1)[1] for line in samples(text) if line.startswith("gpupool_used_bytes")]
    assert names == ['device="0",UUID="GPU-1a2b3c4d-0000"}'] + ['device="%d"}' % nth for nth in range(1, 6)], names
    rounds = [line for line in samples(text) if line.startswith("gpupool_retries_total") and "UUID" in line]
    assert len(rounds) == 2 and all(line.split(" ")[0].endswith('"}') for line in rounds), rounds


def memory_given_to_other_processes_is_counted():
    device = dict(STATUS["devices"][0], yields=3, yielded_bytes=4096)
    with Process({"status": dict(STATUS, devices=[device])}) as process:
        text = readers.stat(PROGRAM, "metrics", "--collect=all", env=process.env).decode()
    found = {line.split("{")[0]: line.split(" ")[1] for line in samples(text) if "_yield" in line.split("{")[0]}
    assert found["gpupool_yields_total"] == "3" and found["gpupool_yielded_bytes_total"] == "4096", found


def arguments_of_the_command_are_not_exported():
    with Process() as process:
        assert b"secret" not in readers.stat(PROGRAM, "metrics", "--collect=all", env=process.env)


def the_exporter_serves_its_paths_and_refuses_others():
    with Process() as process, exporter(process) as port:
        response, text = fetch(port)
        assert response.status == 200 and "version=0.0.4" in response.getheader("Content-Type")
        assert 'gpupool_hits_total{pid="' in text and "# EOF" not in text
        response, text = fetch(port, headers=OPENMETRICS)
        assert response.getheader("Content-Type").startswith("application/openmetrics-text; version=1.0.0")
        assert text.endswith("# EOF\n")
        response, text = fetch(port, method="HEAD")
        assert response.status == 200 and not text
        assert fetch(port, "/")[0].status == 200
        assert fetch(port, "/../etc/passwd")[0].status == 404
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            response, _ = fetch(port, method=method)
            assert response.status == 405 and response.getheader("Allow") == "GET, HEAD"


def a_page_is_compressed_for_a_client_that_accepts_gzip():
    with Process() as process, exporter(process) as port:
        plain = samples(fetch(port)[1])
        for accepted in ("gzip", "deflate, gzip;q=0.5", "GZIP", "*"):
            response, data = fetch_bytes(port, headers={"Accept-Encoding": accepted})
            assert response.getheader("Content-Encoding") == "gzip", accepted
            assert "Accept-Encoding" in response.getheader("Vary")
            assert samples(gzip.decompress(data).decode()) == plain
        for accepted in ("identity", "gzip;q=0", "gzip; q=0.000", "x-gzipped", "deflate", ""):
            response, data = fetch_bytes(port, headers={"Accept-Encoding": accepted})
            assert response.getheader("Content-Encoding") is None, accepted
            assert samples(data.decode()) == plain


def a_busy_process_on_one_device_has_at_most_13_series_of_its_own():
    device = dict(STATUS["devices"][0], uuid="GPU-1a2b3c4d-0000")
    with Process({"status": dict(STATUS, devices=[device], debug={"errors": 3})}) as process:
        text = readers.stat(PROGRAM, "metrics", env=process.env).decode()
    own = [line for line in samples(text) if "{pid=" in line]
    assert len(own) <= 13, own
    names = {line.split("{")[0] for line in own}
    assert {"gpupool_used_bytes", "gpupool_cached_bytes", "gpupool_total_bytes", "gpupool_limit_bytes", "gpupool_hits_total",
            "gpupool_out_of_memory_errors_total", "gpupool_pinned_used_bytes"} <= names, names
    assert not {name for name in names if "retr" in name or "step" in name or "debug" in name}, names


def pinned_memory_that_a_process_does_not_use_has_no_series():
    unused = dict.fromkeys(STATUS["pinned"], 0)
    with Process({"status": dict(STATUS, pinned=unused)}) as process:
        text = readers.stat(PROGRAM, "metrics", env=process.env).decode()
        everything = readers.stat(PROGRAM, "metrics", "--collect=all", env=process.env).decode()
    assert not [line for line in samples(text) if line.startswith("gpupool_pinned_")]
    assert [line for line in samples(everything) if line.startswith("gpupool_pinned_")]


def thirty_two_processes_have_at_most_440_series_and_10_kb_on_the_wire():
    children = []
    with tempfile.TemporaryDirectory(prefix="gpupool-readers-") as folder:
        try:
            for nth in range(31):
                children.append(start_child(folder, nth % 8))
            device = dict(STATUS["devices"][0], uuid="GPU-1a2b3c4d-0000-0000-0000-000000000007")
            with Process({"status": dict(STATUS, devices=[device])}, folder) as process, exporter(process) as port:
                response, data = fetch_bytes(port, headers={**OPENMETRICS, "Accept-Encoding": "gzip"})
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
    lines = samples(gzip.decompress(data).decode())
    assert "gpupool_processes 32" in lines
    assert len(lines) <= 440, len(lines)
    assert len(data) <= 10000, len(data)


def a_device_that_several_processes_use_has_its_rows_once():
    device = dict(STATUS["devices"][0], uuid="GPU-1a2b3c4d-0000")
    with tempfile.TemporaryDirectory(prefix="gpupool-readers-") as folder:
        child = start_child(folder, 7)
        try:
            with Process({"status": dict(STATUS, devices=[device, dict(device, index=1, uuid=None)])}, folder) as process:
                text = readers.stat(PROGRAM, "metrics", env=process.env).decode()
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    found = sorted(line.split(" ")[0] for line in samples(text) if line.startswith("gpupool_device_total_bytes"))
    assert found == ['gpupool_device_total_bytes{UUID="GPU-1a2b3c4d-0000"}',
                     'gpupool_device_total_bytes{UUID="GPU-1a2b3c4d-0000-0000-0000-000000000007"}',
                     'gpupool_device_total_bytes{device="1"}'], found


def the_start_of_a_process_is_a_time():
    before = time.time()
    with Process() as process:
        text = readers.stat(PROGRAM, "metrics", env=process.env).decode()
    value, = (float(line.split(" ")[1]) for line in samples(text) if line.startswith("gpupool_process_start_time_seconds{"))
    assert before - 24 * 3600 < value < before + 60, (value, before)


def a_silent_client_does_not_delay_other_clients():
    with Process() as process, exporter(process) as port, contextlib.ExitStack() as stack:
        for part in (b"", b"GET /met", b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 50) * 8:
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            client.sendall(part)
        assert "gpupool_up" in fetch(port)[1]


def a_new_client_is_served_while_others_hold_all_connections():
    with Process() as process, exporter(process) as port, contextlib.ExitStack() as stack:
        for nth in range(100):
            client = stack.enter_context(socket.socket())
            client.bind(("127.0.0.%d" % (2 + nth % 3), 0))
            client.connect(("127.0.0.1", port))
            client.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        assert "gpupool_up" in fetch(port)[1]


def a_host_name_in_a_request_is_refused_on_a_loopback_address():
    with Process() as process, exporter(process) as port:
        assert fetch(port, headers={"Host": "attacker.example"})[0].status == 421
    with Process() as process, exporter(process, "0.0.0.0:0", "0.0.0.0") as port:
        assert fetch(port, headers={"Host": "node17.example"})[0].status == 200


def a_process_that_has_ended_is_removed_from_the_metrics():
    with Process() as process, exporter(process) as port:
        assert "gpupool_processes 1\n" in fetch(port)[1]
        for path in process.path.iterdir():
            path.unlink()
        assert "gpupool_processes 0\n" in fetch(port)[1]


def a_stopped_process_keeps_its_memory_and_labels_in_the_metrics():
    ready, said = os.pipe()
    folder = tempfile.TemporaryDirectory(prefix="gpupool-readers-")
    child = os.fork()
    if child == 0:
        with Process(folder=folder.name):
            os.write(said, b"x")
            signal.pause()
    try:
        os.read(ready, 1)
        with Process(folder=folder.name) as process, exporter(process) as port:
            before = samples(fetch(port)[1])
            up = 'gpupool_up{pid="%d"} ' % child
            assert up + "1" in before and 'gpupool_up{pid="%d"} 1' % os.getpid() in before
            os.kill(child, signal.SIGSTOP)
            assert os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1])
            for _ in range(3):
                now = samples(fetch(port)[1])
                assert up + "0" in now
                assert [line for line in now if line != up + "0"] == [line for line in before if line != up + "1"]
            os.kill(child, signal.SIGCONT)
            while up + "1" not in samples(fetch(port)[1]):
                pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def addresses_without_a_numeric_host_listen_on_loopback():
    for address in ("localhost:0", ":0", "0"):
        with Process() as process, exporter(process, address) as port:
            assert fetch(port)[0].status == 200


def an_ipv6_host_is_written_in_brackets():
    with Process() as process, exporter(process, "[::1]:0", "[::1]") as port, \
            socket.create_connection(("::1", port), timeout=60) as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert client.makefile("rb").readline().split()[1] == b"200"


def malformed_addresses_are_refused():
    for address in ("", "x", "127.0.0.1", "127.0.0.1:", "127.0.0.1:99999", "::1:80", "[::1]", "example.org:80", ":-1"):
        readers.stat(PROGRAM, "export", "--listen=" + address, expected=2)
    readers.stat(PROGRAM, "export", "--json", expected=2)
    readers.stat(PROGRAM, "metrics", "--to=xml", expected=2)
    readers.stat(PROGRAM, "metrics", "--collect=most", expected=2)
    readers.stat(PROGRAM, "export", "--collect=", expected=2)


def query_prometheus(port, path):
    with urllib.request.urlopen("http://127.0.0.1:%d%s" % (port, path), timeout=10) as answer:
        return json.load(answer)["data"]


class Relay(http.server.BaseHTTPRequestHandler):
    """Forwards scrapes to the exporter and counts them: Prometheus scrapes again once it has stored the last scrape."""

    scrapes = threading.Semaphore(0)
    port = None

    def do_GET(self):
        response, text = fetch(self.port, self.path, headers={"Accept": self.headers["Accept"]})
        self.scrapes.release()
        self.send_response(response.status)
        self.send_header("Content-Type", response.getheader("Content-Type"))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def relay(port):
    """Runs a relay to an exporter, and yields its port."""
    Relay.port = port
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Relay) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def a_prometheus_server_scrapes_the_exporter():
    program = find("prometheus")
    with Process() as process, exporter(process) as real_port, relay(real_port) as port, \
            tempfile.TemporaryDirectory() as folder:
        config = {"scrape_configs": [{"job_name": "gpupool", "scrape_interval": "1s", "scrape_timeout": "1s",
                                      "static_configs": [{"targets": ["127.0.0.1:%d" % port]}]}]}
        path = pathlib.Path(folder) / "prometheus.yml"
        path.write_text(json.dumps(config))  # JSON is valid YAML
        own_port = free_port()
        child = subprocess.Popen([program, "--config.file=%s" % path, "--storage.tsdb.path=%s/data" % folder,
                                  "--web.listen-address=127.0.0.1:%d" % own_port],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(3):
                assert Relay.scrapes.acquire(timeout=90), "Prometheus does not scrape"
            found = query_prometheus(own_port, "/api/v1/query?query=gpupool_used_bytes")["result"]
            target = query_prometheus(own_port, "/api/v1/targets")["activeTargets"][0]
            metadata = query_prometheus(own_port, "/api/v1/metadata")
        finally:
            child.terminate()
            child.wait(60)
    assert len(found) == 2 and {row["value"][1] for row in found} == {"805306368"}
    assert target["health"] == "up" and not target["lastError"], target
    assert metadata["gpupool_used_bytes"][0]["unit"] == "bytes", metadata["gpupool_used_bytes"]
    assert metadata["gpupool_hits"][0]["type"] == "counter"
    assert metadata["gpupool_process"][0]["type"] == "info"


def load_dashboard():
    return json.loads(pathlib.Path(DASHBOARD).read_text())


def panels_of(dashboard):
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def expressions(dashboard):
    texts = [target["expr"] for panel in panels_of(dashboard) for target in panel["targets"]]
    return [text.replace("$__rate_interval", "5m") for text in texts]


def names_in(text):
    return {re.match(r"\w+", line).group() for line in samples(text)}


def counters_in(text):
    """The counters that the exporter announces, also those that have no sample yet."""
    return {name.removesuffix("_total") + "_total" for name in re.findall(r"(?m)^# TYPE (\w+) counter$", text)}


def the_dashboard_queries_only_existing_metrics():
    with Process() as process:
        with exporter(process) as port:
            text = fetch(port)[1]
            basic = names_in(text) | counters_in(text)
        everything = basic | names_in(readers.stat(PROGRAM, "metrics", "--collect=all", env=process.env).decode())
    for panel in panels_of(load_dashboard()):
        queried = {name for target in panel["targets"] for name in re.findall(r"\bgpupool_\w+", target["expr"])}
        existing = everything if "--collect=all" in panel.get("description", "") else basic
        assert queried and queried <= existing, (panel["title"], queried - existing)


def job_labels():
    """The labels of common/job.def, by the names that metrics have."""
    text = (pathlib.Path(DASHBOARD).resolve().parent.parent.parent / "common/job.def").read_text()
    return {{"job": "hpc_job"}.get(name, name) for name in re.findall(r'^GP_JOB_VARIABLE\("(\w+)"', text, re.M)}


def the_variables_of_the_dashboard_list_existing_labels_of_existing_metrics():
    with Process() as process, exporter(process) as port:
        text = fetch(port)[1]
    labels = {"job", "instance", *re.findall(r'(\w+)="', next(
        line for line in samples(text) if line.startswith("gpupool_process_info"))), *job_labels()}
    variables = {one["name"]: one["query"]["query"] for one in load_dashboard()["templating"]["list"]
                 if one["type"] == "query"}
    assert {"job", "instance", "hpc_job", "user", "namespace", "pod"} == set(variables)
    for name, query in variables.items():
        metric, used, label = re.fullmatch(r"label_values\((\w+)(?:\{(.*)\})?, (\w+)\)", query).groups()
        assert metric in names_in(text) and label == name and label in labels, query
        for matcher in (used or "").split(","):
            assert not matcher or re.fullmatch(r'(\w+)=~"\$\1"', matcher).group(1) in variables, query


def queries_and_rules_use_only_existing_labels():
    with Process() as process, exporter(process) as port:
        text = fetch(port)[1]
    labels = {"job", "instance", "start", "device", "UUID", "round", *re.findall(r'(\w+)="', text), *job_labels()}
    rules = (pathlib.Path(DASHBOARD).resolve().parent / "gpupool-rules.yml").read_text()
    for expr in [*expressions(load_dashboard()), *re.findall(r"expr: (.*)", rules)]:
        lists = re.findall(r"(?:by|on|group_left|ignoring|without) \(([^)]*)\)", expr)
        used = {label for one in lists for label in one.split(", ")} | set(re.findall(r"(\w+)(?:=~|!=|=)\"", expr))
        assert used <= labels, (expr, used - labels)


def chosen(text, **values):
    """A query of the dashboard with these values of its variables; all others are at All."""
    return re.sub(r"\$(\w+)", lambda match: values.get(match[1], ".*"), text.replace("$__rate_interval", "5m"))


def the_variables_of_the_dashboard_choose_the_processes_of_its_panels():
    promtool = find("promtool")
    info = {1: 'hpc_job="8812",user="ana",namespace="research",pod="train-0"', 2: 'hpc_job="977",user="bob"',
            3: 'user="bob",namespace="web",pod="train-0"'}
    series = [{"series": 'gpupool_used_bytes{job="gpupool",instance="n1",pid="%d",device="0"}' % pid, "values": "%dx20" % 10 ** pid}
              for pid in info]
    series += [{"series": 'gpupool_process_info{job="gpupool",instance="n1",pid="%d",%s}' % (pid, labels), "values": "1x20"}
               for pid, labels in info.items()]
    panel = {panel["title"]: panel["targets"][0]["expr"] for panel in panels_of(load_dashboard())}
    expected = [({}, 1110, 3), ({"hpc_job": "8812"}, 10, 1), ({"user": "bob"}, 1100, 2), ({"namespace": "web"}, 1000, 1),
                ({"pod": "train-0"}, 1010, 2), ({"hpc_job": "(8812|977)"}, 110, 2), ({"instance": "n2"}, None, 0)]
    cases = []
    for values, used, processes in expected:
        cases.append({"expr": chosen(panel["Used"], **values), "eval_time": "3m",
                      "exp_samples": [] if used is None else [{"labels": "{}", "value": used}]})
        cases.append({"expr": chosen(panel["Processes"], **values), "eval_time": "3m",
                      "exp_samples": [{"labels": "{}", "value": processes}]})
    cases.append({"expr": chosen(panel["Used by batch job"], user="bob"), "eval_time": "3m",
                  "exp_samples": [{"labels": '{hpc_job="977",user="bob"}', "value": 100},
                                  {"labels": '{user="bob"}', "value": 1000}]})
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        json.dump({"evaluation_interval": "1m",
                   "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": cases}]}, file)
        file.flush()
        done = subprocess.run([promtool, "test", "rules", file.name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def promtool_accepts_the_rules_and_their_cases_pass():
    promtool = find("promtool")
    cases = pathlib.Path(__file__).resolve().parent / "rules_test.yml"
    rules = pathlib.Path(DASHBOARD).resolve().parent / "gpupool-rules.yml"
    done = subprocess.run([promtool, "check", "rules", rules], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        file.write(cases.read_text().replace("RULES", str(rules)))
        file.flush()
        done = subprocess.run([promtool, "test", "rules", file.name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def the_rules_query_only_basic_metrics():
    rules = (pathlib.Path(DASHBOARD).resolve().parent / "gpupool-rules.yml").read_text()
    device = dict(STATUS["devices"][0], uuid="GPU-0")
    with Process({"status": dict(STATUS, devices=[device])}) as process, exporter(process) as port:
        existing = names_in(fetch(port)[1])
    queried = set(re.findall(r"(?<!:)\bgpupool_\w+", rules))
    assert queried and queried <= existing, queried - existing


def the_dashboard_has_the_members_that_grafana_requires():
    dashboard = load_dashboard()
    assert dashboard["uid"] and dashboard["title"] and dashboard["schemaVersion"] >= 36 and dashboard["id"] is None
    names = {variable["name"] for variable in dashboard["templating"]["list"]}
    cells = set()
    for panel in dashboard["panels"]:
        position = panel["gridPos"]
        assert 0 <= position["x"] and position["x"] + position["w"] <= 24 and position["h"] > 0, panel["title"]
        own_cells = {(x, y) for x in range(position["x"], position["x"] + position["w"])
                for y in range(position["y"], position["y"] + position["h"])}
        assert not cells & own_cells, panel["title"]
        cells |= own_cells
    for panel in panels_of(dashboard):
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] and panel["type"] in ("timeseries", "stat", "table")
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        for used in re.findall(r"\$(\w+)", json.dumps(panel["targets"])):
            assert used in names or used == "__rate_interval", used
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def missing_members(given, kept, where="dashboard"):
    """The members of the dashboard that changed or are missing after a round trip; empty members may be missing."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for key, value in given.items():
            if value is not None:
                yield from missing_members(value, kept.get(key), "%s.%s" % (where, key))
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for nth, pair in enumerate(zip(given, kept)):
            yield from missing_members(*pair, "%s[%d]" % (where, nth))
    elif given != kept:
        yield where, given, kept


def grafanas_schema_has_every_member_of_the_dashboard():
    try:
        from grafana_foundation_sdk.cog.encoder import JSONEncoder
        from grafana_foundation_sdk.models.dashboard import Dashboard
    except ImportError as error:
        raise Skip("no Python module grafana_foundation_sdk") from error
    given = load_dashboard()
    kept = json.loads(JSONEncoder().encode(Dashboard.from_json(load_dashboard())))
    missing = list(missing_members(given, kept))
    assert not missing, missing


def promtool_accepts_the_queries_of_the_dashboard():
    promtool = find("promtool")
    rules = [{"record": "a:b:c%d" % nth, "expr": text} for nth, text in enumerate(expressions(load_dashboard()))]
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
        file.flush()
        done = subprocess.run([promtool, "check", "rules", file.name], capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


readers.main([
    promtool_accepts_the_names_of_the_metrics,
    the_parser_of_prometheus_client_accepts_the_metrics,
    both_formats_have_the_same_samples,
    each_repetition_of_a_watch_is_a_complete_exposition,
    each_step_has_a_count_and_a_time,
    each_reason_that_has_left_an_allocation_to_the_driver_has_its_count,
    hostile_answers_of_a_process_cause_no_duplicate_series,
    every_counter_of_a_pool_is_a_metric,
    each_region_has_its_series_once_up_to_the_limit_of_regions,
    debug_counters_are_exported_only_while_memory_debugging_is_on,
    a_device_has_the_uuid_that_other_exporters_use,
    memory_given_to_other_processes_is_counted,
    arguments_of_the_command_are_not_exported,
    the_exporter_serves_its_paths_and_refuses_others,
    a_page_is_compressed_for_a_client_that_accepts_gzip,
    a_busy_process_on_one_device_has_at_most_13_series_of_its_own,
    pinned_memory_that_a_process_does_not_use_has_no_series,
    thirty_two_processes_have_at_most_440_series_and_10_kb_on_the_wire,
    a_device_that_several_processes_use_has_its_rows_once,
    the_start_of_a_process_is_a_time,
    a_silent_client_does_not_delay_other_clients,
    a_new_client_is_served_while_others_hold_all_connections,
    a_host_name_in_a_request_is_refused_on_a_loopback_address,
    a_process_that_has_ended_is_removed_from_the_metrics,
    a_stopped_process_keeps_its_memory_and_labels_in_the_metrics,
    addresses_without_a_numeric_host_listen_on_loopback,
    an_ipv6_host_is_written_in_brackets,
    malformed_addresses_are_refused,
    a_prometheus_server_scrapes_the_exporter,
    the_dashboard_queries_only_existing_metrics,
    the_variables_of_the_dashboard_list_existing_labels_of_existing_metrics,
    queries_and_rules_use_only_existing_labels,
    the_variables_of_the_dashboard_choose_the_processes_of_its_panels,
    the_dashboard_has_the_members_that_grafana_requires,
    grafanas_schema_has_every_member_of_the_dashboard,
    promtool_accepts_the_queries_of_the_dashboard,
    promtool_accepts_the_rules_and_their_cases_pass,
    the_rules_query_only_basic_metrics,
])
