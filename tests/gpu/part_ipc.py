# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Memory that processes share:
- the driver's answers;
- the programs of tests/preload/app_ipc*.c, with the library in both processes or in only one;
- PyTorch's tensors passed between processes;
- NCCL over its legacy path and over memory of cuMemCreate, also with registered buffers;
- Open MPI over UCX, if GPUPOOL_TEST_MPI names its folder: bin/mpirun, include and lib, with a UCX that supports CUDA.
"""

import concurrent.futures
import ctypes
import dataclasses
import importlib.util
import json
import os
import pathlib
import re
import sys

import programs

PRELOAD = programs.ROOT / "tests" / "preload"
PROBE_SECONDS, PAIR_SECONDS, WORK_SECONDS = 300, 60, 110

# The scenarios (tests/preload/test_preload_ipc.c). OF_WHOLES are those in which a process without the library can take
# part while the other has a pool of the kind split.
OF_WHOLES = [("app_ipc", "first"), ("app_ipc", "whole")]
ONE_WAY = [
    *OF_WHOLES,
    *[("app_ipc", name) for name in ["about", "contexts", "later", "many", "neighbours", "own"]],
    *[("app_ipc", name) for name in ["churn", "threads", "twice"]],
    *[("app_ipc_wrong", name) for name in ["again", "calls", "ended", "forged", "freed"]],
    *[("app_ipc_mapped", name) for name in ["attributes", "barrier", "interior", "parts", "thousand"]],
]
ALL = [*ONE_WAY, ("app_ipc", "exchanged")]

# Answers of the simulated GPU; see tests/unit/test_sim_ipc.c.
SIMULATED = {
    "self_open": "201",
    "close.own_block": "1",
    "handle.of_freed": "1",
    "handle.of_async": "1",
    "handle.of_managed": "1",
    "open": "0 same=0 word=11",
    "open.again": "0 same=1 word=11",
    "close.interior": "1",
    "close.first": "0 readable=1",
    "close.third": "1 readable=0",
    "close.fourth": "1 readable=0",
    "flags.0": "1",
    "flags.1": "0",
    "flags.2": "1",
    "garbage.zeros": "1",
    "garbage.ones": "1",
    "garbage.pattern": "1",
    "context.other.open": "400 same=0 word=-1",
    "context.other.close": "0 readable=0",
    "context.destroyed.close": "1",
    "context.none.open": "201",
    "context.none.close": "201",
    "opened.pass_on": "1",
    "opened.free": "1",
    "opened.free_async": "1",
    "opened.small.range": "0 before=0 size=512",
    "opened.small.word": "32",
    "freed.readable": "41",
    "freed.open": "0",
    "freed.word_after_reuse": "41",
    "freed.new_handle_differs": "1",
    "exited.word": "61",
    "handle.differs.asked_twice": "",
    "handle.differs.interior": "",
    "event.handle_of_plain": "400",
    "event.create_with_timing": "1",
    "event.self_open": "201",
    "mapped.open_of_our_handle": "1",
    "mapped.export_without_type": "1",
    "mapped.handle": "1",
    "mapped.attributes": "legacy=0 types=1",
    "waits.exchange_behind_a_free": "0",
}


# Configuration, scenario, and the other answers that are allowed there. A driver's answer to a handle of freed memory
# is undefined; a handle made by gpupool is refused.
ALLOWED = [
    (r"(both|exporter)/none", "again", r"open of the old handle: 800"),
    (r"both/(split|completed|vmm|auto)", "again", r"open of the old handle: 1"),
    (r"both/(split|completed|vmm|auto)", "ended", r"open( of a closed handle)?: 1"),
]


class Pair(programs.Config):
    """Two processes: an importer and an exporter, each with its own library or none."""

    def __init__(self, name, library, kind, importer=True, exporter=True):
        super().__init__(name, library, {"GPUPOOL_POOL": kind, "GPUPOOL_LOG": "off"})
        self.importer, self.exporter = importer, exporter

    def environment(self, runtime_dir, more):
        env = super().environment(runtime_dir, more)
        if not self.importer:
            del env["LD_PRELOAD"]
        if self.importer != self.exporter:
            env["APP_PEER_PRELOAD"] = str(self.preload) if self.exporter else ""
        return env


def compile_pair(name):
    toolkit = pathlib.Path(programs.find_nvcc()).resolve().parents[1]
    sources = ["app.c", "app_all.c", "app_driver.c", "app_peer.c", f"{name}.c"]
    words = ["cc", "-std=gnu11", "-O2", "-D_GNU_SOURCE", f"-I{programs.ROOT}"]
    words += ["-o", programs.BIN / name, *[PRELOAD / source for source in sources]]
    words += [f"-L{toolkit / 'lib64' / 'stubs'}", "-lcuda", "-ldl", "-lpthread"]
    programs.run_tool(words, programs.WORK / "log" / f"{name}.log")


def build():
    for name in ["app_ipc", "app_ipc_mapped", "app_ipc_wrong"]:
        compile_pair(name)


def count_gpus():
    driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(0)
    error = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    return 0 if error else count.value


def parse_probe(text):
    """Parses 'ipc.question: answer' lines as {question: answer}."""
    lines = [line.removeprefix("ipc.").partition(":") for line in text.splitlines()]
    return {question: answer.strip() for question, colon, answer in lines if colon}


def surprises(answers):
    """Questions that the driver answers differently from the simulated GPU."""
    return [
        f"{question}: {answers.get(question, 'no answer')}, expected {answer}"
        for question, answer in SIMULATED.items()
        if answers.get(question) != answer
    ]


def run_probe(results, out):
    log = out / "ipc" / "probe.txt"
    words = [programs.BIN / "ipc_probe"]
    done = programs.run_program(programs.Config("raw"), words, log, timeout=PROBE_SECONDS)
    answers = parse_probe(done.text)
    ended = [question for question, answer in answers.items() if "ended with" in answer]
    ok = done.status == 0 and not ended
    results.check("probe: finished", ok, " ".join(ended) or f"status {done.status}")
    for question, answer in answers.items():
        if question.startswith(("cost.", "waits.", "mapped.", "handle.kinds", "another_gpu")):
            results.note(f"probe {question}", answer)
    found = surprises(answers)
    results.check("probe: same answers as the simulated GPU", not found, f"{len(found)} differ")
    for line in found:
        print(f"    {line}")


def pair_configs(library, options):
    """Yields (configuration, its scenarios)."""
    for kind in programs.kinds(programs.KINDS, options):
        is_split = kind in ("split", "vmm", "auto")
        yield Pair(f"both/{kind}", library, kind), ALL
        alone = ONE_WAY if is_split else ALL
        yield Pair(f"importer/{kind}", library, kind, exporter=False), alone
        if kind in ("vmm", "auto"):
            continue  # a process without the library cannot open its handles
        alone = OF_WHOLES if is_split else ALL
        yield Pair(f"exporter/{kind}", library, kind, importer=False), alone
    (kind,) = programs.kinds(["split"], options)
    completed = Pair("both/completed", library, kind)
    completed.variables["GPUPOOL_REUSE"] = "completed"
    yield completed, ALL


def run_pair(out, config, program, scenario):
    name = f"{config.name.replace('/', '-')}-{scenario}.txt"
    words = [programs.BIN / program, scenario]
    done = programs.run_program(config, words, out / "ipc" / name, timeout=PAIR_SECONDS)
    return done.status, done.text


def is_allowed(config, scenario, line):
    return any(
        re.fullmatch(name, config) and scenario == allowed_in and re.fullmatch(pattern, line)
        for name, allowed_in, pattern in ALLOWED
    )


def differences(raw, found, config):
    """'scenario: answer' for each scenario whose answer differs and is not allowed to."""
    lines = []
    for key, (status, text) in found.items():
        before, now = raw[key][1].splitlines(), text.splitlines()
        changed = [f"'{b}' for '{a}'" for a, b in zip(before, now) if a != b and not is_allowed(config, key[1], b)]
        if changed or len(before) != len(now) or status != raw[key][0]:
            lines.append(f"{key[1]}: {changed[0] if changed else f'status {status}'}")
    return lines


def run_pairs(results, out, library, options):
    configs = [(programs.Config("raw"), ALL), *pair_configs(library, options)]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        jobs = {
            config.name: {key: pool.submit(run_pair, out, config, *key) for key in scenarios}
            for config, scenarios in configs
        }
        found = {
            name: {key: job.result() for key, job in rows.items()} for name, rows in jobs.items()
        }
    raw = found.pop("raw")
    bad = [key[1] for key, (status, _) in raw.items() if status != 0]
    results.check("pairs, raw: finished", not bad, ", ".join(bad) or f"{len(raw)}")
    for name, rows in found.items():
        lines = differences(raw, rows, name)
        results.check(f"pairs, {name}: same answers as raw", not lines, f"{len(lines)} of {len(rows)} differ")
        for line in lines:
            print(f"    {line}")


@dataclasses.dataclass
class Work:
    """A program whose processes share memory, and the ways to run it."""

    name: str
    program: str  # a script of Python, or a program for MPI
    least_gpus: int
    kinds: list
    jobs: int
    transport: str | None = None  # the transport that its log must name
    variables: dict = dataclasses.field(default_factory=dict)
    arguments: list = dataclasses.field(default_factory=list)

    @property
    def is_of_mpi(self):
        return not self.program.endswith(".py")


NCCL_KINDS = ["none", "binned", "split", "vmm", "auto"]
CUMEM = {"NCCL_CUMEM_ENABLE": "1"}
WORKS = [
    Work("torch", "work_torch_ipc.py", 1, programs.KINDS, 4),
    Work("nccl", "work_nccl.py", 2, NCCL_KINDS, 2, "P2P/IPC"),
    Work("nccl, cumem", "work_nccl.py", 2, ["split", "vmm", "auto"], 2, "P2P/CUMEM", CUMEM),
    Work("nccl, registered", "work_nccl_register.py", 2, NCCL_KINDS, 2, "P2P/IPC"),
    Work("nccl, registered, cumem", "work_nccl_register.py", 2, ["split", "vmm", "auto"], 2, "P2P/CUMEM", CUMEM),
    Work("mpi", "mpi_pair", 1, NCCL_KINDS, 4, "cuda_ipc", arguments=["1"]),
    Work("mpi, two GPUs", "mpi_pair", 2, NCCL_KINDS, 4, "cuda_ipc", arguments=["2"]),
]


def mpi_folder():
    """The folder of Open MPI, or None."""
    folder = os.environ.get("GPUPOOL_TEST_MPI")
    return pathlib.Path(folder).resolve() if folder else None


def compile_mpi(folder):
    toolkit = pathlib.Path(programs.find_nvcc()).resolve().parents[1]
    words = ["cc", "-std=gnu11", "-O2", "-D_GNU_SOURCE", "-iquote", programs.ROOT, "-isystem", folder / "include"]
    words += ["-o", programs.BIN / "mpi_pair", programs.SOURCES / "mpi_pair.c", f"-L{folder / 'lib'}", "-lmpi"]
    words += [f"-L{toolkit / 'lib64' / 'stubs'}", "-lcuda", f"-Wl,-rpath-link,{folder / 'lib' / 'openmpi'}"]
    programs.run_tool(words, programs.WORK / "log" / "mpi_pair.log")


def mpi_variables(folder):
    """Open MPI finds its parts, and UCX uses CUDA and says which transports it uses."""
    libraries = [folder / "lib", folder / "lib" / "openmpi", *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {
        "OPAL_PREFIX": str(folder),
        "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
        "OMPI_MCA_pml": "ucx",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "UCX_MODULE_DIR": str(folder / "lib" / "openmpi" / "ucx"),
        "UCX_TLS": "self,sm,cuda_copy,cuda_ipc",
        "UCX_PROTO_INFO": "y",
    }


def work_configs(work, library, options):
    """Yields (configuration, variables); raw comes first."""
    off = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    variables = {**mpi_variables(mpi_folder()), **work.variables} if work.is_of_mpi else work.variables
    raw = programs.Config("raw")
    pools = [programs.Config(kind, library, {"GPUPOOL_POOL": kind}) for kind in programs.kinds(work.kinds, options)]
    for config in [raw, *pools]:
        yield config, variables
        if not work.is_of_mpi and config.name in ("raw", "split", "vmm", "auto"):
            yield dataclasses.replace(config, name=f"{config.name}, own pool off"), {**variables, **off}


def last_answer(text):
    """The answer in the program's last line, or None."""
    lines = [line for line in text.splitlines() if line.startswith('{"answer"')]
    return re.sub(r"0x[0-9a-f]+", "0x...", json.loads(lines[-1])["answer"]) if lines else None


