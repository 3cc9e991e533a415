# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Checks the exports, imports and sections of libgpupool.so: it must not bring anything unneeded into a process.

Usage: library.py HOOKS.DEF SUBMIT.DEF RUNTIME.DEF LIBRARY
       library.py --self-test HOOKS.DEF SUBMIT.DEF RUNTIME.DEF BAD-LIBRARY
"""

import glob
import os
import re
import sys

import glibc
import lint

NEEDED = re.compile(r"lib(c\.so\.6|dl\.so\.2|pthread\.so\.0)$|ld-linux.*")
# The hooked functions of the dynamic loader, and the symbol that NVTX looks up.
OTHERS = {"dlsym", "dlopen", "InitializeInjectionNvtx2"}
# Sections with the addresses of the toolchain's own start and end functions, one word each. The second function, on
# aarch64, detects the processor's atomic instructions.
TOOLCHAIN = {".init_array": ("frame_dummy", "init_have_lse_atomics"), ".fini_array": ("__do_global_dtors_aux",)}
SECOND_ON = "AArch64"
WORD = 8
# The symbols that the library may import, because both glibc and musl have them. musl defines those of
# ON_SOME_MACHINES for some processors only.
MUSL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "musl.txt")
ON_SOME_MACHINES = {"__getauxval"}
# Bytes of thread-local storage. The loader reserves only about 1600 bytes for all libraries that are loaded later.
TLS_MAX = 1152


def check_exports(library, hooks, work, runtime):
    table = lint.output("readelf", "--dyn-syms", "-W", library)
    exported = set()
    for line in table.splitlines():
        cells = line.split()
        if len(cells) >= 8 and cells[4] in ("GLOBAL", "WEAK") and cells[6] not in ("UND", "Ndx"):
            exported.add(cells[7])
    wanted = set(lint.rows(hooks, "HOOK(?:_ALLOC)?(?:_FAST)?(?:_SEEN|_VISITS|_PASSED|_NODE|_WAITS)?")) | set(lint.rows(runtime, "RUNTIME")) | OTHERS
    wanted |= set(lint.rows(work, "(?:WORK|BOTH)")) | {name + "_ptsz" for name in lint.rows(work, "BOTH")}
    for name in sorted(exported - wanted):
        yield "exported, but not in a table: %s" % name
    for name in sorted(wanted - exported):
        yield "in a table, but not exported: %s" % name


def check_dynamic(library):
    table = lint.output("readelf", "-dW", library)
    for name in re.findall(r"\(NEEDED\).*\[(.*)\]", table):
        if not NEEDED.match(name):
            yield "needs %s" % name
    for tag in ("RPATH", "RUNPATH", "TEXTREL"):
        if re.search(r"\(%s\)|\b%s\b" % (tag, tag), table):
            yield "has a %s" % tag
    for flag in ("NODELETE", "NOW"):
        if not re.search(r"FLAGS.*\b%s\b" % flag, table):
            yield "is not marked %s" % flag


def check_versions(library):
    yield from glibc.check_versions(library)
    if re.search(r"\.gnu\.version_d\b", lint.output("readelf", "-SW", library)):
        yield "defines symbol versions, which disables interposition"


def check_start(library):
    """The library has no constructors or destructors, so no code of gpupool runs when it is loaded or unloaded."""
    sections = lint.output("readelf", "-SW", library)
    symbols = set(re.findall(r"\w+$", lint.output("readelf", "-sW", library), re.M))
    words = 2 if SECOND_ON in lint.output("readelf", "-hW", library) else 1
    for name, functions in TOOLCHAIN.items():
        functions = functions[:words]
        if ".symtab" in sections:
            functions = [function for function in functions if function in symbols]
        found = re.search(r"\s%s\s+\w+\s+\w+\s+\w+\s+(\w+)" % re.escape(name), sections)
        if found and int(found.group(1), 16) > WORD * len(functions):
            yield "%s has entries other than the toolchain's" % name
    for name in (".ctors", ".dtors", ".preinit_array"):
        if re.search(r"\s%s\s" % re.escape(name), sections):
            yield "has a section %s" % name


def check_stack(library):
    found = re.search(r"GNU_STACK.*", lint.output("readelf", "-lW", library))
    if not found or re.search(r"\bRWE\b", found.group(0)):
        yield "has an executable stack"


def check_threads(library):
    found = re.search(r"^\s*TLS\s+\w+\s+\w+\s+\w+\s+\w+\s+(\w+)", lint.output("readelf", "-lW", library), re.M)
    if found and int(found.group(1), 16) > TLS_MAX:
        yield "takes %d bytes of thread-local storage, more than %d" % (int(found.group(1), 16), TLS_MAX)


def check_allocations(library):
    """A program may define malloc, calloc, realloc and free alone. Memory from another allocation function then comes
    from libc and must not be given to the program's free."""
    table = lint.output("readelf", "--dyn-syms", "-W", library)
    for name in sorted(set(re.findall(r"\bUND (\w*(?:memalign|aligned_alloc|valloc|malloc_\w+))\b", table))):
        yield "allocates with %s, which a program's malloc may not cover" % name


def symbols(library, is_wanted):
    """Names of the dynamic symbols, without versions, for which is_wanted(binding, section) is true."""
    for line in lint.output("readelf", "--dyn-syms", "-W", library).splitlines():
        cells = line.split()
        if len(cells) >= 8 and cells[6] != "Ndx" and is_wanted(cells[4], cells[6]):
            yield cells[7].partition("@")[0]


def check_imports(library):
    """
    Each imported symbol exists in musl. A musl program that preloads the library fails to start if a symbol is missing.
    """
    known = {line for line in lint.read(MUSL).splitlines() if not line.startswith("#")}
    for name in sorted(set(symbols(library, lambda binding, section: binding == "GLOBAL" and section == "UND")) - known):
        yield "imports %s, which is not in tests/lint/musl.txt" % name
    for path in glob.glob("/lib/ld-musl-*.so.1"):
        defined = set(symbols(path, lambda binding, section: section != "UND"))
        for name in sorted(known - defined - ON_SOME_MACHINES):
            yield "tests/lint/musl.txt lists %s, but %s does not define it" % (name, path)


def check(hooks, work, runtime, library):
    yield from check_exports(library, hooks, work, runtime)
    yield from check_dynamic(library)
    yield from check_versions(library)
    yield from check_start(library)
    yield from check_stack(library)
    yield from check_threads(library)
    yield from check_allocations(library)
    yield from check_imports(library)


if __name__ == "__main__":
    if sys.argv[1] == "--self-test":
        lint.end_self_test(check(*sys.argv[2:]), (
            "not in a table: ",
            "not exported: cuMemAlloc_v2",
            "not exported: cuLaunchKernel_ptsz",
            "not exported: cudaMalloc",
            "but not exported: ",
            "needs libm.so.6",
            "has a RUNPATH",
            "is not marked NODELETE",
            "is not marked NOW",
            "needs GLIBC_2.3",
            "defines symbol versions",
            ".init_array has entries other than",
            "has an executable stack",
            "takes 2048 bytes of thread-local storage",
            "allocates with aligned_alloc",
            "imports cos, which is not in",
            "imports exit, ",
            "imports stat",
            "imports aligned_alloc, ",
            "imports __tls_get_addr, ",
        ))
    lint.end(check(*sys.argv[1:]))
