# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""Figures of repeated runs: medians, spread, and ratios of runs that took turns."""

import dataclasses
import math
import statistics


@dataclasses.dataclass
class Figure:
    """Median and spread of a list of values; the spread is half the interquartile range, over the median."""

    n: int
    median: float
    low: float  # the lower and the upper quartile
    high: float
    least: float
    most: float

    @property
    def spread(self):
        return (self.high - self.low) / 2 / self.median if self.median else 0.0


def quantile(ordered, share):
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def figure(values):
    """The figure of the values, or None for an empty list."""
    if not values:
        return None
    ordered = sorted(values)
    low, high = quantile(ordered, 0.25), quantile(ordered, 0.75)
    return Figure(len(ordered), statistics.median(ordered), low, high, ordered[0], ordered[-1])


def paired_ratios(values, base):
    """The ratios of two {round: value}, one for each round that both have."""
    return [values[nth] / base[nth] for nth in sorted(values) if base.get(nth)]


def median_interval(values, confidence=0.95):
    """
    An interval that contains the median of the population with at least the given confidence, for every distribution:
    from the kth smallest to the kth largest value. None if there are too few values.
    """
    ordered, n = sorted(values), len(values)
    tail, rank = 0.0, 0
    while rank < n // 2:
        tail += math.comb(n, rank) / 2**n
        if 2 * tail > 1 - confidence:
            break
        rank += 1
    return (ordered[rank - 1], ordered[n - rank]) if rank else None
