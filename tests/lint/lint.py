# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Functions that the lints share: reading files and tables, and ending with the problems found.

A lint is a function that yields problems. With --self-test it checks a bad sample instead, and fails if it misses
one of the problems in the sample.
"""

import os
import re
import subprocess
import sys
import tempfile

SKIPPED = 77  # the exit status of a skipped test for Meson


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


def rows(path, macro, column=0):
    """The cells of one column of a table with rows macro(...), without quotes."""
    found = []
    for arguments in re.findall(r"^%s\(((?:[^()\"]|\"[^\"]*\")*)" % macro, read(path), re.M):
        cells = re.findall(r"\"[^\"]*\"|[^,\s][^,]*", arguments)
        found.append(cells[column].strip().strip('"'))
    if not found:
        sys.exit("%s: no %s(...) in it" % (path, macro))
    return found


def sources(root, *directories, ends=(".c", ".h", ".def", ".S")):
    """Paths of the source files in these directories, relative to the root."""
    for directory in directories:
        for folder, inner, names in os.walk(os.path.join(root, directory)):
            inner.sort()
            for name in sorted(names):
                if name.endswith(ends):
                    yield os.path.relpath(os.path.join(folder, name), root)


def output(*command):
    result = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return result.stdout.decode("utf-8", "replace")


def make_tree(files):
    """A temporary directory with these files. It is deleted with the returned object, which the caller must keep."""
    tree = tempfile.TemporaryDirectory()
    for path, text in files.items():
        full = os.path.join(tree.name, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as f:
            f.write(text)
    return tree


def end(problems):
    """Ends a lint: prints the problems, and exits with 1 if there are any."""
    problems = list(problems)
    for problem in problems:
        print(problem)
    print("%d problems" % len(problems))
    sys.exit(1 if problems else 0)


def end_self_test(problems, wanted):
    """Ends a self-test: each wanted text must be in a problem, and each problem must have a wanted text."""
    problems = list(problems)
    missed = [word for word in wanted if not any(word in problem for problem in problems)]
    surprises = [problem for problem in problems if not any(word in problem for word in wanted)]
    for word in missed:
        print("not found in the bad sample: %s" % word)
    for problem in surprises:
        print("unexpected: %s" % problem)
    sys.exit(1 if missed or surprises else 0)
