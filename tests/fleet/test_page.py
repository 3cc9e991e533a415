# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Usage: test_page.py GUEST LIBRARY SIM GPUPOOL-STAT

The counter page of a process: what is on it, when, and what becomes of it when the process ends.
"""

import os
import pathlib
import resource
import signal
import tempfile

import fleet
from fleet import Skip, folder, only_page, pages, run, start

MIB = 1 << 20


def errors_and_peaks_are_on_the_page_of_a_process_that_is_killed_right_after_them():
    with folder() as path:
        assert run(path, "hold=64", "pinned=2", "fail=7", "kill", SLURM_JOB_ID="8812", SLURM_PROCID="3") == -signal.SIGKILL
        page = only_page(path)
    assert page.ooms == 7 and page.devices[0]["ooms"] == 7 and page.pinned["ooms"] == 0, page.devices
    assert page.peaks[1] >= 64 * MIB and page.peaks[0] >= 2 * MIB and not any(page.peaks[2:]), page.peaks
    assert page.oom_bytes == 1 << 46 and page.oom_device == 1 and page.oom_s > 0
    assert page.texts[1] == "split" and page.texts[2] == (fleet.GUEST + " hold=64 pinned=2 fail=7 kill")[:63], page.texts
    assert page.texts[3:] == ["8812", "3", "", ""], page.texts


def each_peak_is_on_the_page_before_its_call_returns():
    with folder() as path:
        guest = start(path, *["hold=64", "say=held", "await"] * 3, "kill")
        for n in range(1, 4):
            assert guest.stdout.readline() == "held\n"
            page = only_page(path)
            assert page.peaks[1] >= n * 64 * MIB and len(page.devices) == 1, (n, page.peaks, page.devices)
            guest.stdin.write("\n")
            guest.stdin.flush()
        guest.communicate()
        assert only_page(path).peaks == page.peaks


def each_error_is_on_the_page_before_its_call_returns():
    with folder() as path:
        guest = start(path, *["fail=1", "say=failed", "await"] * 3)
        for n in range(1, 4):
            assert guest.stdout.readline() == "failed\n"
            assert only_page(path).ooms == n
            guest.stdin.write("\n")
            guest.stdin.flush()
        guest.communicate()


def hits_and_sizes_reach_the_page_of_a_process_that_goes_on():
    with folder() as path:
        guest = start(path, "hold=64", "hits=1000", "say=ready", "await")
        guest.stdout.readline()
        try:
            fleet.await_true(lambda: only_page(path).devices and only_page(path).devices[0]["hits"] >= 999, "hits on the page")
            page = only_page(path)
            assert page.devices[0]["used_bytes"] >= 64 * MIB and page.devices[0]["total_bytes"] >= 64 * MIB
            assert page.devices[0]["peak_used_bytes"] >= 64 * MIB
        finally:
            fleet.end(guest)


def the_counters_of_the_exit_are_on_the_page():
    with folder() as path:
        assert run(path, "hits=1000") == 0
        page = only_page(path)
        assert not list(path.glob("*.sock"))
    assert page.devices[0]["hits"] + page.devices[0]["misses"] == 1000, page.devices


def the_counters_of_the_exit_need_no_thread():
    """Without address space for the stack of a thread the page gets them too: the exit waits for no thread."""
    with folder() as path:
        guest = start(path, "hits=1", "say=ready", "await", "hits=999")
        guest.stdout.readline()
        resource.prlimit(guest.pid, resource.RLIMIT_AS, (0, 0))
        guest.communicate("\n")
        assert guest.returncode == 0
        page = only_page(path)
    assert page.devices[0]["hits"] + page.devices[0]["misses"] == 1000, page.devices


def a_process_without_exit_handlers_leaves_its_page():
    with folder() as path:
        assert run(path, "fail=2", "_exit") == 0
        assert only_page(path).ooms == 2


def a_forked_child_has_a_page_of_its_own():
    with folder() as path:
        assert run(path, "fork", "fail=3") == 0
        assert only_page(path).ooms == 3
    # Where CUDA was in use before the fork, the child cannot use it, and does not write to its parent's page.
    with folder() as path:
        run(path, "fail=2", "fork", "hits=1")
        page = only_page(path)
    assert page.ooms == 2 and sum(device["hits"] for device in page.devices) == 0, page.devices


def counters_go_on_after_an_exec():
    with folder() as path:
        assert run(path, "hold=64", "pinned=2", "fail=2", "hits=10", "sleep=0.3", "exec", "fail=3", "exec", "fail=4",
                   "hold=1", "kill") == -signal.SIGKILL
        page = only_page(path)
    assert page.ooms == 9, page.ooms
    assert page.peaks[1] >= 64 * MIB and page.peaks[0] >= 2 * MIB, page.peaks
    assert page.devices[0]["hits"] + page.devices[0]["misses"] >= 10, page.devices


def there_is_no_page_without_a_socket():
    with folder() as path:
        assert run(path, "fail=1", GPUPOOL_SOCKET="off") == 0
        assert not list(path.iterdir())


def a_socket_directory_on_a_disk_leaves_the_process_without_a_page():
    """A write to a mapped file on a disk may wait for the disk."""
    if fleet.is_in_memory(tempfile.gettempdir()):
        raise Skip("the folder for temporary files is in memory")
    with tempfile.TemporaryDirectory(prefix="gpupool-fleet-") as path:
        guest = start(path, "hold=1", "fail=2", "say=done", "await")
        assert guest.stdout.readline() == "done\n"
        assert [file.suffix for file in pathlib.Path(path).iterdir()] == [".sock"], list(pathlib.Path(path).iterdir())
        guest.communicate("\n")
        assert guest.returncode == 0


def a_directory_under_the_name_of_the_page_leaves_the_process_without_one():
    with folder() as path:
        guest = start(path, "await", "fail=2", "say=done", "await")
        ticks = int(open(f"/proc/{guest.pid}/stat").read().rsplit(")", 1)[1].split()[19])
        squat = path / f"{guest.pid}.{ticks}.page"
        squat.mkdir()
        (squat / "file").touch()
        guest.stdin.write("\n")
        guest.stdin.flush()
        assert guest.stdout.readline() == "done\n"
        assert squat.is_dir() and sorted(file.suffix for file in path.iterdir()) == [".page", ".sock"]
        guest.communicate("\n")
        assert guest.returncode == 0


def a_link_under_the_name_of_the_page_is_replaced_and_not_followed():
    with folder() as path:
        precious = path / "precious"
        precious.write_text("data")
        guest = start(path, "await", "fail=2", "kill")
        ticks = int(open(f"/proc/{guest.pid}/stat").read().rsplit(")", 1)[1].split()[19])
        (path / f"{guest.pid}.{ticks}.page").symlink_to(precious)
        guest.communicate("\n")
        assert precious.read_text() == "data" and only_page(path).ooms == 2


def a_full_file_size_limit_leaves_the_process_without_a_page():
    with folder() as path:
        guest = start(path, "begin", "say=ready", "await", "fail=2", "hits=5", "say=done", "await")
        guest.stdout.readline()
        resource.prlimit(guest.pid, resource.RLIMIT_FSIZE, (0, 0))
        guest.stdin.write("\n")
        guest.stdin.flush()
        assert guest.stdout.readline() == "done\n"
        assert [file.suffix for file in path.iterdir()] == [".sock"], list(path.iterdir())
        guest.communicate("\n")
        assert guest.returncode == 0


def a_start_removes_old_pages_of_ended_processes_and_keeps_all_others():
    with folder() as path:
        old = fleet.make_page(path, 2 ** 30, 5, written_s=1000)
        new = fleet.make_page(path, 2 ** 30, 6)
        own_ticks = int(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19])
        running = fleet.make_page(path, os.getpid(), own_ticks, written_s=1000)
        damaged = fleet.make_page(path, 2 ** 30, 7, written_s=1000, is_whole=False)
        begun = path / f".{2 ** 30}.8.page.new"
        begun.touch()
        other = path / "notes.page"
        other.touch()
        guest = start(path, "hits=1", "say=ready", "await")
        guest.stdout.readline()
        fleet.await_true(lambda: not old.exists() and not damaged.exists() and not begun.exists(), "old pages are removed")
        assert new.exists() and running.exists() and other.exists()
        fleet.end(guest)


def a_page_that_is_removed_while_its_process_runs_does_no_harm():
    with folder() as path:
        guest = start(path, "fail=1", "say=ready", "await", "fail=2", "hits=100")
        guest.stdout.readline()
        for file in pages(path):
            file.unlink()
        guest.communicate("\n")
        assert guest.returncode == 0


fleet.main([
    errors_and_peaks_are_on_the_page_of_a_process_that_is_killed_right_after_them,
    each_peak_is_on_the_page_before_its_call_returns,
    each_error_is_on_the_page_before_its_call_returns,
    hits_and_sizes_reach_the_page_of_a_process_that_goes_on,
    the_counters_of_the_exit_are_on_the_page,
    the_counters_of_the_exit_need_no_thread,
    a_process_without_exit_handlers_leaves_its_page,
    a_forked_child_has_a_page_of_its_own,
    counters_go_on_after_an_exec,
    there_is_no_page_without_a_socket,
    a_socket_directory_on_a_disk_leaves_the_process_without_a_page,
    a_directory_under_the_name_of_the_page_leaves_the_process_without_one,
    a_link_under_the_name_of_the_page_is_replaced_and_not_followed,
    a_full_file_size_limit_leaves_the_process_without_a_page,
    a_start_removes_old_pages_of_ended_processes_and_keeps_all_others,
    a_page_that_is_removed_while_its_process_runs_does_no_harm,
])
