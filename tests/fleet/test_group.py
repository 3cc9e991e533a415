# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Usage: test_group.py GUEST LIBRARY SIM GPUPOOL-STAT RANK

GPUPOOL_LIMIT_GROUP: the limit that the processes of a group share, on a device of 16 GiB.
"""

import json
import re
import signal
import subprocess
import sys

import fleet
import ranks
from fleet import folder, start

MIB, GIB = 1 << 20, 1 << 30
RANK = sys.argv[5]


def member(path, *words, limit="train:1GiB", **variables):
    """A process of the group that says "ready" after these words, and then waits."""
    guest = start(path, *words, "say=ready", "await", SIMGPU_MEMORY="16G", GPUPOOL_LIMIT_GROUP=limit, **variables)
    said = []
    while (line := guest.stdout.readline()) not in ("ready\n", ""):
        said.append(line.strip())
    assert line, "the process has ended"
    return guest, said


def say_of(path, *words, **variables):
    guest, said = member(path, *words, **variables)
    fleet.end(guest)
    return said


def log_of(path, *words, **variables):
    log = path / "log"
    said = say_of(path, *words, GPUPOOL_LOG_FILE=str(log), **variables)
    return said, log.read_text() if log.exists() else ""


def stat(path, *words):
    done = subprocess.run([fleet.STAT, *words], env=fleet.environment(path), capture_output=True, text=True, check=True)
    return done.stdout


def memory_of_one_process_is_missing_to_the_other_processes_of_its_group():
    with folder() as path:
        guest, _ = member(path, "hold=600")
        try:
            assert say_of(path, "try=500", "try=400", "try=100") == ["refused", "got", "refused"]
            assert say_of(path, "try=500", limit="other:1GiB") == ["got"]
        finally:
            fleet.end(guest)


def a_killed_process_gives_its_share_back_although_its_child_lives():
    with folder() as path:
        guest, _ = member(path, "hold=600", "child=20")
        guest.kill()
        guest.wait()
        assert say_of(path, "try=1000") == ["got"]


def a_process_that_runs_another_program_holds_only_memory_of_that_program():
    with folder() as path:
        assert say_of(path, "hold=900", "exec", "try=900") == ["got"]


def a_forked_child_joins_by_itself():
    with folder() as path:
        guest = start(path, "fork", "hold=600", "say=ready", "await", SIMGPU_MEMORY="16G",
                      GPUPOOL_LIMIT_GROUP="train:1GiB")
        assert guest.stdout.readline() == "ready\n"
        try:
            assert say_of(path, "try=500") == ["refused"]
        finally:
            guest.communicate("\n")


def a_stopped_process_keeps_its_share():
    with folder() as path:
        guest, _ = member(path, "hold=600")
        guest.send_signal(signal.SIGSTOP)
        try:
            assert say_of(path, "try=400", "try=100", GPUPOOL_YIELD="off") == ["got", "refused"]
        finally:
            fleet.end(guest)


def cached_memory_of_the_members_goes_back_when_the_group_is_short():
    for pool in ("split", "vmm", "simple"):
        with folder() as path:
            guest, _ = member(path, "cache=900", GPUPOOL_POOL=pool)
            try:
                assert say_of(path, "try=800", GPUPOOL_POOL=pool) == ["got"], pool
            finally:
                fleet.end(guest)


def other_processes_are_not_asked_for_the_group():
    with folder() as path:
        outsider = start(path, "cache=300", "say=ready", "await", SIMGPU_MEMORY="16G")
        assert outsider.stdout.readline() == "ready\n"
        guest, _ = member(path, "hold=900")
        try:
            assert say_of(path, "try=300") == ["refused"]
            status = json.loads(stat(path, "status", "--json", str(outsider.pid)))
            assert status["devices"][0]["yields"] == 0 and status["devices"][0]["group"] is None, status["devices"]
        finally:
            fleet.end(guest)
            fleet.end(outsider)


def the_message_names_the_group_its_members_and_their_memory():
    with folder() as path:
        guest, _ = member(path, "hold=600")
        try:
            said, log = log_of(path, "hold=100", "fail=0", "try=400")
        finally:
            fleet.end(guest)
    assert said == ["refused"]
    assert re.search(rf"group: name 'train' holds 700 MiB of 1\.00 GiB: process {guest.pid} \(.*\) 600 MiB, process "
                     r"\d+, this one \(.*\) 100 MiB\n", log), log
    assert "cause: the limit of the group is reached" in log and "GPUPOOL_LIMIT_GROUP sets the limit" in log, log


def a_request_beyond_the_limit_of_the_group_says_so():
    with folder() as path:
        said, log = log_of(path, "try=1025")
    assert said == ["refused"] and "the request is larger than the limit of the group" in log, log


def status_json_report_and_metrics_show_the_group():
    with folder() as path:
        guest, _ = member(path, "hold=600", "try=700")
        try:
            shown = stat(path, "status", str(guest.pid))
            group = json.loads(stat(path, "status", "--json", str(guest.pid)))["devices"][0]["group"]
            report = stat(path, "oom", str(guest.pid))
            metrics = stat(path, "metrics")
        finally:
            fleet.end(guest)
    assert re.search(r"group +600 MiB +of 1\.00 GiB, held by 1 process of name 'train'", shown), shown
    assert group["limit_bytes"] == GIB and group["reserved_bytes"] == 600 * MIB and group["name"] == "train", group
    assert [entry["pid"] for entry in group["members"]] == [guest.pid], group
    assert "'train' holds 600 MiB of 1.00 GiB in 1 processes" in report, report
    assert re.search(r'gpupool_group_limit_bytes{group="train",user="[^"]+",UUID="[^"]+"} 1073741824\n', metrics), metrics
    assert re.search(r'gpupool_group_reserved_bytes{group="train",user="[^"]+",UUID="[^"]+"} 629145600\n', metrics), metrics


def free_memory_is_that_of_the_group():
    for view, expected in ("device", 400), ("own", 400):
        with folder() as path:
            guest, _ = member(path, "hold=624")
            try:
                before, after = say_of(path, "memory", "cache=1", "memory", GPUPOOL_VIEW=view)
            finally:
                fleet.end(guest)
        assert before == after == f"free={expected * MIB} total={GIB}", (view, before, after)


def jobs_have_groups_of_their_own_and_so_have_cgroups():
    with folder() as path:
        guest, _ = member(path, "hold=600", limit="1GiB", SLURM_JOB_ID="41")
        try:
            assert say_of(path, "try=500", limit="1GiB", SLURM_JOB_ID="41") == ["refused"]
            assert say_of(path, "try=500", limit="1GiB", SLURM_JOB_ID="42") == ["got"]
            other, _ = member(path, "hold=600", limit="1GiB")
            assert say_of(path, "try=500", limit="1GiB") == ["refused"]
            fleet.end(other)
        finally:
            fleet.end(guest)


def a_limit_that_cannot_be_read_or_held_lets_nothing_be_allocated():
    for limit in ("1GiBx", ":1GiB", "a/b:1GiB", "train:", "train:0"):
        with folder() as path:
            said, log = log_of(path, "try=1", limit=limit)
            assert said == ["refused"] and "GPUPOOL_LIMIT_GROUP" in log and "allocations fail" in log, (limit, log)
    with folder() as path:
        (path / "name-train.group").symlink_to("elsewhere")
        said, log = log_of(path, "try=1")
        assert said == ["refused"] and "cannot join the group name 'train'" in log, log
        assert not (path / "elsewhere").exists()


def ranks_stay_within_the_limit_by_the_count_of_the_driver():
    for pool in ("split", "vmm"):
        with folder() as path:
            _, most, _ = ranks.run_ranks(RANK, fleet.LIBRARY, fleet.SIM, path, 1500, 4000, 512, GPUPOOL_POOL=pool)
            assert most > 8 * GIB, f"{most}: without a limit the ranks do not hold too much, so the test shows nothing"
            failures, most, _ = ranks.run_ranks(RANK, fleet.LIBRARY, fleet.SIM, path, 1500, 4000, 512, GPUPOOL_POOL=pool,
                                                GPUPOOL_LIMIT_GROUP="ranks:8GiB")
            assert 7 * GIB < most <= 8 * GIB and failures, (pool, most, failures)


def ranks_that_share_a_limit_do_not_fail_while_others_have_memory_cached():
    with folder() as path:
        failures, most, _ = ranks.run_ranks(RANK, fleet.LIBRARY, fleet.SIM, path, 3000, 1000, 64,
                                            GPUPOOL_LIMIT_GROUP="ranks:5GiB", GPUPOOL_POOL="vmm")
        assert not failures and most <= 5 * GIB, (failures, most)


fleet.main([
    memory_of_one_process_is_missing_to_the_other_processes_of_its_group,
    a_killed_process_gives_its_share_back_although_its_child_lives,
    a_process_that_runs_another_program_holds_only_memory_of_that_program,
    a_forked_child_joins_by_itself,
    a_stopped_process_keeps_its_share,
    cached_memory_of_the_members_goes_back_when_the_group_is_short,
    other_processes_are_not_asked_for_the_group,
    the_message_names_the_group_its_members_and_their_memory,
    a_request_beyond_the_limit_of_the_group_says_so,
    status_json_report_and_metrics_show_the_group,
    free_memory_is_that_of_the_group,
    jobs_have_groups_of_their_own_and_so_have_cgroups,
    a_limit_that_cannot_be_read_or_held_lets_nothing_be_allocated,
    ranks_stay_within_the_limit_by_the_count_of_the_driver,
    ranks_that_share_a_limit_do_not_fail_while_others_have_memory_cached,
])
