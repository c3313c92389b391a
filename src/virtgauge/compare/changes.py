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
from virtgauge.analysis.estimate import Estimate, Values, median_estimate
from virtgauge.analysis.shift import (
    POINTS,
    Bounds,
    Outcome,
    Shifted,
    benjamini_hochberg,
    judge,
    paired_shifted,
    shifted,
    threshold,
)
from virtgauge.compare.matching import Matched
from virtgauge.compare.model import ArmPair, Change, Effect, Finding, Series
from virtgauge.compare.runs import LEAST_SERIES, ReadRun, Side
from virtgauge.report.series import Step, step_between
from virtgauge.results.columns import Cell
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
        for measure, cell, pair in matched.places:
            base, other = Side(runs[0], measure, cell, pair.base), Side(runs[number], measure, cell, pair.other)
            if base.blocks and other.blocks:
                places.append((number, pair.label, base, other))
                own.append(_own(base, other, nominal))
                relative.append(_relative(base, other, nominal))
    changes = []
    beside_reference = _judged([one for one in relative if one is not None], criteria)
    for (number, label, base, other), effect, one in zip(places, _judged(own, criteria), relative, strict=True):
        beside = None if one is None else next(beside_reference)
        unit = base.measure.quantity.unit
        before, after = (median_estimate([*side.blocks.values()], unit, nominal) for side in (base, other))
        changes.append(Change(number, base.measure, base.cell, label, before, after, effect, beside))
    return tuple(sorted(changes, key=_rank))


def _own(base: Side, other: Side, nominal: float) -> _Found:
    unit, before, after = base.measure.quantity.unit, base.blocks, other.blocks
    if other.run is base.run:
        change = paired_shifted(before, after, unit, nominal)
    else:
        change = shifted([*before.values()], [*after.values()], unit, nominal)
    band, by_difference = (_band((base, other), by_ratio, nominal) for by_ratio in (change.by_ratio, False))
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
    return _Found(base.measure.better, change, statistics.median(before.values()), _band((base, other), True, nominal))


def _band(sides: tuple[Side, Side], by_ratio: bool, nominal: float) -> float | None:
    """What identical arms differ by in the run where they differ more; None unless it is known of both."""
    known = [band for side in sides if (band := side.band(by_ratio, nominal)) is not None]
    return max(known) if len(known) == len(sides) else None


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


class _Course(NamedTuple):
    """A series and what it is examined by, on a scale on which a change is a difference."""

    series: Series
    by_ratio: bool  # whether all figures are positive; then the scale is that of their logarithms
    values: list[Values]  # of each run that has the figure, one a repetition
    band: float  # the widest that identical arms differ by; 0 when not known


def find_series(
    runs: Sequence[ReadRun], matched: Matched, criteria: Criteria, seed: int, progress: Callable[[str], None]
) -> tuple[Series, ...]:
    """Every figure's course over the runs, those with the largest steps first.

    The figures themselves and their ratios to the reference are two families; in each the false discovery rate is
    controlled over all series, and cutting on within one shares its level.
    """
    found: list[Series] = []
    for relative in (False, True):
        all_courses = (_course(runs, *place, relative, criteria) for place in matched.places)
        courses = [course for course in all_courses if course is not None]
        what = "ratios to the reference" if relative else "figures"
        progress(f"looking for changes in {len(courses)} {what} over {len(runs)} runs")
        found += _examined(courses, criteria, seed)
    return tuple(sorted(found, key=lambda one: one.largest, reverse=True))


def _course(
    runs: Sequence[ReadRun], measure: Measure, cell: Cell, pair: ArmPair, relative: bool, criteria: Criteria
) -> _Course | None:
    sides = [Side(run, measure, cell, pair.other if place else pair.base) for place, run in enumerate(runs)]
    repetitions = [[*(side.ratios if relative else side.blocks).values()] for side in sides]
    having = tuple(place for place, values in enumerate(repetitions) if values)
    if not having or (relative and len(having) < LEAST_SERIES):
        return None
    by_ratio = min(min(repetitions[place]) for place in having) > 0
    bands = (sides[place].band(by_ratio, criteria.nominal) for place in having)
    widest_band = max((band for band in bands if band is not None), default=1.0 if by_ratio else 0.0)
    unit = "ratio" if relative else measure.quantity.unit
    levels = tuple(
        median_estimate(values, unit, criteria.nominal)
        if values
        else Estimate.missing(unit, "this run has no such figure")
        for values in repetitions
    )
    series = Series(measure=measure, cell=cell, arm=pair.label, runs=having, relative=relative, levels=levels)
    values = [np.log(each) if by_ratio else np.asarray(each, dtype=np.float64) for each in repetitions if each]
    return _Course(series, by_ratio, values, math.log(widest_band) if by_ratio else widest_band)


def _examined(courses: Sequence[_Course], criteria: Criteria, seed: int) -> list[Series]:
    long = [course for course in courses if len(course.values) >= LEAST_SERIES]
    # One that changes alone among many has to have a p of less than the level over their number.
    most = max(PERMUTATIONS, math.ceil(2 * len(long) / criteria.level))

    def tried(course: _Course) -> tuple[float, int]:
        p = candidate(course.values, seed).p
        least = most > PERMUTATIONS and p * (1 + PERMUTATIONS) <= 1
        return (candidate(course.values, seed, most).p, most) if least else (p, PERMUTATIONS)

    tries = [tried(course) for course in long]
    p_values = [p for p, _ in tries]
    level = threshold(p_values, criteria.level)
    found = [
        _with_steps(course, criteria, p, p_adjusted, segments(course.values, level, seed, times) if level else ())
        for course, (p, times), p_adjusted in zip(long, tries, benjamini_hochberg(p_values), strict=True)
    ]
    few = f"runs have this figure; a series takes {LEAST_SERIES}"
    short = [course.series for course in courses if len(course.values) < LEAST_SERIES]
    return found + [dataclasses.replace(one, reason=f"only {len(one.runs)} {few}") for one in short]


def _with_steps(course: _Course, criteria: Criteria, p: float, p_adjusted: float, cuts: tuple[int, ...]) -> Series:
    steps = tuple(exceeding(cuts, len(course.values), functools.partial(_step, course, criteria)))
    reason = "no change shown"
    if steps:
        reason = "ranks before and after differ by more than chance explains, and by more than runs do anyway"
    elif cuts:
        reason = "ranks differ by more than chance explains, and by no more than runs or identical arms differ anyway"
    doubtful = len(cuts) - len(steps)
    return dataclasses.replace(course.series, p=p, p_adjusted=p_adjusted, steps=steps, doubtful=doubtful, reason=reason)


def _step(course: _Course, criteria: Criteria, start: int, place: int, stop: int) -> tuple[Step, float]:
    """The step before a run, between the parts on its two sides, and how many times its limit it is."""
    before, after = (np.concatenate(part).tolist() for part in (course.values[start:place], course.values[place:stop]))
    day = step_limit([float(np.median(each)) for each in course.values], place - start, stop - place)
    judged_by = max(day, course.band), criteria.equivalent, criteria.nominal
    return step_between(course.series.measure, place, (before, after), course.by_ratio, *judged_by)
