# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
The peers that scripts/bench compares, and how their players are built. For a GPU all players are built here, with nvcc.
For the simulated GPU they come from a Meson build, except PyTorch's, which are built here too. A peer that cannot be
measured carries the reason.
"""

import concurrent.futures
import dataclasses
import importlib.util
import json
import os
import pathlib
import sys

from player import Peer
import programs

HERE = pathlib.Path(__file__).resolve().parent
BIN = programs.WORK / "bench"
REASONS = BIN / "missing.json"
FLOOR = "the library without fences"
COMMON = ["gpu_work", "patterns", "player"]
KINDS = ("split", "binned", "vmm")

TORCH_BACKENDS = {
    "torch": {},
    "torch expandable": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "torch async": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
}


def package(name):
    """The folder of a Python package; raises Trouble if it is not installed."""
    found = importlib.util.find_spec(name)
    if not found or not found.submodule_search_locations:
        raise programs.Trouble(f"{name} is not installed")
    return pathlib.Path(found.submodule_search_locations[0])


def toolkit():
    return pathlib.Path(programs.find_nvcc()).resolve().parents[1]


def runtime_flags(kind):
    library = toolkit() / "lib64"
    if kind == "static":
        return [f"-L{library}", "-lcudart_static", "-lrt"]
    return [f"-L{library}", "-lcudart", f"-Wl,-rpath,{library}"]


def torch_flags(sim=None):
    """
    Compiler flags for PyTorch. sim: the folder of the simulated GPU; its runtime is found before the one in PyTorch's
    package.
    """
    torch = package("torch")
    if sim:
        headers = package("nvidia") / "cu13" / "include"
        runtime = [f"-L{sim}", "-Wl,--no-as-needed", "-lcudart"]
    else:
        headers, runtime = toolkit() / "include", runtime_flags("shared")
    return [f"-I{torch / 'include'}", f"-I{headers}", *runtime, f"-L{torch / 'lib'}", "-lc10_cuda", "-lc10",
            f"-Wl,-rpath,{torch / 'lib'}", "-Wl,--allow-shlib-undefined"]


def rmm_flags():
    """Compiler flags for PyPI's librmm, which contains CCCL's headers and needs rapids_logger at run time."""
    try:
        rmm, logger = package("librmm"), package("rapids_logger")
    except programs.Trouble:
        raise programs.Trouble("rmm is not installed") from None
    libraries = [rmm / "lib64", logger / "lib64"]
    return [f"-I{rmm / 'include'}", f"-I{rmm / 'include' / 'rapids'}", f"-I{logger / 'include'}",
            f"-I{toolkit() / 'include'}", *(f"-L{path}" for path in libraries), "-lrmm", "-lrapids_logger",
            *(f"-Wl,-rpath,{path}" for path in libraries), *runtime_flags("shared")]


def built_command(target, command_file):
    """The command that built the target, or "" if a source is newer than the target."""
    sources = [path for path in HERE.iterdir() if path.suffix in (".c", ".cpp", ".cu", ".h")]
    if not target.exists() or target.stat().st_mtime <= max(path.stat().st_mtime for path in sources):
        return ""
    return command_file.read_text() if command_file.exists() else ""


def compile_to(target, words):
    """
    Compiles the target, unless it is up to date and was built by the same command (with the same PyTorch, for example).
    """
    command_file = target.with_name(f"{target.name}.command")
    words = [str(word) for word in (*words, "-O2", "-D_GNU_SOURCE", f"-I{programs.ROOT}", "-o", target)]
    if built_command(target, command_file) != " ".join(words):
        programs.run_tool(words, programs.WORK / "log" / f"bench-{target.name}.log")
        command_file.write_text(" ".join(words))


def objects():
    """Objects of the sources that all players share, compiled once."""
    BIN.mkdir(parents=True, exist_ok=True)
    made = [BIN / f"{name}.o" for name in COMMON]
    for target in made:
        compile_to(target, ["cc", "-std=gnu11", "-c", HERE / f"{target.stem}.c"])
    return made


# Players: the source, its compiler (None: nvcc), and the function that returns its flags.
RECIPES = {
    "player_driver": ("peer_driver.c", ["cc", "-std=gnu11"], list),
    "player_runtime_static": ("peer_runtime.c", ["cc", "-std=gnu11"], lambda: runtime_flags("static")),
    "player_runtime_shared": ("peer_runtime.c", ["cc", "-std=gnu11"], lambda: runtime_flags("shared")),
    "player_async": ("peer_async.c", ["cc", "-std=gnu11"], lambda: runtime_flags("static")),
    "player_async_shared": ("peer_async.c", ["cc", "-std=gnu11"], lambda: runtime_flags("shared")),
    "player_cub": ("peer_cub.cu", None, lambda: ["-cudart", "static"]),
    "player_torch": ("peer_torch.cpp", ["c++", "-std=c++20"], torch_flags),
    "player_rmm": ("peer_rmm.cpp", ["c++", "-std=c++20"], rmm_flags),
    "trace_torch": ("trace_torch.cpp", ["c++", "-std=c++20"], torch_flags),
}
LINKED = {"trace_torch": [HERE / "peer_torch.cpp"]}  # linked instead of the shared objects
ON_SIM = ("player_torch", "trace_torch")  # not in a Meson build, because they need PyTorch
OTHERS = ("cold", "first", "startup", "nothing")


def build_player(target, common, *flag_args):
    source, compiler, flags = RECIPES[target.name]
    compiler = compiler or [programs.find_nvcc(), "-std=c++17"]
    compile_to(target, [*compiler, HERE / source, *LINKED.get(target.name, common), *flags(*flag_args), "-ldl",
                        "-lpthread"])


def first_error(trouble):
    lines = str(trouble).splitlines()
    line = next((line for line in lines if "error" in line), lines[-1])
    return line if line.endswith("not installed") else f"cannot be built: {line[:160]}"


def build_players(targets, *flag_args):
    """Builds the players, and returns the reasons of failures by name."""
    common, reasons = objects(), {}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {target.name: pool.submit(build_player, target, common, *flag_args) for target in targets}
        for name, job in jobs.items():
            try:
                job.result()
            except (programs.Trouble, OSError) as trouble:
                reasons[name] = first_error(trouble)
    return reasons


def store_reasons(reasons, path):
    for name, why in reasons.items():
        print(f"bench: no {name}: {why}", flush=True)
    path.write_text(json.dumps(reasons))


def build():
    """Builds everything that can be built, and stores the reasons of failures in a file for later runs."""
    reasons = build_players([BIN / name for name in RECIPES])
    for name in OTHERS:
        compile_to(BIN / name, ["cc", "-std=gnu11", HERE / f"{name}.c", "-ldl", "-lpthread"])
    try:
        programs.broken_library()
    except (programs.Trouble, OSError) as trouble:
        reasons[FLOOR] = first_error(trouble)
    store_reasons(reasons, REASONS)


def build_on_sim(sim):
    """Builds the players that a Meson build lacks, for its simulated GPU."""
    folder = sim.resolve() / "tests"
    if not (folder / "bench").is_dir():
        raise programs.Trouble(f"{sim} is not a build directory with tests")
    try:
        package("torch")
        reasons = build_players([folder / "bench" / name for name in ON_SIM], folder / "sim")
    except programs.Trouble as trouble:
        reasons = dict.fromkeys(ON_SIM, str(trouble))
    store_reasons(reasons, folder / "bench" / REASONS.name)


def load_reasons(path):
    return json.loads(path.read_text()) if path.exists() else {}


class Setup:
    """The players with their environment: for a GPU, or for the simulated GPU of a Meson build."""

    def __init__(self, sim=None):
        self.is_sim = sim is not None
        if sim:
            sim = sim.resolve()
            self.folder, self.preload = sim / "tests" / "bench", programs.find_library(sim)
            self.variables = {"LD_LIBRARY_PATH": str(sim / "tests" / "sim")}
            self.stat = sim / "tools" / "gpupool-stat"
            self.reasons = {name: "needs a GPU" for name in RECIPES if not (self.folder / name).exists()}
            self.reasons |= load_reasons(self.folder / REASONS.name)
            self.broken = sim / "tests" / "broken" / "libgpupool.so"
        else:
            self.folder, self.preload, self.variables = BIN, programs.preload_library(), {}
            self.stat = self.preload.parent.parent / "tools" / "gpupool-stat"
            self.reasons = load_reasons(REASONS)
            self.broken = None if self.reasons.get(FLOOR) else programs.broken_library()
        self.stat = self.stat if self.stat.exists() else None

    def peer(self, name, program, kind=None, variables=None):
        """A peer; kind is its kind of pool, or None for a peer without gpupool."""
        variables = {**self.variables, **(variables or {})}
        if kind:
            variables["GPUPOOL_POOL"] = kind
        return Peer(name, [self.folder / program], self.preload if kind else None, variables,
                    self.reasons.get(program, ""), kind or "")

    def script(self, name, needs, script, kind=None, words=(), variables=None):
        """A player written in Python."""
        why = ""
        if self.is_sim:
            why = "needs a GPU"
        elif not importlib.util.find_spec(needs):
            why = f"{needs} is not installed"
        variables = {**self.variables, **(variables or {}), **({"GPUPOOL_POOL": kind} if kind else {})}
        return Peer(name, [sys.executable, "-B", HERE / script, *words], self.preload if kind else None, variables,
                    why, kind or "")

    def raw(self):
        return self.peer("raw", "player_runtime_static")

    def gpupool(self):
        return [*(self.peer(kind, "player_runtime_static", kind) for kind in KINDS),
                *(self.peer(f"{kind}, shared", "player_runtime_shared", kind) for kind in KINDS[:2])]

    def floor(self):
        """
        The library built without its fences, which makes reuse unsafe: not a usable allocator, and not compared with
        the others. Its time is that of the runtime, the driver and the pool without any fence.
        """
        why = "" if self.broken and self.broken.exists() else self.reasons.get(FLOOR, "was not built")
        return [dataclasses.replace(self.peer(f"UNSAFE floor{label}", program, "split"), preload=self.broken,
                                    why_missing=why or self.reasons.get(program, ""))
                for label, program in (("", "player_runtime_static"), (", shared", "player_runtime_shared"))]

    def others(self):
        torch = [self.peer(name, "player_torch", None, variables) for name, variables in TORCH_BACKENDS.items()]
        return [self.peer("async", "player_async"), self.peer("cub", "player_cub"), *torch,
                self.peer("rmm", "player_rmm")]

    def torch_pools(self):
        """PyTorch's own pools, for traces; they report the memory that they take from the driver."""
        return [self.peer(name, "trace_torch", variables=TORCH_BACKENDS[name]) for name in ("torch", "torch expandable")]

    def all(self):
        return [self.raw(), *self.gpupool(), *self.others()]
