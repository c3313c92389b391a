"""What one trial's histogram says, with the distribution itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from virtgauge.analysis.distribution import Distribution
from virtgauge.ledger.records import Histogram, TrialRecord
from virtgauge.ledger.statistics import NS_PER_UNIT, distribution_of, statistics_of
from virtgauge.ledger.store import Ledger


@dataclasses.dataclass(frozen=True)
class TrialFigures:
    """What one trial's histogram says, in ns; None where it has too few values to say it."""

    distribution: Distribution
    ns_per_unit: float
    samples: int
    statistics: dict[str, float | None]


def read_figures(ledger: Ledger, trials: Sequence[TrialRecord]) -> dict[int, TrialFigures]:
    """The figures of every trial that has a histogram of its probe's measure, by trial number."""
    found = {}
    for probe in sorted({trial.probe for trial in trials}):
        numbers = [trial.trial_id for trial in trials if trial.probe == probe]
        for number, histogram in ledger.histograms(numbers, probe):
            if histogram.unit in NS_PER_UNIT and histogram.n:
                found[number] = figures_of(histogram)
    return found


def figures_of(histogram: Histogram) -> TrialFigures:
    """One trial's statistics in ns."""
    scale, distribution = NS_PER_UNIT[histogram.unit], distribution_of(histogram)
    statistics = statistics_of(distribution)
    in_ns = {name: None if value is None else value * scale for name, value in statistics.items()}
    return TrialFigures(distribution, scale, distribution.n, in_ns)
