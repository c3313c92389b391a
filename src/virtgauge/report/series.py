"""Figures over runs, of a few or of an archive of many: the steps between their levels, in words and drawn."""

from __future__ import annotations

import abc
import dataclasses
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from virtgauge.analysis.estimate import Estimate
from virtgauge.analysis.shift import shift_estimate
from virtgauge.results import formatting
from virtgauge.results.columns import Cell
from virtgauge.results.measure import Measure
from virtgauge.results.quantities import RATIO, Quantity
from virtgauge.specs.blocks import Axis, Chart, Place, Text, Value, chart_of
from virtgauge.specs.suites import cell_name

LEAST_DAYS = 4  # On which the runs of one side of a step are to be made, lest it be one of days
_CAPTION = (
    "The median of each run with its interval, in the order in which the runs were made. An upright line is the first "
    "run of another level; the level lines are the medians of the runs between steps."
)
_FACTS = 4  # That are told of all steps at a place


@dataclasses.dataclass(frozen=True)
class Step:
    """A change of level within a series."""

    after: int  # place in the series of the last run before it
    size: Estimate  # later / earlier, between the parts beside it; the difference where figures may be 0
    limit: float  # what the parts may lie apart when nothing changed that matters, in the same terms
    finding: Literal["better", "worse", "changed"]
    beside: tuple[str, ...] = ()  # what else changed there: ``kernel 6.1.0 → 6.18.0``
    days: int | None = None  # on which the runs of that side were made that has fewer of them; None if not counted
    as_reference: bool = False  # whether the reference changes there too, by a factor that may be the same

    @property
    def grows(self) -> bool:
        """Whether figures are larger after it."""
        return (self.size.point or 0.0) > (1.0 if self.size.unit == "ratio" else 0.0)

    @property
    def largeness(self) -> tuple[bool, float]:
        """For comparing, whichever way it goes: a ratio by its logarithm, and any before a difference."""
        point = self.size.point or 0.0
        by_ratio = self.size.unit == "ratio" and point > 0
        return by_ratio, abs(math.log(point)) if by_ratio else abs(point)

    @property
    def is_of_few_days(self) -> bool:
        """Whether it may be of days rather than of what was changed between them."""
        return self.days is not None and self.days < LEAST_DAYS

    @property
    def remarks(self) -> tuple[str, ...]:
        """What there is to say of it beside its size."""
        reference = ("as the reference does",) if self.as_reference else ()
        days = (f"the runs on one side are of fewer than {LEAST_DAYS} days",) if self.is_of_few_days else ()
        return *reference, *days, *self.beside

    def is_of(self, other: Step) -> bool:
        """Whether another step may be of the same size: they go the same way, and their intervals meet."""
        ends = (self.size.low, self.size.high, other.size.low, other.size.high)
        if self.size.unit != other.size.unit or self.grows != other.grows or None in ends:
            return False
        low, high, others_low, others_high = (float(end or 0.0) for end in ends)
        return low <= others_high and others_low <= high


def step_between(
    measure: Measure,
    place: int,
    parts: tuple[list[float], list[float]],
    by_ratio: bool,
    noise: float,
    equivalent: float,
    confidence: float,
) -> tuple[Step, float]:
    """The step before the run at a place, between two parts of a series, and how many times its limit it is.

    With ``by_ratio`` the parts' figures are logarithms. ``noise`` is what parts of this length lie apart without a
    change, on that scale; ``equivalent`` is the largest change that does not matter, as a share.
    """
    size = shift_estimate(*parts, measure.quantity.unit, confidence)
    small = math.log1p(equivalent) if by_ratio else equivalent * abs(statistics.median(parts[0]))
    point, limit = size.point or 0.0, max(noise, small)
    shown = (size.mapped(math.exp, "ratio"), math.exp(limit)) if by_ratio else (size, limit)
    return Step(place - 1, *shown, measure.better.says(point > 0)), abs(point) / max(limit, 1e-12)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Series(abc.ABC):
    """One figure over the runs that have it."""

    measure: Measure
    cell: Cell
    arm: str  # what the platform is called
    runs: tuple[int, ...]  # their places among all runs
    relative: bool = False  # whether it is of the ratios to the reference, else of the figures themselves
    steps: tuple[Step, ...] = ()
    doubtful: int = 0  # more that were found, no larger than runs differ by anyway or than what does not matter

    @abc.abstractmethod
    def level(self, place: int) -> Estimate:
        """The figure of one run, by its place in the series."""

    @property
    def quantity(self) -> Quantity:
        return RATIO if self.relative else self.measure.quantity

    @property
    def title(self) -> str:
        """``timing.timer_cost.p50``, or that as a ratio to the reference."""
        return f"{self.measure.full_name}{' as a ratio to the reference' if self.relative else ''}"

    @property
    def text(self) -> str:
        """``Guest, Timer cost: rdtscp, timer_cost.p50``."""
        return f"{self.arm}, {cell_name(self.cell)}, {self.measure.name}"

    @property
    def largest(self) -> tuple[bool, float]:
        """How large its largest step is; without one less than any."""
        return max((step.largeness for step in self.steps), default=(False, -1.0))

    def value(self, level: Estimate) -> Value:
        """A figure of it, or a ratio of two, for tables."""
        place = Place(self.cell.suite, self.cell.text, self.arm)
        return Value(self.measure.name, place, level, RATIO if level.unit == "ratio" else self.quantity)

    def between(self, step: Step, runs: Sequence[str]) -> str:
        """``between run-3 and run-4``, by what all runs are called."""
        return f"between {runs[self.runs[step.after]]} and {runs[self.runs[step.after + 1]]}"

    def step_text(self, step: Step, runs: Sequence[str]) -> str:
        """``worse between run-3 and run-4: 1.31× (1.28–1.35×); kernel 6.1.0 → 6.18.0``."""
        size = formatting.size_text(step.size, self.measure.quantity)
        return "; ".join([f"{step.finding} {self.between(step, runs)}: {size}", *step.remarks])


