# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Contexts that come and go, forks, ends under threads, and whether the GPU's memory is all there
again: the programs of tests/diff about them.
"""

import part_semantics


def run(results, out, options):
    part_semantics.compare(results, out, "lives", options.jobs)
