# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Usage: yields.py GUEST LIBRARY SIM GPUPOOL-STAT APP_SHARE

Programs of several users and of containers share a device, with and without an exporter that passes requests for cached
memory on: scripts/yield-test, which starts this as root in namespaces of its own.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request

import fleet

APP_SHARE = sys.argv[5]
PROGRAMS = pathlib.Path("/run/programs")  # of this test
ALICE, BOB, MALLORY = 34561, 34562, 34563
SOCKET = "/run/gpupool/exporter/yield.sock"
PLAIN = {name: value for name, value in os.environ.items()
         if name not in ("GPUPOOL_RUNTIME_DIR", "XDG_RUNTIME_DIR", "TMPDIR", "GPUPOOL_YIELD")}
CACHED_MIB, WANTED_MIB = 700, 600  # of 1024 MiB
MOUNT_TMP = 'mount -t tmpfs none /tmp && exec "$@"'


def user(uid):
    """Words that run a command as a user."""
    return "setpriv", f"--reuid={uid}", "--clear-groups", "--"


def container(uid):
    """The same in a container with its own /tmp and processes, as root of a user namespace."""
    return *user(uid), "unshare", "-U", "-r", "-m", "-p", "-f", "--kill-child", "--mount-proc", "sh", "-c", MOUNT_TMP, "sh"


def plain_container(uid):
    """The same without a user namespace."""
    return "unshare", "-m", "-p", "-f", "--kill-child", "--mount-proc", "sh", "-c", MOUNT_TMP, "sh", *user(uid)


POOLS = "simple", "binned", "split", "vmm"
PAIRS = [(user(ALICE), user(BOB)), (container(ALICE), container(BOB)), (plain_container(ALICE), plain_container(BOB)),
         (user(ALICE), container(BOB))]


UNIT_RIGHTS = "setpriv", "--bounding-set=-all,+dac_override,+sys_ptrace,+setuid", "--no-new-privs"  # with its drop-in


