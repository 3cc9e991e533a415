# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Makes docs/verification.md of the result files in tests/gpu/results and tests/setup/results, and of the table of folders
in tests/README.md; and the table of docs/frameworks.md that stands between two marks.

Usage: verification.py ROOT [--check]
"""

import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import result_file

COMMAND = "scripts/gpu-test --report"
PAGE = pathlib.Path("docs/verification.md")
DATA = pathlib.Path("tests/gpu/results")
TABLE_PAGE, TABLE_PART = pathlib.Path("docs/frameworks.md"), "frameworks"
TABLE_BEGIN, TABLE_END = f"<!-- made by `{COMMAND}` -->\n", "<!-- end -->\n"
PACKAGES = pathlib.Path("tests/setup/results")
SUITES = pathlib.Path("tests/README.md")
HELP = ("sim", "apps", "demo", "pages")  # folders that the tests of other folders need

# Each part of scripts/gpu-test, in the order of the page, and the behaviour that it shows.
PARTS = {
    "semantics": "return codes, properties and results",
    "ways": "static and shared runtimes, `dlsym`, `cuGetProcAddress`, per-thread streams",
    "lives": "resets, forks, threads, exits, all of the device's memory",
    "captures": "captures and graphs, memory that is not pooled",
    "deadlocks": "kernels that wait for later ones",
    "contexts": "destruction, resets, threads, green contexts",
    "host": "pinned memory, allocated and registered",
    "sleep": "processes that sleep and wake, and that take turns on a device",
    "spill": "device memory that moves to the host instead of an out-of-memory",
    "async": "allocations in stream order that the pool serves",
    "debug": "writes after a free and around blocks",
    "documents": "the examples of four libraries' documents",
    "backends": "managed and stream-ordered memory",
    "regions": "named caches, as on the simulated GPU",
    "tools": "compute-sanitizer, PyTorch's profiler",
    "devices": "two GPUs: peers, first touch by another GPU, deadlocks across devices",
    "ipc": "two GPUs: both or one process under gpupool, PyTorch's tensors between processes, NCCL by P2P/IPC",
    "streams": "random rounds across every pair of kinds of stream, ten configurations",
    "python": "PyTorch, CuPy and Numba, and what libraries submit",
    "frameworks": "frameworks with their own pool on and off",
    "patterns": "loops of allocations and frees",
    "samples": "NVIDIA's samples of memory, streams, graphs, shared and virtual memory",
    "demo": "the program of `scripts/demo`",
}

INTRO = """# Verification

`scripts/gpu-test --report` makes this page of the result files in `tests/gpu/results` and `tests/setup/results`, and of
`tests/README.md`.

## On real GPUs

The raw program compared with gpupool under each pool type. An *answer* is a line that a test program prints, such as a
return code or a checksum.
"""

AFTER = """The pool has changed since some of these runs. The simulated GPU gets the same questions each time
(`meson test -C build-test --suite diff`).

In test builds without fences, or with hooks that do not report submissions, 90 % of the rounds of `streams` in which
old work was still running go wrong. Destroying a context with arrays in it corrupts this driver's heap, also without
gpupool, so only the simulator tests it. Nothing has run on more than four GPUs.

## Without a GPU

`scripts/test` builds and runs these suites three times: as shipped, with the address and undefined-behaviour
sanitizers, and with the thread sanitizer. The sanitizers' runs leave out tests for which they can find nothing more. The
last line has the numbers of tests that passed, failed and were skipped.
The programs run on a simulated GPU that detects races, deadlocks and invalid uses (`tests/sim/README.md`).
"""

INSTALLED = """## Packages

`scripts/package-test` installs, uses and removes each package in a fresh root of its own: a minimal Debian with
Python. The columns are its steps, in seconds:

* *install*, *remove*: by pip in a virtual environment, by apt, or by unpacking and deleting a folder;
* *doctor*: `gpupool-run --doctor` of the demo program finds nothing to do;
* *demo*: `scripts/demo --installed` on the simulated GPU computes the same result without and with gpupool;
* *stat*: `gpupool-stat --help`, and `gpupool-stat` with no process to show;
* *import*: Python imports `gpupool`, and its pool is active under `gpupool-run`;
* *complete*: with `--shells` and the Debian package, bash, zsh and fish complete both commands;
* *copy*: a copy of the folder finds its own library.

