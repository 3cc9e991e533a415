# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Usage: test_settings.py GUEST LIBRARY SIM GPUPOOL-STAT

The administrator's files, in a directory that GPUPOOL_CONFIG_DIR names in place of /etc.
"""

import contextlib
import json
import os
import subprocess

import fleet
from fleet import folder, start


@contextlib.contextmanager
def guest_of(path, *words, **variables):
    """A process that says "ready" after these words, with its log in the folder."""
    guest = start(path, *words, "say=ready", "await", GPUPOOL_CONFIG_DIR=str(path), GPUPOOL_LOG_FILE=str(path / "log"),
                  **variables)
    guest.said = []
    while (line := guest.stdout.readline()) not in ("ready\n", ""):
        guest.said.append(line.strip())
    try:
        yield guest
    finally:
        fleet.end(guest)


def write(path, text):
    path.parent.mkdir(exist_ok=True)
    path.parent.chmod(0o755)
    path.write_text(text)
    path.chmod(0o644)


def log_of(path):
    return (path / "log").read_text() if (path / "log").exists() else ""


def config_of(path, guest):
    done = subprocess.run([fleet.STAT, "config", "--json", str(guest.pid)], env=fleet.environment(path), text=True,
                          capture_output=True, check=True)
    return {setting["name"]: (setting["value"], setting["source"]) for setting in json.loads(done.stdout)["settings"]}


def each_value_is_shown_with_the_place_that_it_comes_from():
    with folder() as path:
        write(path / "gpupool.conf", "GPUPOOL_POOL=vmm\nGPUPOOL_RESERVE=1MiB\n[job 47*]\nGPUPOOL_LIMIT=512MiB\n")
        write(path / "gpupool.d" / "50-site.conf", f"# ours\n[user {os.getuid()}]\nGPUPOOL_YIELD=off\n")
        with guest_of(path, "hold=1", GPUPOOL_RESERVE="2MiB", SLURM_JOB_ID="4711") as guest:
            shown = config_of(path, guest)
    assert shown["GPUPOOL_POOL"] == ("vmm", f"{path}/gpupool.conf:1"), shown
    assert shown["GPUPOOL_RESERVE"] == ("2MiB", "environment"), shown
    assert shown["GPUPOOL_LIMIT"] == ("512MiB", f"{path}/gpupool.conf:4"), shown
    assert shown["GPUPOOL_YIELD"] == ("off", f"{path}/gpupool.d/50-site.conf:3"), shown
    assert shown["GPUPOOL_VIEW"] == ("auto", "default"), shown


def a_limit_of_a_file_holds_unless_the_environment_has_another():
    with folder() as path:
        write(path / "gpupool.conf", "GPUPOOL_LIMIT=100MiB\n")
        with guest_of(path, "try=200") as guest:
            assert guest.said == ["refused"]
        with guest_of(path, "try=200", GPUPOOL_LIMIT="none") as guest:
            assert guest.said == ["got"]


def a_bad_line_is_logged_once_with_its_place():
    with folder() as path:
        write(path / "gpupool.conf", "GPUPOOL_POOOL=vmm\n")
        with guest_of(path, "try=1") as guest:
            assert guest.said == ["got"]
        log = log_of(path)
    assert log.count(f"{path}/gpupool.conf:1: GPUPOOL_POOOL is not a variable of gpupool; the nearest is GPUPOOL_POOL") == 1, log


def a_limit_of_a_file_that_cannot_be_read_lets_nothing_be_allocated():
    for line in "GPUPOOL_LIMIT=8GiBx", "GPUPOOL_LIMIT_GROUP=a b:8GiB":
        with folder() as path:
            write(path / "gpupool.conf", line + "\n")
            with guest_of(path, "try=1") as guest:
                assert guest.said == ["refused"], line
            log = log_of(path)
        assert f"{path}/gpupool.conf:1: GPUPOOL_LIMIT" in log and "allocations fail until it is corrected" in log, log


def a_file_that_other_users_can_write_to_is_ignored_with_a_message():
    with folder() as path:
        write(path / "gpupool.conf", "GPUPOOL_LIMIT=1MiB\n")
        (path / "gpupool.conf").chmod(0o666)
        with guest_of(path, "try=200") as guest:
            assert guest.said == ["got"]
        log = log_of(path)
    assert f"{path}/gpupool.conf can be written to by other users; it is ignored" in log, log


fleet.main([
    each_value_is_shown_with_the_place_that_it_comes_from,
    a_limit_of_a_file_holds_unless_the_environment_has_another,
    a_bad_line_is_logged_once_with_its_place,
    a_limit_of_a_file_that_cannot_be_read_lets_nothing_be_allocated,
    a_file_that_other_users_can_write_to_is_ignored_with_a_message,
])
