"""What changed from the base run to each of the others: figure by figure, then judged together."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.comparison import aa_band, band_of, paired_difference, paired_ratio
from virtgauge.analysis.estimate import Estimate
from virtgauge.analysis.independent_change import (
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

Blocks = Mapping[int, float]


@dataclasses.dataclass(frozen=True)
class Criteria:
    """By what a change is judged.

    Attributes:
        nominal: confidence of the intervals; what it lacks to 1 is the level of the whole family of comparisons.
        equivalent: the largest change that does not matter, as a share; 0 when every change does.
    """

    nominal: float
    equivalent: float

    @property
    def level(self) -> float:
        return 1 - self.nominal


@dataclasses.dataclass(frozen=True)
class _Place:
    """One measure of one arm in one cell, in the base and in another run."""

    run: int
    measure: Measure
    cell: int
    arm: int


@dataclasses.dataclass(frozen=True)
class _Found:
    """What was measured there, not yet judged.

    Attributes:
        base: the base's figure, of which the margin is a share.
        band: see :class:`Effect`.
    """

    shifted: Shifted
    base: float
    band: float | None


def find_changes(runs: Sequence[ReadRun], matched: Matched, criteria: Criteria) -> tuple[Change, ...]:
    """Every change from the first run to the others, the largest first; of a single run, from one arm to another."""
    places, own, relative = [], [], []
    for number, run in list(enumerate(runs))[1:] or [(0, runs[0])]:
        for measure, cell, arm in matched.places:
            key, pair = matched.cells[cell], matched.arms[arm]
            base = runs[0].blocks(measure, key, pair.base)
            other = run.blocks(measure, key, pair.other)
            if base and other:
                places.append(_Place(number, measure, cell, arm))
                own.append(_own(runs[0], run, measure, key, base, other, criteria.nominal))
                relative.append(_relative(runs[0], run, measure, key, pair.base, pair.other, criteria.nominal))
    judged = _judged(places, own, criteria)
    besides = _judged(places, relative, criteria)
    changes = []
    for place, effect, beside in zip(places, judged, besides, strict=True):
        assert effect is not None
        key, pair, measure = matched.cells[place.cell], matched.arms[place.arm], place.measure
        before, after = (
            median_estimate([*run.blocks(measure, key, arm).values()], measure.quantity.unit, criteria.nominal)
            for run, arm in ((runs[0], pair.base), (runs[place.run], pair.other))
        )
        changes.append(
            Change(
                run=place.run,
                cell=place.cell,
                arm=place.arm,
                measure=measure.full_name,
                unit=measure.quantity.unit,
                better=measure.better.value,
                base=before,
                other=after,
                own=effect,
                relative=beside,
            )
        )
    return tuple(sorted(changes, key=_rank))


def _own(
    base_run: ReadRun, run: ReadRun, measure: Measure, key: Cell, base: Blocks, other: Blocks, nominal: float
) -> _Found:
    unit = measure.quantity.unit
    if run is base_run:
        change = paired_shifted(base, other, unit, nominal)
    else:
        change = shifted([*base.values()], [*other.values()], unit, nominal)
    both = (base_run, run)
    found = widest([band(each, measure, key, change.by_ratio, nominal) for each in both])
    by_difference = widest([band(each, measure, key, False, nominal) for each in both])
    if change.by_ratio and found is None and by_difference is not None:
        # The reference errs by nothing, say: identical arms have no ratio, so nothing could be held against it.
        ratio = Estimate.missing("ratio", "identical arms (A/A) have no ratio; see the difference", min(change.sizes))
        change, found = dataclasses.replace(change, ratio=ratio), by_difference
    return _Found(change, statistics.median(base.values()), found)


def _relative(
    base_run: ReadRun, run: ReadRun, measure: Measure, key: Cell, arm: str, other_arm: str, nominal: float
) -> _Found | None:
    """The change of the ratio to the reference, which is formed within each block of each run; None within one run."""
    if run is base_run:
        return None
    ratios = [ratios_to_reference(each, measure, key, name) for each, name in ((base_run, arm), (run, other_arm))]
    if not ratios[0] or not ratios[1]:
        return None
    change = shifted([*ratios[0].values()], [*ratios[1].values()], "ratio", nominal)
    bands = [band(each, measure, key, True, nominal) for each in (base_run, run)]
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


def _judged(places: Sequence[_Place], found: Sequence[_Found | None], criteria: Criteria) -> list[Effect | None]:
    """Every change held against all of its kind."""
    raw = [one.shifted.p for one in found if one is not None and one.shifted.p is not None]
    adjusted = iter(benjamini_hochberg(raw))
    p_values = [None if one is None or one.shifted.p is None else next(adjusted) for one in found]
    held = sum(p is not None and p <= criteria.level for p in p_values)
    effects: list[Effect | None] = []
    for place, one, p in zip(places, found, p_values, strict=True):
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
                finding=finding_of(verdict.outcome, place.measure.better),
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
