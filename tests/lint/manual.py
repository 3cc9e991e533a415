# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Checks that the manual names every row of the tables and explains counters as their rows do, and that its pages are
formatted without warnings.

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
TEXT_COLUMNS = 78  # the width to which man(1) fills lines on such a terminal
PAGES = ("api/gpupool.3", "shim/gpupool.7", "tools/run/gpupool-run.1", "tools/stat/gpupool-stat.1")


def words(text):
    """The text of a page without roff's escapes for dashes and bars."""
    return re.sub(r"\\&", "", text.replace(r"\-", "-").replace(r"\(en", "-").replace(r"\(ba", "|"))


def functions(root):
    """The functions of the public header, without its internal ones."""
    return re.findall(r"^static inline .*\b(gpupool_(?!find|is_loaded|look_into|table_in)\w+)\(", lint.read(root, "api/gpupool.h"), re.M)


def check_pages(root):
    for path in lint.sources(root, "api", "docs", "shim", "tools", ends=(".1", ".3", ".7")):
        if path not in PAGES:
            yield "%s: this man page is not in PAGES" % path


def check_rows(root):
    pages = {page: words(lint.read(root, page)) for page in PAGES}
    config = os.path.join(root, "common/config.def")
    needs = (
        (lint.rows(config, "GP_OPTION", 1), ("shim/gpupool.7",)),
        (lint.rows(config, "GP_OPTION", 2), ("tools/run/gpupool-run.1",)),
        (lint.rows(os.path.join(root, "common/ctl.def"), "COMMAND"), ("tools/stat/gpupool-stat.1", "shim/gpupool.7")),
        (["-" + name for name in lint.rows(os.path.join(root, "tools/ask/options.def"), "OPTION", 1)],
         ("tools/stat/gpupool-stat.1",)),
        (functions(root), ("api/gpupool.3",)),
        (lint.rows(os.path.join(root, "pool/stats.def"), "STAT"), ("tools/stat/gpupool-stat.1", "shim/gpupool.7")),
    )
    for names, mentioned_in in needs:
        for name in names:
            if not any(re.search(r"(?<![\w-])-{0,2}%s(?![\w-])" % re.escape(name), pages[page]) for page in mentioned_in):
                yield "%s: does not mention %s" % (" or ".join(mentioned_in), name)


def check_counters(root):
    """The manual explains each counter, and each reason for which an allocation is not pooled, in the words of its row."""
    page = "tools/stat/gpupool-stat.1"
    for table, macro, column in ("pool/stats.def", "STAT", 0), ("common/async_left.def", "GP_ASYNC_LEFT", 1):
        path = os.path.join(root, table)
        for name, text in zip(lint.rows(path, macro, column), lint.rows(path, macro, -1)):
            if ".It Ql %s\n%s\n" % (name, text) not in lint.read(root, page):
                yield "%s: does not explain %s as %s does" % (page, name, table)


def check_roff(root):
    """The warnings of mandoc, if it is installed."""
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
    """No installed formatter prints a line wider than 80 columns or a warning."""
    for words in RENDERERS:
        if not shutil.which(words[0]):
            continue
        for page in PAGES:
            result = subprocess.run((*words, os.path.join(root, page)), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                    check=False)
            for line in result.stderr.decode("utf-8", "replace").splitlines():
                yield "%s: %s warns: %s" % (page, words[0], line.split(": ", 1)[-1])
            text = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", result.stdout.decode("utf-8", "replace"))
            for line in text.splitlines():
                if len(line) > COLUMNS:
                    yield "%s: %s prints a line of %d columns: %s" % (page, words[0], len(line), line.strip())


def check(root):
    yield from check_pages(root)
    yield from check_rows(root)
    yield from check_counters(root)
    yield from check_roff(root)
    yield from check_columns(root)


def self_test():
    page = ".Dd November 21, 2026\n.Dt GPUPOOL 7\n.Os\n.Sh NAME\n.Nm gpupool\n.Nd x\n.Sh ENVIRONMENT\n%s\n"
    tree = lint.make_tree({
        "common/config.def": 'GP_OPTION(A, "GPUPOOL_A", "option-a", X)\nGP_OPTION(B, "GPUPOOL_AB", "option-ab", X)\n',
        "common/ctl.def": "COMMAND(known, 0)\nCOMMAND(unknown, 0)\n",
        "tools/ask/options.def": 'OPTION(A, "quiet", \'q\', bool)\nOPTION(B, "watch", 0, int)\n',
        "pool/stats.def": 'STAT(hits, , "Served")\nSTAT(misses, , "Not served")\n',
        "common/async_left.def": 'GP_ASYNC_LEFT(A, "known", "it is so")\nGP_ASYNC_LEFT(B, "new", "it is new")\n',
        "api/gpupool.h": "static inline int gpupool_some(void)\nstatic inline int gpupool_other(void)\n",
        "api/gpupool.3": page % "gpupool_other",
        "shim/gpupool.7": page % "GPUPOOL_AB known hits",
        "tools/run/gpupool-run.1": page % r"\-\-option\-ab",
        "tools/stat/gpupool-stat.1": page % "unknowns, watch, \\-\\-quiet\n.It Ql hits\nServed\n.It Ql ooms\nNot served\n.It Ql known\nit is so",
        "docs/new.7": page % "x",
    })
    wide = lint.make_tree({name: page % (".Bd -literal\n%s\n.Ed" % ("wide " * 20)) for name in PAGES})
    # groff warns of a word that is longer than a line, mandoc of a paragraph without text.
    long_word = "x" * 200 + "\n.Pp\n.Sh FILES\nx"
    warned = lint.make_tree({name: page.replace("GPUPOOL 7", "GPUPOOL " + name[-1]) % long_word for name in PAGES})
    formatters = [words[0] for words in RENDERERS if shutil.which(words[0])]
    warnings = {"groff": "groff warns: ", "mandoc": "WARNING: skipping paragraph macro"}
    found = [*check_pages(tree.name), *check_rows(tree.name), *check_counters(tree.name), *check_columns(wide.name),
             *check_roff(warned.name),
             *(problem for problem in check_columns(warned.name) if " warns: " in problem)]
    lint.end_self_test(found, (
        "docs/new.7: this man page is not in PAGES", "does not mention GPUPOOL_A", "does not mention option-a",
        "does not mention unknown",
        "does not mention misses", "does not mention -watch", "does not explain misses",
        "does not explain new as common/async_left.def does", "does not mention gpupool_some",
        *("%s: %s" % (name, text) for name in PAGES for formatter, text in warnings.items() if formatter in formatters),
        *("%s prints a line of" % name for name in formatters)))


if __name__ == "__main__":
    if sys.argv[1] == "--self-test":
        self_test()
    lint.end(check(sys.argv[1]))
