# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""C sources are formatted as .clang-format says. Skipped without clang-format 14, since each version formats differently.

Usage: format.py ROOT
       format.py --self-test
"""

import os
import re
import shutil
import subprocess
import sys

import lint

VERSION = 14
ROOMS = ("api", "common", "pool", "shim", "tools", "tests")


def find_program():
    for name in ("clang-format-%d" % VERSION, "clang-format"):
        if shutil.which(name) and re.search(r"version %d\." % VERSION, lint.output(name, "--version")):
            return name
    return None


def check(root, program):
    # A version script that goes through the preprocessor is not C.
    paths = [path for path in lint.sources(root, *ROOMS, ends=(".c", ".h", ".cu", ".cpp")) if not path.endswith(".map.c")]
    result = subprocess.run((program, "--dry-run", *(os.path.join(root, path) for path in paths)), stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, check=False)
    found = set()
    for path, number in re.findall(r"(?m)^(.*?):(\d+):\d+: warning:", result.stdout.decode("utf-8", "replace")):
        found.add((os.path.relpath(path, root), int(number)))
    for path, number in sorted(found):
        yield "%s:%d: not formatted as .clang-format says" % (path, number)


def self_test(program):
    with open(os.path.join(os.path.dirname(__file__), "..", "..", ".clang-format"), encoding="utf-8") as f:
        style = f.read()
    tree = lint.make_tree({".clang-format": style, "pool/bad.c": "int  x( void ) {return 1;}\n", "pool/good.c": "int x;\n"})
    lint.end_self_test(check(tree.name, program), ("pool/bad.c:1:",))


if __name__ == "__main__":
    found_program = find_program()
    if not found_program:
        sys.exit(lint.SKIPPED)
    if sys.argv[1] == "--self-test":
        self_test(found_program)
    lint.end(check(sys.argv[1], found_program))
