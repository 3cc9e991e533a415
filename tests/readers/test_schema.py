# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Answers of processes of the previous release (schema version 1), and files that it has saved, are read and printed with
the present names.

Usage: test_schema.py GPUPOOL-STAT FOLDER [TEST...]

FOLDER has answers and files of the release before version 2: a program with call stacks, a limit, unused memory and an
out-of-memory error, on the simulated GPU. saved-oom.json is what the library saved, run.rec its recording.
"""

import json
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import readers

STAT, FOLDER = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
sys.argv[1:3] = []

OLD = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json")) if path.stem != "saved-oom"}
SAVED = FOLDER / "saved-oom.json"
MIB = 1 << 20

# The names of version 1 that are gone, and what they have become.
RENAMED = {
    "status": {"free_bytes": "unused_bytes", "n_free_blocks": "n_cached_blocks"},
    "limit": {"total_bytes": "counted_bytes"},
    "map": {"largest_free_bytes": "largest_unused_bytes"},
    "region": {},
    "oom": {"asked_bytes": "requested_bytes", "charged_bytes": "counted_bytes", "free_bytes": "unused_bytes",
            "largest_free_bytes": "largest_unused_bytes", "n_pinned_segments": "n_partly_used_segments",
            "pinned_free_bytes": "partly_used_unused_bytes"},
}
ROUNDS = ("retries", "rounds")  # lists in which yielded_bytes has become gained_bytes


def renamed(value, names, inside=""):
    """The value with the members renamed as RENAMED says, by another way than the program's."""
    if isinstance(value, list):
        return [renamed(item, names, inside) for item in value]
    if not isinstance(value, dict):
        return value
    more = {"yielded_bytes": "gained_bytes"} if inside in ROUNDS else {}
    return {{**names, **more}.get(key, key): renamed(item, names, key) for key, item in value.items()}


def text(process, *words):
    return readers.stat(STAT, *words, env=process.env).decode()


def answers_of_the_previous_release_are_printed_as_version_2():
    assert set(RENAMED) < set(OLD)
    with readers.Process(OLD) as process:
        for name, names in RENAMED.items():
            assert OLD[name]["schema"] == f"gpupool.{name}/1"
            listed = json.loads(text(process, name, "--json"))
            assert listed["schema"] == f"gpupool.{name}-list/2", listed["schema"]
            answer, = listed["processes"]
            assert answer.pop("schema") == f"gpupool.{name}/2"
            wanted = renamed(OLD[name], names)
            del wanted["schema"]
            assert wanted.items() <= answer.items(), (name, wanted, answer)
            assert set(answer) - set(wanted) <= {"pid"}, name


def answers_that_have_not_changed_stay_at_version_1():
    with readers.Process(OLD) as process:
        for name in ("leaks", "debug"):
            listed = json.loads(text(process, name, "--json"))
            assert listed["schema"] == f"gpupool.{name}-list/1", listed["schema"]
            assert listed["processes"][0]["schema"] == f"gpupool.{name}/1"


def screens_show_the_numbers_of_an_older_process():
    with readers.Process(OLD) as process:
        status = text(process, "status")
        device = OLD["status"]["devices"][0]
        assert re.search(r"\n  used +110 MiB  22 blocks, ", status), status
        cached = device["n_free_blocks"]
        assert re.search(rf"\n  cached +\S+ MiB  {cached} blocks\n", status), status
        assert re.search(r"\n  retry 3 all +\d+  times?, 1 B gained, ", status), status
        assert re.search(r"DEVICE +LIMIT +COUNTED\n0 +256 MiB +228 MiB\npinned +none +5.00 MiB\n", text(process, "limit"))
        assert "largest unused block " in text(process, "map")
        oom = text(process, "oom")
        assert "a request for 220 MiB failed\n" in oom, oom
        assert "largest unused block 14.0 MiB" in oom and "\n90.0 MiB are unused in 7 driver allocations " in oom, oom
        assert re.search(r"\nreleasing the whole cache +0 B ", oom), oom
        assert re.search(r"\nSEGMENT +SIZE +UNUSED +BLOCKS .*\n\S+ +32.0 MiB +23.0 MiB +3 ", oom), oom
        assert " 110 MiB  118 MiB  228 MiB  python3 app.py\n" in text(process, "list")
        assert text(process, "reclaim") == "gave 26.0 MiB back to the driver\n"


