"""Figures over several cells: the median over the cells in each repetition, so that repetitions stay the unit."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.comparison import paired_difference
from virtgauge.analysis.differences import Difference, compare_differences
from virtgauge.analysis.estimate import Estimate
from virtgauge.report.bandwidth.keys import Key
from virtgauge.report.bandwidth.results import Results

PerCell = Mapping[Key, Mapping[int, float]]
"""A figure by cell and block."""


def over_cells(figures: PerCell) -> dict[int, float]:
    """The median over the cells, by block."""
    blocks: dict[int, list[float]] = {}
    for by_block in figures.values():
        for block, value in by_block.items():
            blocks.setdefault(block, []).append(value)
    return {block: statistics.median(values) for block, values in blocks.items()}


def paired(test: PerCell, base: PerCell, figure: Callable[[float, float], float | None]) -> dict[Key, dict[int, float]]:
    """A figure of two, wherever a cell has both in a block and they have such a figure."""
    found: dict[Key, dict[int, float]] = {}
    for key in test.keys() & base.keys():
        own, other = test[key], base[key]
        for block in own.keys() & other.keys():
            value = figure(own[block], other[block])
            if value is not None:
                found.setdefault(key, {})[block] = value
    return found


def less(one: float, other: float) -> float:
    """The difference of two."""
    return one - other


def over(one: float, other: float) -> float | None:
    """The ratio of two; None where there is none."""
    return one / other if other else None


def from_zero(by_block: Mapping[int, float], band: float | None, nominal: float) -> Difference:
    """Whether differences, as shares of the truth, differ from none."""
    return compare_differences(by_block, dict.fromkeys(by_block, 0.0), band, "share", nominal)


def identical_arms(results: Results, keys: Sequence[Key]) -> Estimate:
    """What the A/A pair's errors, without their signs, differ by over cells."""
    if results.aa is None:
        return Estimate.missing("share", "there is no A/A arm")
    again, once = ({key: results.off(key, arm) for key in keys} for arm in (results.aa, results.reference))
    found = over_cells(paired(again, once, less))
    return paired_difference(found, dict.fromkeys(found, 0.0), "share", results.nominal)


def share_estimate(values: Iterable[float], nominal: float) -> Estimate:
    """The median of shares, with its interval."""
    return median_estimate(list(values), "share", nominal)
