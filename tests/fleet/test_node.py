# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Usage: test_node.py GUEST LIBRARY SIM GPUPOOL-STAT

The counters of the node: they rise by exactly what happens, across the ends of processes, scrapes and exporters.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import urllib.request

import fleet
from fleet import HEADER, Skip, folder, make_page, pages, run, start

OOMS = "gpupool_node_out_of_memory_errors_total"
MIB = 1 << 20


@contextlib.contextmanager
def exporter(path, *words):
    """Runs an exporter, and yields a function that scrapes it: the values of all samples by their names and labels."""
    child = subprocess.Popen([fleet.STAT, "export", "--listen=127.0.0.1:0", *words], env=fleet.environment(path), text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        line = child.stdout.readline()
        if not line:
            why = child.stderr.read()
            if "without HTTP" in why:
                raise Skip(why.strip())
            raise AssertionError(why)
        url = line.strip()

        def scrape():
            with urllib.request.urlopen(url, timeout=60) as answer:
                return parse(answer.read().decode())

        scrape.pid = child.pid
        yield scrape
        child.terminate()
        assert child.wait(60) in (0, -signal.SIGKILL), child.stderr.read()
    finally:
        child.kill()
        child.wait()


def parse(text):
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, value in lines}


def errors_of_short_processes_are_counted_exactly_however_they_end():
    ends = (("kill",), ("_exit",), ())
    with folder() as path, exporter(path) as scrape:
        assert scrape()[OOMS] == 0
        for nth in range(10):
            run(path, "fail=7", *ends[nth % len(ends)])
            if nth % 4 == 1:
                assert scrape()[OOMS] == 7 * (nth + 1)
        found = scrape()
        assert found[OOMS] == 70 and found["gpupool_node_processes_total"] == 10, found
        assert [value for name, value in found.items() if name.startswith("gpupool_user_out_of")] == [70], found
        assert scrape()[OOMS] == 70


def errors_of_a_process_that_runs_are_counted_while_it_runs():
    with folder() as path, exporter(path) as scrape:
        guest = start(path, *["fail=2", "say=failed", "await"] * 3, "kill")
        for nth in range(1, 4):
            guest.stdout.readline()
            assert scrape()[OOMS] == 2 * nth
            guest.stdin.write("\n")
            guest.stdin.flush()
        guest.communicate()
        assert scrape()[OOMS] == 6


def errors_before_the_first_exporter_are_not_counted():
    with folder() as path:
        run(path, "fail=5", "kill")
        guest = start(path, "fail=3", "say=failed", "await", "fail=1", "say=failed", "await")
        guest.stdout.readline()
        with exporter(path) as scrape:
            assert scrape()[OOMS] == 0
            guest.stdin.write("\n")
            guest.stdin.flush()
            guest.stdout.readline()
            assert scrape()[OOMS] == 1
        fleet.end(guest)


def hits_of_ended_processes_are_counted():
    with folder() as path, exporter(path) as scrape:
        run(path, "hits=1000")
        found = scrape()
    assert found["gpupool_node_hits_total"] + found["gpupool_node_misses_total"] == 1000, found
    assert found["gpupool_node_driver_seconds_total"] >= 0


def a_state_file_continues_the_counters_even_after_a_killed_exporter():
    with folder() as path:
        state = path / "state.json"
        with exporter(path, f"--state={state}") as scrape:
            run(path, "fail=5", "kill")
            assert scrape()[OOMS] == 5
            os.kill(scrape.pid, signal.SIGKILL)
        run(path, "fail=2")
        with exporter(path, f"--state={state}") as scrape:
            assert scrape()[OOMS] == 7
            run(path, "fail=1")
            assert scrape()[OOMS] == 8
            assert scrape()["gpupool_node_processes_total"] == 3
        text = subprocess.run([fleet.STAT, "metrics", f"--state={state}"], env=fleet.environment(path), text=True,
                              capture_output=True, check=True).stdout
        assert parse(text)[OOMS] == 8


def a_page_is_removed_a_minute_after_its_process_has_been_found_to_have_ended():
    with folder() as path:
        state = path / "state.json"
        guest = start(path, "fail=1", "say=ready", "await")
        guest.stdout.readline()
        words = [fleet.STAT, "metrics", f"--state={state}"]
        subprocess.run(words, env=fleet.environment(path), capture_output=True, check=True)
        run(path, "fail=2", "kill")
        assert len(pages(path)) == 2
        subprocess.run(words, env=fleet.environment(path), capture_output=True, check=True)
        assert len(pages(path)) == 2
        saved = json.loads(state.read_text())
        assert sorted(bool(mark["ended_s"]) for mark in saved["processes"]) == [False, True], saved
        for mark in saved["processes"]:
            mark["ended_s"] -= min(mark["ended_s"], 61)
        state.write_text(json.dumps(saved))
        found = subprocess.run(words, env=fleet.environment(path), capture_output=True, text=True, check=True)
        assert len(pages(path)) == 1 and parse(found.stdout)[OOMS] == 2
        found = subprocess.run(words, env=fleet.environment(path), capture_output=True, text=True, check=True)
        assert parse(found.stdout)[OOMS] == 2
        fleet.end(guest)


