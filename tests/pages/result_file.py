# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Result files: the figures of one part of scripts/bench or scripts/gpu-test, with the command, date, machine and commit of
each run. Pages in docs/ are made of these files. Members of a file:

    schema   SCHEMA
    runs     the runs that the figures come from: command, date, commit, hardware, and as far as they are known software
             and rounds
    cells    times: group, cell and peer as in tests/bench, ns, and the quartiles low and high of n rounds
    ratios   times of a peer relative to a base: group, cell, peer, base, median, n, and a 95 % interval low to high
    peaks    peak memory of programs: group, peer, key, mib
    values   other figures: name, value, unit
    calls    driver calls: name, peer, pairs, calls
    head     the columns of a table in words, and rows, its rows
    notes    sentences below the table
    result   one sentence with the result
"""

import json
import pathlib
import subprocess
import sys
import time

SCHEMA = "gpupool.results/1"
UNKNOWN = "not recorded"


def load(folder):
    """{name of the part: content} of all result files in a folder."""
    found = {}
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        document = json.loads(path.read_text())
        if document.get("schema") != SCHEMA:
            sys.exit(f"{path}: the schema is not {SCHEMA}")
        if not document.get("runs"):
            sys.exit(f"{path}: names no run")
        found[path.stem] = document
    return found


def text(document):
    """The content of a file: a line for each member, and for each item of a list."""
    lines = []
    for key, value in document.items():
        words = json.dumps(value, ensure_ascii=False)
        if isinstance(value, list) and value:
            items = ",\n".join(f"  {json.dumps(item, ensure_ascii=False)}" for item in value)
            words = f"[\n{items}\n ]"
        lines.append(f" {json.dumps(key)}: {words}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def save(folder, name, document):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(text({"schema": SCHEMA, **document}))
    return path


def output(*words, cwd=None):
    """The output of a command, or None if it cannot run."""
    try:
        done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 and done.stdout.strip() else None


def describe_run(root, command, **more):
    """The description of a run on this machine, with the commit of the tree in root."""
    commit = output("git", "rev-parse", "--short=7", "HEAD", cwd=root) or UNKNOWN
    if commit != UNKNOWN and output("git", "status", "--porcelain", "--untracked-files=no", cwd=root):
        commit += " with changes"
    run = {"command": command, "date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": commit}
    gpus = output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    names = [line.split(", ") for line in (gpus or "").splitlines()]
    run["hardware"] = ", ".join(name for name, *_ in names) or UNKNOWN
    if names:
        run["software"] = f"driver {names[0][-1]}"
    return {**run, **more}


def table(head, rows):
    """Lines of a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return ["".join(f"| {cell} " if cell != "" else "| " for cell in line) + "|" for line in lines]


def run_rows(documents):
    """A row for each run of the files: part, command, rounds, date, commit, machine."""
    rows = []
    for name, document in documents.items():
        for run in document["runs"]:
            machine = "; ".join(filter(None, [run.get("hardware"), run.get("software")])) or UNKNOWN
            rows.append([f"`{name}`", f"`{run['command']}`", run.get("rounds", ""), run.get("date", UNKNOWN),
                         run.get("commit", UNKNOWN), machine])
    return rows


RUN_HEAD = ["data", "command", "rounds", "date", "commit", "machine"]


def update(files, is_check, command):
    """
    Writes {path: text}. With is_check it writes nothing, prints which files differ, and returns whether all are equal.
    """
    is_same = True
    for path, wanted in files.items():
        if path.exists() and path.read_text() == wanted:
            continue
        is_same = False
        if is_check:
            print(f"{path}: not what `{command}` makes of the result files")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted)
            print(path)
    return is_same
