# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""The unit of the exporter: what systemd says of it, and that its capabilities are enough and none too many."""

import contextlib
import pathlib
import re
import shutil
import subprocess
import tempfile
import urllib.request

from recipes import OTHER_USER, PREFIX, RECIPES, Skip, await_true, expect, need, run, start

UNIT = RECIPES + "/systemd/gpupool-exporter.service"


def capabilities_of(root):
    line, = re.findall(r"(?m)^CapabilityBoundingSet=(.*)$", (root / UNIT).read_text())
    return [name.removeprefix("CAP_").lower() for name in line.split()]


def systemd_finds_no_fault_in_the_unit(root):
    need("systemd-analyze")
    folder = pathlib.Path("/run/unit")
    folder.mkdir()
    unit = folder / "gpupool-exporter.service"
    unit.write_text((root / UNIT).read_text().replace("/usr/bin/gpupool-stat", str(PREFIX / "bin/gpupool-stat")))
    text = run(f"systemd-analyze verify --man=no {unit}", expected=None)
    ours = [line for line in text.splitlines() if "gpupool" in line]
    expect(not ours, "\n".join(ours))
    text = run(f"systemd-analyze security --offline=true --no-pager {unit}", expected=None)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", text)
    if not found:
        raise Skip("this systemd-analyze has no security --offline")
    expect(float(found[1]) < 5, found[0])
    print("# " + found[0])


PRELOAD = f"LD_PRELOAD={PREFIX}/lib/gpupool/libgpupool.so"


@contextlib.contextmanager
def guests():
    """Processes of another user: with the shared folder, with a folder of their own, and with private mounts."""
    folder = pathlib.Path("/opt/apps/user-tmp")
    folder.mkdir(exist_ok=True)
    shutil.chown(folder, OTHER_USER)
    folder.chmod(0o700)
    program = f"exec env {PRELOAD} SIMULATION_SECONDS=60"
    private = f"mount -t tmpfs -o mode=1777 tmpfs /tmp && mount -t tmpfs tmpfs /run && exec runuser -u {OTHER_USER} --"
    children = [
        start(f"{program} SLURM_JOB_ID=1 ./simulation", user=OTHER_USER),
        start(f"{program} SLURM_JOB_ID=2 GPUPOOL_RUNTIME_DIR={folder} ./simulation", user=OTHER_USER),
        start(f"exec unshare --mount sh -c '{private} {program[5:]} SLURM_JOB_ID=3 ./simulation'"),
    ]
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()


@contextlib.contextmanager
def exporter(capabilities):
    """Runs the exporter with these capabilities. Yields a function that scrapes it."""
    words = ",".join(["-all", *("+" + name for name in capabilities)])
    with tempfile.TemporaryDirectory() as state:
        child = subprocess.Popen(["setpriv", f"--bounding-set={words}", "--no-new-privs", "gpupool-stat", "export",
                                  "--listen=127.0.0.1:0", f"--state={state}/state"], text=True, stdout=subprocess.PIPE)
        try:
            url = child.stdout.readline().strip()
            expect(url.startswith("http://127.0.0.1:"), "the exporter does not start")

            def scrape():
                with urllib.request.urlopen(url, timeout=30) as answer:
                    return answer.read().decode()
            yield scrape
        finally:
            child.kill()
            child.wait()


def jobs_with_memory(text):
    """The jobs that have labels, and the number of processes with memory."""
    jobs = set(re.findall(r'gpupool_process_info\{[^}]*hpc_job="(\d)"', text))
    return sorted(jobs), len(re.findall(r"(?m)^gpupool_used_bytes\{", text))


WANTED = ["1", "2", "3"], 3


def the_capabilities_of_the_unit_are_enough_for_processes_of_other_users(root):
    need("setpriv", "runuser", "unshare")
    with guests(), exporter(capabilities_of(root)) as scrape:
        await_true(lambda: jobs_with_memory(scrape()) == WANTED, "all three processes are exported")
        run(f"env {PRELOAD} SIMULATION_FAIL=1 ./simulation", user=OTHER_USER)
        first, second = (int(re.search(r"(?m)^gpupool_node_out_of_memory_errors_total (\d+)$", scrape())[1]) for _ in range(2))
        expect(first == second == 1, f"the counter of the node was {first} and then {second}")


def no_capability_of_the_unit_can_be_left_out(root):
    need("setpriv", "runuser", "unshare")
    names = capabilities_of(root)
    with guests():
        with exporter(names) as scrape:
            await_true(lambda: jobs_with_memory(scrape()) == WANTED, "all three processes are exported")
        for name in names:
            with exporter([other for other in names if other != name]) as scrape:
                expect(jobs_with_memory(scrape()) != WANTED, f"nothing is lost without {name}")


STEPS = [
    systemd_finds_no_fault_in_the_unit,
    the_capabilities_of_the_unit_are_enough_for_processes_of_other_users,
    no_capability_of_the_unit_can_be_left_out,
]
