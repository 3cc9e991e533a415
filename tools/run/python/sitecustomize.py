# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Python runs this file at its start under `gpupool-run --own-pools=off`, which puts its archive first in PYTHONPATH.

It installs the hook that turns off the pools of CuPy and RMM. Then it leaves sys.path as the user set it, and runs the
sitecustomize that Python would have run without gpupool. Python 2 reads this file, too.
"""

import os
import sys


def install_hook():
    # A child may have been told to keep the pools.
    if sys.version_info >= (3, 6) and os.environ.get("GPUPOOL_OWN_POOLS") == "off":
        import gpupool_own_pools
        gpupool_own_pools.install()


def hand_over(own):
    """Imports the next sitecustomize. It takes the place of this module in sys.modules."""
    archive = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if entry != archive]
    del sys.modules["sitecustomize"]
    try:
        __import__("sitecustomize")
    except ImportError as error:
        # An import that fails inside of the next sitecustomize is the user's to see.
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", own)


try:
    install_hook()
finally:
    hand_over(sys.modules["sitecustomize"])