*Left behind* compares the files of the root before and after, without the logs and the state of apt and dpkg. Empty
folders stay: one for sockets in `/tmp`, and those of pip in the virtual environment.
"""

OUTRO = """## Renew this page

On a machine with a GPU:

    scripts/gpu-test --part contexts --save tests/gpu/results    # runs, and writes contexts.json there
    scripts/gpu-test --report                                    # makes this page again

As root, on a machine that reaches a mirror of Debian:

    scripts/package-test --save tests/setup/results              # runs, and writes packages.json there
"""


def from_root(words):
    """The words of a cell with paths of pages relative to the root of the tree."""
    return re.sub(r"`([\w./-]+\.md)`", lambda match: f"`{os.path.normpath(SUITES.parent / match.group(1))}`", words)


def suite_rows(root):
    """The rows of the first table of tests/README.md, without folders that have no tests."""
    rows = []
    for line in (root / SUITES).read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 3 and cells[0].startswith("`"):
            if cells[0].strip("`/") not in HELP:
                rows.append([f"`tests/{cells[0].strip('`')}`", *map(from_root, cells[1:])])
        elif rows and not line.startswith("|"):
            break
    if not rows:
        sys.exit(f"{SUITES}: has no table of folders")
    return rows


def with_table(text, document):
    """The text of a page, with the table of a result file between the two marks."""
    before, begin, rest = text.partition(TABLE_BEGIN)
    _, end, after = rest.partition(TABLE_END)
    if not begin or not end:
        sys.exit(f"gpu-test: {TABLE_PAGE} lacks the mark {(TABLE_END if begin else TABLE_BEGIN).strip()}")
    lines = result_file.table(document["head"], document["rows"])
    return before + begin + "\n".join(["", *lines, ""]) + "\n" + end + after


def package_lines(documents):
    """The section on packages, or no line if there is no result."""
    if not documents:
        return []
    rows = [row for document in documents.values() for row in document["rows"]]
    return [INSTALLED, *result_file.table(documents["packages"]["head"], rows), ""]


def files(root):
    """{path: content} of the pages."""
    documents = result_file.load(root / DATA)
    unknown = sorted(set(documents) - set(PARTS))
    if unknown:
        sys.exit(f"gpu-test: {PAGE} does not say what {', '.join(unknown)} shows")
    documents = {part: documents[part] for part in PARTS if part in documents}
    rows = [[f"`{part}`", PARTS[part], document["result"]] for part, document in documents.items()]
    packages = result_file.load(root / PACKAGES)
    lines = [INTRO, *result_file.table(["part", "shows", "result"], rows), "", AFTER,
             *result_file.table(["folder", "content", "needs"], suite_rows(root)), "", *package_lines(packages),
             "## Commands, dates, commits and machines", "",
             *result_file.table(result_file.RUN_HEAD, result_file.run_rows({**documents, **packages})), "", OUTRO]
    pages = {root / PAGE: "\n".join(lines)}
    if TABLE_PART in documents:
        page = root / TABLE_PAGE
        pages[page] = with_table(page.read_text(), documents[TABLE_PART])
    return pages


def result_words(rows):
    """One sentence for the checks and bars of a part."""
    judged = [row for row in rows if row["type"] != "note"]
    bad = [row for row in judged if row["ok"] is False]
    words = f"{len(judged) - len(bad)} of {len(judged)} checks"
    return f"{words}; failed: {'; '.join(row['name'] for row in bad)}" if bad else words


if __name__ == "__main__":
    if sys.argv[2:] not in ([], ["--check"]):
        sys.exit(__doc__.strip())
    is_same = result_file.update(files(pathlib.Path(sys.argv[1])), sys.argv[2:] == ["--check"], COMMAND)
    sys.exit(0 if is_same or sys.argv[2:] != ["--check"] else 1)
