"""Pairs of cells that differ in one factor only: what a remedy is measured by."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

from virtgauge.report.words import exact_duration, load_label

Medians = Mapping[tuple[str, frozenset[tuple[str, str]]], Mapping[int, float]]
"""Median (ns) by block, for every probe and combination of factor levels of one arm."""

_ABSENT = {"slack": "default", "policy": "other", "idle_states": "default"}
"""The level of a factor that a cell does not name."""
_PLAIN_SLEEPS = ("usleep", "nanosleep", "clock_nanosleep")
"""Sleeps that take slack and class as the program has them, the commonest first."""
_USUAL_TARGET_NS = 100_000


@dataclasses.dataclass(frozen=True)
class Pair:
    """Medians by block of a cell and of its counterpart.

    Attributes:
        levels: of the first cell, by factor.
    """

    before: Mapping[int, float]
    after: Mapping[int, float]
    levels: Mapping[str, str]

    @property
    def saved_ns(self) -> float:
        return point(self.before) - point(self.after)

    @property
    def factor(self) -> float:
        """How many times less the second costs; infinite where it is not late at all."""
        return point(self.before) / point(self.after) if point(self.after) > 0 else math.inf

    @property
    def text(self) -> str:
        """``usleep of 100 µs, idle``."""
        target = self.levels.get("target_ns", "")
        of = f" of {exact_duration(float(target))}" if target.isdigit() else ""
        return f"{self.levels.get('function', '')}{of}, {load_label(self.levels.get('load', ''))}"


def point(blocks: Mapping[int, float]) -> float:
    """The median over blocks, of which there is at least one."""
    return statistics.median(blocks.values())


def cell(medians: Medians, probe: str, **levels: str) -> Mapping[int, float]:
    """Medians by block of the first cell with these levels; empty when there is none."""
    wanted = levels.items()
    return next((blocks for (name, items), blocks in medians.items() if name == probe and wanted <= items), {})


def pairs(medians: Medians, factor: str, before: str, after: str) -> Sequence[Pair]:
    """The best pair under each load: two sleeps that differ in this factor and nothing else, the others at default.

    Of several, the plainest sleep's, with the target nearest to 100 µs.
    """
    by_levels = {
        frozenset((_ABSENT | dict(items)).items()): blocks
        for (probe, items), blocks in medians.items()
        if probe == "sleep_lateness"
    }
    best: dict[str, tuple[tuple[int, float], Pair]] = {}
    for items, blocks in by_levels.items():
        levels = dict(items)
        other = by_levels.get(frozenset((levels | {factor: after}).items()))
        usual = all(levels[name] == (before if name == factor else _ABSENT[name]) for name in _ABSENT)
        function, target = levels.get("function", ""), levels.get("target_ns", "")
        if other is None or not usual or function not in _PLAIN_SLEEPS or not target.isdigit():
            continue
        rank = _PLAIN_SLEEPS.index(function), abs(math.log(max(int(target), 1) / _USUAL_TARGET_NS))
        load = levels.get("load", "")
        if load not in best or rank < best[load][0]:
            best[load] = rank, Pair(blocks, other, levels)
    return [found for _, found in best.values()]


def pair(medians: Medians, factor: str, before: str, after: str, load: str) -> Pair | None:
    """The pair under one load; None when there is none."""
    return next((one for one in pairs(medians, factor, before, after) if one.levels.get("load") == load), None)
