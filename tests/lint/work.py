# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Checks that every function of cuda.h that submits work, or makes the GPU wait for work, is in shim/driver/submit.def or has a
reason not to be, and that each row checks the stream that its function is given.

Usage: work.py CUDA.H SUBMIT.DEF
       work.py --self-test SUBMIT.DEF
"""

import re
import sys

import lint

# Functions that take a stream and submit nothing that touches memory of a pool.
REASONS = {
    r"cuStream(Create|CreateWithPriority|Destroy|CopyAttributes|Query|Synchronize|IsCapturing)": "about the stream itself",
    r"cuStream(Get|Set)\w+": "about the stream itself",
    r"cuGreenCtxStreamCreate": "about the stream itself",
    r"cuStream(Begin|End)\w*": "the capture ends serial mode by itself",
    r"cuStreamUpdateCaptureDependencies": "about a capture",
    r"cuEventRecord(WithFlags)?": "only signals other work",
    r"cuSignalExternalSemaphoresAsync": "only signals other work",
    r"cuStreamAttachMemAsync": "for managed memory, which no default pool serves",
    r"cuGraphics\w+": "for memory that no pool serves",
    r"cuMemMapArrayAsync": "for memory that no pool serves",
    r"cuMem(Alloc|AllocFromPool|Free)Async": "for the driver's own pools",
    r"cuGraphUpload": "uploads code only",
    r"cuLaunchKernelEx": "hooked in shim/hooks/hook_launch.c",
}
OLD = re.compile(r"\bCUdeviceptr_v1\b|\bunsigned int (ByteCount|srcOffset|dstOffset)\b|\bCUDA_MEMCPY[23]D_v1\b")
STREAM = re.compile(r"\bCUstream\s+\w+")


def base(symbol):
    return re.sub(r"(_v\d+)?(_pt[sd][sz])?$", "", symbol)


def exported(header):
    """The exported symbols of functions that submit work, with their variants for per-thread default streams."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    defined = dict(re.findall(r"#\s*define\s+(cu\w+)\s+(?:__CUDA_API_PTSZ\()?(cu\w+)\)?[ \t]*$", text, re.M))
    variants = set(re.findall(r"#\s*define\s+cu\w+\s+__CUDA_API_PTSZ\((cu\w+)\)", text))
    for name, parameters in re.findall(r"CUresult\s+CUDAAPI\s+(cu\w+)\s*\(([^;]*?)\)\s*;", text, re.S):
        if not (STREAM.search(parameters) or name.endswith("WaitEvent")) or OLD.search(" ".join(parameters.split())):
            continue
        symbol = defined.get(name, name)
        yield symbol
        if symbol in variants:
            yield symbol + "_ptsz"
    for symbol in re.findall(r"#\s*define\s+cu\w+\s+__CUDA_API_PTDS\((cu\w+)\)", text):
        yield symbol
        yield symbol + "_ptds"


# The expected last column of a row by the start of its symbol. Most rows check the stream parameter.
EXPECTED_STREAMS = {
    "stream": "stream", "none": "NULL",
    "cuStreamWaitEvent": "GP_STREAM_WAITS(stream)", "cuWaitExternal": "GP_STREAM_WAITS(stream)",
    "cuStreamWriteValue": "flags & 1 ? GP_STREAM_ANY : stream",
    "cuStreamBatchMemOp": "GP_STREAM_ANY", "cuLaunchCooperativeKernelMultiDevice": "GP_STREAM_ANY",
}


def check_rows(text):
    for symbol, parameters, arguments, stream in re.findall(
            r"^(?:WORK|BOTH)\((\w+), .*?, (\(.*\)), (\([\w, ]*\)), (.*)\)$", text, re.M):
        names = re.findall(r"(\w+)(?:\)\([^()]*\))?(?=, |\)$)", re.sub(r"\(\*(\w+)\)\([^()]*\)", r"\1", parameters))
        if ", ".join(names) != arguments[1:-1]:
            yield "%s: passes %s, but its parameters are %s" % (symbol, arguments, parameters)
        special = [expected for name, expected in EXPECTED_STREAMS.items() if symbol.startswith(name)]
        expected = special[0] if special else EXPECTED_STREAMS["stream" if "stream" in names else "none"]
        if expected == "NULL" and not symbol.endswith("_ptds"):
            expected = "CU_STREAM_LEGACY"
        if stream != expected:
            yield "%s: checks the stream %s, but should check %s" % (symbol, stream, expected)


def check(header, work):
    yield from check_rows(lint.read(work))
    rows = set(lint.rows(work, "(?:WORK|BOTH)")) | {name + "_ptsz" for name in lint.rows(work, "BOTH")}
    symbols = set(exported(header))
    if len(symbols) < len(REASONS):
        yield "only %d functions found" % len(symbols)
    for symbol in sorted(symbols - rows):
        if not any(re.fullmatch(reason, base(symbol)) for reason in REASONS):
            yield "takes a stream, but has neither a row in shim/driver/submit.def nor a reason in work.py: %s" % symbol


# A sample header. Its functions cuMemcpyNew and cuLaunchNew are not in the table.
NEW = """
#define cuMemcpyAsync __CUDA_API_PTSZ(cuMemcpyAsync)
#define cuMemcpyNew __CUDA_API_PTDS(cuMemcpyNew)
#define cuLaunchNew __CUDA_API_PTSZ(cuLaunchNew_v2)
CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream);
CUresult CUDAAPI cuLaunchNew(CUfunction f,
                             CUstream hStream);
CUresult CUDAAPI cuStreamQuery(CUstream hStream);
"""

WRONG = """
BOTH(cuOne, "cuOne", 1, 2, (int a, CUstream stream), (stream, a), stream)
BOTH(cuTwo, "cuTwo", 1, 2, (void (*f)(void *data), CUstream stream), (f, stream), NULL)
WORK(cuThree, "cuThree", 1, 2, (int a), (a), stream)
"""

if __name__ == "__main__":
    if sys.argv[1] == "--self-test":
        wrong = [*check(NEW, sys.argv[2]), *check_rows(WRONG)]
        lint.end_self_test(wrong, ("only ", ": cuLaunchNew_v2", "cuLaunchNew_v2_ptsz", ": cuMemcpyNew",
                                   "cuMemcpyNew_ptds", "cuOne: passes", "cuTwo: checks the stream NULL",
                                   "cuThree: checks the stream stream"))
    with open(sys.argv[1], encoding="utf-8") as header_file:
        lint.end(check(header_file.read(), sys.argv[2]))
