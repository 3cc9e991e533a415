# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""How the sources are made: who includes whom, who reads the environment, and how large things are.

Usage: sources.py ROOT
       sources.py --self-test
"""

import os
import re
import sys

import lint

LINE_MAX = 120  # columns, a tab being eight; tables may be wider
FILE_MAX = 700
HEADER_MAX = 200
ROOMS = ("pool", "shim", "tools")
ALL = ROOMS + ("api", "tests")

# The allocator knows no system beneath it.
POOL_SYSTEM = {"assert.h", "errno.h", "inttypes.h", "limits.h", "pthread.h", "stdatomic.h", "stdbool.h", "stddef.h",
               "stdint.h", "stdlib.h", "string.h"}

# What tools may know of the library: its words, and no code that runs in the program.
SHIM_FOR_TOOLS = {"clean.h", "compat.h", "config.h", "config_regions.h", "config_stacks.h", "ctl_abstract.h", "ctl_proto.h", "file.h", "job.h", "log.h",
                  "oom_name.h", "record_format.h", "size.h"}

# What programs compile in, and the library answers. A file that is copied alone is as long as it has to be.
PUBLIC = os.path.join("api", "gpupool.h")

# These run the allocator on what was recorded.
POOL_TOOLS = "replay"


def resolve(root, path, name):
    """The included file, from the root; None if it is not in the tree (generated, or the system's)."""
    for base in (os.path.dirname(path), ""):
        full = os.path.normpath(os.path.join(base, name))
        if os.path.exists(os.path.join(root, full)):
            return full
    return None


def is_allowed(path, room, target):
    place, name = target.split(os.sep)[0], os.path.basename(target)
    if place == room or (room == "shim" and (place == "pool" or target == PUBLIC)):
        return True
    if room != "tools":
        return False
    if place == "pool" and os.path.basename(path).startswith(POOL_TOOLS):
        return True
    return (place == "shim" and (name in SHIM_FOR_TOOLS or name.endswith(".def"))) or \
        (place == "pool" and name.endswith(".def"))


def check_includes(root, path, text):
    room = path.split(os.sep)[0]
    for left, name in re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)', text, re.M):
        if left == '"':
            target = resolve(root, path, name)
            if not target:
                yield "%s: includes %s, which is not there" % (path, name)
            elif not is_allowed(path, room, target):
                yield "%s: includes %s of another room" % (path, target)
        elif room == "pool" and name not in POOL_SYSTEM:
            yield "%s: includes <%s> of the system" % (path, name)


def without_comments(text):
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"', "", text, flags=re.S)


def check_environment(path, text):
    if path == os.path.join("shim", "config.c"):
        return
    if re.search(r"\b(secure_)?getenv\b", without_comments(text)):
        yield "%s: reads the environment" % path


def check_extern(path, text):
    if path.endswith(".c") and re.search(r"^extern\b", without_comments(text), re.M):
        yield "%s: declares what belongs to a header" % path


def check_sizes(path, text):
    lines = text.splitlines()
    limit = HEADER_MAX if path.endswith(".h") and path != PUBLIC else FILE_MAX
    if len(lines) > limit:
        yield "%s: %d lines, more than %d" % (path, len(lines), limit)
    if path.endswith(".def"):
        return
    for number, line in enumerate(lines, 1):
        if len(line.expandtabs(8)) > LINE_MAX:
            yield "%s:%d: wider than %d columns" % (path, number, LINE_MAX)


def check_licence(path, text):
    if "SPDX-License-Identifier: MIT" not in text[:200]:
        yield "%s: says nothing of its licence" % path


def check(root):
    for path in lint.sources(root, *ALL):
        text = lint.read(root, path)
        room = path.split(os.sep)[0]
        yield from check_licence(path, text)
        if os.path.join("tests", "gpu") not in path:
            yield from check_sizes(path, text)
        if room in ROOMS:
            yield from check_includes(root, path, text)
        if room in ("pool", "shim"):
            yield from check_environment(path, text)
            yield from check_extern(path, text)


LICENCE = "/* SPDX-License-Identifier: MIT */\n"
BAD = {
    "pool/a.c": LICENCE + '#include "../shim/b.h"\n#include <dlfcn.h>\n#include "nowhere.h"\n',
    "shim/b.h": LICENCE + "\n" * HEADER_MAX,
    "shim/b.c": LICENCE + '#include "tools/c.h"\nchar *x = getenv("X");\nextern int y;\n/* getenv */\n',
    "shim/config.c": LICENCE + 'char *x = getenv("X");\n',
    "tools/c.h": LICENCE,
    "tools/c.c": LICENCE + '#include "shim/b.h"\n#include "pool/d.def"\n' + "\n" * FILE_MAX,
    "tools/replay_f.c": LICENCE + '#include "shim/b.h"\n#include "pool/g.h"\n',
    "tools/h.c": LICENCE + '#include "pool/g.h"\n',
    "pool/g.h": LICENCE,
    "tools/e.c": "int x;\n\t/*" + "x" * LINE_MAX + "*/\n",
    "pool/d.def": LICENCE + "x" * (LINE_MAX + 1) + "\n",
}


def self_test():
    tree = lint.make_tree(BAD)
    lint.end_self_test(check(tree.name), (
        "pool/a.c: includes shim/b.h of another room",
        "pool/a.c: includes <dlfcn.h> of the system",
        "pool/a.c: includes nowhere.h, which is not there",
        "shim/b.h: %d lines" % (HEADER_MAX + 1),
        "shim/b.c: includes tools/c.h of another room",
        "shim/b.c: reads the environment",
        "shim/b.c: declares what belongs to a header",
        "tools/c.c: includes shim/b.h of another room",
        "tools/h.c: includes pool/g.h of another room",
        "tools/replay_f.c: includes shim/b.h of another room",
        "tools/c.c: %d lines" % (FILE_MAX + 3),
        "tools/e.c:2: wider than 120 columns",
        "tools/e.c: says nothing of its licence",
    ))


if __name__ == "__main__":
    if sys.argv[1] == "--self-test":
        self_test()
    lint.end(check(sys.argv[1]))
