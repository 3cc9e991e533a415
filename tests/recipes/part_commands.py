# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""The commands of docs/hpc.md and docs/containers.md that need neither a batch system nor containers."""

import pathlib
import shutil
import urllib.request

from recipes import PREFIX, WORK, Skip, await_true, expect, make_tarball, run, start


def a_tarball_is_installed_for_all_users(root):
    make_tarball(root)
    old = PREFIX.rename(PREFIX.with_name("old"))
    try:
        run("tar -xzf build-package/out/gpupool-*.tar.gz -C /opt/apps && mv /opt/apps/gpupool-* /opt/apps/gpupool")
        text = run("gpupool-run --limit=25% ./simulation")
        expect("4096 MiB in all" in text, text)
    finally:
        shutil.rmtree(PREFIX, ignore_errors=True)
        old.rename(PREFIX)


def the_environment_module_finds_the_commands(root):
    init = pathlib.Path("/usr/share/modules/init/bash")
    if not init.exists():
        raise Skip("there are no Environment Modules")
    text = run(f"""PATH=/usr/bin:/bin
. {init}
module use /opt/apps/gpupool/share/gpupool/modulefiles
module load gpupool
gpupool-run --limit=25% ./simulation""")
    expect("4096 MiB in all" in text, text)


def limits_hold_for_each_device_or_by_device(root):
    expect("4096 MiB in all" in run("gpupool-run --limit=25% ./simulation"), "25 % of 16 GiB are 4 GiB")
    text = run("gpupool-run --limit=0=8GiB,1=50% ./simulation", SIMGPU_DEVICES="2")
    expect("8192 MiB in all" in text, text)


def processes_share_a_limit_by_the_name_of_a_group(root):
    text = run("gpupool-run --limit-group=train:8GiB ./simulation")
    expect("8192 MiB in all" in text, text)


SETTINGS = """GPUPOOL_POOL=vmm

[user alice]
GPUPOOL_LIMIT=50%

[job 47*]
GPUPOOL_LIMIT_GROUP=32GiB
"""


def files_of_the_administrator_set_defaults(root):
    file = pathlib.Path("/etc/gpupool.conf")
    file.write_text(SETTINGS)
    child = start("exec gpupool-run ./simulation", SIMULATION_SECONDS="30", SLURM_JOB_ID="4711")
    try:
        await_true(lambda: run("gpupool-stat list -q", expected=None).strip().isdigit(), "the program is listed", child)
        text = run("gpupool-stat config")
        expect("/etc/gpupool.conf:1" in text and "/etc/gpupool.conf:7" in text, text)
        expect("/etc/gpupool.conf:4" not in text, text)
    finally:
        child.kill()
        child.wait()
        file.unlink()


def fetch(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.read().decode()
    except OSError:
        return ""


def the_exporter_serves_metrics_with_each_option(root):
    pathlib.Path("/var/lib/gpupool").mkdir(exist_ok=True)
    for command in ("gpupool-stat export", "gpupool-stat export --listen=:9791",
                    "gpupool-stat export --state=/var/lib/gpupool/state", "gpupool-stat export --yield"):
        child = start("exec " + command)
        try:
            await_true(lambda: "gpupool_processes" in fetch("http://127.0.0.1:9791/metrics"), command, child)
        finally:
            child.terminate()
            child.wait()
    expect(pathlib.Path("/var/lib/gpupool/state").is_file(), "there is no file of the node's counters")


def metrics_and_checks_are_printed_once(root):
    child = start("exec gpupool-run ./simulation", SIMULATION_SECONDS="30")
    try:
        await_true(lambda: run("gpupool-stat list -q", expected=None).strip().isdigit(), "the program is listed", child)
        run("gpupool-stat metrics --to=prometheus >gpupool.prom")
        expect("gpupool_used_bytes" in (WORK / "gpupool.prom").read_text(), "the file has no metrics")
        expect("OK" in run("gpupool-stat check"), "the program is in order")
    finally:
        child.kill()
        child.wait()


STEPS = [
    a_tarball_is_installed_for_all_users,
    the_environment_module_finds_the_commands,
    limits_hold_for_each_device_or_by_device,
    processes_share_a_limit_by_the_name_of_a_group,
    files_of_the_administrator_set_defaults,
    the_exporter_serves_metrics_with_each_option,
    metrics_and_checks_are_printed_once,
]
