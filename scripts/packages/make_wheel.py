# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Packs an installation of gpupool into a wheel.

Usage: make_wheel.py PREFIX VERSION PLATFORM DIRECTORY

PREFIX holds bin, lib and share. pip puts the programs into the folder of its scripts, and the rest below its prefix, so
gpupool-run finds the library as in any other installation. Prints the path of the wheel.

The wheel is written without a build backend: the programs are not Python, and one wheel serves all versions of Python.
"""

import base64
import hashlib
import os
import pathlib
import sys
import time
import zipfile

# The oldest version with which the wheel was run (docs/packaging.md).
PYTHON = "3.9"
# Not data of the wheel: commands, module and licences have folders of their own there. Environment modules are left out,
# since they are for installations that pip does not manage.
ELSEWHERE = ("bin/", "share/gpupool/gpupool.py", "share/gpupool/modulefiles/", "share/gpupool/LICENSE")

METADATA = """Metadata-Version: 2.1
Name: gpupool
Version: {version}
Summary: A caching pool for the GPU memory of unmodified CUDA programs
License: MIT
Classifier: License :: OSI Approved :: MIT License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C
Classifier: Programming Language :: Python :: 3
Requires-Python: >={python}
Description-Content-Type: text/markdown

`gpupool-run PROGRAM` runs a CUDA program with a caching pool for its GPU memory, and `gpupool-stat` shows the memory of
running programs. The module `gpupool` lets a Python program query and control its pool. One wheel serves every version
of CUDA, because gpupool hooks the driver.

    gpupool-run python train.py
    gpupool-stat top

`gpupool-stat` has its libraries linked in (LICENSE.libraries), so that it needs nothing but glibc 2.28 or later.
"""

WHEEL = """Wheel-Version: 1.0
Generator: gpupool ({version})
Root-Is-Purelib: false
Tag: {tag}
"""


def files_of(prefix, name):
    """Yields (path in the wheel, path of the source) for each file."""
    info, data = name + ".dist-info", name + ".data"
    yield "gpupool.py", prefix / "share/gpupool/gpupool.py"
    for path in sorted((prefix / "share/gpupool").glob("LICENSE*")):
        yield info + "/" + path.name, path
    for path in sorted((prefix / "bin").iterdir()):
        yield "%s/scripts/%s" % (data, path.name), path
    for path in sorted(prefix.rglob("*")):
        inner = path.relative_to(prefix).as_posix()
        if not path.is_dir() and not inner.startswith(ELSEWHERE):
            yield "%s/data/%s" % (data, inner), path


class Wheel:
    """A wheel that is being written. Its list of files comes last."""

    def __init__(self, path):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self.date = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))[:6]
        self.record = []

    def add(self, name, content, mode=0o644):
        entry = zipfile.ZipInfo(name, self.date)
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self.record.append("%s,sha256=%s,%d\n" % (name, digest, len(content)))

    def close(self, record):
        self.add(record, "".join([*self.record, record + ",,\n"]).encode())
        self.zip.close()


def main(prefix, version, platform, directory):
    name, tag = "gpupool-" + version, "py3-none-" + platform
    path = pathlib.Path(directory) / ("%s-%s.whl" % (name, tag))
    wheel = Wheel(path)
    for inner, file in files_of(pathlib.Path(prefix), name):
        wheel.add(inner, file.read_bytes(), file.stat().st_mode & 0o755)
    wheel.add(name + ".dist-info/METADATA", METADATA.format(version=version, python=PYTHON).encode())
    wheel.add(name + ".dist-info/WHEEL", WHEEL.format(version=version, tag=tag).encode())
    wheel.close(name + ".dist-info/RECORD")
    print(path)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