def series_headline(series: Sequence[Series], runs: int) -> str:
    """All series in a sentence: ``2 steps in 1 of 40 series over 8 runs``."""
    of = f"{formatting.count(len(series), 'series', 'series')} over {formatting.count(runs, 'run')}"
    if not (steps := [len(one.steps) for one in series if one.steps]):
        return f"no change shown in any of {of}"
    return f"{formatting.count(sum(steps), 'step')} in {len(steps):,} of {of}"


def step_groups(series: Iterable[Series], runs: Sequence[str], *, newest_first: bool = False) -> list[Text]:
    """What happened between which runs, by what all are called; each names the largest of its steps.

    What changed most figures comes first, as a host moves many at once; or what is newest.
    """
    groups = dict[tuple[int, int, str, bool], list[tuple[Series, Step]]]()
    for one in series:
        for step in one.steps:
            at = one.runs[step.after + 1], one.runs[step.after], step.finding, one.relative
            groups.setdefault(at, []).append((one, step))
    ordered = sorted(groups.items(), key=lambda group: group[0][:2] if newest_first else (len(group[1]),), reverse=True)
    return [Text((_group_text(steps),), steps[0][0].between(steps[0][1], runs), "finding") for _, steps in ordered]


def _group_text(steps: Sequence[tuple[Series, Step]]) -> str:
    """Steps of one kind at one place: ``2 figures worse; most of all Guest, Timer cost, p50: 1.31× (1.28–1.35×)``."""
    one, largest = max(steps, key=lambda each: each[1].largeness)
    beside = Counter(remark for _, step in steps for remark in step.remarks)
    facts = [
        f"{fact}{f' ({number} of them)' if number < len(steps) else ''}" for fact, number in beside.most_common(_FACTS)
    ]
    facts += [f"{len(beside) - _FACTS} more in the table"] if len(beside) > _FACTS else []
    nouns = ("ratio to the reference", "ratios to the reference") if one.relative else ("figure", "figures")
    most = "; most of all " if len(steps) > 1 else ": "
    size = formatting.size_text(largest.size, one.measure.quantity)
    return "; ".join([f"{formatting.count(len(steps), *nouns)} {largest.finding}{most}{one.text}: {size}", *facts])


def series_chart(
    title: str,
    more: str,
    panels: Mapping[str, Sequence[Series]],
    runs: Sequence[str],
    axis: Sequence[str],
    *,
    begin: int = 0,
    of_first: bool = False,
) -> Iterator[Chart]:
    """A panel for series by its title, from the run ``begin`` on, and what the caption says further.

    ``runs`` and ``axis`` are what all runs are called beside a figure and below it. With ``of_first`` each series is
    drawn in its first figure, which is positive.
    """
    more += " In the figure of the first run." if of_first else ""
    quantity = RATIO if of_first else next(iter(panels.values()))[0].quantity
    labels = {number: label for number, label in enumerate(axis, 1) if number > begin}
    rows = {panel: [row for one in own for row in _rows(one, runs, begin, of_first)] for panel, own in panels.items()}
    axes = Axis("", None, "close", labels), Axis("", quantity, "close")
    yield from chart_of("lines", title, _CAPTION + more, axes, rows.items())


def _rows(one: Series, runs: Sequence[str], begin: int, of_first: bool) -> Iterator[dict[str, Any]]:
    """What is drawn of one series: its figures, the levels between steps, and these; runs are counted from 1."""
    shared = {"arm": one.arm, "label": one.arm}
    levels = {run + 1: one.level(place) for place, run in enumerate(one.runs) if run >= begin}
    steps = {one.runs[step.after + 1] + 1: one.step_text(step, runs) for step in one.steps}
    steps = {number: text for number, text in steps.items() if number > begin}
    unit = (one.level(0).point or 1.0) if of_first else 1.0
    for number, level in levels.items():
        drawn = level.mapped(lambda value: value / unit, level.unit)
        place = {"x": number, "y": drawn.point, "low": drawn.low, "high": drawn.high, "at": runs[number - 1]}
        interval, confidence = formatting.interval_text(level, one.quantity), formatting.confidence(level.confidence)
        texts = {
            "t": formatting.point_text(level, one.quantity),
            "interval": f"{interval} ({confidence})" if interval else "",
        }
        yield {"kind": "ours"} | shared | place | texts
    starts = [0, *steps]
    for start, stop in zip(starts, [*starts[1:], math.inf], strict=True):
        part = {number: level.point for number, level in levels.items() if start <= number < stop}
        if part:
            middle = statistics.median(point for point in part.values() if point is not None) / unit
            guide = {"kind": "guide", "up": middle, "of": f"{one.arm} {start}", "t": f"{one.arm}: level"}
            yield from (guide | {"across": number} for number in (min(part), max(part)))
    for number, text in steps.items():
        yield {"kind": "rule", "x": number, "t": text} | shared
