"""What precise timing does: one timing against another on the same arm and path, paired by repetition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.comparison import Judgement, compare, paired_ratio
from virtgauge.analysis.differences import Difference, band_of, compare_differences
from virtgauge.analysis.estimate import Estimate
from virtgauge.report.bandwidth.keys import Key
from virtgauge.report.bandwidth.model import Help, PooledEffect, TimingEffect
from virtgauge.report.bandwidth.pooling import (
    from_zero,
    identical_arms,
    less,
    over,
    over_cells,
    paired,
    share_estimate,
)
from virtgauge.report.bandwidth.results import Results, nested
from virtgauge.report.bandwidth.vocabulary import SYSTEM

_BASES = (SYSTEM, "gettimeofday+usleep")
"""What other timings are compared with, the first that was measured."""


class Effects:
    """Effects of timing on the arms that are told of.

    Args:
        results: of the run.
        arms: by name.
    """

    def __init__(self, results: Results, arms: Sequence[str]) -> None:
        self._results, self._arms, self._nominal = results, arms, results.nominal

    def by_cell(self) -> tuple[TimingEffect, ...]:
        """Of every cell that was tried with a base timing, too."""
        return tuple(
            self._effect(arm, key, base)
            for arm in self._arms
            for key, base in self._pairs()
            if self._results.counted(key, arm) and self._results.counted(key.timed(base), arm)
        )

    def _pairs(self) -> Iterator[tuple[Key, str]]:
        tried = set(self._results.keys)
        for key in self._results.keys:
            base = next((base for base in _BASES if key.timed(base) in tried), None)
            if base is not None and key.timing != base:
                yield key, base

    def _effect(self, arm: str, key: Key, base: str) -> TimingEffect:
        results, other = self._results, key.timed(base)
        off, base_off = results.off(key, arm), results.off(other, arm)
        both = off.keys() & base_off.keys()
        band = band_of([results.aa_difference(key), results.aa_difference(other)])
        error = compare_differences(off, base_off, band, "share", self._nominal)
        width, base_width = self._widths(key, arm), self._widths(other, arm)
        return TimingEffect(
            arm=arm,
            key=key,
            base=base,
            off=share_estimate((off[block] for block in both), self._nominal),
            base_off=share_estimate((base_off[block] for block in both), self._nominal),
            error=error,
            spread=compare(width, base_width, self._aa_spread((key, other)), "Mbit/s", self._nominal),
            blocks=len(results.counted(key, arm)),
            base_blocks=len(results.counted(other, arm)),
            refused=results.refusals(key, arm),
            base_refused=results.refusals(other, arm),
            honest_mbps=self._honest(key, arm),
            base_honest_mbps=self._honest(other, arm),
            help=_help(results.estimated(key, arm), results.estimated(other, arm), error),
        )

    def _aa_spread(self, keys: Sequence[Key]) -> Estimate | None:
        """What the A/A pair's spreads differ by in the cell where they do most; None unless all tell it."""
        results = self._results
        if results.aa is None:
            return None
        ratios = [
            paired_ratio(self._widths(key, results.aa), self._widths(key, results.reference), self._nominal)
            for key in keys
        ]
        if any(ratio.low is None or ratio.high is None for ratio in ratios):
            return None
        return max(ratios, key=lambda ratio: max(ratio.high or 1.0, 1 / (ratio.low or 1.0)))

    def pooled(self, effects: Sequence[TimingEffect]) -> tuple[PooledEffect, ...]:
        """The same over all cells of an arm, by timing and way of swapping it."""
        groups: dict[tuple[str, str, str, str], list[TimingEffect]] = {}
        for one in effects:
            groups.setdefault((one.arm, one.key.through, one.key.timing, one.base), []).append(one)
        return tuple(self._pooled(group) for group in groups.values())

    def _pooled(self, group: Sequence[TimingEffect]) -> PooledEffect:
        results, arm, base = self._results, group[0].arm, group[0].base
        keys = [one.key for one in group if one.error.estimate.point is not None]
        bases = [key.timed(base) for key in keys]
        off = {key: results.off(key, arm) for key in keys}
        base_off = {key: results.off(key.timed(base), arm) for key in keys}
        widths = {key: self._widths(key, arm) for key in keys}
        base_widths = {key: self._widths(key.timed(base), arm) for key in keys}
        ratios = over_cells(paired(widths, base_widths, over))
        band = band_of([identical_arms(results, cells) for cells in (keys, bases)]) if keys else None
        return PooledEffect(
            arm=arm,
            through=group[0].key.through,
            timing=group[0].key.timing,
            base=base,
            cells=len(keys),
            off=share_estimate(over_cells(paired(off, base_off, lambda one, _: one)).values(), self._nominal),
            base_off=share_estimate(over_cells(paired(base_off, off, lambda one, _: one)).values(), self._nominal),
            error=from_zero(over_cells(paired(off, base_off, less)), band, self._nominal),
            spread=compare(
                ratios, dict.fromkeys(ratios, 1.0), self._aa_pooled([*keys, *bases]), "ratio", self._nominal
            ),
            enabled=sum(one.help is Help.ENABLES for one in group),
            lost=sum(one.help is Help.LOST for one in group),
        )

    def _aa_pooled(self, keys: Sequence[Key]) -> Estimate | None:
        """What the A/A pair's spreads differ by over cells."""
        results = self._results
        if results.aa is None:
            return None
        again, once = ({key: self._widths(key, arm) for key in keys} for arm in (results.aa, results.reference))
        found = over_cells(paired(again, once, over))
        return paired_ratio(found, dict.fromkeys(found, 1.0), self._nominal)

    def _widths(self, key: Key, arm: str) -> dict[int, float]:
        """Half the interquartile range, by block."""
        return self._results.told(key, arm, lambda result: nested(result, "half_iqr_mbps"))

    def _honest(self, key: Key, arm: str) -> Estimate:
        found = self._results.told(key, arm, lambda result: nested(result, "pacing", "honest_mbps"))
        return median_estimate(list(found.values()), "Mbit/s", self._nominal)


def _help(estimated: bool, base_estimated: bool, error: Difference) -> Help:
    if not estimated and not base_estimated:
        return Help.REFUSED
    if estimated != base_estimated:
        return Help.ENABLES if estimated else Help.LOST
    if not error.estimate.has_interval:
        return Help.OPEN
    return {Judgement.LOWER: Help.HELPS, Judgement.HIGHER: Help.HURTS}.get(error.judgement, Help.SAME)
