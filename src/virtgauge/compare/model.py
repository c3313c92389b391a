"""What a comparison of runs says, as data: everything that any of its forms (terminal, page, JSON) shows.

Figures are in the measure's base unit; an arm is named as in the base run.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Mapping

from virtgauge.analysis.estimate import Estimate
from virtgauge.report import series
from virtgauge.results.columns import Cell
from virtgauge.results.measure import Measure


class Finding(enum.StrEnum):
    """What is said of one figure."""

    WORSE = "worse"
    BETTER = "better"
    CHANGED = "changed"
    EQUIVALENT = "equivalent"
    NOT_SHOWN = "not shown"


CALLED = frozenset({Finding.WORSE, Finding.BETTER, Finding.CHANGED})  # What says that a figure changed


@dataclasses.dataclass(frozen=True)
class RunLine:
    """One of the runs."""

    label: str  # what it is called beside the others
    run_id: str
    created_at: str
    plan_name: str
    tool_version: str
    repetitions: int  # blocks with a valid trial
    finished: bool


@dataclasses.dataclass(frozen=True)
class ArmPair:
    """An arm of the base run and the one that it is compared with."""

    base: str
    other: str
    label: str
    emulated: bool


@dataclasses.dataclass(frozen=True)
class EnvironmentLine:
    """Something in which the runs differ: its values, in the order of the runs; None where it is not recorded."""

    what: str
    values: tuple[str | None, ...]


@dataclasses.dataclass(frozen=True)
class SetAside:
    """Something that was not compared, and why."""

    what: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Effect:
    """One change, judged."""

    ratio: Estimate  # other / base; missing where a figure is 0 or negative, and then the difference is judged
    difference: Estimate | None  # other − base in the measure's unit; None of ratios that have one
    # what identical arms differ by: a factor for ratios, else in the measure's unit; None if not known
    band: float | None
    # p, p_adjusted: by itself, and among all comparisons of its kind
    p: float | None
    p_adjusted: float | None
    # finding, reason: what may be said, and why
    finding: Finding
    reason: str
    needed: int | None  # repetitions of each run that would probably decide what is not shown; None if none would


@dataclasses.dataclass(frozen=True)
class Change:
    """One measure of one arm in one cell, in the base and in one other run."""

    run: int  # place of the other run in :attr:`Comparison.runs`
    measure: Measure
    cell: Cell
    arm: str  # the label of its pair in :attr:`Comparison.arms`
    # base, other: the figures, each the median over its repetitions
    base: Estimate
    other: Estimate
    own: Effect  # the change of the figure itself
    # the change of its ratio to the reference arm of its own run; None of the reference, and where there is no such
    # ratio
    relative: Effect | None


@dataclasses.dataclass(frozen=True)
class Compared:
    """What every comparison of runs has."""

    runs: tuple[RunLine, ...]
    confidence: float  # of the intervals, nominal
    equivalent: float  # the largest change that does not matter, as a share
    environment: tuple[EnvironmentLine, ...]  # what differs between the runs
    caveats: tuple[str, ...]
    set_aside: tuple[SetAside, ...]
    cells: tuple[Cell, ...]  # that were compared
    arms: tuple[ArmPair, ...]

    @functools.cached_property
    def places(self) -> Mapping[Cell, int]:
        """The place of each cell among them."""
        return {cell: place for place, cell in enumerate(self.cells)}


@dataclasses.dataclass(frozen=True)
class Comparison(Compared):
    """Two or more runs, the first of them the base; or two arms of a single one."""

    changes: tuple[Change, ...]  # largest first, what is called a change before what is not

    @property
    def others(self) -> tuple[int, ...]:
        """Places of the runs that are compared with the base; the base itself where its own arms are compared."""
        return tuple(range(1, len(self.runs))) or (0,)

    def title(self, run: int) -> str:
        """What is compared with what: ``tuesday against monday``, ``gVisor → Kata, within monday``."""
        base = self.runs[0].label
        if run:
            return f"{self.runs[run].label} against {base}"
        return "; ".join(arm.label for arm in self.arms) + f", within {base}"

    def is_worse(self, *, beside_reference: bool) -> bool:
        """Whether a figure is worse, or with ``beside_reference``, whether its ratio to the reference is."""
        effects = ((change.relative if beside_reference else change.own) for change in self.changes)
        return any(effect is not None and effect.finding is Finding.WORSE for effect in effects)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Series(series.Series):
    """One figure over all runs, with the steps between them."""

    levels: tuple[Estimate, ...]  # the median of each run; missing where it has none
    # p, p_adjusted: that the series has no change, by itself and among all series of its kind; None if not examined
    p: float | None = None
    p_adjusted: float | None = None
    reason: str = ""  # why there is a step or none, or why the series could not be examined

    def level(self, place: int) -> Estimate:
        return self.levels[self.runs[place]]


@dataclasses.dataclass(frozen=True)
class SeriesComparison(Compared):
    """Four or more runs in the order in which they were made."""

    seed: int  # of the permutations
    series: tuple[Series, ...]  # those with the largest steps first

    @functools.cached_property
    def labels(self) -> list[str]:
        """What the runs are called."""
        return [run.label for run in self.runs]

    def is_worse(self, *, beside_reference: bool) -> bool:
        """Whether the latest step of a figure is for the worse, or with ``beside_reference``, of its ratio to it."""
        latest = (one.steps[-1] for one in self.series if one.steps and one.relative is beside_reference)
        return any(step.finding == "worse" for step in latest)
