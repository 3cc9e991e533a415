# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Checks the evidence in docs/words.md: each row names existing files, and after a file words that occur in it.

Usage: words.py ROOT
       words.py --self-test
"""

import os
import re
import sys

import lint

PAGE = "docs/words.md"
HEADER = "| term there | in gpupool | shown by |"


def rows(root):
    """(line number, last cell) of each row of the tables with that header; None for a row of another width."""
    is_inside = False
    for number, line in enumerate(lint.read(root, PAGE).splitlines(), 1):
        is_inside = line == HEADER or (is_inside and line.startswith("|"))
        cells = re.split(r"(?<!\\)\|", line)
        if is_inside and line != HEADER and not line.startswith("|-"):
            yield number, cells[3] if len(cells) == 5 else None


def check_cell(root, cell):
    text = None
    for word in re.findall(r"`([^`]+)`", cell):
        if "/" in word and not os.path.isfile(os.path.join(root, word)):
            yield "there is no %s" % word
            text = ""
        elif "/" in word:
            text = lint.read(root, word)
        elif text is None:
            yield "no file is named before %s" % word
        elif text and not re.search(r"(?<!\w)%s(?!\w)" % re.escape(word), text):
            yield "the file does not have the word %s" % word


def check(root):
    count = 0
    for number, cell in rows(root):
        count += 1
        if cell is None or "`" not in cell:
            yield "%s:%d: the row names no evidence" % (PAGE, number)
        for problem in check_cell(root, cell or ""):
            yield "%s:%d: %s" % (PAGE, number, problem)
    if not count:
        yield "%s: has no table with the expected header" % PAGE


def self_test():
    row = "| a \\| b | c | %s |\n"
    cells = ("`a/test.c` `known`", "`a/test.c` `other`", "`a/missing.c`", "`loose`", " ", "`a/test.c` `know`")
    tree = lint.make_tree({
        PAGE: "| x |\n" + HEADER + "\n|---|---|---|\n" + "".join(row % cell for cell in cells) + "| two | cells |\n",
        "a/test.c": "START_TEST(known)\n",
    })
    lint.end_self_test(check(tree.name), (
        ":5: the file does not have the word other", ":6: there is no a/missing.c", ":7: no file is named before loose",
        ":8: the row names no evidence", ":9: the file does not have the word know", ":10: the row names no evidence"))


if __name__ == "__main__":
    if sys.argv[1] == "--self-test":
        self_test()
    lint.end(check(sys.argv[1]))