def a_process_without_a_page_is_counted_from_its_answers():
    with folder() as path, exporter(path) as scrape:
        guest = start(path, "await", "fail=2", "say=failed", "await", "fail=3", "say=failed", "await")
        ticks = pathlib.Path(f"/proc/{guest.pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
        (path / f"{guest.pid}.{ticks}.page").mkdir()
        (path / f"{guest.pid}.{ticks}.page/file").touch()
        for total in (2, 5):
            guest.stdin.write("\n")
            guest.stdin.flush()
            guest.stdout.readline()
            assert scrape()[OOMS] == total
        fleet.end(guest)


def a_process_that_never_answered_shows_the_memory_of_its_page():
    with folder() as path:
        guest = start(path, "hold=64", "fail=1", "say=ready", "await")
        guest.stdout.readline()
        fleet.await_true(lambda: fleet.only_page(path).devices[0]["used_bytes"] >= 64 * MIB, "sizes on the page")
        os.kill(guest.pid, signal.SIGSTOP)
        os.waitpid(guest.pid, os.WUNTRACED)
        with exporter(path) as scrape:
            found = scrape()
        fleet.end(guest)
    used, = (value for name, value in found.items() if re.match(r'gpupool_used_bytes\{.*device="0"', name))
    assert used >= 64 * MIB and found['gpupool_up{pid="%d"}' % guest.pid] == 0
    info, = (name for name in found if name.startswith("gpupool_process_info"))
    assert 'command="app_fleet"' in info, info


def hostile_pages_harm_neither_the_exporter_nor_the_counters():
    with folder() as path, exporter(path) as scrape:
        make_page(path, 2 ** 30, 1, ooms=3)
        make_page(path, 2 ** 30, 2, ooms=2 ** 64 - 1, hits=2 ** 63)
        make_page(path, 2 ** 30, 3, ooms=9, is_whole=False)
        os.mkfifo(path / f"{2 ** 30}.4.page")
        (path / f"{2 ** 30}.5.page").symlink_to("/dev/zero")
        (path / f"{2 ** 30}.6.page").mkdir()
        file = make_page(path, 2 ** 30, 7, ooms=9)
        data = bytearray(file.read_bytes())
        struct.pack_into("=Q", data, fleet.FIGURES_AT + 32 + fleet.MEMORY_FORM.size, 2 ** 63)  # the number of devices
        file.write_bytes(data)
        file = make_page(path, 2 ** 30, 8, ooms=9)
        data = bytearray(file.read_bytes())
        struct.pack_into("=I", data, 8, 2)  # the version
        file.write_bytes(data)
        make_page(path, os.getpid(), 9, ooms=4, texts=["v" * 64, "p" * 64, "c" * 64, "l" * 64])
        assert scrape()[OOMS] == 7
        make_page(path, 2 ** 30, 1, ooms=1)  # the page of another program, which has counted anew
        found = scrape()
        assert found[OOMS] == 8 and found["gpupool_node_hits_total"] == 0, found


def a_state_file_of_another_kind_is_refused_and_an_unwritable_one_reported():
    with folder() as path:
        state = path / "state.json"
        state.write_text("{}")
        done = subprocess.run([fleet.STAT, "metrics", f"--state={state}"], env=fleet.environment(path), text=True,
                              capture_output=True, check=False)
        assert done.returncode == 1 and "is not a file of --state" in done.stderr, done
        assert state.read_text() == "{}"
        done = subprocess.run([fleet.STAT, "metrics", f"--state={path}/none/state"], env=fleet.environment(path), text=True,
                              capture_output=True, check=False)
        assert done.returncode == 0 and "cannot be written: No such file" in done.stderr, done
        assert parse(done.stdout)[OOMS] == 0


def counters_of_the_node_need_a_state_or_an_exporter():
    with folder() as path:
        done = subprocess.run([fleet.STAT, "metrics"], env=fleet.environment(path), text=True, capture_output=True, check=True)
        assert "gpupool_node" not in done.stdout


def yields_are_passed_on_by_root_of_the_machine_alone():
    """scripts/yield-test has the tests that root can run."""
    words = [fleet.STAT, "export", "--yield", "--listen=127.0.0.1:0"]
    with folder() as path:
        who = {"user": 34567} if os.geteuid() == 0 else {}
        done = subprocess.run(words, env=fleet.environment(path), text=True, capture_output=True, check=False, **who)
        if "without HTTP" in done.stderr:
            raise Skip(done.stderr.strip())
        assert done.returncode == 4 and "--yield needs root" in done.stderr and "Next: run it as root" in done.stderr, done
        if os.geteuid() == 0:  # the directory of the test is one of GPUPOOL_RUNTIME_DIR
            done = subprocess.run(words, env=fleet.environment(path), text=True, capture_output=True, check=False)
            assert done.returncode in (2, 4) and "Next:" in done.stderr, done


fleet.main([
    errors_of_short_processes_are_counted_exactly_however_they_end,
    errors_of_a_process_that_runs_are_counted_while_it_runs,
    errors_before_the_first_exporter_are_not_counted,
    hits_of_ended_processes_are_counted,
    a_state_file_continues_the_counters_even_after_a_killed_exporter,
    a_page_is_removed_a_minute_after_its_process_has_been_found_to_have_ended,
    a_process_without_a_page_is_counted_from_its_answers,
    a_process_that_never_answered_shows_the_memory_of_its_page,
    hostile_pages_harm_neither_the_exporter_nor_the_counters,
    a_state_file_of_another_kind_is_refused_and_an_unwritable_one_reported,
    counters_of_the_node_need_a_state_or_an_exporter,
    yields_are_passed_on_by_root_of_the_machine_alone,
])
