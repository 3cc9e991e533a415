# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Rules for sources: which folder may include which, which files may read the environment, and the width of lines.

Usage: sources.py ROOT
       sources.py --self-test
"""

import os
import re
import sys

import lint

LINE_MAX = 120  # columns, a tab being eight; tables may be wider
ROOMS = ("common", "pool", "shim", "tools")
ALL = ROOMS + ("api", "tests")

# pool/ depends on the C library and on threads alone.
POOL_SYSTEM = {"assert.h", "errno.h", "inttypes.h", "limits.h", "pthread.h", "stdatomic.h", "stdbool.h", "stddef.h",
               "stdint.h", "stdlib.h", "string.h"}

# One file does: a mutex of libpthread takes 80 instructions, and one over the kernel's futexes some ten.
POOL_SYSTEM_OF = {os.path.join("pool", "lock.c"): {"linux/futex.h", "sys/syscall.h", "unistd.h"}}

# The header that programs compile in, and that the library answers.
PUBLIC = os.path.join("api", "gpupool.h")

# A room includes itself and these rooms.
BELOW = {"common": (), "pool": (), "shim": ("common", "pool"), "tools": ("common",)}

# Recordings are replayed on the allocator itself.
POOL_TOOLS = os.path.join("tools", "replay")

# The folders of shim/, the lowest first. A folder includes itself and those before it.
SHIM_ORDER = ("base", "ctl", "driver", "trace", "record", "context", "debug", "reclaim", "backend", "usage", "oom", "ipc",
              "answers", "", "hooks")

# The folders of tools/, in the same way. gpupool-run is another program, so its folder stays apart.
TOOLS_ORDER = ("text", "ask", "answer", "replay", "convert", "report", "export", "top", "stat")
TOOLS_APART = ("run",)

# A lower folder reaches a higher one through a callback alone: the function that registers it, and the reason.
CALLBACKS = {
    "gp_fork_on_child": ("shim/base/fork.h", "modules of every folder have locks that a forked child resets"),
    "gp_ctl_start": ("shim/ctl/ctl_server.h", "the server answers with what all other folders know"),
    "gp_devices_on_first_growth": ("shim/context/device.h", "a device is on the counter page before the call returns"),
    "gp_context_set_backend": ("shim/context/context.h", "a context makes its pool, whose backend calls in the context"),
    "gp_context_watch": ("shim/context/context.h", "what other folders keep for a context ends with it"),
    "gp_threads_start": ("shim/context/thread.h", "the library starts before a thread gets its first cache"),
}


def resolve(root, path, name):
    """The included file, from the root; None if it is not in the tree (generated, or the system's)."""
    for base in (os.path.dirname(path), ""):
        full = os.path.normpath(os.path.join(base, name))
        if os.path.exists(os.path.join(root, full)):
            return full
    return None


def folder_of(path):
    """The folder below the room, "" for the room itself."""
    return os.path.dirname(path).partition(os.sep)[2]


def is_in_order(path, target, order, apart=()):
    """True if the target is in the same folder, or in one before it. A folder outside of the order includes nothing."""
    folder, other = folder_of(path), folder_of(target)
    if folder in apart:
        return folder == other
    return folder in order and other in order[:order.index(folder) + 1]


def is_allowed(path, target):
    room, other = path.split(os.sep)[0], target.split(os.sep)[0]
    if other in BELOW[room] or (room in ("shim", "tools") and target == PUBLIC):
        return True
    if room == "tools" and other == "pool":
        return os.path.dirname(path) == POOL_TOOLS or target.endswith(".def")
    if room == other == "shim":
        return is_in_order(path, target, SHIM_ORDER)
    if room == other == "tools":
        return is_in_order(path, target, TOOLS_ORDER, TOOLS_APART)
    return room == other


def check_includes(root, path, text):
    room = path.split(os.sep)[0]
    for left, name in re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)', text, re.M):
        if left == '"':
            target = resolve(root, path, name)
            if not target:
                yield "%s: includes %s, which does not exist" % (path, name)
            elif not is_allowed(path, target):
                yield "%s: includes %s against the order of the folders" % (path, target)
        elif room == "pool" and name not in POOL_SYSTEM | POOL_SYSTEM_OF.get(path, set()):
            yield "%s: includes <%s> of the system" % (path, name)


def without_comments(text):
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"', "", text, flags=re.S)


def check_environment(path, text):
    if path == os.path.join("common", "config.c"):
        return
    if re.search(r"\b(secure_)?getenv\b", without_comments(text)):
        yield "%s: reads the environment" % path


def check_extern(path, text):
    if path.endswith(".c") and re.search(r"^extern\b", without_comments(text), re.M):
        yield "%s: has an extern declaration, which belongs in a header" % path


def check_width(path, text):
    if path.endswith(".def"):
        return
    for number, line in enumerate(text.splitlines(), 1):
        if len(line.expandtabs(8)) > LINE_MAX:
            yield "%s:%d: wider than %d columns" % (path, number, LINE_MAX)


