# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Shared by the parts of scripts/recipes-test: a machine with gpupool in /opt/apps, and commands of the documents."""

import os
import pathlib
import shutil
import subprocess
import time

PREFIX = pathlib.Path("/opt/apps/gpupool")
WORK = pathlib.Path("/opt/apps/work")  # the folder in which a user's commands run
SIM = pathlib.Path("/opt/apps/sim")
OTHER_USER = "games"  # a user of every Debian
LIMIT_S = 60
RECIPES = "docs/recipes"
BUILD = None  # the build folder; run.py sets it
MAKE_RUN_DIR = ("echo 'd /run/gpupool 1777 root root -' >/etc/tmpfiles.d/gpupool.conf && "
                "systemd-tmpfiles --create gpupool.conf")

# A program that says what it got of the GPU, and then holds some memory for as long as the variable says.
SIMULATION = f"""#!/bin/sh
echo "rank ${{SLURM_PROCID:-${{OMPI_COMM_WORLD_RANK:-${{PMI_RANK:-none}}}}}} limit ${{GPUPOOL_LIMIT:-none}}"
exec {SIM}/app_fleet info hold=64 cache=32 ${{SIMULATION_FAIL:+fail=1}} sleep=${{SIMULATION_SECONDS:-0}}
"""


class Skip(Exception):
    """A step that cannot run here, with the reason."""


class Failed(Exception):
    pass


def expect(is_true, message):
    if not is_true:
        raise Failed(message)


def need(*programs):
    for program in programs:
        if not shutil.which(program):
            raise Skip(f"there is no {program}")


def run(command, expected=0, user=None, timeout=LIMIT_S, **variables):
    """Runs a line of shell in the user's folder. Returns its output, with that of stderr."""
    words = ["bash", "-c", command]
    if user:
        words = ["runuser", "-u", user, "--", *words]
    done = subprocess.run(words, cwd=WORK, env={**os.environ, **variables}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, timeout=timeout, check=False)
    if expected is not None and done.returncode != expected:
        raise Failed(f"{command}: exit status {done.returncode}\n" + "\n".join(done.stdout.splitlines()[-12:]))
    return done.stdout


def start(command, user=None, **variables):
    """Starts a line of shell that is ended later."""
    words = ["bash", "-c", command]
    if user:
        words = ["runuser", "-u", user, "--", *words]
    return subprocess.Popen(words, cwd=WORK, env={**os.environ, **variables}, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True)


def await_true(condition, what, program=None):
    """Waits for a condition, as long as the program runs that makes it true."""
    limit = time.monotonic() + LIMIT_S
    while not (value := condition()):
        expect(not program or program.poll() is None, f"{what}: the program has ended: {program and program.poll()}")
        expect(time.monotonic() < limit, f"{what}: not within {LIMIT_S} s")
        time.sleep(0.1)
    return value


def mount(*words):
    subprocess.run(["mount", *words], check=True)


def make_tarball(root):
    """Packs this installation, as `scripts/package tarball` packs one that it builds."""
    out = WORK / "build-package/out"
    if not out.exists():
        run(f"{root}/scripts/package --no-install --from {PREFIX} --out {out} tarball")


def write_program(path, text):
    path.write_text(text)
    path.chmod(0o755)


def make_machine(root, build):
    """Makes private folders, installs this build into /opt/apps, and puts the commands' programs into the work folder."""
    mount("--make-rprivate", "/")
    mount("-t", "tmpfs", "-o", "mode=1777,size=2g", "tmpfs", "/tmp")
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    # Changes of these folders stay in this namespace.
    for folder in "/etc", "/opt", "/var":
        upper, work = (pathlib.Path(f"/tmp/.changes{folder}/{name}") for name in ("upper", "work"))
        upper.mkdir(parents=True)
        work.mkdir()
        mount("-t", "overlay", "-o", f"lowerdir={folder},upperdir={upper},workdir={work}", "overlay", folder)
    pathlib.Path("/opt/apps").mkdir(parents=True, exist_ok=True)
    mount("-t", "tmpfs", "-o", "mode=755,size=1g", "tmpfs", "/opt/apps")
    # With AI_ADDRCONFIG the C library finds no address on a machine that has only 127.0.0.1.
    subprocess.run("ip link set lo up && ip address add 192.0.2.1/32 dev lo", shell=True, check=True)
    pathlib.Path("/opt/apps/stage").mkdir()
    subprocess.run(["meson", "install", "--no-rebuild", "-C", build, "--destdir", "/opt/apps/stage"], check=True,
                   stdout=subprocess.DEVNULL)
    found, = pathlib.Path("/opt/apps/stage").rglob("bin/gpupool-run")
    shutil.move(found.parent.parent, PREFIX)
    shutil.rmtree("/opt/apps/stage")
    # The tarball has its library in lib.
    for lib in PREFIX.glob("lib/*/gpupool"):
        (PREFIX / "lib/gpupool").symlink_to(lib.relative_to(PREFIX / "lib"))
    SIM.mkdir()
    for file in pathlib.Path(build, "tests/sim").glob("lib*.so*"):
        if not file.is_dir():
            shutil.copy(file, SIM)
    shutil.copy(pathlib.Path(build, "tests/fleet/app_fleet"), SIM)
    WORK.mkdir(mode=0o777)
    WORK.chmod(0o777)
    for name in ("docs", "scripts"):
        (WORK / name).symlink_to(pathlib.Path(root) / name)
    write_program(WORK / "simulation", SIMULATION)
    os.environ.update(LD_LIBRARY_PATH=str(SIM), SIMGPU_MEMORY="16G", PATH=f"{PREFIX}/bin:" + os.environ["PATH"])
    pathlib.Path("/etc/tmpfiles.d").mkdir(exist_ok=True)
    run(MAKE_RUN_DIR)
    for name in [name for name in os.environ if name.startswith(("GPUPOOL", "SLURM", "XDG_RUNTIME"))]:
        del os.environ[name]
