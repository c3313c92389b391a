"""What changed from the base run to each of the others: figure by figure, then judged together."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from virtgauge.analysis.estimate import Estimate, median_estimate
from virtgauge.analysis.shift import Bounds, Outcome, Shifted, benjamini_hochberg, judge, paired_shifted, shifted
from virtgauge.compare.matching import Matched
from virtgauge.compare.model import Change, Effect, Finding
from virtgauge.compare.runs import ReadRun, Side
from virtgauge.results.measure import Better


@dataclasses.dataclass(frozen=True)
class Criteria:
    """By what a change is judged."""

    nominal: float  # confidence of the intervals; what it lacks to 1 is the level of the whole family of comparisons
    equivalent: float  # the largest change that does not matter, as a share; 0 when every change does

    @property
    def level(self) -> float:
        return 1 - self.nominal


class _Found(NamedTuple):
    """What was measured of a change, not yet judged."""

    better: Better
    shifted: Shifted
    base: float  # the base's figure, of which the margin is a share
    band: float | None  # see :class:`Effect`


def find_changes(runs: Sequence[ReadRun], matched: Matched, criteria: Criteria) -> tuple[Change, ...]:
    """Every change from the first run to the others, the largest first; of a single run, from one arm to another."""
    nominal, places, own, relative = criteria.nominal, [], [], []
    for number in range(1, len(runs)) or [0]:
        for measure, cell, arm in matched.places:
            key, pair = matched.cells[cell], matched.arms[arm]
            base, other = Side(runs[0], measure, key, pair.base), Side(runs[number], measure, key, pair.other)
            if base.blocks and other.blocks:
                places.append((number, cell, arm, base, other))
                own.append(_own(base, other, nominal))
                relative.append(_relative(base, other, nominal))
    changes = []
    beside_reference = iter(_judged([one for one in relative if one is not None], criteria))
    for place, effect, one in zip(places, _judged(own, criteria), relative, strict=True):
        number, cell, arm, base, other = place
        beside = None if one is None else next(beside_reference)
        name, unit, better = base.measure.full_name, base.measure.quantity.unit, base.measure.better.value
        before, after = (median_estimate([*side.blocks.values()], unit, nominal) for side in (base, other))
        changes.append(Change(number, cell, arm, name, unit, better, before, after, effect, beside))
    return tuple(sorted(changes, key=_rank))


def _own(base: Side, other: Side, nominal: float) -> _Found:
    unit, before, after = base.measure.quantity.unit, base.blocks, other.blocks
    if other.run is base.run:
        change = paired_shifted(before, after, unit, nominal)
    else:
        change = shifted([*before.values()], [*after.values()], unit, nominal)
    band = widest([side.band(change.by_ratio, nominal) for side in (base, other)])
    by_difference = widest([side.band(False, nominal) for side in (base, other)])
    if change.by_ratio and band is None and by_difference is not None:
        # The reference errs by nothing, say: identical arms have no ratio, so nothing could be held against it.
        ratio = Estimate.missing("ratio", "identical arms (A/A) have no ratio; see the difference", min(change.sizes))
        change, band = dataclasses.replace(change, ratio=ratio), by_difference
    return _Found(base.measure.better, change, statistics.median(before.values()), band)


def _relative(base: Side, other: Side, nominal: float) -> _Found | None:
    """The change of the ratio to the reference, which is formed within each block of each run; None within one run."""
    before, after = base.ratios, other.ratios
    if other.run is base.run or not before or not after:
        return None
    change = shifted([*before.values()], [*after.values()], "ratio", nominal)
    band = widest([side.band(True, nominal) for side in (base, other)])
    return _Found(base.measure.better, change, statistics.median(before.values()), band)


def widest(bands: Sequence[float | None]) -> float | None:
    """The widest of bands; None unless each is known."""
    known = [one for one in bands if one is not None]
    return max(known) if known and len(known) == len(bands) else None


def finding_of(outcome: Outcome, better: Better) -> Finding:
    """An outcome by which way is better; a change where neither is."""
    if outcome in (Outcome.HIGHER, Outcome.LOWER):
        if better is Better.NEITHER:
            return Finding.CHANGED
        return Finding.BETTER if (outcome is Outcome.HIGHER) == (better is Better.HIGHER) else Finding.WORSE
    return Finding(outcome.value)


def _judged(found: Sequence[_Found], criteria: Criteria) -> list[Effect]:
    """Every change held against all of its kind."""
    raw = [one.shifted.p for one in found if one.shifted.p is not None]
    adjusted = benjamini_hochberg(raw)
    held, following = sum(p <= criteria.level for p in adjusted), iter(adjusted)
    effects = []
    for one in found:
        p = None if one.shifted.p is None else next(following)
        bounds = Bounds(one.band, criteria.equivalent, one.base, criteria.level, max(len(raw), 1), held)
        verdict = judge(one.shifted, p, bounds)
        effects.append(
            Effect(
                ratio=one.shifted.ratio,
                difference=None if one.shifted.difference.unit == "ratio" else one.shifted.difference,
                band=one.band,
                p=one.shifted.p,
                p_adjusted=p,
                finding=finding_of(verdict.outcome, one.better),
                reason=verdict.reason,
                needed=verdict.needed,
            )
        )
    return effects


def _rank(change: Change) -> tuple[int, float]:
    """What is called a change before what is not, the largest first."""
    called = {Finding.NOT_SHOWN: 1, Finding.EQUIVALENT: 2}
    return called.get(change.own.finding, 0), -size_of(change.own)


def size_of(effect: Effect) -> float:
    """How large a change is, whichever way: by the logarithm of its ratio; infinite where it has none but differs."""
    if effect.ratio.point is not None:
        return abs(math.log(effect.ratio.point))
    return math.inf if effect.difference is not None and effect.difference.point else 0.0