def transports(text):
    found = re.findall(r"Channel .* via (\S+)|\| (cuda_ipc)/", text)
    return sorted({name for names in found for name in names if name})


def words_of(work):
    if work.is_of_mpi:
        return [mpi_folder() / "bin" / "mpirun", "-np", "2", programs.BIN / work.program, *work.arguments]
    return [sys.executable, programs.SOURCES / work.program]


def run_once(out, work, config, variables):
    name = f"{work.name}-{config.name}.txt".replace(", ", "-").replace(" ", "-")
    return programs.run_program(config, words_of(work), out / "ipc" / name, timeout=WORK_SECONDS, more=variables)


def judge(results, work, config, done, expected):
    """Checks a run: the exit status says whether the data were right, and a refusal is allowed only if raw is refused, too."""
    answer = last_answer(done.text)
    ok = done.status == 0 and answer is not None and answer == expected
    ok = ok and done.is_pooled == bool(config.preload)
    found = answer or f"status {done.status}"
    results.check(f"{work.name}, {config.name}", ok, found[:70])
    if work.transport:
        seen = transports(done.text)
        ok = any(name.split("/")[:2] == work.transport.split("/") for name in seen)
        results.check(f"{work.name}, {config.name}: by IPC", ok, " ".join(seen)[:40])


