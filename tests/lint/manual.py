# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""The manual names every row of the tables, and reads well.

Usage: manual.py ROOT
       manual.py --self-test
"""

import os
import re
import shutil
import subprocess
import sys

import lint

PAGES = ("api/gpupool.3", "shim/gpupool.7", "tools/gpupool-run.1", "tools/gpupool-stat.1")


def words(text):
    """The text of a page without roff's escapes for dashes and bars."""
    return re.sub(r"\\&", "", text.replace(r"\-", "-").replace(r"\(en", "-").replace(r"\(ba", "|"))


def functions(root):
    """Those of the public header that are not its own affair."""
    return re.findall(r"^static inline .*\b(gpupool_(?!find|is_loaded|look_into|table_in)\w+)\(", lint.read(root, "api/gpupool.h"), re.M)


def check_rows(root):
    pages = {page: words(lint.read(root, page)) for page in PAGES}
    config = os.path.join(root, "shim/config.def")
    needs = (
        (lint.rows(config, "GP_OPTION", 1), ("shim/gpupool.7",)),
        (lint.rows(config, "GP_OPTION", 2), ("tools/gpupool-run.1",)),
        (lint.rows(os.path.join(root, "shim/ctl.def"), "COMMAND"), ("tools/gpupool-stat.1", "shim/gpupool.7")),
        (functions(root), ("api/gpupool.3",)),
        (lint.rows(os.path.join(root, "pool/stats.def"), "STAT"), ("tools/gpupool-stat.1", "shim/gpupool.7")),
    )
    for names, places in needs:
        for name in names:
            if not any(re.search(r"(?<![\w-])-{0,2}%s(?![\w-])" % re.escape(name), pages[page]) for page in places):
                yield "%s: says nothing of %s" % (" or ".join(places), name)


def check_roff(root):
    """mandoc's own opinion, where it is installed."""
    if not shutil.which("mandoc"):
        return
    for page in PAGES:
        result = subprocess.run(("mandoc", "-T", "lint", "-W", "warning", os.path.join(root, page)),
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        for line in result.stdout.decode("utf-8", "replace").splitlines():
            yield "%s: %s" % (page, line.split(": ", 2)[-1])


def check(root):
    yield from check_rows(root)
    yield from check_roff(root)


def self_test():
    page = ".Dd November 21, 2026\n.Dt GPUPOOL 7\n.Os\n.Sh NAME\n.Nm gpupool\n.Nd x\n.Sh ENVIRONMENT\n%s\n"
    tree = lint.make_tree({
        "shim/config.def": 'GP_OPTION(A, "GPUPOOL_A", "option-a", X)\nGP_OPTION(B, "GPUPOOL_AB", "option-ab", X)\n',
        "shim/ctl.def": "COMMAND(known, 0)\nCOMMAND(unknown, 0)\n",
        "pool/stats.def": 'STAT(hits, "h")\nSTAT(misses, "m")\n',
        "api/gpupool.h": "static inline int gpupool_some(void)\nstatic inline int gpupool_other(void)\n",
        "api/gpupool.3": page % "gpupool_other",
        "shim/gpupool.7": page % "GPUPOOL_AB known hits",
        "tools/gpupool-run.1": page % r"\-\-option\-ab",
        "tools/gpupool-stat.1": page % "unknowns",
    })
    lint.end_self_test(check_rows(tree.name), (
        "says nothing of GPUPOOL_A", "says nothing of option-a", "says nothing of unknown", "says nothing of misses",
        "says nothing of gpupool_some"))


if __name__ == "__main__":
    if sys.argv[1] == "--self-test":
        self_test()
    lint.end(check(sys.argv[1]))
