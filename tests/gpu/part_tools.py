# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Tools that observe a CUDA program, under the preload: compute-sanitizer (T10.1) and PyTorch's profiler (T10.3).
"""

import importlib.util
import json
import pathlib
import shutil
import sys

import programs

SANITIZER_SECONDS, PROFILE_SECONDS = 60, 90
FOUND = 9  # the exit status requested from the sanitizer
# The sanitizer knows the driver's allocations. If each block is one, it detects accesses past the end of a block.
SEES_BLOCKS = ("raw", "none", "off")
PROFILES = {
    "raw": None,
    "split": {"GPUPOOL_POOL": "split"},
    "split, no runtime layer": {"GPUPOOL_POOL": "split", "GPUPOOL_RUNTIME_LAYER": "off"},
    "vmm": {"GPUPOOL_POOL": "vmm"},
}


def find_sanitizer():
    beside = pathlib.Path(programs.find_nvcc()).resolve().parent / "compute-sanitizer"
    return shutil.which("compute-sanitizer") or (str(beside) if beside.exists() else None)


def configs(library):
    yield programs.Config("raw")
    for kind in ("none", "split", "vmm"):
        yield programs.Config(kind, library, {"GPUPOOL_POOL": kind})
    yield programs.Config("off", library, {"GPUPOOL": "off"})


def run_sanitizer(results, out, library):
    tool = find_sanitizer()
    if not tool:
        results.note("compute-sanitizer: skipped, not installed", None)
        return
    words = [tool, "--tool", "memcheck", "--error-exitcode", str(FOUND), programs.BIN / "beyond"]
    for config in configs(library):
        for way in ("within", "beyond"):
            done = programs.run_program(
                config, [*words, way], out / "tools" / f"memcheck-{config.name}-{way}.txt", SANITIZER_SECONDS)
            if config.name == "raw" and way == "within" and done.status:
                results.note(f"compute-sanitizer: skipped, it does not work on this machine (status {done.status})", None)
                return
            is_found = way == "beyond" and config.name in SEES_BLOCKS
            what = "an access past the end of a block is reported" if is_found else "nothing is reported"
            results.check(f"{config.name}: memcheck, {way}: {what}", done.status == (FOUND if is_found else 0),
                          f"status {done.status}")


def run_profiler(results, out, library):
    if not importlib.util.find_spec("torch"):
        results.note("PyTorch's profiler: skipped, not installed", None)
        return
    found = {}
    for name, variables in PROFILES.items():
        config = programs.Config(name, library if variables else None, variables or {})
        log = out / "tools" / f"profile-{name.replace(', ', '-').replace(' ', '-')}.txt"
        done = programs.run_program(config, [sys.executable, programs.SOURCES / "work_torch_profile.py"], log,
                                    PROFILE_SECONDS, {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})
        lines = [line for line in done.text.splitlines() if line.startswith("{")]
        found[name] = json.loads(lines[-1]) if done.status == 0 and lines else {}
        results.check(f"{name}: PyTorch's profiler finished", bool(found[name]), f"status {done.status}")
        for key in ("kernels", "mallocs", "frees"):
            results.note(f"{name} | profiled {key}", found[name].get(key))
    raw = found["raw"]
    for name in [name for name in found if name != "raw"]:
        same = bool(raw) and all(found[name].get(key) == raw[key] for key in ("answer", "kernels"))
        results.check(f"{name}: the same kernels and result in the profile", same, f"{found[name]}, raw {raw}")
    plain = found["split, no runtime layer"]
    seen = bool(raw) and raw["mallocs"] > 0 and all(plain.get(key) == raw[key] for key in ("mallocs", "frees"))
    results.check("split, no runtime layer: the same cudaMalloc and cudaFree in the profile", seen)


def run(results, out, options):
    del options
    programs.build_programs()
    library = programs.preload_library()
    run_sanitizer(results, out, library)
    run_profiler(results, out, library)
