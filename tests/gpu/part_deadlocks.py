# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Deadlocks: the programs of tests/diff that allocate and free around kernels that wait. A program that finishes without
the library has to finish with it. Each hang lasts until its time limit, so these programs are a separate part.
"""

import part_semantics


def run(results, out, options):
    part_semantics.compare(results, out, "deadlocks", options)
