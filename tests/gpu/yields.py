# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Usage: yields.py BUILD

Two users share a GPU, with and without an exporter of root that passes requests for cached memory on (gpupool-stat
export --yield). It shows on a real GPU what scripts/yield-test shows on the simulated one, above all that a process has
the node of its device open, by which the exporter knows it. Needs root and takes half a minute; with SIMGPU_SHARED and
LD_LIBRARY_PATH it runs on the simulated GPU, too.
"""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "readers"))
from readers import Skip, main  # noqa: E402

BUILD = pathlib.Path(sys.argv[1]).resolve()
ALICE, BOB, MALLORY = 34561, 34562, 34563
RUN, SOCKET = pathlib.Path("/run/gpupool"), pathlib.Path("/run/gpupool/exporter/yield.sock")
LIMIT_S = 60
PYTHON = "/usr/bin/python3"  # other users may not be able to read another one
PLAIN = {name: value for name, value in os.environ.items() if not name.startswith("GPUPOOL") and name not in ("TMPDIR", "XDG_RUNTIME_DIR")}

# Takes a share of the first GPU, says so, and either keeps it or frees it and waits.
GUEST = """
import ctypes, sys
cuda, context, free, total, ptr = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
for error in cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context), \\
        cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)):
    if error:
        sys.exit(f"error {error}")
error = cuda.cuMemAlloc_v2(ctypes.byref(ptr), ctypes.c_size_t(int(total.value * float(sys.argv[2]))))
if not error and sys.argv[1] == "cache":
    error = cuda.cuMemFree_v2(ptr)
print("refused" if error else "got", flush=True)
if sys.argv[1] == "cache":
    input()
"""

ASK = """
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(sys.argv[2].encode() + b"\\n")
print(s.makefile().read().strip())
"""


def as_user(uid, words, **variables):
    return subprocess.Popen([PYTHON, "-c", *words], env={**PLAIN, **variables}, text=True, user=uid, group=uid, extra_groups=[],
                            cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@contextlib.contextmanager
def library():
    """The variables of a program under the library, which every user can read."""
    with tempfile.TemporaryDirectory(prefix="gpupool-yields-") as path:
        os.chmod(path, 0o755)
        shutil.copy(BUILD / "shim/libgpupool.so", path)
        yield {"LD_PRELOAD": f"{path}/libgpupool.so", "GPUPOOL_LOG": "warn", "GPUPOOL_OOM_FILE": "off"}


@contextlib.contextmanager
def exporter():
    child = subprocess.Popen([BUILD / "tools/gpupool-stat", "export", "--yield", "--listen=127.0.0.1:0"], env=PLAIN, text=True,
                             stdout=subprocess.PIPE)
    try:
        lines = [child.stdout.readline().strip() for _ in range(2)]
        assert lines[1] == str(SOCKET), lines
        yield
    finally:
        child.terminate()
        assert child.wait(LIMIT_S) == 0, child.returncode


@contextlib.contextmanager
def folders():
    """The folder of the machine for all users; what was not there before is removed."""
    if os.geteuid() != 0 or not os.path.exists(PYTHON):
        raise Skip(f"needs root and {PYTHON}")
    is_new = not RUN.exists()
    if is_new:
        RUN.mkdir()
        RUN.chmod(0o1777)
    try:
        yield
    finally:
        for name in (*map(str, (ALICE, BOB, MALLORY)), "exporter"):
            shutil.rmtree(RUN / name, ignore_errors=True)
        if is_new:
            shutil.rmtree(RUN, ignore_errors=True)


def finish(child):
    out, err = child.communicate(timeout=LIMIT_S)
    assert child.returncode == 0, (child.returncode, out, err)
    return out.strip(), err


@contextlib.contextmanager
def holder(variables, share):
    child = as_user(ALICE, [GUEST, "cache", str(share)], **variables)
    try:
        line = child.stdout.readline().strip()
        assert line == "got", line + child.stderr.read()
        yield child
    finally:
        child.kill()
        child.communicate()


def request(variables, share):
    began = time.monotonic()
    got, err = finish(as_user(BOB, [GUEST, "keep", str(share)], **variables))
    print(f"# {got} after {time.monotonic() - began:.2f} s, with the start of the program")
    return got, err


def memory_that_another_user_caches_is_handed_over_with_the_exporter_only():
    with folders(), library() as variables, holder(variables, 0.6):
        got, err = request(variables, 0.55)
        assert got == "refused", "the device holds both"
        assert "exporter" not in err, err
        with exporter():
            got, err = request(variables, 0.55)
            assert got == "got", err


def a_process_without_the_device_is_refused():
    with folders(), library() as variables, holder(variables, 0.1), exporter():
        status = json.loads(subprocess.run([BUILD / "tools/gpupool-stat", "status", "--json"], env=PLAIN, text=True, capture_output=True,
                                           check=True).stdout.splitlines()[0])
        uuid = next(device["uuid"] for process in status["processes"] if process["devices"] for device in process["devices"])
        out, _ = finish(as_user(MALLORY, [ASK, str(SOCKET), f"yield {uuid.removeprefix('GPU-').replace('-', '')} 1000"]))
        answer = json.loads(out)
        print(f"# {answer}")
        assert answer["reason"] == "permission", answer


def the_driver_names_the_node_of_each_gpu_and_a_program_has_it_open():
    gpus = pathlib.Path("/proc/driver/nvidia/gpus")
    if not gpus.is_dir():
        raise Skip("there is no driver of NVIDIA")
    for path in gpus.glob("*/information"):
        print("# " + "; ".join(line for line in path.read_text().splitlines() if line.startswith(("GPU UUID", "Device Minor"))))
    with folders(), library() as variables, holder(variables, 0.1) as child:
        nodes = [os.stat(path) for path in pathlib.Path(f"/proc/{child.pid}/fd").iterdir() if path.exists()]
        found = sorted({(os.major(node.st_rdev), os.minor(node.st_rdev)) for node in nodes if node.st_rdev})
        print(f"# nodes that a program has open: {found}")
        assert any(major == 195 and minor < 254 for major, minor in found), found


main([
    the_driver_names_the_node_of_each_gpu_and_a_program_has_it_open,
    memory_that_another_user_caches_is_handed_over_with_the_exporter_only,
    a_process_without_the_device_is_refused,
])
