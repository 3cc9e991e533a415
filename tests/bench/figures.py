# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""Figures of repeated runs: medians, spread, and ratios of runs that took turns."""

import dataclasses
import math
import statistics


@dataclasses.dataclass
class Figure:
    """Of a list of values; spread is half the range of the middle half, over the median."""

    n: int
    median: float
    low: float  # the middle half begins and ends
    high: float
    least: float
    most: float

    @property
    def spread(self):
        return (self.high - self.low) / 2 / self.median if self.median else 0.0


def quantile(ordered, share):
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def figure(values):
    """None for no values."""
    if not values:
        return None
    ordered = sorted(values)
    low, high = quantile(ordered, 0.25), quantile(ordered, 0.75)
    return Figure(len(ordered), statistics.median(ordered), low, high, ordered[0], ordered[-1])


def paired_ratios(values, base):
    """Of two {round: value}: a ratio for each round that both have."""
    return [values[nth] / base[nth] for nth in sorted(values) if base.get(nth)]


def median_interval(values, confidence=0.95):
    """
    An interval that holds the median of what the values are drawn from with at least that confidence, whatever their
    distribution: between the kth smallest and the kth largest. None if there are too few values for any.
    """
    ordered, n = sorted(values), len(values)
    tail, rank = 0.0, 0
    while rank < n // 2:
        tail += math.comb(n, rank) / 2**n
        if 2 * tail > 1 - confidence:
            break
        rank += 1
    return (ordered[rank - 1], ordered[n - rank]) if rank else None
