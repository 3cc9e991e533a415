# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Usage: test_yields.py GUEST LIBRARY SIM GPUPOOL-STAT APP_SHARE

A short run of what scripts/yield-test tries, in namespaces of its own. It is skipped where these are not permitted.
"""

import os
import subprocess
import sys

NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
INSIDE = "inside"


def enter():
    """Starts this program again in namespaces."""
    try:
        can = os.geteuid() == 0 and subprocess.run([*NAMESPACES, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        can = False
    if not can:
        print("1..0 # SKIP needs root and namespaces")
        sys.exit(0)
    os.execvp(NAMESPACES[0], [*NAMESPACES, sys.executable, "-B", *sys.argv, INSIDE])


if sys.argv[-1] != INSIDE:
    enter()

import yields  # noqa: E402


def memory_that_another_user_or_container_caches_is_handed_over_if_an_exporter_may():
    yields.check_handed_over(yields.PAIRS[:2])


yields.make_machine()
yields.fleet.main([
    memory_that_another_user_or_container_caches_is_handed_over_if_an_exporter_may,
    yields.a_process_without_the_device_is_refused_and_other_requests_are_wrong,
])
