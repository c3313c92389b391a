"""What changed from the base run to each of the others: figure by figure, then judged together."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from virtgauge.analysis.comparison import aa_band, band_of, paired_difference, paired_ratio
from virtgauge.analysis.estimate import Estimate, median_estimate
from virtgauge.analysis.shift import (
    Bounds,
    Outcome,
    Shifted,
    benjamini_hochberg,
    judge,
    paired_shifted,
    shifted,
)
from virtgauge.compare.matching import Matched
from virtgauge.compare.model import Change, Effect, Finding
from virtgauge.compare.runs import ReadRun
from virtgauge.results.columns import Cell
from virtgauge.results.measure import Better, Measure


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

    shifted: Shifted
    base: float  # the base's figure, of which the margin is a share
    band: float | None  # see :class:`Effect`


class _Side(NamedTuple):
    """An arm in a cell of one of the two runs."""

    run: ReadRun
    measure: Measure
    cell: Cell
    arm: str

    @property
    def blocks(self) -> Mapping[int, float]:
        return self.run.blocks(self.measure, self.cell, self.arm)


def find_changes(runs: Sequence[ReadRun], matched: Matched, criteria: Criteria) -> tuple[Change, ...]:
    """Every change from the first run to the others, the largest first; of a single run, from one arm to another."""
    nominal, places, own, relative = criteria.nominal, [], [], []
    for number, run in list(enumerate(runs))[1:] or [(0, runs[0])]:
        for measure, cell, arm in matched.places:
            key, pair = matched.cells[cell], matched.arms[arm]
            base, other = _Side(runs[0], measure, key, pair.base), _Side(run, measure, key, pair.other)
            if base.blocks and other.blocks:
                places.append((number, cell, arm, base, other))
                own.append(_own(base, other, nominal))
                relative.append(_relative(base, other, nominal))
    ways = [base.measure.better for *_, base, _ in places]
    changes = []
    for (number, cell, arm, base, other), effect, beside in zip(
        places, _judged(ways, own, criteria), _judged(ways, relative, criteria), strict=True
    ):
        assert effect is not None
        unit = base.measure.quantity.unit
        before, after = (median_estimate([*side.blocks.values()], unit, nominal) for side in (base, other))
        better = base.measure.better.value
        changes.append(Change(number, cell, arm, base.measure.full_name, unit, better, before, after, effect, beside))
    return tuple(sorted(changes, key=_rank))


def _own(base: _Side, other: _Side, nominal: float) -> _Found:
    unit, before, after = base.measure.quantity.unit, base.blocks, other.blocks
    if other.run is base.run:
        change = paired_shifted(before, after, unit, nominal)
    else:
        change = shifted([*before.values()], [*after.values()], unit, nominal)
    found, by_difference = (
        widest([band(side.run, base.measure, base.cell, by_ratio, nominal) for side in (base, other)])
        for by_ratio in (change.by_ratio, False)
    )
    if change.by_ratio and found is None and by_difference is not None:
        # The reference errs by nothing, say: identical arms have no ratio, so nothing could be held against it.
        ratio = Estimate.missing("ratio", "identical arms (A/A) have no ratio; see the difference", min(change.sizes))
        change, found = dataclasses.replace(change, ratio=ratio), by_difference
    return _Found(change, statistics.median(before.values()), found)


def _relative(base: _Side, other: _Side, nominal: float) -> _Found | None:
    """The change of the ratio to the reference, which is formed within each block of each run; None within one run."""
    if other.run is base.run:
        return None
    ratios = [ratios_to_reference(*side) for side in (base, other)]
    if not ratios[0] or not ratios[1]:
        return None
    change = shifted([*ratios[0].values()], [*ratios[1].values()], "ratio", nominal)
    bands = [band(side.run, base.measure, base.cell, True, nominal) for side in (base, other)]
    return _Found(change, statistics.median(ratios[0].values()), widest(bands))


def ratios_to_reference(run: ReadRun, measure: Measure, key: Cell, arm: str) -> dict[int, float]:
    """An arm's figure in the reference's of the same block; empty of the reference, and where one is not positive."""
    reference = run.reference
    if reference is None or reference.name == arm:
        return {}
    own = run.blocks(measure, key, arm)
    beside = run.blocks(measure, key, reference.name)
    both = own.keys() & beside.keys()
    if any(own[block] <= 0 or beside[block] <= 0 for block in both):
        return {}
    return {block: own[block] / beside[block] for block in sorted(both)}


def band(run: ReadRun, measure: Measure, key: Cell, by_ratio: bool, nominal: float) -> float | None:
    """What identical arms of a run differ by: a factor, or in the measure's unit; None when that is not known."""
    if run.aa is None or run.reference is None:
        return None
    aa = run.blocks(measure, key, run.aa.name)
    reference = run.blocks(measure, key, run.reference.name)
    if by_ratio:
        return aa_band(paired_ratio(aa, reference, nominal))
    return band_of([paired_difference(aa, reference, measure.quantity.unit, nominal)])


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


def _judged(ways: Sequence[Better], found: Sequence[_Found | None], criteria: Criteria) -> list[Effect | None]:
    """Every change held against all of its kind."""
    raw = [one.shifted.p for one in found if one is not None and one.shifted.p is not None]
    adjusted = iter(benjamini_hochberg(raw))
    p_values = [None if one is None or one.shifted.p is None else next(adjusted) for one in found]
    held = sum(p is not None and p <= criteria.level for p in p_values)
    effects: list[Effect | None] = []
    for better, one, p in zip(ways, found, p_values, strict=True):
        if one is None:
            effects.append(None)
            continue
        bounds = Bounds(one.band, criteria.equivalent, one.base, criteria.level, max(len(raw), 1), held)
        verdict = judge(one.shifted, p, bounds)
        effects.append(
            Effect(
                ratio=one.shifted.ratio,
                difference=None if one.shifted.difference.unit == "ratio" else one.shifted.difference,
                band=one.band,
                p=one.shifted.p,
                p_adjusted=p,
                finding=finding_of(verdict.outcome, better),
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
