"""What a measure is: one kind of figure, with its suite, unit and direction, and where a trial has it."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Any

from virtgauge.ledger.records import TrialRecord
from virtgauge.measures.figures import TrialFigures
from virtgauge.measures.quantities import Quantity


class Better(enum.StrEnum):
    """Which of two figures one would rather have."""

    LOWER = "lower"
    HIGHER = "higher"


Scalar = Callable[[Mapping[str, Any]], float | None]
Baseline = Callable[[Mapping[str, str]], Mapping[str, str] | None]


@dataclasses.dataclass(frozen=True)
class Measure:
    """One kind of figure.

    Attributes:
        suite: whose trials have it.
        name: unique within the suite: ``sleep_lateness.p99``.
        quantity: what it is, with its units.
        better: which way.
        meaning: in a clause.
        probes: of the trials that have it.
        histogram: whose statistic it is; None of a figure of the result.
        statistic: of that histogram (see :data:`virtgauge.measures.figures.STATISTICS`).
        scalar: the figure in a trial's result, in the base unit; of a statistic, where a trial may have it without a
            histogram.
        baseline: the levels of the cell that the figure is divided by, of the same arm and block; None where the
            figure stands alone.  The quotient is in per cent.
        headline: whether it is among the few by which runs are compared when none is named.
    """

    suite: str
    name: str
    quantity: Quantity
    better: Better
    meaning: str
    probes: frozenset[str]
    histogram: str | None = None
    statistic: str = ""
    scalar: Scalar | None = None
    baseline: Baseline | None = None
    headline: bool = False

    @property
    def full_name(self) -> str:
        """``timing.sleep_lateness.p99``."""
        return f"{self.suite}.{self.name}"

    def value(self, trial: TrialRecord, figures: TrialFigures | None) -> float | None:
        """The figure of one trial in the base unit; None where it has none.

        Args:
            trial: a valid one.
            figures: of the histogram that the measure names, where the trial has it.
        """
        if trial.probe not in self.probes:
            return None
        if self.histogram is not None and figures is not None:
            return figures.statistics.get(self.statistic)
        return self.scalar(trial.result) if self.scalar else None
