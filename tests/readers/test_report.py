# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Usage: test_report.py GPUPOOL_STAT TRACES SANITIZER

Checks the output of gpupool-stat report as a file, and drawn by a headless Chromium, if that is installed. Screenshots
stay in the folder named by GPUPOOL_TEST_PICTURES.
"""

import base64
import html.parser
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zlib

import readers
from readers import HOSTILE, LEAKS, Process, Recording, find

STAT, TRACES, SANITIZER = sys.argv[1:4]
MIB = 1 << 20
BASE = 0x7f0000000000
FOLDER = tempfile.TemporaryDirectory(prefix="gpupool-readers-")

def path(name):
    return os.path.join(FOLDER.name, name)


def report(source, name, *words, env=None):
    """Makes a report, and returns its path."""
    out = path(name + ".html")
    readers.stat(STAT, "report", source, "-o", out, *words, env=env)
    return out


def make_recording():
    """A recording with a pool of a device that runs out of memory, and with pinned memory."""
    r = Recording().pool(0)
    r.put("RESERVE", BASE, 20 * MIB, 0).put("ALLOC", BASE, 4 * MIB + 1, 0).put("ALLOC", BASE + 8 * MIB, 8 * MIB, 0)
    r.put("RESERVE", BASE + 64 * MIB, 2 * MIB, 0)
    r.put("RESERVE", BASE + 128 * MIB, 50 * MIB, -12).put("RELEASE", BASE + 64 * MIB, 0, 0)
    r.put("RESERVE", BASE + 128 * MIB, 40 * MIB, 0).put("ALLOC", BASE + 128 * MIB, 40 * MIB, 0)
    r.put("RESERVE", 0, 1 << 40, -12).put("ALLOC", 0, 1 << 40, -12).put("ALLOC", 0, 3 * MIB, -12)
    r.put("FREE", BASE, 0, 0)
    r.pool(1, pinned=1, kind=2).put("RESERVE", 512 * MIB, MIB, 0).put("ALLOC", 512 * MIB, MIB, 0)
    return r.put("EXIT").save(path("made.rec"))


def make_limited_recording():
    """A recording with stacks, whose limit is raised, forbids three allocations, and leaves one to the driver."""
    r = Recording(True).pool(0, limit=64 * MIB)
    r.object(1, "/opt/app/solver", bytes(range(20))).place(7, "train" + HOSTILE, "/src/train.py", 12)
    r.stack(3, (1, 0x1000), (-2, 7)).stack(5, (-1, 0x77))
    r.put("RESERVE", BASE, 30 * MIB, 0).put("ALLOC", BASE, 30 * MIB, 0, 0, 3)
    r.put("ALLOC", 0, 80 * MIB, -12, 0, 5)  # more than the limit
    r.put("ALLOC", 0, 50 * MIB, -12, 0, 3)  # more than is left of it
    r.put("LIMIT", 96 * MIB, 0).put("UNPOOLED", 0, 32 * MIB)
    r.put("RESERVE", BASE + 64 * MIB, 30 * MIB, 0).put("ALLOC", BASE + 64 * MIB, 30 * MIB, 0, 0, 5)
    r.put("FREE", BASE, 0, 0).put("ALLOC", BASE, 30 * MIB, 0, 0, 3)
    r.put("ALLOC", 0, 20 * MIB, -12)  # the program holds nearly all of the limit
    r.put("LIMIT", Recording.NO_LIMIT, 0).put("RESERVE", 0, 8 * MIB, -12).put("ALLOC", 0, 8 * MIB, -12)
    r.put("FREE", BASE + 64 * MIB, 0, 0).put("RELEASE", BASE + 64 * MIB, 0, 0)
    return r.put("EXIT").save(path("limited.rec"))


def make_long_recording(n):
    """A recording of n operations on a window of blocks."""
    r = Recording().pool(0).put("RESERVE", BASE, 1024 * MIB, 0)
    for i in range(n // 2):
        r.put("ALLOC", BASE + i % 512 * 2 * MIB, MIB + i % 997, 0)
        r.put("FREE", BASE + (i * 7 + 3) % 512 * 2 * MIB, 0, 0)
    return r.put("EXIT").save(path("long.rec"))


class Page(html.parser.HTMLParser):
    """The scripts of a page by name, and its elements that would load external resources."""

    def __init__(self, text):
        super().__init__()
        self.scripts, self.external, self.current_script = {}, [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.external += [(tag, name) for name in attributes if name in ("src", "href", "onload", "onerror", "onclick")]
        self.current_script = attributes.get("id", "code") if tag == "script" else None
        if self.current_script:
            assert self.current_script not in self.scripts, "two scripts " + self.current_script
            self.scripts[self.current_script] = ""

    def handle_data(self, data):
        if self.current_script:
            self.scripts[self.current_script] += data

    def handle_endtag(self, tag):
        self.current_script = None


def load(file):
    return Page(pathlib.Path(file).read_text(encoding="utf-8"))


def facts_of(page):
    return json.loads(page.scripts["facts"])


def a_report_is_one_file_without_external_resources():
    text = pathlib.Path(report(make_recording(), "made")).read_text(encoding="utf-8")
    page = Page(text)
    assert not page.external and set(page.scripts) == {"events", "facts", "code"}
    assert "default-src 'none'" in text and not re.search(r"https?://|innerHTML|document\.write|eval\(", text)


def the_facts_of_a_report_match_the_recording():
    facts = facts_of(load(report(make_recording(), "made")))
    device, pinned = facts["memories"]
    assert (device["name"], device["peak_total_bytes"]) == ("device 0", 60 * MIB)
    assert device["peak_used_bytes"] == 52 * MIB + 512 and pinned["peak_used_bytes"] == MIB
    first, second, third = facts["episodes"]
    # These are the bytes that the program requested, not those of the driver allocation that failed.
    assert (first["requested_bytes"], first["returned_bytes"], first["is_served"]) == (40 * MIB, 2 * MIB, True)
    assert (second["requested_bytes"], second["n_denied"], second["is_served"]) == (1 << 40, 1, False)
    # A limit forbids this allocation, so the driver is not asked.
    assert (third["requested_bytes"], third["n_denied"], third["is_served"]) == (3 * MIB, 0, False)
    assert [moment["requested_bytes"] for moment in facts["refused"]] == [1 << 40, 3 * MIB]


def the_key_figures_and_the_limit_match_the_recording():
    facts = facts_of(load(report(make_limited_recording(), "limited")))
    (figures,), (memory,) = facts["figures"], facts["memories"]
    assert figures == {"number": 0, "name": "device 0", "peak_used_bytes": 60 * MIB, "peak_total_bytes": 60 * MIB,
                       "allocs": 3, "hits": 1, "failed": 4, "driver_allocs": 2, "driver_frees": 1, "limit_bytes": None,
                       "limit_changes": 2}, figures
    assert [limit for _, limit in memory["limits"]] == [64 * MIB, 96 * MIB, None]
    times = [ns for ns, _ in memory["limits"]]
    assert times == sorted(times) and times[0] < times[1] <= facts["duration_ns"]


def a_trace_has_no_figures_of_a_driver():
    (figures,) = facts_of(load(report(TRACES + "/cupy.txt.gz", "trace")))["figures"]
    assert figures.keys() == {"number", "name", "peak_used_bytes", "allocs", "failed"} and figures["allocs"] == 2564


def a_report_distinguishes_free_memory_in_pieces_from_memory_that_may_be_in_use():
    r = Recording().pool(0, limit=64 * MIB).put("RESERVE", BASE, 32 * MIB, 0).put("RESERVE", BASE + 64 * MIB, 32 * MIB, 0)
    r.put("ALLOC", BASE + 4 * MIB, 6 * MIB, 0).put("ALLOC", BASE + 64 * MIB, 20 * MIB, 0)
    r.put("ALLOC", 0, 22 * MIB + 1, -12).put("ALLOC", 0, 22 * MIB, -12)
    facts = facts_of(load(report(r.put("EXIT").save(path("pieces.rec")), "pieces")))
    assert [episode["cause"] for episode in facts["episodes"]] == [
        "fragmentation: 38.0 MiB are cached between blocks that the program holds, but the largest unused block has 22.0 MiB, "
        "512 B too little",
        "the limit is reached: of 38.0 MiB that are free, the GPU may still be using some, or they are reserved for other "
        "sizes"], facts["episodes"]


def failures_under_a_limit_have_the_causes_of_the_message():
    facts = facts_of(load(report(make_limited_recording(), "limited")))
    causes = [episode["cause"] for episode in facts["episodes"]]
    assert causes == [
        "the request is larger than the limit",
        "the limit is reached: 16.0 MiB short even if all available memory were contiguous",
        "the limit is reached: the program itself holds 92.0 MiB of the 96.0 MiB that it may use (95.8 %)",
        "the device is full: the driver refused 1 time"], causes
    assert facts["oom"] == "Out of memory on device 0: a request for 80.0 MiB failed; " + causes[0]
    first, second, third, _ = facts["episodes"]
    assert first["process"] == "used 30.0 MiB, unused 0 B, not pooled 0 B, limit 64.0 MiB", first
    assert third["process"] == "used 60.0 MiB, unused 0 B, not pooled 32.0 MiB, limit 96.0 MiB", third
    assert (first["requested_at"], "requested_at" in third) == ("0x77", False)
    assert second["requested_at"].startswith("solver+0x1000 < train"), second


def a_report_of_a_recording_with_stacks_has_the_call_sites_at_the_chosen_moment():
    file = make_limited_recording()
    facts = facts_of(load(report(file, "limited")))
    assert facts["held"].startswith("Device memory at its peak, ") and facts["held"].endswith(": 60.0 MiB in 2 blocks")
    assert [(site["bytes"], site["blocks"]) for site in facts["sites"]] == [(30 * MIB, 1)] * 2
    assert sorted(len(site["frames"]) for site in facts["sites"]) == [1, 2]
    facts = facts_of(load(report(file, "limited", "--at=end")))
    assert facts["held"].startswith("Device memory at the end, ") and len(facts["sites"]) == 1
    assert facts_of(load(report(file, "limited", "--pinned")))["sites"] == []
    readers.stat(STAT, "report", file, "--pinned", "--device=0", expected=2)
    readers.stat(STAT, "report", make_recording(), "--at=end", expected=2)
    assert "sites" not in facts_of(load(report(make_recording(), "made")))


def a_limited_report_has_the_last_events_and_the_state_before_them():
    page = load(report(TRACES + "/cupy.txt.gz", "last", "-n", 1000))
    facts = facts_of(page)
    packed = base64.b64decode(page.scripts["events"], validate=True)
    assert facts["n_events"] >= 1000 and len(zlib.decompress(packed)) >= 4 * facts["n_events"]
    assert "only in the curves" in facts["notes"][0]


def a_hostile_name_cannot_break_out_of_its_markup():
    leaks = path("leaks.json")
    pathlib.Path(leaks).write_text(json.dumps(LEAKS))
    page = load(report(leaks, "leaks"))
    assert not page.external and set(page.scripts) == {"events", "facts", "code"}
    frames = [frame for site in facts_of(page)["sites"] for frame in site["frames"]]
    assert any("</script><b>" in frame for frame in frames), frames
    recording = path(HOSTILE.replace("/", "").replace("\n", "") + ".rec")
    os.rename(make_recording(), recording)
    page = load(report(recording, "named"))
    assert set(page.scripts) == {"events", "facts", "code"} and "<b>" in facts_of(page)["title"]


def a_report_that_cannot_be_written_is_an_error():
    recording = make_recording()
    readers.stat(STAT, "report", recording, "-o", path("none/x"), expected=1)
    readers.stat(STAT, "report", recording, "-o", "/dev/full", expected=1)
    readers.stat(STAT, "report", path("none"), expected=1)
    readers.stat(STAT, "report", expected=2)
    readers.stat(STAT, "report", "999999999", expected=3)


def report_several(sources, name, *words, expected=0):
    out = path(name + ".html")
    readers.stat(STAT, "report", *sources, "-o", out, *words, expected=expected)
    return out


def several_recordings_are_one_page_with_the_memories_of_each():
    made, limited = make_recording(), make_limited_recording()
    page = load(report_several([made, limited], "both"))
    facts = facts_of(page)
    assert (facts["title"], facts["source"], facts["n_events"]) == ("2 recordings", "recordings", 0)
    names = [made + ": device 0", made + ": pinned memory", limited + ": device 0"]
    assert [memory["name"] for memory in facts["memories"]] == [figure["name"] for figure in facts["figures"]] == names
    numbers = [memory["number"] for memory in facts["memories"]]
    assert numbers == [figure["number"] for figure in facts["figures"]] and len(set(numbers)) == 3
    alone = [facts_of(load(report(source, "alone"))) for source in (made, limited)]
    assert facts["duration_ns"] == max(one["duration_ns"] for one in alone)
    assert facts["refused"] == [dict(moment, memory=numbers[2 * nth]) for nth, one in enumerate(alone) for moment in one["refused"]]
    assert [memory["peak_used_bytes"] for memory in facts["memories"]] == [
        memory["peak_used_bytes"] for one in alone for memory in one["memories"]]
    assert [episode["memory"] for episode in facts["episodes"]] == [names[0]] * 3 + [names[2]] * len(alone[1]["episodes"])
    assert facts["oom"].startswith(made + ": ") and not page.external


def a_report_of_several_files_takes_only_recordings():
    made, leaks = make_recording(), path("leaks.json")
    pathlib.Path(leaks).write_text(json.dumps(LEAKS))
    for other in TRACES + "/cupy.txt.gz", leaks, "999999999":
        file = report_several([made, other], "refused", expected=3 if other.isdigit() else 2)
        assert not os.path.exists(file)
    report_several([made, path("none")], "refused", expected=1)
    for words in ("-n", "5"), ("--at=peak",), ("--device=0",), ("--pinned",):
        report_several([made, made], "refused", *words, expected=2)
    report_several([made] * 257, "refused", expected=2)
    before = pathlib.Path(made).read_bytes()
    readers.stat(STAT, "report", make_limited_recording(), made, "-o", made, expected=1)
    assert pathlib.Path(made).read_bytes() == before


def a_damaged_recording_among_several_is_shown_up_to_its_damage():
    made, cut = make_recording(), path("cut.rec")
    pathlib.Path(cut).write_bytes(pathlib.Path(make_limited_recording()).read_bytes()[:-9] + b"\xff" * 20)
    facts = facts_of(load(report_several([cut, made], "damaged", expected=1)))
    assert len(facts["memories"]) == 3
    assert any(note.startswith(cut + ": The recording is incomplete: ") for note in facts["notes"]), facts["notes"]


def a_hostile_name_of_a_recording_cannot_break_out_of_its_markup():
    hostile = path("<!--<b>\u202e.rec")
    pathlib.Path(hostile).write_bytes(pathlib.Path(make_recording()).read_bytes())
    text = pathlib.Path(report_several([hostile, make_recording()], "named")).read_text(encoding="utf-8")
    assert "<b>" not in text and "\u202e" not in text and "\\u202e" not in text


def draw(file, link=""):
    """Opens the page in a browser; returns its labels and its text after drawing."""
    if SANITIZER != "none":
        raise readers.Skip("the report was made; a sanitiser does not examine the browser")
    chromium = find("chromium", "chromium-browser")
    words = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
             "--user-data-dir=" + path("browser"), "--virtual-time-budget=60000", "--window-size=1280,1500"]
    env = dict(os.environ, HOME=FOLDER.name)
    address = pathlib.Path(file).as_uri() + link
    done = subprocess.run([*words, "--dump-dom", address], env=env, capture_output=True, timeout=250, check=False)
    text = done.stdout.decode()
    assert 'data-ready="yes"' in text, text[-2000:] + done.stderr.decode()
    pictures = os.environ.get("GPUPOOL_TEST_PICTURES")
    if pictures:
        name = pathlib.Path(file).stem + re.sub(r"\W", "-", link) + ".png"
        subprocess.run([*words, "--screenshot=" + os.path.join(pictures, name), address], env=env, capture_output=True,
                       timeout=250, check=True)
    return {match[1]: match[2] for match in re.finditer(r'id="(curve|map|flame)"[^>]*aria-label="([^"]*)"', text)}, text


def figures_in(text):
    """The key figures of a page: for each name its value and its explanation."""
    pattern = r'<dt>([^<]*)</dt><dd class="value[^"]*">([^<]*)</dd><dd>([^<]*)</dd>'
    return {match[1]: (match[2], match[3]) for match in re.finditer(pattern, text)}


def a_browser_draws_the_limit_and_the_call_sites_of_a_recording():
    labels, text = draw(report(make_limited_recording(), "limited"))
    assert labels["curve"].startswith("device 0: at most 60.0 MiB used, 60.0 MiB total"), labels
    assert labels["flame"] == "4 frames, 60.0 MiB", labels
    assert figures_in(text) == {
        "Peak used": ("60.0 MiB", "by the program"), "Peak taken": ("60.0 MiB", "from the driver, 1.00 times the used"),
        "Hit rate": ("33.3%", "1 of 3 allocations"), "Driver calls": ("3", "2 took memory, 1 returned"),
        "Limit": ("none", "changed 2 times"), "Out-of-memory errors": ("4", figures_in(text)["Out-of-memory errors"][1])}
    assert "cause: the request is larger than the limit\nrequested at: 0x77</div>" in text
    assert '<span id="limit-key"><i' in text and "<b>" not in re.sub(r"(?s)<script.*?</script>", "", text)


def a_browser_draws_a_recording_at_every_event():
    file = report(make_recording(), "made")
    labels, text = draw(file, "#at=1")
    assert labels["curve"].startswith("device 0: at most 52.0 MiB used, 60.0 MiB total"), labels
    assert labels["map"] == "device 0: 2 segments, 2 blocks, 48.0 MiB of 60.0 MiB", labels
    assert re.search(r"<td>40\.0 MiB</td><td>1</td><td>2\.00 MiB</td><td>served</td>", text), text
    assert figures_in(text)["Peak taken"] == ("60.0 MiB", "from the driver, 1.15 times the used"), figures_in(text)
    assert figures_in(text)["Out-of-memory errors"] == ("2", "the first at 13.00 \u00b5s"), figures_in(text)
    labels, _ = draw(file, "#at=0.45")
    assert labels["map"] == "device 0: 1 segment, 2 blocks, 12.0 MiB of 20.0 MiB", labels
    labels, _ = draw(file, "#memory=64&at=1")
    assert labels["map"] == "pinned memory: 1 segment, 1 block, 1.00 MiB of 1.00 MiB", labels


def a_browser_opens_a_report_at_a_failure_or_at_the_peak():
    labels, _ = draw(report(make_recording(), "made"))
    assert labels["map"] == "device 0: 2 segments, 3 blocks, 52.0 MiB of 60.0 MiB", labels  # an allocation fails
    labels, _ = draw(report(TRACES + "/cupy.txt.gz", "cupy"))
    assert labels["map"] == "device 0: 10 segments, 10 blocks, 80.1 MiB of 80.1 MiB", labels


def a_browser_shows_no_event_before_the_first_with_a_map():
    file = report(TRACES + "/cupy.txt.gz", "short", "-n", 40)
    for link in "", "#at=0":
        labels, text = draw(file, link)
        found = re.fullmatch(r"device 0: (\d+) segments?, (\d+) blocks?, .*", labels["map"])
        assert found and int(found[1]) and int(found[2]), labels
        assert re.search(r"after event \d+ of 40, ", text), text


def a_browser_draws_a_timeline_for_each_of_several_recordings():
    file = report_several([make_recording(), make_limited_recording()], "several")
    labels, text = draw(file, "#memory=%d" % facts_of(load(file))["memories"][2]["number"])
    drawn = re.findall(r'<canvas class="small"[^>]*aria-label="[^"]*: (device 0|pinned memory): at most ([^"]*)"', text)
    assert drawn == [("device 0", "52.0 MiB used, 60.0 MiB total"), ("pinned memory", "1.00 MiB used, 1.00 MiB total"),
                     ("device 0", "60.0 MiB used, 60.0 MiB total")], text[-3000:]
    assert "map" not in labels and '<section id="layout" hidden' in text
    assert labels["curve"].split(": ")[-1].startswith("at most 60.0 MiB used"), labels
    assert figures_in(text)["Out-of-memory errors"][0] == "4", figures_in(text)


def a_browser_draws_call_sites_and_escapes_their_names():
    leaks = path("leaks.json")
    pathlib.Path(leaks).write_text(json.dumps(LEAKS))
    labels, text = draw(report(leaks, "leaks"))
    assert labels["flame"] == "7 frames, 7.00 MiB", labels
    assert "<b>" not in re.sub(r"(?s)<script.*?</script>", "", text)
    assert text.count("<tr>") == 5


def a_browser_draws_a_process():
    with Process() as process:
        file = report(os.getpid(), "process", env=process.env)
    labels, text = draw(file)
    assert labels["map"] == "device 0: 1 segment, 2 blocks, 80.0 MiB of 208 MiB", labels
    assert "device 0: used 768 MiB, cached 462 MiB" in text
    assert re.search(r"<td>device 0</td><td>settle</td><td>3</td>", text)
    assert "1 out-of-memory error; the last one 1s ago: a request for 1.00 GiB of device memory failed; the device is " \
           "full: 1.00 MiB short even if all available memory were contiguous" in text
    assert figures_in(text)["Hit rate"] == ("99.9%", "999 of 1,000 allocations"), figures_in(text)
    assert figures_in(text)["Limit"] == ("8.00 GiB", "15.0% of it was taken"), figures_in(text)
    assert re.findall(r"<option[^>]*>([^<]*)", text) == ["device 0", "device 1", "pinned memory"], text
    labels, text = draw(file, "#memory=64")
    assert labels["map"] == "pinned memory: 0 segments, 0 blocks, 0 B of 0 B", labels
    assert figures_in(text)["Peak used"] == ("900 MiB", "pinned memory"), figures_in(text)


def a_browser_draws_a_million_events():
    find("chromium", "chromium-browser")
    file = report(make_long_recording(1000000), "long")
    assert os.path.getsize(file) < 20 << 20, os.path.getsize(file)
    labels, _ = draw(file, "#at=0.5")
    assert re.match(r"device 0: 1 segment, \d+ blocks, ", labels["map"]), labels


readers.main([
    a_report_is_one_file_without_external_resources,
    the_facts_of_a_report_match_the_recording,
    the_key_figures_and_the_limit_match_the_recording,
    a_trace_has_no_figures_of_a_driver,
    failures_under_a_limit_have_the_causes_of_the_message,
    a_report_distinguishes_free_memory_in_pieces_from_memory_that_may_be_in_use,
    a_report_of_a_recording_with_stacks_has_the_call_sites_at_the_chosen_moment,
    a_limited_report_has_the_last_events_and_the_state_before_them,
    a_hostile_name_cannot_break_out_of_its_markup,
    a_report_that_cannot_be_written_is_an_error,
    several_recordings_are_one_page_with_the_memories_of_each,
    a_report_of_several_files_takes_only_recordings,
    a_damaged_recording_among_several_is_shown_up_to_its_damage,
    a_hostile_name_of_a_recording_cannot_break_out_of_its_markup,
    a_browser_draws_a_timeline_for_each_of_several_recordings,
    a_browser_draws_the_limit_and_the_call_sites_of_a_recording,
    a_browser_draws_a_recording_at_every_event,
    a_browser_opens_a_report_at_a_failure_or_at_the_peak,
    a_browser_shows_no_event_before_the_first_with_a_map,
    a_browser_draws_call_sites_and_escapes_their_names,
    a_browser_draws_a_process,
    a_browser_draws_a_million_events,
])
