# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
The unit of the exporter: what systemd says of it, that its capabilities are enough and none too many, and that it runs
under a systemd that is started for this.
"""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import urllib.request

from recipes import OTHER_USER, PREFIX, RECIPES, SIM, WORK, Failed, Skip, await_true, expect, need, run, start

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


# The first process of a PID namespace, in which systemd is started with a cgroup of its own as the root of all. It knows
# the units of this test alone: those of the machine change settings of the kernel, which has no namespace for them.
BOOT = """
set -e
umount -l /sys/fs/cgroup/* /sys/fs/cgroup 2>/dev/null || :
if [ "$1" = cgroup2 ]; then
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
else
    mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
    mkdir /sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd,xattr cgroup /sys/fs/cgroup/systemd
fi
exec env container=other SYSTEMD_UNIT_PATH=/run/recipes-units SYSTEMD_GENERATOR_PATH=/none /lib/systemd/systemd --system --unit=recipes.target --log-target=console --show-status=no
"""
UNITS = pathlib.Path("/run/recipes-units")
# Services whose sockets are in the shared folder, in a folder of their own, and in private folders.
GUESTS = {"1": "", "2": "Environment=GPUPOOL_RUNTIME_DIR=/opt/apps/user-tmp", "3": "PrivateTmp=yes\nTemporaryFileSystem=/run"}


def write_units(root):
    UNITS.mkdir(parents=True, exist_ok=True)
    unit = (root / UNIT).read_text().replace("/usr/bin/gpupool-stat", str(PREFIX / "bin/gpupool-stat"))
    (UNITS / "gpupool-exporter.service").write_text(unit)
    for job, lines in GUESTS.items():
        (UNITS / f"guest-{job}.service").write_text(
            f"[Unit]\nDefaultDependencies=no\n[Service]\nUser={OTHER_USER}\nExecStart={WORK}/simulation\n{lines}\nEnvironment={PRELOAD} "
            f"SLURM_JOB_ID={job} SIMULATION_SECONDS=300 SIMGPU_MEMORY=16G LD_LIBRARY_PATH={SIM}\n")
    for name in "sysinit", "basic", "shutdown":
        (UNITS / f"{name}.target").write_text("[Unit]\nDefaultDependencies=no\n")
    wanted = " ".join(f"guest-{job}.service" for job in GUESTS)
    (UNITS / "recipes.target").write_text(f"[Unit]\nDefaultDependencies=no\nWants={wanted}\n")


def remove_groups(groups):
    """Removes cgroups once the processes in them have ended."""
    def are_gone():
        for folder in (folder for group in groups for folder, _, _ in os.walk(group, topdown=False)):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        return not any(map(os.path.exists, groups))
    await_true(are_gone, "the cgroups are empty")


def is_child_of(stat, parent):
    with contextlib.suppress(OSError):
        return stat.read_text().rpartition(")")[2].split()[1] == str(parent)


@contextlib.contextmanager
def booted(root):
    """Starts systemd in a PID namespace. Yields a function that runs a command there."""
    hierarchies = [path.parent for path in pathlib.Path("/sys/fs/cgroup").glob("*/cgroup.procs") if path.parent.name != "cpuset"]
    kind = "cgroup" if hierarchies else "cgroup2"
    hierarchies = hierarchies or [pathlib.Path("/sys/fs/cgroup")]
    groups = []
    try:
        for place in hierarchies:
            groups.append(tempfile.mkdtemp(prefix="gpupool-recipes-", dir=place))
    except OSError as error:
        remove_groups(groups)
        raise Skip(f"cgroups cannot be made here: {error}") from error
    write_units(root)
    log = open("/opt/apps/systemd.log", "w+")
    inner = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--cgroup", "--ipc", "sh", "-c", BOOT, "sh", kind]
    enter = "".join(f"echo $$ >{group}/cgroup.procs && " for group in groups)
    child = subprocess.Popen(["sh", "-c", enter + 'exec "$@"', "sh", *inner], stdout=log, stderr=log,
                             stdin=subprocess.DEVNULL)

    def first_inside():
        return next((stat.parent.name for stat in pathlib.Path("/proc").glob("[0-9]*/stat") if is_child_of(stat, child.pid)), None)

    def inside(command, expected=0):
        return run(f"nsenter -t {first_inside()} -m -p -C -- {command}", expected=expected)

    def is_up():
        return first_inside() and "recipes.target" in inside("systemctl list-units --state=active --no-legend", expected=None)
    try:
        try:
            await_true(is_up, "systemd starts", child)
        except Failed as error:
            log.seek(0)
            raise Skip(f"systemd does not start in a namespace here: {(log.read().strip().splitlines() or [error])[-1]}") from error
        yield inside
    finally:
        child.kill()
        child.wait()
        log.close()
        remove_groups(groups)


def scrape_unit():
    with urllib.request.urlopen("http://127.0.0.1:9791/metrics", timeout=30) as answer:
        return answer.read().decode()


def the_unit_runs_under_systemd_and_goes_on_after_a_restart(root):
    need("systemctl", "nsenter", "unshare")
    own = pathlib.Path("/opt/apps/user-tmp")
    own.mkdir(exist_ok=True)
    shutil.chown(own, OTHER_USER)
    own.chmod(0o700)
    with booted(root) as inside:
        inside("systemctl start gpupool-exporter")

        def is_complete():
            with contextlib.suppress(OSError):
                return jobs_with_memory(scrape_unit()) == WANTED
        try:
            await_true(is_complete, "the unit exports all three services")
        except Failed as why:
            raise Failed(f"{why}\n" + inside("systemctl status --no-pager -l gpupool-exporter", expected=None)) from why
        inside(f"runuser -u {OTHER_USER} -- env {PRELOAD} SIMULATION_FAIL=1 {WORK}/simulation")
        pattern = r"(?m)^gpupool_node_out_of_memory_errors_total (\d+)$"
        before = re.search(pattern, scrape_unit())[1]
        inside("systemctl restart gpupool-exporter")
        await_true(is_complete, "the unit exports all three services after a restart")
        after = re.search(pattern, scrape_unit())[1]
        expect(int(before) >= 1 and before == after, f"the counter of the node was {before}, and {after} after a restart")
        text = inside("systemctl show -p NRestarts -p Result gpupool-exporter")
        expect("NRestarts=0" in text and "Result=success" in text, text)
        status = inside("sh -c 'cat /proc/$(systemctl show -P MainPID gpupool-exporter)/status'")
        bits = {name: value.strip() for name, value in re.findall(r"(?m)^(CapBnd|NoNewPrivs|Seccomp):(.*)$", status)}
        expect(bits["NoNewPrivs"] == "1" and bits["Seccomp"] == "2", str(bits))
        expect(bin(int(bits["CapBnd"], 16)).count("1") == len(capabilities_of(root)), str(bits))


STEPS = [
    systemd_finds_no_fault_in_the_unit,
    the_capabilities_of_the_unit_are_enough_for_processes_of_other_users,
    no_capability_of_the_unit_can_be_left_out,
    the_unit_runs_under_systemd_and_goes_on_after_a_restart,
]
