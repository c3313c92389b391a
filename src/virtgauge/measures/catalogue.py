"""Every measure that has a name: of which suite and trials, in which unit, which way is better, and where it is found.

A measure gives one figure a trial, so one a repetition: the unit of every interval.  A quantile is given only where
a trial has values enough beyond it (:data:`virtgauge.analysis.distribution.TAIL_SAMPLES`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from virtgauge.errors import UsageError, nearest
from virtgauge.results.measure import Measure
from virtgauge.specs.suites import SPECS

MEASURES: Mapping[str, Mapping[str, Measure]] = {spec.name: {one.name: one for one in spec.measures} for spec in SPECS}
"""By suite and name."""


def find_measure(suite: str, name: str) -> Measure:
    """A measure by its suite and name. Raises UsageError: there is none; the nearest is suggested."""
    if suite not in MEASURES:
        raise UsageError(f"suite = {suite!r}: there is no such suite", f"use one of {', '.join(MEASURES)}")
    known = MEASURES[suite]
    if name not in known:
        raise UsageError(
            f"measure = {name!r}: the suite {suite} has no such measure{nearest(name, known)}",
            f"`virtgauge measures {suite}` lists them",
        )
    return known[name]


def named_measures(names: Sequence[str]) -> list[Measure]:
    """Measures by their full names (``timing.sleep_lateness.p99``), each once. Raises UsageError: there is no such."""
    found = {}
    for full in names:
        suite, dot, name = full.partition(".")
        if not dot:
            raise UsageError(f"--measure {full}: a measure is named with its suite", "as in timing.sleep_lateness.p99")
        found[full] = find_measure(suite, name)
    return list(found.values())


def headline_measures() -> list[Measure]:
    """Those by which runs are compared when none is named, suite by suite."""
    return [measure for measures in MEASURES.values() for measure in measures.values() if measure.headline]
