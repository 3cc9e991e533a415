# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Whether a program that ends without the library ends with it: the programs of tests/diff that
allocate and free around kernels that wait. Each hang takes its time, so they are a part of their
own.
"""

import part_semantics


def run(results, out, options):
    part_semantics.compare(results, out, "deadlocks", options.jobs)
