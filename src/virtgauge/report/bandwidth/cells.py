"""From results to cells: estimates over repetitions, and each arm's error beside the reference's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.comparison import paired_ratio
from virtgauge.analysis.differences import Difference, band_of, compare_differences
from virtgauge.analysis.estimate import Estimate
from virtgauge.analysis.outliers import LEAST_VALUES, outliers
from virtgauge.ledger.records import ArmRecord
from virtgauge.report.bandwidth.keys import Key
from virtgauge.report.bandwidth.model import Cell, Series
from virtgauge.report.bandwidth.results import (
    Result,
    Results,
    error_of,
    instants_of,
    is_bound,
    nested,
)
from virtgauge.report.trial_results import flag_counts, why_missing

MOST_INSTANTS = 120
"""Instant estimates of one series that a figure shows."""


class CellBuilder:
    """Makes the cells of a report.

    Args:
        arms: of the manifest; those that were skipped get no series.
        results: of the run.
    """

    def __init__(self, arms: Sequence[ArmRecord], results: Results) -> None:
        self._arms = [arm for arm in arms if arm.usable]
        self._results, self._nominal = results, results.nominal
        self.aa_ratios: list[Estimate] = []
        """Of the medians, for each cell where both arms of the A/A pair gave one."""

    def cell(self, key: Key) -> Cell:
        """One cell with the series of all arms that were tried in it."""
        self._note_aa(key)
        series = tuple(self._series(key, arm) for arm in self._arms if self._results.tried(key, arm.name))
        return Cell(key, series)

    def _note_aa(self, key: Key) -> None:
        if self._results.aa is None:
            return
        again, once = (self._told(key, arm, "median_mbps") for arm in (self._results.aa, self._results.reference))
        ratio = paired_ratio(again, once, self._nominal)
        if ratio.point is not None:
            self.aa_ratios.append(ratio)

    def _series(self, key: Key, arm: ArmRecord) -> Series:
        name, results = arm.name, self._results
        counted = results.counted(key, name)
        found = [trial.result for trial in counted.values()]
        refused = results.refusals(key, name)
        usable = refused or any(result.get("median_mbps") is not None for result in found)
        covered = [
            bool(one["covered"]) for one in found if error_of(one) is not None and one.get("covered") is not None
        ]

        def over(*path: str, unit: str = "Mbit/s") -> Estimate:
            return self._estimate(self._told(key, name, *path).values(), unit)

        return Series(
            arm=name,
            blocks=tuple(sorted(counted)),
            refused=refused,
            bounds=sum(is_bound(result) for result in found),
            median_mbps=over("median_mbps"),
            half_iqr_mbps=over("half_iqr_mbps"),
            mad_mbps=over("mad_mbps"),
            truth_mbps=over("truth_mbps"),
            error=self._estimate(results.told(key, name, error_of).values(), "share"),
            off=self._estimate(results.off(key, name).values(), "share"),
            outliers=_outliers([value for result in found for value in instants_of(result)]),
            covered=sum(covered),
            intervals=len(covered),
            sent_bytes=over("bytes_sent", unit="B"),
            duration_ns=over("duration_ns", unit="ns"),
            searches=sum(len(instants_of(result)) for result in found),
            instants_mbps=_thinned([value for result in found for value in instants_of(result)]),
            discarded=sum(int(one.get("discarded") or 0) for one in found),
            honest_mbps=over("pacing", "honest_mbps"),
            carried_mbps=over("pacing", "carried_mbps"),
            methods=_names(found, lambda one: (one.get("pacing") or {}).get("method")),
            stamps=_names(found, lambda one: one.get("stamp")),
            strangers=sum(int(one.get("strangers") or 0) for one in found),
            hptime_refusals=_names(found, lambda one: one.get("hptime_refusal")),
            beside=self._beside(key, arm),
            flags=flag_counts(results.tried(key, name)),
            missing=None if usable else why_missing(results.tried(key, name), "estimate"),
        )

    def _told(self, key: Key, arm: str, *path: str) -> dict[int, float]:
        return self._results.told(key, arm, lambda result: nested(result, *path))

    def _estimate(self, values: Iterable[float], unit: str) -> Estimate:
        return median_estimate(list(values), unit, self._nominal)

    def _beside(self, key: Key, arm: ArmRecord) -> Difference | None:
        own = self._results.off(key, arm.name)
        if arm.role == "reference" or not own:
            return None
        band = band_of([self._results.aa_difference(key)])
        reference = self._results.off(key, self._results.reference)
        return compare_differences(own, reference, band, "share", self._nominal)


def _outliers(values: Sequence[float]) -> Estimate:
    found = outliers(values)
    if found is None:
        return Estimate.missing("share", f"needs {LEAST_VALUES} searches, has {len(values)}", len(values))
    return Estimate.bare(found.all, "share", f"of all {len(values)} searches together", len(values))


def _thinned(values: Sequence[float]) -> tuple[float, ...]:
    """Even steps through all, and both extremes: outliers are what such a figure is for."""
    if len(values) <= MOST_INSTANTS:
        kept = list(values)
    else:
        step = len(values) / (MOST_INSTANTS - 2)
        kept = [values[int(at * step)] for at in range(MOST_INSTANTS - 2)]
        kept += [min(values), max(values)]
    return tuple(float(f"{value:.5g}") for value in kept)


def _names(found: Sequence[Result], name: Callable[[Result], str | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(one) for result in found if (one := name(result)) is not None))
