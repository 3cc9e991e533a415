# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""Builds what the tests need, and runs programs raw or under the preload."""

import concurrent.futures
import contextlib
import ctypes
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import ctl

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ROOT / "tests" / "gpu"
WORK = ROOT / "build-gpu"
BIN = WORK / "bin"

# Builds of submissions.cu: the runtime, and the kind of default stream.
SUBMISSIONS = {"submissions": ("static", "legacy"), "submissions_shared": ("shared", "legacy"),
               "submissions_threads": ("static", "per-thread")}
CUDA_PROGRAMS = ["pairs", "free_wait", "stream_matrix", "order_ends", "inflight", "beyond", "probes", "sleep_steps",
                 "async_served"]
DRIVER_PROGRAMS = [
    ("context_probe", SOURCES / "context_probe.c"),
    ("green_probe", SOURCES / "green_probe.c"),
    ("host_probe", SOURCES / "host_probe.c"),
    ("ipc_probe", SOURCES / "ipc_probe.c", SOURCES / "ipc_peer.c"),
]


class Trouble(Exception):
    """An obstacle that keeps a part from running; its text describes it."""


def reason_to_skip():
    """The reason why no GPU can be used, or None."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"no CUDA driver ({error})"
    count = ctypes.c_int(0)
    error = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if error or not count.value:
        return f"no CUDA device (error {error})"
    return None


def run_tool(words, log):
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        words = [str(word) for word in words]
        done = subprocess.run(words, stdout=file, stderr=file, cwd=ROOT, check=False)
    if done.returncode != 0:
        tail = log.read_text(errors="replace").splitlines()[-15:]
        raise Trouble("\n".join([" ".join(words), *tail]))


def find_nvcc():
    for path in [os.environ.get("NVCC"), shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"]:
        if path and os.access(path, os.X_OK):
            return path
    raise Trouble("no nvcc: set NVCC, or PATH")


def is_fresh(target):
    sources = [p for p in SOURCES.iterdir() if p.suffix in (".cu", ".c", ".h")]
    return target.exists() and target.stat().st_mtime > max(p.stat().st_mtime for p in sources)


def compile_cuda(name, target, cudart, default_stream="legacy"):
    if is_fresh(target):
        return
    nvcc = find_nvcc()
    library = pathlib.Path(nvcc).resolve().parents[1] / "lib64"
    flags = ["-arch=sm_90", "-O2", "-std=c++17", "-Xcompiler", "-Wall,-Wextra", "-cudart", cudart]
    flags += ["-Xlinker", f"-rpath,{library}", f"--default-stream={default_stream}"]
    words = [nvcc, *flags, "-o", target, SOURCES / f"{name}.cu"]
    run_tool(words, WORK / "log" / f"{target.name}.log")


def compile_driver_program(name, *sources):
    target = BIN / name
    if is_fresh(target):
        return
    words = ["cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", f"-I{ROOT}", "-o", target]
    words += [*sources, "-ldl", "-lpthread"]
    run_tool(words, WORK / "log" / f"{target.name}.log")


def compile_linked_program(name):
    """
    It is linked to the driver, as the programs of tests/preload are. The SDK has a library to link it to. launch_cost
    compares addresses of functions, which are those of stubs in a program that is not position-independent.
    """
    target = BIN / name
    if is_fresh(target):
        return
    stubs = pathlib.Path(find_nvcc()).resolve().parents[1] / "lib64" / "stubs"
    words = ["cc", "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-fPIE", "-pie", "-Wall", "-Wextra", "-iquote", ROOT]
    run_tool([*words, "-o", target, SOURCES / f"{name}.c", f"-L{stubs}", "-lcuda", "-lpthread"], WORK / "log" / f"{name}.log")


def build_programs():
    BIN.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(compile_cuda, name, BIN / name, "static") for name in CUDA_PROGRAMS]
        jobs += [pool.submit(compile_cuda, name, BIN / f"{name}_shared", "shared") for name in ("pairs", "async_served")]
        jobs += [pool.submit(compile_cuda, "submissions", BIN / name, *how) for name, how in SUBMISSIONS.items()]
        jobs += [pool.submit(compile_driver_program, *row) for row in DRIVER_PROGRAMS]
        jobs += [pool.submit(compile_linked_program, name)
                 for name in ("sleep_probe", "sleep_turns", "launch_cost", "deep_probe", "spill_probe")]
        for job in jobs:
            job.result()


def meson(*words):
    if shutil.which("meson"):
        return ["meson", *words]
    return [sys.executable, "-m", "mesonbuild.mesonmain", *words]


def meson_build(build, *options):
    if not (build / "build.ninja").exists():
        setup = meson("setup", build, "--buildtype=release", "-Dtests=disabled", *options)
        run_tool(setup, WORK / "log" / f"{build.name}-setup.log")
    run_tool(meson("compile", "-C", build), WORK / "log" / f"{build.name}.log")
    return build


def find_library(build):
    for path in sorted(build.rglob("libgpupool.so")):
        if path.parent.name != "broken":
            return path
    raise Trouble(f"no libgpupool.so under {build}")


def preload_library():
    """The library under test: from the build named by GPUPOOL_BUILD, or from a new build."""
    if os.environ.get("GPUPOOL_BUILD"):
        return find_library(pathlib.Path(os.environ["GPUPOOL_BUILD"]).resolve())
    return find_library(meson_build(WORK / "preload"))


def stat_program(library):
    """gpupool-stat of the library's build, or that of GPUPOOL_STAT; None: it was not built, for lack of Jansson."""
    given = os.environ.get("GPUPOOL_STAT")
    beside = library.parent.parent / "tools" / "gpupool-stat"
    return pathlib.Path(given) if given else beside if beside.exists() else None


