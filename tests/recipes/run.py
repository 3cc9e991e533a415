# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Usage: run.py ROOT BUILD PART...

Runs parts of scripts/recipes-test, which starts this in namespaces of its own. Prints a line for each step.
"""

import importlib
import pathlib
import subprocess
import sys
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import recipes  # noqa: E402


def run_step(part, step, root):
    name = step.__name__.replace("_", " ")
    try:
        step(root)
    except recipes.Skip as why:
        print(f"skipped - {part}: {name}: {why}", flush=True)
        return "skipped"
    except (recipes.Failed, subprocess.TimeoutExpired) as why:
        print(f"not ok - {part}: {name}: {why}", flush=True)
        return "failed"
    except Exception:
        print(f"not ok - {part}: {name}\n{traceback.format_exc()}", flush=True)
        return "failed"
    print(f"ok - {part}: {name}", flush=True)
    return "passed"


def main(root, build, *parts):
    root, counts = pathlib.Path(root), {"passed": 0, "failed": 0, "skipped": 0}
    recipes.BUILD = build
    recipes.make_machine(root, build)
    for part in parts:
        for step in importlib.import_module("part_" + part).STEPS:
            counts[run_step(part, step, root)] += 1
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    sys.exit(1 if counts["failed"] else 0 if counts["passed"] else 77)


main(*sys.argv[1:])
