# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Packs the start-up hook for Python into an archive, from which Python imports it.

Usage: pack.py ARCHIVE FILE...

Python writes no bytecode beside an archive, so the installed folder does not change, and one file is to be checked for
its owner. Equal files make equal archives. They are not compressed: a Python without zlib reads them.
"""

import pathlib
import sys
import zipfile


def main(archive, *files):
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as out:
        for file in map(pathlib.Path, files):
            entry = zipfile.ZipInfo(file.name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o100644 << 16
            out.writestr(entry, file.read_bytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
