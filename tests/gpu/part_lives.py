# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Lifetimes: the programs of tests/diff about contexts that are created and destroyed, forks, and the end of a context in
use by threads; and whether all memory of the GPU is free afterwards.
"""

import part_semantics


def run(results, out, options):
    part_semantics.compare(results, out, "lives", options)