@contextlib.contextmanager
def machine(has_broker, before=()):
    """A device that all users share, and an exporter. Yields the variables of programs, and the address of metrics."""
    with tempfile.TemporaryDirectory(prefix="gpupool-yields-", dir="/dev/shm") as path:
        os.chmod(path, 0o755)
        ledger = pathlib.Path(path) / "gpu"
        ledger.touch()
        ledger.chmod(0o666)
        variables = {"LD_LIBRARY_PATH": fleet.SIM, "SIMGPU_MEMORY": "1G", "SIMGPU_SHARED": str(ledger),
                     "GPUPOOL_LOG": "warn", "GPUPOOL_OOM_FILE": "off"}
        words = [*before, fleet.STAT, "export", "--listen=127.0.0.1:0", *(["--yield"] if has_broker else [])]
        exporter = subprocess.Popen(words, env=PLAIN, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            address = exporter.stdout.readline().strip()
            if not address:
                why = exporter.stderr.read().strip()
                raise fleet.Skip(why) if "without HTTP" in why else AssertionError(why)
            assert address.startswith("http://"), address
            if has_broker:
                assert exporter.stdout.readline() == SOCKET + "\n"
            yield variables, address
        finally:
            exporter.terminate()
            exporter.communicate(timeout=fleet.LIMIT_S)
        assert exporter.returncode == 0, exporter.returncode
        assert not os.path.exists(SOCKET)


def start(before, variables, *words, program=None, is_raw=False, **more):
    variables = {**variables, **more, **({} if is_raw else {"LD_PRELOAD": fleet.LIBRARY})}
    words = [*before, "env", *(f"{name}={value}" for name, value in variables.items()),
             program or fleet.GUEST, *words]
    return subprocess.Popen(words, env=PLAIN, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


@contextlib.contextmanager
def holder(before, variables, *words, **more):
    """A program that has done something with memory, and goes on when it is told to."""
    process = start(before, variables, *words, "say=ready", "await", **more)
    try:
        line = process.stdout.readline()
        assert line == "ready\n", line + process.stderr.read()
        yield process
    finally:
        process.kill()
        process.communicate()


def finish(process):
    out, err = process.communicate(timeout=fleet.LIMIT_S)
    assert process.returncode == 0, (process.returncode, out, err)
    return out.strip(), err


def outcome(pair, variables, **more):
    """The second program requests memory that the first one has freed. Returns what it prints."""
    with holder(pair[0], variables, f"cache={CACHED_MIB}", **more):
        return finish(start(pair[1], variables, f"try={WANTED_MIB}", **more))


def check_handed_over(pairs):
    for pair in pairs:
        with machine(False) as (variables, _):
            assert outcome(pair, variables, is_raw=True)[0] == "got", pair
            assert outcome(pair, variables)[0] == "refused", pair  # what the exporter is for
        with machine(True) as (variables, _):
            got, err = outcome(pair, variables)
            assert got == "got", (pair, err)


def memory_that_another_user_or_container_caches_is_handed_over():
    check_handed_over(PAIRS)


def the_rights_of_the_exporters_unit_are_enough():
    for pair in PAIRS:
        with machine(True, UNIT_RIGHTS) as (variables, _):
            got, err = outcome(pair, variables)
            assert got == "got", (pair, err)


def failures(pair, variables, **more):
    """The failed requests of two programs that contend for the device, with blocks of up to 480 MiB."""
    processes = [start(before, variables, "contend", "150", "20", "480", "2", program=APP_SHARE, **more) for before in pair]
    return sum(int(finish(process)[0].split()[1]) for process in processes)


def no_request_of_contending_users_or_containers_fails_where_none_fails_raw():
    for pair in PAIRS[:2]:
        alone = 0
        for pool in POOLS:
            with machine(False) as (variables, _):
                assert failures(pair, variables, is_raw=True) == 0
                alone += failures(pair, variables, GPUPOOL_POOL=pool)
            with machine(True) as (variables, _):
                failed = failures(pair, variables, GPUPOOL_POOL=pool)
                assert failed == 0, (pair, pool, failed)
        assert alone > 0, "without the broker nothing fails, so this shows nothing"


def a_request_waits_for_memory_that_another_user_is_about_to_free():
    with machine(True) as (variables, _), holder(user(ALICE), variables, f"hold={CACHED_MIB}") as first:
        second = start(user(BOB), variables, f"try={WANTED_MIB}")
        threading.Timer(0.3, lambda: (first.stdin.write("\n"), first.stdin.flush())).start()
        assert finish(second)[0] == "got"


def used_memory_of_another_user_stays():
    with machine(True) as (variables, _), \
            holder(user(ALICE), variables, "hold=500", "cache=200") as first:
        got, err = finish(start(user(BOB), variables, f"try={WANTED_MIB}"))
        assert got == "refused"
        assert "asked the exporter: processes of other users and containers released 200 MiB" in err, err
        assert re.search(r"waited: \d+ ms for processes of other users and containers, which hold 500 MiB", err), err
        first.stdin.write("\n")
        assert finish(first)[1] == ""


def a_process_with_yields_switched_off_neither_gives_nor_asks():
    with machine(True) as (variables, _):
        with holder(user(ALICE), variables, f"cache={CACHED_MIB}", GPUPOOL_YIELD="off"):
            got, err = finish(start(user(BOB), variables, f"try={WANTED_MIB}"))
            assert got == "refused" and "containers released 0 B" in err, err
        with holder(user(ALICE), variables, f"cache={CACHED_MIB}"):
            got, err = finish(start(user(BOB), variables, f"try={WANTED_MIB}", GPUPOOL_YIELD="off"))
            assert got == "refused" and "exporter" not in err, err


def a_report_has_the_answer_and_nothing_else_about_other_users():
    with machine(True) as (variables, _), holder(user(ALICE), variables, "hold=500", "cache=200") as first:
        second = start(user(BOB), variables, f"try={WANTED_MIB}", "say=ready", "await")
        assert second.stdout.readline() == "refused\n" and second.stdout.readline() == "ready\n"
        done = subprocess.run([*user(BOB), fleet.STAT, "oom", "--json"], env=PLAIN, text=True, capture_output=True, check=True)
        fleet.end(second)
        oom, = json.loads(done.stdout)["processes"]
        assert oom["last"]["exporter"] == {"answer": "answered", "released_bytes": 200 << 20, "held_bytes": 500 << 20}, oom
        for secret in str(ALICE), str(first.pid):
            assert secret not in done.stdout, secret


ASK = """
import os, socket, sys
os.setuid(int(sys.argv[1]))
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[2])
s.sendall(sys.argv[3].encode() + b"\\n")
print(s.makefile().read().strip())
"""


def ask(uid, line):
    return subprocess.run([sys.executable, "-c", ASK, str(uid), SOCKET, line], env=PLAIN, text=True, capture_output=True,
                          check=True).stdout


def a_process_without_the_device_is_refused_and_other_requests_are_wrong():
    uuid = b"simulated gpu\0\0\0".hex()
    with machine(True) as (variables, _), holder(user(ALICE), variables, f"cache={CACHED_MIB}"):
        assert json.loads(ask(MALLORY, f"yield {uuid} 1000"))["reason"] == "permission"
        for line in "status", "oom", f"yield {uuid} 1000 all", "":
            assert json.loads(ask(MALLORY, line))["reason"] == "usage", line


@contextlib.contextmanager
def silent_clients(n):
    """Connections of a user that sends nothing, and takes as many as it can get."""
    program = f"import os, socket, time\nos.setuid({MALLORY})\nall = []\nfor _ in range({n}):\n" \
              f"    s = socket.socket(socket.AF_UNIX)\n    s.connect('{SOCKET}')\n    all.append(s)\nprint(flush=True)\ntime.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"\n"
        yield
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def silent_process(uid):
    """A socket of a process that accepts connections and never answers."""
    folder = pathlib.Path(f"/run/gpupool/{uid}")
    program = f"import os, socket, time\nos.setuid({uid})\nstart = open('/proc/self/stat').read().rsplit(')')[1].split()[19]\n" \
              f"os.makedirs('{folder}', 0o700, exist_ok=True)\ns = socket.socket(socket.AF_UNIX)\n" \
              f"s.bind(f'{folder}/{{os.getpid()}}.{{start}}.sock')\ns.listen()\nprint(flush=True)\ntime.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"\n"
        yield
    finally:
        process.kill()
        process.communicate()


def hostile_users_starve_neither_other_users_nor_the_scrape():
    with machine(True) as (variables, address), silent_clients(200), contextlib.ExitStack() as stack:
        for _ in range(12):
            stack.enter_context(silent_process(MALLORY))
        got, err = outcome(PAIRS[0], variables)
        assert got == "got", err
        with urllib.request.urlopen(address, timeout=fleet.LIMIT_S) as page:
            assert b"gpupool_node_" in page.read()
        with socket.socket(socket.AF_UNIX) as client:  # a place is left for one more
            client.connect(SOCKET)
            client.sendall(b"status\n")
            assert b'"usage"' in client.recv(1000)


def a_broker_of_another_user_is_not_asked():
    folder = pathlib.Path("/run/gpupool/exporter")
    with machine(False) as (variables, _):
        folder.mkdir(exist_ok=True)
        os.chown(folder, MALLORY, MALLORY)
        try:
            _, err = outcome(PAIRS[0], variables)
            assert "exporter" not in err, err
            done = subprocess.run([fleet.STAT, "export", "--yield", "--listen=127.0.0.1:0"], env=PLAIN, text=True,
                                  capture_output=True, check=False)
            assert done.returncode == 4 and "not a directory of root" in done.stderr, done
        finally:
            folder.rmdir()


def an_exporter_does_not_start_in_a_folder_that_users_could_replace():
    words = [fleet.STAT, "export", "--yield", "--listen=127.0.0.1:0"]
    for mode in 0o777, None:
        if mode:
            os.chmod("/run/gpupool", mode)
        else:
            os.rename("/run/gpupool", "/run/other")
        done = subprocess.run(words, env=PLAIN, text=True, capture_output=True, check=False)
        if mode:
            os.chmod("/run/gpupool", 0o1777)
        else:
            os.rename("/run/other", "/run/gpupool")
        assert done.returncode == 1 and "there is no /run/gpupool of root" in done.stderr, done


def a_second_exporter_does_not_take_the_socket():
    with machine(True) as (variables, _):
        done = subprocess.run([fleet.STAT, "export", "--yield", "--listen=127.0.0.1:0"], env=PLAIN, text=True,
                              capture_output=True, check=False)
        assert done.returncode == 1 and "another exporter does this already" in done.stderr, done
        assert outcome(PAIRS[0], variables)[0] == "got"


def root_of_a_user_namespace_is_refused():
    done = subprocess.run([*user(ALICE), "unshare", "-U", "-r", fleet.STAT, "export", "--yield"], env=PLAIN, text=True,
                          capture_output=True, check=False)
    assert done.returncode == 4 and "--yield needs root" in done.stderr, done


def copied(path):
    return shutil.copy(path, PROGRAMS)


def make_machine():
    """
    A /run of this test, which begins with no socket of any process. It has copies of the programs: the build may be
    below /tmp, or in a folder that is closed to other users.
    """
    global APP_SHARE
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "none", "/run"], check=True)
    PROGRAMS.mkdir()
    PROGRAMS.chmod(0o755)
    fleet.GUEST, fleet.LIBRARY, fleet.STAT, APP_SHARE = map(
        copied, (fleet.GUEST, os.path.abspath(fleet.LIBRARY), os.path.abspath(fleet.STAT), APP_SHARE))
    for library in pathlib.Path(fleet.SIM).glob("lib*.so.*"):
        if library.is_file():
            copied(library)
    fleet.SIM = str(PROGRAMS)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "none", "/tmp"], check=True)
    os.mkdir("/run/gpupool")
    os.chmod("/run/gpupool", 0o1777)


if __name__ == "__main__":
    make_machine()
    fleet.main([
        memory_that_another_user_or_container_caches_is_handed_over,
        the_rights_of_the_exporters_unit_are_enough,
        no_request_of_contending_users_or_containers_fails_where_none_fails_raw,
        a_request_waits_for_memory_that_another_user_is_about_to_free,
        used_memory_of_another_user_stays,
        a_process_with_yields_switched_off_neither_gives_nor_asks,
        a_report_has_the_answer_and_nothing_else_about_other_users,
        a_process_without_the_device_is_refused_and_other_requests_are_wrong,
        hostile_users_starve_neither_other_users_nor_the_scrape,
        a_broker_of_another_user_is_not_asked,
        an_exporter_does_not_start_in_a_folder_that_users_could_replace,
        a_second_exporter_does_not_take_the_socket,
        root_of_a_user_namespace_is_refused,
    ])
