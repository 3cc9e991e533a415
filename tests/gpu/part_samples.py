# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
NVIDIA's samples (github.com/NVIDIA/cuda-samples), raw and under the pool types: those about memory, streams, graphs,
processes that share memory, virtual memory and several devices. They check their own results. GPUPOOL_TEST_SAMPLES
names a folder with a checkout of them; scripts/gpu-test --build then builds them into build-gpu/bin/samples.

Under gpupool a sample has to end as raw and print the same lines, apart from numbers: most print times and addresses.
"""

import concurrent.futures
import dataclasses
import os
import pathlib
import re

import part_ipc
import programs

FOLDER = programs.BIN / "samples"
RUN_SECONDS = 60
KINDS = ["none", "split", "vmm", "auto"]
RAW, RAW_AGAIN = "raw", "raw again"
NUMBER = re.compile(r"0x[0-9a-f]+|[-+]?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?")
WAIVED = 2  # a sample's status if the device or the system lacks what it needs


@dataclasses.dataclass
class Sample:
    """
    flags: for nvcc; module: a source that the sample loads, and its form; alone: two runs at a time could meet, as in
    shared memory of a fixed name; allocates: outside graphs, so that gpupool starts; is_random: its work, and so its
    lines, depend on the time.
    """

    name: str
    least_gpus: int = 1
    flags: tuple = ()
    module: str | None = None
    alone: bool = False
    allocates: bool = True
    is_random: bool = False


DRIVER = ("-lcuda",)
SHARED = ("Common/helper_multiprocess.cpp", "-lrt")
SAMPLES = [
    Sample("asyncAPI"),
    Sample("binaryPartitionCG"),
    Sample("cdpSimpleQuicksort", flags=("-rdc=true", "-lcudadevrt")),
    Sample("cudaCompressibleMemory", flags=DRIVER),
    Sample("cudaOpenMP", flags=("-Xcompiler", "-fopenmp")),
    Sample("globalToShmemAsyncCopy"),
    Sample("graphConditionalNodes"),
    Sample("graphMemoryFootprint", allocates=False),
    Sample("graphMemoryNodes"),
    Sample("jacobiCudaGraphs"),
    Sample("matrixMulDrv", flags=DRIVER, module="matrixMul_kernel64.fatbin"),
    Sample("memMapIPCDrv", flags=(*SHARED, *DRIVER), module="memMapIpc_kernel64.ptx", alone=True),
    Sample("mergeSort"),
    Sample("newdelete", flags=("-rdc=true", "-lcudadevrt")),
    Sample("p2pBandwidthLatencyTest", 2),
    Sample("radixSortThrust"),
    Sample("reductionMultiBlockCG"),
    Sample("simpleCallback"),
    Sample("simpleCudaGraphs"),
    Sample("simpleDrvRuntime", flags=DRIVER, module="vectorAdd_kernel64.fatbin"),
    Sample("simpleHyperQ"),
    Sample("simpleIPC", flags=(*SHARED, *DRIVER), alone=True),
    Sample("simpleLayeredTexture"),
    Sample("simpleMultiCopy"),
    Sample("simpleMultiGPU"),
    Sample("simpleP2P", 2),
    Sample("simplePitchLinearTexture"),
    Sample("simpleStreams"),
    Sample("simpleZeroCopy"),
    Sample("StreamPriorities"),
    Sample("streamOrderedAllocation"),
    Sample("streamOrderedAllocationIPC", flags=(*SHARED, *DRIVER), alone=True),
    Sample("streamOrderedAllocationP2P", 2),
    Sample("systemWideAtomics"),
    Sample("threadFenceReduction"),
    Sample("threadMigration", flags=DRIVER, module="threadMigration_kernel64.fatbin"),
    Sample("UnifiedMemoryStreams", flags=("-Xcompiler", "-fopenmp", "-lcublas"), is_random=True),
    Sample("vectorAddDrv", flags=DRIVER, module="vectorAdd_kernel64.fatbin"),
    Sample("vectorAddMMAP", flags=DRIVER, module="vectorAdd_kernel64.fatbin"),
]


def checkout():
    """The folder with the samples' sources, or None."""
    folder = os.environ.get("GPUPOOL_TEST_SAMPLES")
    return pathlib.Path(folder).resolve() if folder else None


def find_folder(root, name):
    """Newer versions of the samples moved some to other groups."""
    for folder in sorted(root.glob(f"Samples/*/{name}")):
        return folder
    raise programs.Trouble(f"{root} has no sample {name}")


def program(sample):
    """Its folder is its own: several samples load a module of the same name."""
    return FOLDER / sample.name / sample.name


def is_built(sample):
    return program(sample).exists() and (not sample.module or (program(sample).parent / sample.module).exists())


def module_source(sample):
    """The stem of the source of the module that the sample loads."""
    return re.sub("64$", "", sample.module.partition(".")[0]) if sample.module else None


def is_fresh(target, sources):
    return target.exists() and target.stat().st_mtime > max(path.stat().st_mtime for path in sources)


