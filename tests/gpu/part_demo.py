# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""Runs the demo on this machine's GPU."""

import os

import programs


def run(results, out, options):
    del options
    demo = programs.ROOT / "scripts" / "demo"
    if not demo.exists():
        results.note("there is no scripts/demo yet", None)
        return
    log = out / "demo" / "demo.txt"
    more = {k: v for k, v in os.environ.items() if k.startswith("GPUPOOL")}
    done = programs.run_program(programs.Config("demo"), [demo], log, timeout=300, more=more)
    print("\n".join(f"    {line}" for line in done.text.splitlines()[-30:]))
    results.check("scripts/demo finished", done.status == 0, f"status {done.status}")