def defect_arguments(defect):
    """The compiler's arguments for a library with a defect of tests/broken. Meson compiles its probes with them, too."""
    return ["-iquote", str(ROOT), "-include", f"{ROOT}/tests/broken/{defect}.h"]


def defective_library(name, given, defect):
    """A library of the same sources with a defect: a given one, that of tests/broken, or a new build."""
    build = pathlib.Path(os.environ.get("GPUPOOL_BUILD", WORK))
    beside = build / "tests" / "broken" / f"{name}.so"
    for path in [os.environ.get(given), beside]:
        if path and pathlib.Path(path).exists():
            return pathlib.Path(path).resolve()
    return find_library(meson_build(WORK / defect, f"-Dc_args={' '.join(defect_arguments(defect))}"))


def broken_library():
    """A library without fences, which the stream test must detect."""
    return defective_library("libgpupool", "GPUPOOL_BROKEN_LIB", "reuse")


def unreported_library():
    """A library whose hooks do not report submissions, which the stream test must detect, too."""
    return defective_library("libgpupool-work", "GPUPOOL_WORK_LIB", "work")


def alone_library():
    """A library that ignores work of other devices, contexts and processes, which must be detected."""
    return defective_library("libgpupool-alone", "GPUPOOL_ALONE_LIB", "alone")


def fenceless_library():
    """A library that finds no context-wide fences, as on a driver before CUDA 12.5. This is not a defect."""
    return defective_library("libgpupool-fenceless", "GPUPOOL_FENCELESS_LIB", "fenceless")


@dataclasses.dataclass
class Config:
    """A way to run a program. preload: the library, None for raw."""

    name: str
    preload: pathlib.Path | None = None
    variables: dict = dataclasses.field(default_factory=dict)

    def environment(self, runtime_dir, more):
        env = {k: v for k, v in os.environ.items() if not k.startswith("GPUPOOL")}
        env |= more
        if self.preload:
            env["LD_PRELOAD"] = str(self.preload)
            env["GPUPOOL_RUNTIME_DIR"] = runtime_dir
            env |= self.variables
        return env


KINDS = ("none", "simple", "binned", "split", "vmm")


def kinds(usual, options):
    """The pool types that a part runs: the usual ones, or auto in their place."""
    return ["auto"] if options.auto else list(usual)


def kind_configs(library, options, usual=KINDS):
    """Configurations: raw, and each kind of pool with its defaults."""
    return [Config("raw"), *(Config(kind, library, {"GPUPOOL_POOL": kind}) for kind in kinds(usual, options))]


def pool_configs(library, options):
    """The configurations of kind_configs, and the two reuse modes that are not the default."""
    configs = kind_configs(library, options)
    for kind in kinds(["split"], options):
        for reuse in ["ordered", "completed"]:
            variables = {"GPUPOOL_POOL": kind, "GPUPOOL_REUSE": reuse}
            configs.append(Config(f"{kind}/{reuse[:4]}", library, variables))
    return configs


@dataclasses.dataclass
class Run:
    status: int
    text: str
    is_pooled: bool  # its control socket existed


@contextlib.contextmanager
def private_dir():
    """A directory for sockets, under /tmp because the path of a socket must be short."""
    with tempfile.TemporaryDirectory(prefix="gpupool-", dir="/tmp") as path:
        yield path


class SocketWatch(threading.Thread):
    """
    Detects that a process under the preload has opened its socket, so that a run in which the preload failed does not
    pass for one under the preload.
    """

    def __init__(self, directory):
        super().__init__(daemon=True)
        self.directory = directory
        self.is_seen = False
        self.is_over = threading.Event()

    def run(self):
        while not self.is_seen and not self.is_over.wait(0.005):
            self.is_seen = bool(ctl.sockets(self.directory))


def run_program(config, words, log, timeout, more=None, pass_fds=()):
    """Runs a program to its end; its output goes to log and log's .err file too."""
    log.parent.mkdir(parents=True, exist_ok=True)
    errors = log.with_suffix(".err")
    started = time.monotonic()
    with private_dir() as directory, log.open("w") as out, errors.open("w") as err:
        watch = SocketWatch(directory)
        watch.start()
        env = config.environment(directory, more or {})
        try:
            words = [str(w) for w in words]
            done = subprocess.run(
                words, stdout=out, stderr=err, env=env, timeout=timeout, pass_fds=pass_fds, check=False
            )
            status = done.returncode
        except subprocess.TimeoutExpired:
            status = 124
        watch.is_over.set()
        watch.join()
    with errors.open("a") as err:
        err.write(f"exit status {status} after {time.monotonic() - started:.1f} s\n")
    return Run(status, log.read_text(errors="replace"), watch.is_seen)


def parse_lines(text):
    """Parses 'word key=value ...' lines as (word, {key: value}) pairs."""
    for line in text.splitlines():
        word, *pairs = line.split()
        yield word, dict(pair.split("=", 1) for pair in pairs if "=" in pair)
