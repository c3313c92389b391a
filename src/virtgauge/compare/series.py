"""Changes of level within a series of runs: found by ranks, kept where they exceed what runs differ by anyway."""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np

from virtgauge.analysis.change_points import candidate, exceeding, segments, step_limit
from virtgauge.analysis.estimate import Estimate, median_estimate
from virtgauge.analysis.shift import Outcome, benjamini_hochberg, shift_estimate, threshold
from virtgauge.compare.changes import Criteria, finding_of, widest
from virtgauge.compare.matching import Matched
from virtgauge.compare.model import Series, Step
from virtgauge.compare.runs import LEAST_SERIES, ReadRun, Side
from virtgauge.results.measure import Measure


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
    return tuple(sorted(found, key=_rank))


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
    known = widest([sides[place].band(by_ratio, criteria.nominal) for place in values])
    scaled = 0.0 if known is None else math.log(known) if by_ratio else known
    return _Course(measure, cell, arm, relative, tuple(values), tuple(values.values()), by_ratio, scaled)


def _examined(courses: Sequence[_Course], runs: int, criteria: Criteria, seed: int) -> list[Series]:
    long = [course for course in courses if len(course.runs) >= LEAST_SERIES]
    p_values = [candidate(course.scaled, seed).p for course in long]
    adjusted = benjamini_hochberg(p_values)
    level = threshold(p_values, criteria.level)
    found = [
        _series(course, runs, criteria, p, p_adjusted, segments(course.scaled, level, seed) if level else ())
        for course, p, p_adjusted in zip(long, p_values, adjusted, strict=True)
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
    outcome = Outcome.HIGHER if (shift.point or 0) > 0 else Outcome.LOWER
    step = Step(course.runs[place - 1], size, limit, finding_of(outcome, course.measure.better))
    return step, _size(size) / max(math.log(limit) if course.by_ratio else limit, 1e-12)


def _size(size: Estimate) -> float:
    """How large a step is, whichever way: by the logarithm of a ratio, else in the measure's unit."""
    if size.point is None:
        return 0.0
    return abs(math.log(size.point)) if size.unit == "ratio" else abs(size.point)


def _rank(series: Series) -> tuple[bool, bool, float]:
    """Those with steps first, and of them the largest ratio."""
    largest = max((_size(step.size) for step in series.steps), default=0.0)
    return not series.steps, any(step.size.unit != "ratio" for step in series.steps), -largest
