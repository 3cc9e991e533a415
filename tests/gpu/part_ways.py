# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
The programs of tests/diff that reach the driver through the runtime, or look it up in other ways.
"""

import part_semantics


def run(results, out, options):
    part_semantics.compare(results, out, "ways", options.jobs)