def compile_sample(root, sample):
    folder, target, module = find_folder(root, sample.name), program(sample), module_source(sample)
    nvcc = [programs.find_nvcc(), "-arch=sm_90", "-O2", "-std=c++17", "-Xcompiler", "-w", "-w", "-I", root / "Common"]
    logs = programs.WORK / "log"
    target.parent.mkdir(parents=True, exist_ok=True)
    sources = [path for path in sorted(folder.iterdir()) if path.suffix in (".cu", ".cpp") and path.stem != module]
    if not is_fresh(target, sources):
        target.unlink(missing_ok=True)
        flags = [root / word if word.startswith("Common/") else word for word in sample.flags]
        stubs = pathlib.Path(nvcc[0]).resolve().parents[1] / "lib64" / "stubs"
        programs.run_tool([*nvcc, "-o", target, *sources, f"-L{stubs}", *flags], logs / f"{sample.name}.log")
    source = folder / f"{module}.cu"
    if module and not is_fresh(target.parent / sample.module, [source]):
        (target.parent / sample.module).unlink(missing_ok=True)
        form = "-ptx" if sample.module.endswith(".ptx") else "-fatbin"
        words = [*nvcc, form, "-o", target.parent / sample.module, source]
        programs.run_tool(words, logs / f"{sample.name}-module.log")


def build():
    """Builds the samples if a checkout is given. Prints those that could not be built, and goes on."""
    root = checkout()
    if not root:
        return
    if not (root / "Samples").is_dir():
        raise programs.Trouble(f"GPUPOOL_TEST_SAMPLES: {root} has no folder Samples, as a checkout of cuda-samples has")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {sample.name: pool.submit(compile_sample, root, sample) for sample in SAMPLES}
        for name, job in jobs.items():
            try:
                job.result()
            except programs.Trouble as trouble:
                print(f"gpu-test: no sample {name}: {trouble}")


def lines_of(text):
    """
    The lines with text, without numbers, and in an order that does not depend on which of several processes prints first.
    """
    lines = (NUMBER.sub("#", line).strip() for line in text.splitlines())
    return sorted(line for line in lines if line)


def configs(library):
    raws = [programs.Config(name) for name in (RAW, RAW_AGAIN)]
    return [*raws, *(programs.Config(kind, library, {"GPUPOOL_POOL": kind, "GPUPOOL_LOG": "off"}) for kind in KINDS)]


def run_once(out, sample, config):
    log = out / "samples" / f"{sample.name}-{config.name}.txt".replace(" ", "-")
    words = ["env", f"--chdir={program(sample).parent}", f"./{sample.name}"]
    return programs.run_program(config, words, log, timeout=RUN_SECONDS)


def run_all(out, samples, library, jobs_at_once):
    """The runs by sample and configuration: samples that run alone after all others."""
    found = {sample.name: {} for sample in samples}
    for alone, n in ((False, jobs_at_once), (True, 1)):
        with concurrent.futures.ThreadPoolExecutor(n) as pool:
            jobs = [(sample, config, pool.submit(run_once, out, sample, config))
                    for sample in samples if sample.alone == alone for config in configs(library)]
            for sample, config, job in jobs:
                found[sample.name][config.name] = job.result()
    return found


def first_difference(expected, found):
    """The first line that one of both has more often than the other, or None."""
    for line in [*found, *expected]:
        if found.count(line) != expected.count(line):
            return line
    return None


def judge(results, sample, runs):
    """Compares the runs of a sample with its raw run. Lines that differ between two raw runs cannot be compared."""
    name, raw, again = sample.name, runs[RAW], runs[RAW_AGAIN]
    is_stable = not sample.is_random and lines_of(raw.text) == lines_of(again.text)
    if raw.status:
        why = "it needs something that is not here" if raw.status == WAIVED else f"raw status {raw.status}"
        results.note(f"{name}: skipped, {why}", None)
        return
    if not is_stable:
        results.note(f"{name}: raw runs print different lines, so only the status is compared", None)
    for kind in KINDS:
        done = runs[kind]
        difference = first_difference(lines_of(raw.text), lines_of(done.text)) if is_stable else None
        is_missing = sample.allocates and not done.is_pooled
        why = difference or (f"status {done.status}" if done.status else "not under gpupool" if is_missing else "")
        results.check(f"{name}, {kind}", not why, why[:60])


def run(results, out, options):
    build()
    built = [sample for sample in SAMPLES if is_built(sample)]
    n_gpus = part_ipc.count_gpus()
    if not built:
        results.note("skipped, GPUPOOL_TEST_SAMPLES names no checkout of NVIDIA's samples", None)
    for sample in SAMPLES:
        if built and sample not in built:
            results.note(f"{sample.name}: skipped, it is not built", None)
        elif sample in built and sample.least_gpus > n_gpus:
            results.note(f"{sample.name}: skipped, it needs {sample.least_gpus} GPUs", None)
    samples = [sample for sample in built if sample.least_gpus <= n_gpus]
    found = run_all(out, samples, programs.preload_library(), options.jobs)
    for sample in samples:
        judge(results, sample, found[sample.name])
