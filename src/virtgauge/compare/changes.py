"""What changed from the base run to each of the others, judged together, and where a series of runs changes its level.

Within a series steps are found by ranks, and kept where they exceed what runs differ by anyway.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from virtgauge.analysis.change_points import PERMUTATIONS, candidate, exceeding, segments, step_limit
from virtgauge.analysis.estimate import Estimate, median_estimate
from virtgauge.analysis.shift import (
    POINTS,
    Bounds,
    Outcome,
    Shifted,
    benjamini_hochberg,
    judge,
    paired_shifted,
    shift_estimate,
    shifted,
    threshold,
)
from virtgauge.compare.matching import Matched
from virtgauge.compare.model import Change, Effect, Finding, Series, Step
from virtgauge.compare.runs import LEAST_SERIES, ReadRun, Side
from virtgauge.results.measure import Better, Measure


@dataclasses.dataclass(frozen=True)
class Criteria:
    """What a change is judged by."""

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
    beside_reference = _judged([one for one in relative if one is not None], criteria)
    for (number, cell, arm, base, other), effect, one in zip(places, _judged(own, criteria), relative, strict=True):
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


def _judged(found: Sequence[_Found], criteria: Criteria) -> Iterator[Effect]:
    """Every change held against all of its kind."""
    raw = [one.shifted.p for one in found if one.shifted.p is not None]
    adjusted = benjamini_hochberg(raw)
    held, following = sum(p <= criteria.level for p in adjusted), iter(adjusted)
    for one in found:
        p = None if one.shifted.p is None else next(following)
        bounds = Bounds(one.band, criteria.equivalent, one.base, criteria.level, max(len(raw), 1), held)
        verdict = judge(one.shifted, p, bounds)
        changed = verdict.outcome in (Outcome.HIGHER, Outcome.LOWER)
        of_ratios = one.shifted.difference.unit == POINTS
        found_as = one.better.says(verdict.outcome is Outcome.HIGHER) if changed else verdict.outcome.value
        yield Effect(
            ratio=one.shifted.ratio,
            difference=None if of_ratios and one.shifted.ratio.point is not None else one.shifted.difference,
            band=one.band,
            p=one.shifted.p,
            p_adjusted=p,
            finding=Finding(found_as),
            reason=verdict.reason,
            needed=verdict.needed,
        )


def _rank(change: Change) -> tuple[int, float]:
    """What is called a change before what is not, the largest first."""
    called = {Finding.NOT_SHOWN: 1, Finding.EQUIVALENT: 2}
    return called.get(change.own.finding, 0), -size_of(change.own)


def size_of(effect: Effect) -> float:
    """How large a change is, whichever way: by the logarithm of its ratio; infinite where it has none but differs."""
    if effect.ratio.point is not None:
        return abs(math.log(effect.ratio.point))
    return math.inf if effect.difference is not None and effect.difference.point else 0.0


@dataclasses.dataclass(frozen=True)
class _Course:
    """One figure over the runs that have it."""

    measure: Measure
    cell: int
    arm: int
    relative: bool
    runs: tuple[int, ...]  # their places in the series
    values: tuple[tuple[float, ...], ...]  # of each, one a repetition
    by_ratio: bool  # whether all are positive; their logarithms are analysed then
    band: float  # the widest that identical arms differ by, in the terms of :meth:`scaled`; 0 when not known

    @property
    def scaled(self) -> list[np.ndarray[tuple[int], np.dtype[np.float64]]]:
        """The values on a scale on which a change is a difference."""
        return [np.log(each) if self.by_ratio else np.asarray(each, dtype=np.float64) for each in self.values]

    @property
    def levels(self) -> list[float]:
        return [float(np.median(each)) for each in self.scaled]


def find_series(
    runs: Sequence[ReadRun], matched: Matched, criteria: Criteria, seed: int, progress: Callable[[str], None]
) -> tuple[Series, ...]:
    """Every figure's course over the runs, those with the largest steps first.

    The figures themselves and their ratios to the reference are two families; in each the false discovery rate is
    controlled over all series, and cutting on within one shares its level.
    """
    found: list[Series] = []
    for relative in (False, True):
        courses = [
            course
            for measure, cell, arm in matched.places
            if (course := _course(runs, matched, measure, cell, arm, relative, criteria)) is not None
        ]
        what = "ratios to the reference" if relative else "figures"
        progress(f"looking for changes in {len(courses)} {what} over {len(runs)} runs")
        found += _examined(courses, len(runs), criteria, seed)
    return tuple(sorted(found, key=_rank_of_series, reverse=True))


def _course(
    runs: Sequence[ReadRun], matched: Matched, measure: Measure, cell: int, arm: int, relative: bool, criteria: Criteria
) -> _Course | None:
    key, pair = matched.cells[cell], matched.arms[arm]
    sides = [Side(run, measure, key, pair.other if place else pair.base) for place, run in enumerate(runs)]
    all_values = ((place, side.ratios if relative else side.blocks) for place, side in enumerate(sides))
    values = {place: tuple(found.values()) for place, found in all_values if found}
    if not values or (relative and len(values) < LEAST_SERIES):
        return None
    by_ratio = min(map(min, values.values())) > 0
    bands = [sides[place].band(by_ratio, criteria.nominal) for place in values]
    known = max((band for band in bands if band is not None), default=None)
    scaled = 0.0 if known is None else math.log(known) if by_ratio else known
    return _Course(measure, cell, arm, relative, tuple(values), tuple(values.values()), by_ratio, scaled)


def _examined(courses: Sequence[_Course], runs: int, criteria: Criteria, seed: int) -> list[Series]:
    long = [course for course in courses if len(course.runs) >= LEAST_SERIES]
    # One that changes alone among many has to have a p of less than the level over their number.
    most = max(PERMUTATIONS, math.ceil(2 * len(long) / criteria.level))

    def tried(course: _Course) -> tuple[float, int]:
        p = candidate(course.scaled, seed).p
        least = most > PERMUTATIONS and p * (1 + PERMUTATIONS) <= 1
        return (candidate(course.scaled, seed, most).p, most) if least else (p, PERMUTATIONS)

    tries = [tried(course) for course in long]
    p_values = [p for p, _ in tries]
    adjusted = benjamini_hochberg(p_values)
    level = threshold(p_values, criteria.level)
    found = [
        _series(course, runs, criteria, p, p_adjusted, segments(course.scaled, level, seed, times) if level else ())
        for course, (p, times), p_adjusted in zip(long, tries, adjusted, strict=True)
    ]
    short = [course for course in courses if len(course.runs) < LEAST_SERIES]
    return found + [_series(course, runs, criteria, None, None, ()) for course in short]


def _series(
    course: _Course, runs: int, criteria: Criteria, p: float | None, p_adjusted: float | None, cuts: tuple[int, ...]
) -> Series:
    unit = "ratio" if course.relative else course.measure.quantity.unit
    of_run = dict(zip(course.runs, course.values, strict=True))
    levels = tuple(
        median_estimate(of_run[place], unit, criteria.nominal)
        if place in of_run
        else Estimate.missing(unit, "this run has no such figure")
        for place in range(runs)
    )
    steps = exceeding(cuts, len(course.runs), functools.partial(_step, course, criteria))
    if p is None:
        reason = f"only {len(course.runs)} runs have this figure; a series takes {LEAST_SERIES}"
    elif steps:
        reason = "ranks before and after differ by more than chance explains, and by more than runs do anyway"
    elif cuts:
        reason = "ranks differ by more than chance explains, and by no more than runs or identical arms differ anyway"
    else:
        reason = "no change shown"
    return Series(
        *(course.cell, course.arm, course.measure.full_name, unit, course.measure.better.value, course.relative),
        *(levels, p, p_adjusted, tuple(steps), len(cuts) - len(steps), reason),
    )


def _step(course: _Course, criteria: Criteria, start: int, place: int, stop: int) -> tuple[Step, float]:
    """The step before a run, between the parts on its two sides, and how many times its limit it is."""
    scaled = course.scaled
    first, second = (np.concatenate(part).tolist() for part in (scaled[start:place], scaled[place:stop]))
    shift = shift_estimate(first, second, course.measure.quantity.unit, criteria.nominal)
    day = step_limit(course.levels, place - start, stop - place)
    if course.by_ratio:
        small = math.log1p(criteria.equivalent)
        size, limit = shift.mapped(math.exp, "ratio"), math.exp(max(day, course.band, small))
    else:
        level = statistics.median(first)
        size, limit = shift, max(day, course.band, criteria.equivalent * abs(level))
    step = Step(course.runs[place - 1], size, limit, Finding(course.measure.better.says((shift.point or 0) > 0)))
    return step, step.largeness[1] / max(math.log(limit) if course.by_ratio else limit, 1e-12)


def _rank_of_series(series: Series) -> tuple[bool, float]:
    """By its largest step; without one it is below all others."""
    return max((step.largeness for step in series.steps), default=(False, -1.0))
