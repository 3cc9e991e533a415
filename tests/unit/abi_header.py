# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Turns cuda.h into a header that the compiler can compare with shim/driver/hooks.def, and shim/driver/cuda_abi.h into assertions.

Usage: abi_header.py CUDA.H CUDA_ABI.H OUTPUT-HEADER OUTPUT-ASSERTIONS

gpupool uses int for the driver's enumerations, and void for structures that it only passes on. The new header does the
same.
"""

import re
import sys

OPAQUE = (
    "CUarrayMapInfo",
    "CUmemAllocationProp",
    "CUmemPoolProps",
    "CUgraphNode",
    "CUgraphEdgeData",
    "CUexecAffinityParam",
    "CUctxCreateParams",
    "CUexternalSemaphore",
    "CUuuid",
    "CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS",
    "CUDA_BATCH_MEM_OP_NODE_PARAMS",
    "CUDA_GRAPH_INSTANTIATE_PARAMS",
    "CUDA_LAUNCH_PARAMS",
    "CUDA_MEMCPY2D",
    "CUDA_MEMCPY3D",
    "CUDA_MEMCPY3D_BATCH_OP",
    "CUDA_MEMCPY3D_PEER",
    "CUDA_MEMSET_NODE_PARAMS",
    "CUDA_RESOURCE_DESC",
    "CUDA_RESOURCE_VIEW_DESC",
    "CUDA_TEXTURE_DESC",
    "CUgraphExecUpdateResultInfo",
    "CUgraphNodeParams",
    "CUtexObject",
    "CUmemDecompressParams",
    "CUmemLocation",
    "CUmemcpyAttributes",
    "CUstreamBatchMemOpParams",
)


def transform(cuda_h):
    """Returns cuda.h with integers for enumerations and void for opaque structures in prototypes."""
    text = re.sub(
        r"typedef\s+enum\s+\w*\s*(\{[^}]*\})\s*(\w+)\s*;",
        r"enum \1; typedef int \2;",
        cuda_h,
    )
    for name in OPAQUE:
        text = re.sub(r"((?:const\s+)?)\b%s\s*\*" % name, r"\1void *", text)
    return text


def assertions(abi_h):
    """Returns an assertion for each constant, type and structure."""
    code = re.sub(r"/\*.*?\*/", "", abi_h, flags=re.S)
    lines = ['_Static_assert((int)%s == %s, "%s");' % (name, value, name)
             for name, value in re.findall(r"\b(CU\w+) = (-?\d+)", code)]
    for kind, name in re.findall(r"typedef (int|uint64_t) (\w+);", code):
        lines.append('_Static_assert(sizeof(%s) == sizeof(%s) && (%s)-1 %s 0, "%s");'
                     % (name, kind, name, "<" if kind == "int" else ">", name))
    for name in re.findall(r"typedef (struct \w+ \*)\w+;", code):
        lines.append('_Static_assert(sizeof(%s) == sizeof(void *), "%s");' % (name, name))
    return lines


def main():
    cuda_h, abi_h, header, asserted = sys.argv[1:]
    with open(cuda_h, encoding="utf-8") as f:
        text = transform(f.read())
    with open(header, "w", encoding="utf-8") as f:
        f.write(text)
    with open(abi_h, encoding="utf-8") as f:
        lines = assertions(f.read())
    if len(lines) < 30:
        sys.exit("abi_header.py: only %d facts found in %s" % (len(lines), abi_h))
    with open(asserted, "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
