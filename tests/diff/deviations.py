# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
The answers that are meant to differ from those of the program without the library. Everything else must be equal.

Each deviation names the switch that takes it back: a configuration of suite.py in which none of its rows holds, so
that there the answers must be the raw ones. run.py fails on a row that nothing matches.
"""

import dataclasses

KINDS = ("none", "simple", "binned", "split", "ordered", "completed")
CACHING = KINDS[1:]
SPLITTING = ("split", "ordered", "completed", "syncfree", "unpinned")  # all that run the kind split


@dataclasses.dataclass(frozen=True)
class Row:
    """
    Where it shows. The patterns are for the whole of the program's name (without "diff_"), of the question
    ("scenario/question"), and of the answer (None: any, or none at all).
    """

    program: str
    question: str
    configs: tuple
    answer: str | None
    where: str = "both"  # or "sim", "gpu": the only place where it shows


@dataclasses.dataclass(frozen=True)
class Deviation:
    what: str
    why: str
    switch: str | None  # the configuration that takes it back, or None
    manual: str  # how gpupool(7) begins to tell it
    rows: tuple


DEVIATIONS = ()
