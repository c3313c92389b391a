"""What one trial's histogram says: the statistics that every report of a distribution begins with."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from virtgauge.analysis import distribution as dist
from virtgauge.analysis.distribution import Distribution
from virtgauge.ledger.records import Histogram, TrialRecord
from virtgauge.ledger.store import Ledger

STATISTICS = ("p50", "half_iqr", "mad", "p90", "p99", "p99.9", "p99.99", "min", "max", "mean")
TAILS = {"p90": 0.9, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999}

NS_PER_UNIT = {"ps": 1e-3, "ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
"""Of histograms of durations."""
_SHARES = (0.25, 0.5, 0.75, *TAILS.values())


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
    scale = NS_PER_UNIT[histogram.unit]
    distribution = Distribution(
        histogram.values, histogram.counts, float(histogram.minimum), float(histogram.maximum), histogram.mean
    )
    samples = distribution.n
    q25, _, q75, *tails = (float(value) * scale for value in distribution.quantiles(_SHARES))
    statistics: dict[str, float | None] = {
        "p50": distribution.interpolated_median * scale,
        "half_iqr": (q75 - q25) / 2,
        "mad": distribution.mad * scale,
        "min": distribution.minimum * scale,
        "max": distribution.maximum * scale,
        "mean": distribution.mean * scale,
    }
    for (name, share), value in zip(TAILS.items(), tails, strict=True):
        statistics[name] = value if samples >= dist.samples_needed(share) else None
    return TrialFigures(distribution, scale, samples, statistics)
