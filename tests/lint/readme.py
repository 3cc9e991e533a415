# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""README.md stays short, and links in pages lead to files and headings of the tree.

Usage: readme.py ROOT
       readme.py --self-test
"""

import os
import re
import sys

import lint

LINES_MAX, WORDS_MAX, COLUMNS_MAX = 160, 1100, 100
FIRST_SCREEN = 24  # lines, in which the commands below stand
COMMANDS = ("scripts/demo", "scripts/test")
TOP = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "NEWS.md")


def check_size(text):
    lines = text.splitlines()
    if len(lines) > LINES_MAX:
        yield "README.md: has %d lines, more than %d" % (len(lines), LINES_MAX)
    if len(text.split()) > WORDS_MAX:
        yield "README.md: has %d words, more than %d" % (len(text.split()), WORDS_MAX)
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS_MAX:
            yield "README.md:%d: wider than %d columns" % (number, COLUMNS_MAX)
    for command in COMMANDS:
        if not any(line.startswith("    " + command) for line in lines[:FIRST_SCREEN]):
            yield "README.md: the first %d lines do not have the command %s" % (FIRST_SCREEN, command)


def anchors(text):
    """The anchors of the headings of a page, as GitHub makes them."""
    for heading in re.findall(r"(?m)^#+ +(.*)$", re.sub(r"(?ms)^```.*?^```", "", text)):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def links(text):
    """(line number, target) of links and pictures outside of code."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("    "):
            line = re.sub(r"`[^`]*`", "", line)
            for target in re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", line):
                yield number, target[0] or target[1]


def check_links(root, path):
    for number, target in links(lint.read(root, path)):
        if re.match(r"https?://", target):
            continue
        file, _, anchor = target.partition("#")
        full = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
        if not os.path.exists(os.path.join(root, full)):
            yield "%s:%d: there is no %s" % (path, number, full)
        elif anchor and anchor not in anchors(lint.read(root, full)):
            yield "%s:%d: %s has no heading for #%s" % (path, number, full, anchor)


def check(root):
    yield from check_size(lint.read(root, "README.md"))
    pages = [path for path in TOP if os.path.exists(os.path.join(root, path))]
    for path in (*pages, *lint.sources(root, "docs", ends=(".md",))):
        yield from check_links(root, path)


GOOD = """# Name

    scripts/demo
    scripts/test

[a](docs/page.md#a-heading) ![p](docs/p.svg) [web](https://x.org) `[not](a-link)` [own](#name)
"""


def self_test():
    page = "# Page\n\n## A heading\n\n[up](../README.md) [gone](gone.md) [bad](#no-such)\n<img src=\"p.svg\"> <img src=\"q.svg\">\n"
    tree = lint.make_tree({"README.md": GOOD, "docs/page.md": page, "docs/p.svg": ""})
    lint_problems = list(check(tree.name))
    wanted = ("docs/page.md:5: there is no docs/gone.md", "docs/page.md:5: docs/page.md has no heading for #no-such",
              "docs/page.md:6: there is no docs/q.svg")
    long = "\n" * FIRST_SCREEN + GOOD + "word " * 200 + "\n" + "w w w w w w w w\n" * LINES_MAX
    sizes = ("has 191 lines", "words, more than", "README.md:31: wider", "do not have the command scripts/demo",
             "do not have the command scripts/test")
    lint.end_self_test([*lint_problems, *check_size(long)], (*wanted, *sizes))


if __name__ == "__main__":
    if sys.argv[1] == "--self-test":
        self_test()
    lint.end(check(sys.argv[1]))