def run_work(results, out, work, library, options):
    configs = list(work_configs(work, library, options))
    with concurrent.futures.ThreadPoolExecutor(work.jobs) as pool:
        jobs = [pool.submit(run_once, out, work, *row) for row in configs]
        found = [job.result() for job in jobs]
    answers = {}
    for (config, variables), done in zip(configs, found):
        expected = answers.setdefault(tuple(variables), last_answer(done.text))
        judge(results, work, config, done, expected)


def reason_to_skip(work):
    if work.is_of_mpi and not mpi_folder():
        return "GPUPOOL_TEST_MPI names no Open MPI"
    if not work.is_of_mpi and not importlib.util.find_spec("torch"):
        return "PyTorch is not installed"
    return f"it needs {work.least_gpus} GPUs" if count_gpus() < work.least_gpus else None


def run_works(results, out, library, options):
    for work in WORKS:
        reason = reason_to_skip(work)
        if reason:
            results.note(f"{work.name}: skipped, {reason}", None)
            continue
        if work.is_of_mpi:
            compile_mpi(mpi_folder())
        run_work(results, out, work, library, options)


def run(results, out, options):
    programs.build_programs()
    build()
    library = programs.preload_library()
    run_probe(results, out)
    run_pairs(results, out, library, options)
    run_works(results, out, library, options)
