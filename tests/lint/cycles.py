# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""The share of a room's compilation units in the largest cycle of the name-use graph stays below a limit.

A unit is a source with its header. An edge leads from a unit that uses a name to the only unit that defines it. Units
in a cycle can be understood, tested and changed together only. Skipped without Universal Ctags.

Usage: cycles.py ROOT             prints each room's share, and fails if one is above its limit
       cycles.py ROOT --edges     prints the edges inside each cycle, with the names behind them
       cycles.py --self-test
"""

import collections
import json
import os
import re
import sys

import functions
import lint

# Per cent.
LIMITS = {"common": 0, "pool": 0, "shim": 10, "tools": 0}
NAME_MIN = 5  # shorter names are words of other things too often


def unit_of(path):
    return os.path.basename(path).rsplit(".", 1)[0]


def definitions(root, paths, ctags):
    """For each public name the files that define it: functions and variables, also those defined in a header."""
    table = lint.output(ctags, "-f", "-", "--output-format=json", "--fields=+nS", "--extras=+F", "--languages=C",
                        "--langmap=C:.c.h", "--kinds-C=fv", "--fields=+{file}", *(os.path.join(root, path) for path in paths))
    found = collections.defaultdict(set)
    for row in map(json.loads, table.splitlines()):
        path = os.path.relpath(row["path"], root)
        is_private = row.get("file") and path.endswith(".c")
        if row.get("_type") == "tag" and not is_private and len(row["name"]) >= NAME_MIN:
            found[row["name"]].add(path)
    return found


def without_files(text):
    """The text without comments and without the names of included files: a header may be named like a function."""
    text = re.sub(r"//[^\n]*", "", re.sub(r"/\*.*?\*/", "", text, flags=re.S))
    return re.sub(r"^\s*#\s*include\b.*$", "", text, flags=re.M)


def graph(root, room, ctags):
    """unit -> unit -> names used."""
    paths = list(lint.sources(root, room, ends=(".c", ".h")))
    defined = definitions(root, paths, ctags) if paths else {}
    edges = {unit_of(path): collections.defaultdict(set) for path in paths}
    for path in paths:
        text = without_files(lint.read(root, path))
        for name in set(re.findall(r"\b[A-Za-z_]\w{%d,}" % (NAME_MIN - 1), text)):
            homes = {unit_of(home) for home in defined.get(name, ())}
            if len(homes) == 1 and homes != {unit_of(path)}:
                edges[unit_of(path)][homes.pop()].add(name)
    return edges


def reachable(edges, start):
    found, todo = set(), [start]
    while todo:
        for unit in edges[todo.pop()]:
            if unit not in found:
                found.add(unit)
                todo.append(unit)
    return found


def cycles(edges):
    """Sets of units that all reach each other, the largest first."""
    reach = {unit: reachable(edges, unit) for unit in edges}
    found = {frozenset(other for other in reach[unit] if unit in reach[other]) for unit in edges if unit in reach[unit]}
    return sorted(found, key=lambda cycle: (-len(cycle), sorted(cycle)))


def check(root, ctags, limits, is_verbose=False):
    for room, limit in limits.items():
        edges = graph(root, room, ctags)
        found = cycles(edges)
        share = 100 * len(found[0]) / len(edges) if found else 0
        if is_verbose:
            print("%s: %d units, cycles of %s: %d %%" % (room, len(edges), [len(cycle) for cycle in found], share))
        if share > limit:
            yield "%s: %d of %d units are in one cycle, %d %%, more than %d %%" % (room, len(found[0]), len(edges), share, limit)


def print_edges(root, ctags):
    for room in LIMITS:
        edges = graph(root, room, ctags)
        for cycle in cycles(edges):
            print("%s: a cycle of %d units" % (room, len(cycle)))
            for unit in sorted(cycle):
                for other in sorted(cycle & set(edges[unit])):
                    print("    %s -> %s: %s" % (unit, other, " ".join(sorted(edges[unit][other]))))


def self_test(ctags):
    tree = lint.make_tree({
        "pool/first.c": "#include \"second.h\"\nint first_name(void)\n{\n\treturn second_name();\n}\n",
        "pool/second.c": "int second_name(void)\n{\n\treturn third_name();\n}\n",
        "pool/third.h": "static inline int third_name(void)\n{\n\treturn first_name();\n}\n",
        "pool/fourth.c": "static int second_name(void)\n{\n\treturn first_name(); /* third_name */\n}\n",
        "shim/above.c": "int above_name(void)\n{\n\treturn below_name();\n}\n",
        "shim/below.c": "#include \"above_name.h\"\nint below_name(void)\n{\n\treturn 1;\n}\n",
    })
    lint.end_self_test(check(tree.name, ctags, {"pool": 20, "shim": 1}), ("pool: 3 of 4 units are in one cycle, 75 %",))


if __name__ == "__main__":
    program = functions.find_ctags()
    if not program:
        sys.exit(lint.SKIPPED)
    if sys.argv[1] == "--self-test":
        self_test(program)
    if sys.argv[2:] == ["--edges"]:
        print_edges(sys.argv[1], program)
        sys.exit(0)
    lint.end(check(sys.argv[1], program, LIMITS, is_verbose=True))
