# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""No file that gpupool installs needs a version of glibc above 2.28.

Usage: glibc.py FILE|FOLDER...
       glibc.py --self-test BAD-FILE

Of a folder all ELF files are checked, and it must have one. glibc 2.34 moved libpthread and libdl into libc. An older one looks for their functions in separate libraries, which the
file must name then, so this is checked as well.
"""

import os
import pathlib
import re
import shutil
import sys
import tempfile

import lint

NEWEST = (2, 28)
# Functions that older versions have in a library of their own, and the functions of that kind which libc always had.
SEPARATE = (
    ("libpthread.so.0", r"(?:pthread|sem)_\w+",
     r"pthread_(?:attr_(?:destroy|init|[gs]et(?:detachstate|inheritsched|schedparam|schedpolicy|scope))"
     r"|cond(?:attr)?_\w+|equal|exit|[gs]etschedparam|mutex_(?:destroy|init|lock|unlock)|self|setcancel\w+)"),
    ("libdl.so.2", r"dl(?:addr1?|close|error|info|m?open|v?sym)", r"(?!)"),
    ("librt.so.1", r"(?:aio|lio|mq|shm|timer)_\w+", r"(?!)"),
    ("libutil.so.1", r"forkpty|openpty|login_tty", r"(?!)"),
)


def check_versions(path):
    versions = lint.output("readelf", "-VW", path)
    for version in sorted(set(re.findall(r"GLIBC_([0-9.]+)", versions))):
        if tuple(int(part) for part in version.split(".")[:2]) > NEWEST:
            yield "%s: needs GLIBC_%s (%s)" % (os.path.basename(path), version, ", ".join(functions_of(path, version)))
    for word in ("PRIVATE", "ABI_DT_RELR"):
        if "GLIBC_" + word in versions:
            yield "%s: needs GLIBC_%s" % (os.path.basename(path), word)


def functions_of(path, version):
    return sorted(set(re.findall(r"\bUND (\w+)@GLIBC_%s\b" % re.escape(version), lint.output("readelf", "--dyn-syms", "-W", path))))


def check_libraries(path):
    table = lint.output("readelf", "-dW", path)
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", table))
    for name in sorted(set(re.findall(r"\bUND (\w+)@GLIBC_", lint.output("readelf", "--dyn-syms", "-W", path)))):
        for library, functions, always in SEPARATE:
            if re.fullmatch(functions, name) and not re.fullmatch(always, name) and library not in needed:
                yield "%s: uses %s, but does not name %s" % (os.path.basename(path), name, library)


def elf_files(path):
    """The path of a file, or of the ELF files in a folder."""
    if not os.path.isdir(path):
        return [path]
    files = [file for file in sorted(pathlib.Path(path).rglob("*")) if file.is_file() and not file.is_symlink()]
    return [str(file) for file in files if file.read_bytes()[:4] == b"\x7fELF"]


def check(paths):
    for path in paths:
        if not elf_files(path):
            yield "%s: has no ELF file" % path
    for path in [file for path in paths for file in elf_files(path)]:
        if "Class:" not in lint.output("readelf", "-hW", path):
            yield "%s: not an ELF file" % path
        yield from check_versions(path)
        yield from check_libraries(path)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--self-test"]:
        with tempfile.TemporaryDirectory(prefix="gpupool-glibc-") as folder:
            (pathlib.Path(folder) / "lib").mkdir()
            (pathlib.Path(folder) / "empty").mkdir()
            shutil.copy(sys.argv[2], pathlib.Path(folder) / "lib" / "plug-in.so")
            found = list(check([*sys.argv[2:], folder, folder + "/empty"]))
        lint.end_self_test(found, ("needs GLIBC_2.3", "uses pthread_create, but does not name libpthread.so.0",
                                   "plug-in.so: needs GLIBC_2.3", "empty: has no ELF file"))
    if not sys.argv[1:]:
        sys.exit(__doc__)
    lint.end(check(sys.argv[1:]))
