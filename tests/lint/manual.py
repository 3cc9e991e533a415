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

COLUMNS = 80  # of a terminal
TEXT_COLUMNS = 78  # what man(1) fills of them
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


RENDERERS = (("mandoc", "-T", "utf8", "-O", "width=%d" % TEXT_COLUMNS),
             ("groff", "-k", "-t", "-mandoc", "-T", "utf8", "-rLL=%dn" % TEXT_COLUMNS))


def check_columns(root):
    """What a terminal of 80 columns shows, by each formatter that is installed: nothing is wider, nothing is complained of."""
    for words in RENDERERS:
        if not shutil.which(words[0]):
            continue
        for page in PAGES:
            result = subprocess.run((*words, os.path.join(root, page)), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                    check=False)
            for line in result.stderr.decode("utf-8", "replace").splitlines():
                yield "%s: %s says: %s" % (page, words[0], line.split(": ", 1)[-1])
            text = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", result.stdout.decode("utf-8", "replace"))
            for line in text.splitlines():
                if len(line) > COLUMNS:
                    yield "%s: %s makes a line of %d columns: %s" % (page, words[0], len(line), line.strip())


def check(root):
    yield from check_rows(root)
    yield from check_roff(root)
    yield from check_columns(root)


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
    wide = lint.make_tree({name: page % (".Bd -literal\n%s\n.Ed" % ("wide " * 20)) for name in PAGES})
    formatters = [words[0] for words in RENDERERS if shutil.which(words[0])]
    lint.end_self_test([*check_rows(tree.name), *check_columns(wide.name)], (
        "says nothing of GPUPOOL_A", "says nothing of option-a", "says nothing of unknown", "says nothing of misses",
        "says nothing of gpupool_some", *("%s makes a line of" % name for name in formatters)))


if __name__ == "__main__":
    if sys.argv[1] == "--self-test":
        self_test()
    lint.end(check(sys.argv[1]))