def check_callbacks(root):
    """Each registered callback exists, so that the list of exceptions is true."""
    for name, (header, _) in CALLBACKS.items():
        if not re.search(r"\b%s\(" % name, lint.read(root, header)):
            yield "%s: does not declare %s" % (header, name)


def check_licence(path, text):
    if "SPDX-License-Identifier: MIT" not in text[:200]:
        yield "%s: does not name its licence" % path


def check(root):
    yield from check_callbacks(root)
    for path in lint.sources(root, *ALL):
        text = lint.read(root, path)
        room = path.split(os.sep)[0]
        yield from check_licence(path, text)
        if os.path.join("tests", "gpu") not in path:
            yield from check_width(path, text)
        if room in ROOMS:
            yield from check_includes(root, path, text)
        if room in ("pool", "shim"):
            yield from check_environment(path, text)
            yield from check_extern(path, text)


LICENCE = "/* SPDX-License-Identifier: MIT */\n"
BAD = {
    "pool/a.c": LICENCE + '#include "shim/base/b.h"\n#include <dlfcn.h>\n#include "nowhere.h"\n',
    "shim/base/b.h": LICENCE,
    "shim/base/b.c": LICENCE + '#include "tools/stat/c.h"\nchar *x = getenv("X");\nextern int y;\n/* getenv */\n',
    "shim/base/up.c": LICENCE + '#include "shim/ctl/down.h"\n#include "b.h"\n',
    "shim/ctl/down.h": LICENCE + '#include "shim/base/b.h"\n#include "common/i.h"\n#include "pool/g.h"\n',
    "shim/new/k.h": LICENCE + '#include "shim/base/b.h"\n',
    "common/config.c": LICENCE + 'char *x = getenv("X");\n',
    "common/i.h": LICENCE + '#include "shim/base/b.h"\n',
    "tools/stat/c.h": LICENCE,
    "tools/stat/c.c": LICENCE + '#include "shim/base/b.h"\n#include "pool/d.def"\n#include "common/i.h"\n',
    "tools/replay/f.c": LICENCE + '#include "shim/base/b.h"\n#include "pool/g.h"\n',
    "tools/ask/l.h": LICENCE + '#include "tools/text/m.h"\n#include "common/i.h"\n',
    "tools/text/m.h": LICENCE,
    "tools/text/n.c": LICENCE + '#include "m.h"\n#include "tools/ask/l.h"\n',
    "tools/run/o.c": LICENCE + '#include "p.h"\n#include "tools/text/m.h"\n',
    "tools/run/p.h": LICENCE,
    "tools/stat/q.c": LICENCE + '#include "tools/run/p.h"\n#include "tools/ask/l.h"\n#include "tools/new/r.h"\n',
    "tools/new/r.h": LICENCE,
    "tools/h.c": LICENCE + '#include "pool/g.h"\n',
    "pool/g.h": LICENCE,
    "pool/lock.c": LICENCE + "#include <linux/futex.h>\n#include <sys/mman.h>\n",
    "pool/s.c": LICENCE + "#include <linux/futex.h>\n",
    "tools/e.c": "int x;\n\t/*" + "x" * LINE_MAX + "*/\n",
    "pool/d.def": LICENCE + "x" * (LINE_MAX + 1) + "\n",
}


def self_test():
    tree = lint.make_tree(BAD)
    CALLBACKS.clear()
    CALLBACKS["gp_missing"] = ("pool/g.h", "a bad sample")
    lint.end_self_test(check(tree.name), (
        "pool/a.c: includes shim/base/b.h against the order",
        "pool/a.c: includes <dlfcn.h> of the system",
        "pool/a.c: includes nowhere.h, which does not exist",
        "pool/lock.c: includes <sys/mman.h> of the system",
        "pool/s.c: includes <linux/futex.h> of the system",
        "shim/base/b.c: includes tools/stat/c.h against the order",
        "shim/base/b.c: reads the environment",
        "shim/base/b.c: has an extern declaration, which belongs in a header",
        "shim/base/up.c: includes shim/ctl/down.h against the order",
        "shim/new/k.h: includes shim/base/b.h against the order",
        "common/i.h: includes shim/base/b.h against the order",
        "tools/stat/c.c: includes shim/base/b.h against the order",
        "tools/text/n.c: includes tools/ask/l.h against the order",
        "tools/run/o.c: includes tools/text/m.h against the order",
        "tools/stat/q.c: includes tools/run/p.h against the order",
        "tools/stat/q.c: includes tools/new/r.h against the order",
        "tools/h.c: includes pool/g.h against the order",
        "tools/replay/f.c: includes shim/base/b.h against the order",
        "tools/e.c:2: wider than 120 columns",
        "tools/e.c: does not name its licence",
        "pool/g.h: does not declare gp_missing",
    ))


if __name__ == "__main__":
    if sys.argv[1] == "--self-test":
        self_test()
    lint.end(check(sys.argv[1]))
