# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Checks that no function is longer than a screen. Skipped without Universal Ctags.

Usage: functions.py ROOT
       functions.py --self-test
"""

import os
import shutil
import sys

import lint

LINES_MAX = 60


def find_ctags():
    for name in ("ctags-universal", "universal-ctags", "ctags"):
        if shutil.which(name) and "Universal Ctags" in lint.output(name, "--version"):
            return name
    return None


def check(root, ctags):
    paths = [os.path.join(root, path)
             for path in lint.sources(root, "api", "common", "pool", "shim", "tools", "tests", ends=(".c", ".h", ".cu"))]
    table = lint.output(ctags, "-x", "--languages=C,C++,CUDA", "--kinds-C=f", "--kinds-C++=f", "--kinds-CUDA=f",
                        "--_xformat=%F\t%N\t%n\t%{end}", *paths)
    if len(table.splitlines()) < len(paths) // 2:
        yield "ctags found only %d functions in %d files" % (len(table.splitlines()), len(paths))
    for line in table.splitlines():
        path, name, start, end = line.split("\t")
        if end.isdigit() and int(end) - int(start) + 1 > LINES_MAX:
            yield "%s:%s: %s has %d lines" % (os.path.relpath(path, root), start, name, int(end) - int(start) + 1)


def self_test(ctags):
    tree = lint.make_tree({
        "pool/long.c": "int longer(void)\n{\n" + "\tx();\n" * (LINES_MAX - 2) + "}\n",
        "pool/right.c": "int right(void)\n{\n" + "\tx();\n" * (LINES_MAX - 3) + "}\n",
    })
    lint.end_self_test(check(tree.name, ctags), ("longer has 61 lines",))


if __name__ == "__main__":
    program = find_ctags()
    if not program:
        sys.exit(lint.SKIPPED)
    if sys.argv[1] == "--self-test":
        self_test(program)
    lint.end(check(sys.argv[1], program))
