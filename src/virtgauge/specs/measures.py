"""Measures that several suites declare alike."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from virtgauge.results.measure import Better, Measure, Source, Statistic
from virtgauge.results.quantities import DURATION, Quantity

STATISTICS = {
    "p50": "median",
    "p90": "90th percentile",
    "p99": "99th percentile",
    "p99.9": "99.9th percentile",
    "p99.99": "99.99th percentile",
    "max": "maximum",
    "min": "minimum",
    "mean": "mean",
    "mad": "median absolute deviation",
    "half_iqr": "half the interquartile range",
}


def measures(
    suite: str,
    probes: frozenset[str] | None,
    *told: tuple[str, Quantity, Better, str, Source],
    headline: Collection[str] = (),
    lacking: str = "",
) -> Iterator[Measure]:
    """Measures by name, quantity, what is better, meaning and source.

    Args:
        suite: of all.
        probes: of all; None where each one's is what its name begins with.
        told: the measures.
        headline: names of those that runs are compared by.
        lacking: see :class:`Measure`.
    """
    for name, quantity, better, meaning, source in told:
        own = frozenset({name.partition(".")[0]}) if probes is None else probes
        yield Measure(suite, name, quantity, better, meaning, own, source, None, name in headline, lacking)


def durations(
    suite: str,
    name: str,
    meaning: str,
    probes: frozenset[str],
    histogram: str,
    headline: str = "",
    statistics: Sequence[str] = tuple(STATISTICS),
) -> Iterator[Measure]:
    """A measure for each statistic of a histogram of durations; ``headline`` names those that runs are compared by."""
    for statistic in statistics:
        yield Measure(
            suite,
            f"{name}.{statistic}",
            DURATION,
            Better.NEITHER if statistic == "min" and name == "sleep_lateness" else Better.LOWER,
            f"{STATISTICS[statistic]} of {meaning}",
            probes,
            Statistic(histogram, statistic),
            headline=statistic in headline.split(),
            lacking="too few values for the quantile, or none at all: longer trials would help, more trials would not",
        )
