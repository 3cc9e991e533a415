# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""What docs/words.md says is shown somewhere is there: each row names files, and behind a file words in it.

Usage: words.py ROOT
       words.py --self-test
"""

import os
import re
import sys

import lint

PAGE = "docs/words.md"
HEADER = "| their word | here | shown by |"


def rows(root):
    """The number and the last cell of each line of a table with that header."""
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
            yield "%s is in no file" % word
        elif text and not re.search(r"(?<!\w)%s(?!\w)" % re.escape(word), text):
            yield "there is no %s in the file" % word


def check(root):
    count = 0
    for number, cell in rows(root):
        count += 1
        if cell is None or "`" not in cell:
            yield "%s:%d: nothing shows it" % (PAGE, number)
        for problem in check_cell(root, cell or ""):
            yield "%s:%d: %s" % (PAGE, number, problem)
    if not count:
        yield "%s: no row" % PAGE


def self_test():
    row = "| a \\| b | c | %s |\n"
    cells = ("`a/test.c` `known`", "`a/test.c` `other`", "`a/missing.c`", "`loose`", " ", "`a/test.c` `know`")
    tree = lint.make_tree({
        PAGE: "| x |\n" + HEADER + "\n|---|---|---|\n" + "".join(row % cell for cell in cells) + "| two | cells |\n",
        "a/test.c": "START_TEST(known)\n",
    })
    lint.end_self_test(check(tree.name), (
        ":5: there is no other in the file", ":6: there is no a/missing.c", ":7: loose is in no file",
        ":8: nothing shows it", ":9: there is no know in the file", ":10: nothing shows it"))


if __name__ == "__main__":
    if sys.argv[1] == "--self-test":
        self_test()
    lint.end(check(sys.argv[1]))
