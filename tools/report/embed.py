# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Writes the page of reports as two C arrays: the part before its data, and the part after.

Usage: embed.py HTML CSS JS... OUTPUT
"""

import pathlib
import sys


def array(name, text):
    values = ",".join(map(str, text.encode()))
    return "static const unsigned char %s[] = {%s};\n" % (name, values)


def main(html, css, *others):
    *scripts, output = others
    page = pathlib.Path(html).read_text(encoding="utf-8")
    page = page.replace("@STYLE@", pathlib.Path(css).read_text(encoding="utf-8"))
    page = page.replace("@SCRIPT@", "\n".join(pathlib.Path(script).read_text(encoding="utf-8") for script in scripts))
    before, behind = page.split("@DATA@\n")
    pathlib.Path(output).write_text("/* Made by embed.py. */\n" + array("page_head", before) +
                                    array("page_tail", behind), encoding="ascii")


main(*sys.argv[1:])
