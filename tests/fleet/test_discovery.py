# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Usage: test_discovery.py GUEST LIBRARY SIM GPUPOOL-STAT

gpupool-stat finds processes whose socket directory is not the usual one: by their own environment, mounts and user ids.
Cases that need root, or namespaces that are not permitted here, are skipped by name.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile

import fleet
from fleet import Skip

USER = 34567
PLAIN = {name: value for name, value in os.environ.items()
         if name not in ("GPUPOOL_RUNTIME_DIR", "XDG_RUNTIME_DIR", "TMPDIR") and not name.startswith("SLURM")}
GUEST_VARIABLES = {"LD_PRELOAD": fleet.LIBRARY, "LD_LIBRARY_PATH": fleet.SIM, "SIMGPU_MEMORY": "1G", "GPUPOOL_LOG_FILE": "/dev/null"}
DO = ("hold=1", "say=ready", "await")


def need_root():
    if os.geteuid() != 0:
        raise Skip("needs root")


@contextlib.contextmanager
def guest(*before, **variables):
    """Runs a guest, with these words before its command, and yields its pid as seen from here."""
    words = ["env", *(f"{name}={value}" for name, value in {**GUEST_VARIABLES, **variables}.items()), fleet.GUEST, *DO]
    child = subprocess.Popen([*before, *words], env=PLAIN, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
    try:
        if child.stdout.readline() != "ready\n":
            raise Skip("the guest does not start: " + child.stderr.read().strip())
        yield child.pid
    finally:
        fleet.end(child)


def descendants(pid):
    yield pid
    for text in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield from descendants(int(text))


def listed(*before):
    done = subprocess.run([*before, fleet.STAT, "list", "--json"], env=PLAIN, text=True, capture_output=True, check=False)
    assert done.returncode in (0, 3), done.stderr
    return {process["pid"]: process for process in json.loads(done.stdout)["processes"]} if done.stdout else {}


def found_one_of(pids, processes):
    pids = set(pids)
    found = [process for pid, process in processes.items() if pid in pids]
    assert len(found) == 1, (pids, sorted(processes))
    return found[0]


def a_job_with_a_tmpdir_of_its_own_is_found_by_its_user():
    with tempfile.TemporaryDirectory(prefix="gpupool-fleet-") as job, \
            guest(TMPDIR=job, SLURM_JOB_ID="8812", SLURM_PROCID="3") as pid:
        process = found_one_of([pid], listed())
    assert process["labels"]["job"] == "8812" and process["labels"]["rank"] == "3", process


def a_job_with_a_private_tmp_is_found_by_root():
    need_root()
    with guest("unshare", "-m", "sh", "-c", 'mount -t tmpfs none /tmp && exec "$@"', "sh") as pid:
        found_one_of([pid], listed())


def a_process_of_a_container_is_found_by_root_with_its_pid_outside():
    need_root()
    with guest("unshare", "-m", "-p", "-f", "--mount-proc", "sh", "-c", 'mount -t tmpfs none /tmp && exec "$@"', "sh",
               POD_NAME="train-0") as pid:
        process = found_one_of(descendants(pid), listed())
    assert process["labels"]["pod"] == "train-0", process


def a_process_in_a_user_namespace_is_found_by_root():
    need_root()
    with guest("setpriv", f"--reuid={USER}", "--clear-groups", "unshare", "-U", "-r", "-m", "sh", "-c",
               'mount -t tmpfs none /tmp && exec "$@"', "sh") as pid:
        process = found_one_of([pid], listed())
    assert process["user"] == str(USER), process


def a_process_of_another_user_with_a_tmpdir_of_its_own_is_found_by_root():
    need_root()
    with tempfile.TemporaryDirectory(prefix="gpupool-fleet-") as job:
        os.chown(job, USER, -1)
        with guest("setpriv", f"--reuid={USER}", "--clear-groups", TMPDIR=job) as pid:
            found_one_of([pid], listed())


def a_directory_of_another_user_that_an_environment_names_is_not_believed():
    """A stranger's environment names root's directory, whose sockets do not become the stranger's."""
    need_root()
    with tempfile.TemporaryDirectory(prefix="gpupool-fleet-") as job:
        os.chmod(job, 0o755)
        os.mkdir(f"{job}/gpupool-{USER}", 0o700)
        (pathlib.Path(job) / f"gpupool-{USER}/1.2.sock").touch()
        with guest("setpriv", f"--reuid={USER}", "--clear-groups", TMPDIR=job) as pid:
            processes = listed()
        assert 1 not in processes or processes[1]["command"] != "?", processes


def in_own_run(*words, mode="1777"):
    """Words that run a command where /run/gpupool has that mode."""
    return ("unshare", "-m", "sh", "-c", f'mount -t tmpfs none /run && mkdir -m {mode} /run/gpupool && exec "$@"', "sh", *words)


def everything_in_the_folder_of_the_machine(script, mode):
    need_root()
    done = subprocess.run(in_own_run("sh", "-c", script, mode=mode), env={**PLAIN, "STAT": fleet.STAT}, text=True,
                          capture_output=True, check=False)
    if "unshare" in done.stderr or "mount" in done.stderr:
        raise Skip(done.stderr.strip())
    return done.stdout


def run_guest_script():
    variables = " ".join(f"{name}='{value}'" for name, value in GUEST_VARIABLES.items())
    return (f"env {variables} XDG_RUNTIME_DIR=/run/x TMPDIR=/run/y setpriv --reuid={USER} --clear-groups '{fleet.GUEST}' "
            "hold=1 sleep=0.2 say=ready")


def the_folder_of_the_machine_comes_first():
    out = everything_in_the_folder_of_the_machine(f"mkdir -m 1777 /run/x /run/y; {run_guest_script()}; ls /run/gpupool /run/x /run/y; "
                                                  f"stat -c %a:%u /run/gpupool/{USER}", "1777")
    assert f"/run/gpupool:\n{USER}\n" in out and "/run/x:\n\n/run/y:\n" in out and f"700:{USER}" in out, out


def a_folder_of_the_machine_in_which_others_could_remove_directories_is_not_used():
    out = everything_in_the_folder_of_the_machine(f"mkdir -m 1777 /run/x /run/y; {run_guest_script()}; ls /run/gpupool /run/x", "777")
    assert "/run/gpupool:\n\n/run/x:\ngpupool\n" in out, out


def a_place_in_the_folder_of_the_machine_that_another_user_has_taken_is_not_used():
    out = everything_in_the_folder_of_the_machine(
        f"mkdir -m 1777 /run/x /run/y; mkdir /run/gpupool/{USER}; {run_guest_script()}; ls /run/gpupool/{USER} /run/x", "1777")
    assert f"/run/gpupool/{USER}:\n\n/run/x:\ngpupool\n" in out, out


def gpupool_runtime_dir_restricts_the_search_to_it():
    with tempfile.TemporaryDirectory(prefix="gpupool-fleet-") as job, tempfile.TemporaryDirectory() as other, \
            guest(TMPDIR=job) as pid:
        done = subprocess.run([fleet.STAT, "list", "--json"], text=True, capture_output=True, check=False,
                              env={**PLAIN, "GPUPOOL_RUNTIME_DIR": other, "TMPDIR": other})
        assert str(pid) not in done.stdout, done.stdout


fleet.main([
    a_job_with_a_tmpdir_of_its_own_is_found_by_its_user,
    a_job_with_a_private_tmp_is_found_by_root,
    a_process_of_a_container_is_found_by_root_with_its_pid_outside,
    a_process_in_a_user_namespace_is_found_by_root,
    a_process_of_another_user_with_a_tmpdir_of_its_own_is_found_by_root,
    a_directory_of_another_user_that_an_environment_names_is_not_believed,
    the_folder_of_the_machine_comes_first,
    a_folder_of_the_machine_in_which_others_could_remove_directories_is_not_used,
    a_place_in_the_folder_of_the_machine_that_another_user_has_taken_is_not_used,
    gpupool_runtime_dir_restricts_the_search_to_it,
])
