# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Ways to the driver: the programs of tests/diff that call it through the runtime, or look its functions up in other ways.
"""

import part_semantics


def run(results, out, options):
    part_semantics.compare(results, out, "ways", options)