def metrics_and_fields_of_an_older_process_are_those_of_a_newer_one():
    def read(answers):
        with readers.Process(answers) as process:
            metrics = text(process, "metrics", "--collect=all")
            fields = text(process, "status", "--query=unused_bytes,n_cached_blocks,device_free_bytes")
        return metrics, fields

    new = {**OLD, "status": {**renamed(OLD["status"], RENAMED["status"]), "schema": "gpupool.status/2"}}
    assert read(OLD) == read(new)
    metrics, fields = read(OLD)
    device = OLD["status"]["devices"][0]
    assert re.search(rf"\ngpupool_free_bytes{{[^}}]*device=[^}}]*}} {device['free_bytes']}\n", metrics), metrics
    assert fields.splitlines()[1].startswith(f"{device['free_bytes']} B, {device['n_free_blocks']}, "), fields


def reports_that_the_previous_release_saved_are_shown():
    shown = readers.stat(STAT, "oom", SAVED).decode()
    assert "a request for 220 MiB failed\n" in shown and "90.0 MiB are unused in 7 driver allocations" in shown, shown
    answer = json.loads(readers.stat(STAT, "oom", "--json", SAVED))
    assert answer["schema"] == "gpupool.oom/2" and answer["last"]["requested_bytes"] == 220 * MIB, answer
    assert "asked_bytes" not in answer["last"] and answer["is_saved"] is True
    with tempfile.TemporaryDirectory() as folder:
        listed = pathlib.Path(folder) / "list.json"
        listed.write_text(json.dumps({"schema": "gpupool.oom-list/1", "processes": [OLD["oom"]], "errors": []}))
        assert "a request for 220 MiB failed\n" in readers.stat(STAT, "oom", listed).decode()


def call_sites_that_the_previous_release_saved_are_compared():
    saved = FOLDER / "leaks.json"
    assert "(app.py:" in readers.stat(STAT, "leaks", f"--from={saved}").decode()
    with readers.Process(OLD) as process:
        assert "(app.py:" in text(process, "leaks", f"--diff={saved}")
    assert b"app.py" in readers.stat(STAT, "convert", "--to=folded", saved)


def recordings_and_processes_of_the_previous_release_become_reports():
    with tempfile.TemporaryDirectory() as folder, readers.Process(OLD) as process:
        page = pathlib.Path(folder) / "page.html"
        for source in (FOLDER / "run.rec", process_id()):
            readers.stat(STAT, "report", source, "-o", page, env=process.env)
            assert "<html" in page.read_text()
        assert '"gained_bytes":1' in page.read_text()
        assert json.loads(readers.stat(STAT, "replay", "--json", FOLDER / "run.rec"))["schema"] == "gpupool.replay/1"


def process_id():
    return pathlib.Path("/proc/self").resolve().name


def a_newer_version_than_this_is_refused_with_advice():
    for name, version in (("status", 3), ("status", 0), ("leaks", 2)):
        answer = {**OLD[name], "schema": f"gpupool.{name}/{version}"}
        with readers.Process({**OLD, name: answer}) as process:
            readers.stat(STAT, name, env=process.env, expected=6)


def members_that_no_process_can_have_given_change_nothing():
    both = {"schema": "gpupool.status/1", "devices": [{"index": 0, "free_bytes": 1, "unused_bytes": 2}, 7, [{}]], "retries": 3}
    with readers.Process({**OLD, "status": both}) as process:
        device = json.loads(text(process, "status", "--json"))["processes"][0]["devices"][0]
    assert device == {"index": 0, "free_bytes": 1, "unused_bytes": 2}, device


readers.main([
    answers_of_the_previous_release_are_printed_as_version_2,
    answers_that_have_not_changed_stay_at_version_1,
    screens_show_the_numbers_of_an_older_process,
    metrics_and_fields_of_an_older_process_are_those_of_a_newer_one,
    reports_that_the_previous_release_saved_are_shown,
    call_sites_that_the_previous_release_saved_are_compared,
    recordings_and_processes_of_the_previous_release_become_reports,
    a_newer_version_than_this_is_refused_with_advice,
    members_that_no_process_can_have_given_change_nothing,
])
