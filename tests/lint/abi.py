# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Checks that the compile-time test of the tables against cuda.h can fail.

Usage: abi.py --self-test ABI_HEADER.PY TEST_ABI.C ROOT COMPILER...

Compiles tests/unit/test_abi.c against a small header that stands for cuda.h, with one wrong declaration at a time.
"""

import os
import re
import subprocess
import sys

import lint

# Correct declarations of the header, which is generated from the tables, and a wrong version of each.
WRONG_DECLARATIONS = (
    ("CUDA_ERROR_NOT_READY = 600", "CUDA_ERROR_NOT_READY = 601"),
    ("typedef int CUdevice;", "typedef long CUdevice;"),
    ("CUresult cuMemAlloc_v2 (CUdeviceptr *ptr, size_t bytes);", "CUresult cuMemAlloc_v2 (CUdeviceptr *ptr, int bytes);"),
    ("CUresult cuMemcpyAsync_ptsz (CUdeviceptr dst,", "CUresult cuMemcpyAsync_ptsz (void *dst,"),
    ("CUresult cuEventQuery (CUevent event);", "CUresult cuEventQuery (CUevent event, int more);"),
    ("size_t Width, Height, Depth;", "size_t Width, Depth, Height;"),
    ("char compressionType, gpuDirectRDMACapable;", "char gpuDirectRDMACapable, compressionType;"),
)


def true_header(root):
    text = lint.read(root, "shim/driver/cuda_abi.h").replace("#pragma once", "")
    hooks, work = (re.sub(r"/\*.*?\*/", "", lint.read(root, name), flags=re.S)
                   for name in ("shim/driver/hooks.def", "shim/driver/submit.def"))
    rows = re.findall(r'^HOOK(?:_ALLOC)?(?:_FAST)?(?:_SEEN|_VISITS|_PASSED|_NODE|_WAITS)?\((\w+), "\w+", \d+, \d+, (\(.*?\)), \(', hooks, re.M)
    rows += re.findall(r"^CALL\((\w+), (\(.*\))\)$", hooks, re.M)
    for kind, symbol, parameters in re.findall(r'^(WORK|BOTH)\((\w+), "\w+", \d+, \d+, (\(.*?\)), \([\w, ]*\), ', work, re.M):
        rows += [(symbol + suffix, parameters) for suffix in ("", "_ptsz")[:1 + (kind == "BOTH")]]
    return text + "".join("CUresult %s %s;\n" % row for row in rows)


def compiles(script, test, root, compiler, header):
    tree = lint.make_tree({"cuda.h": header})
    paths = [os.path.join(tree.name, name) for name in ("abi_cuda.h", "abi_asserted.h")]
    subprocess.run([sys.executable, script, os.path.join(tree.name, "cuda.h"),
                    os.path.join(root, "shim/driver/cuda_abi.h")] + paths, check=True)
    result = subprocess.run(compiler + ["-fsyntax-only", "-I" + tree.name, "-I" + root, test],
                            stderr=subprocess.PIPE, check=False)
    return result.returncode == 0, result.stderr.decode("utf-8", "replace")


def check(script, test, root, *compiler):
    header = true_header(root)
    is_good, text = compiles(script, test, root, list(compiler), header)
    if not is_good:
        yield "the test fails for a header generated from the tables:\n" + text
    for right, wrong in WRONG_DECLARATIONS:
        if right not in header:
            yield "no longer in the tables: %s" % right
        elif compiles(script, test, root, list(compiler), header.replace(right, wrong))[0]:
            yield "a wrong declaration compiles: %s" % wrong


if __name__ == "__main__":
    lint.end(check(*sys.argv[2:]))
