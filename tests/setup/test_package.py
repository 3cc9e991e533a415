# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Checks that a program runs with a tarball and with a wheel of this build, in the folder where a user installs them.

Usage: test_package.py tarball|wheel ROOT BUILD VERSION

The test installs the build into a temporary folder, packs this with scripts/package, and runs the demo program on the
simulated GPU. It needs no rights. Exits with 77 if a tool is missing.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
STEPS = ("--steps", "60", "--size", "64")


def skip(reason):
    print("skipped:", reason)
    sys.exit(SKIPPED)


def run(*words, **kwargs):
    """The output of a command, which must succeed."""
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, **kwargs)
    if done.returncode:
        sys.exit("%s: exit status %d\n%s" % (words, done.returncode, done.stdout))
    return done.stdout


def expect(is_true, message):
    if not is_true:
        sys.exit("failed: " + message)


def find_python():
    """A Python that can make virtual environments. Debian's needs the package python3-venv for this."""
    for python in (sys.executable, shutil.which("python3"), "/usr/bin/python3"):
        if python and subprocess.run([python, "-c", "import ensurepip, venv"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return python
    return skip("no Python of this machine can make a virtual environment (Debian: python3-venv)")


def install(build, folder):
    """Installs the build below the folder, and returns the prefix there."""
    run("meson", "install", "--no-rebuild", "-C", build, "--destdir", folder)
    options = json.loads(run("meson", "introspect", "--buildoptions", build))
    prefix = [option["value"] for option in options if option["name"] == "prefix"][0]
    return folder / prefix.lstrip("/")


def result(lines):
    """The lines of the demo's output that must not depend on the allocator."""
    return [line for line in lines if line.split()[:1] in (["mallocs"], ["frees"], ["checksum"])]


def check_commands(prefix, python, env, demo, version):
    """Runs the demo with the commands in prefix/bin, and requests its status while it waits."""
    gpupool_run, gpupool_stat = prefix / "bin/gpupool-run", prefix / "bin/gpupool-stat"
    expect(run(gpupool_run, "--version").split()[-1] == version, "gpupool-run --version is not %s" % version)
    expect(str(prefix.resolve()) in run(gpupool_run, "--print-env"), "gpupool-run preloads a library outside of its prefix")
    raw = result(run(demo, *STEPS, env=env).splitlines())
    lines = []
    with subprocess.Popen([str(word) for word in (gpupool_run, demo, *STEPS, "--wait")], env=env, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as program:
        for line in program.stdout:
            lines.append(line)
            if line.startswith("checksum"):
                break
        status = json.loads(run(gpupool_stat, "status", "--json", program.pid))
        program.stdin.close()
    expect(program.returncode == 0, "the demo ended with %d under gpupool-run" % program.returncode)
    expect(raw and result("".join(lines).splitlines()) == raw, "the demo computed %s, and %s without gpupool" % (lines, raw))
    expect(sum(device["hits"] for device in status["devices"]) > 0, "the pool served no allocation: %s" % status)
    text = "import gpupool; print(gpupool.version(), gpupool.is_active())"
    expect(run(gpupool_run, python, "-c", text, env=env).split() == [version, "True"], "`import gpupool` found no pool")
    text = "import sys; print(type(sys.meta_path[0]).__module__)"
    expect(run(gpupool_run, "-q", "--own-pools=off", python, "-c", text, env=env).split() == ["gpupool_own_pools"],
           "gpupool-run --own-pools=off found no start-up hook")


def test_tarball(files, package, check):
    if not shutil.which("tar"):
        skip("there is no tar")
    unpacked = files / "unpacked"
    unpacked.mkdir()
    run("tar", "-xzf", package, "-C", unpacked)
    prefix, = unpacked.iterdir()
    expect((prefix / "README").is_file() and (prefix / "LICENSE").is_file(), "README or LICENSE is missing in the tarball")
    check(prefix, sys.executable, PYTHONPATH=str(prefix / "share/gpupool"))
    moved = files / "moved"
    shutil.move(str(prefix), str(moved))
    check(moved, sys.executable, PYTHONPATH=str(moved / "share/gpupool"))


def test_wheel(files, package, check):
    venv = files / "venv"
    run(find_python(), "-m", "venv", venv)
    python = venv / "bin/python"
    run(python, "-m", "pip", "install", "--no-index", "--no-warn-script-location", package)
    check(venv, python)
    run(python, "-m", "pip", "uninstall", "--yes", "gpupool")
    left = [str(path) for path in venv.rglob("*gpupool*") if not path.is_dir()]
    expect(not left, "`pip uninstall` left %s" % left)


def main(kind, root, build, version):
    root, build = pathlib.Path(root), pathlib.Path(build)
    for tool in ("meson", "readelf"):
        if not shutil.which(tool):
            skip("%s is not installed" % tool)
    if kind == "wheel":
        find_python()
    # The caller's settings and Python packages must not affect the test.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("GPUPOOL", "PYTHON", "LD_"))}
    env["LD_LIBRARY_PATH"] = str(build / "tests/sim")
    with tempfile.TemporaryDirectory(prefix="gpupool-package-") as folder:
        files = pathlib.Path(folder)
        os.chmod(folder, 0o755)
        env["GPUPOOL_RUNTIME_DIR"] = os.environ["GPUPOOL_RUNTIME_DIR"] = str(files / "sockets")
        (files / "sockets").mkdir(mode=0o700)
        prefix = install(build, files / "dest")
        package = run(root / "scripts/package", "--no-install", "--from", prefix, "--out", files / "out", kind).split()[-1]
        shutil.rmtree(files / "dest")

        def check(prefix, python, **more):
            check_commands(prefix, python, {**env, **more}, build / "tests/demo/demo", version)

        {"tarball": test_tarball, "wheel": test_wheel}[kind](files, package, check)
    print("the %s runs" % kind)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
