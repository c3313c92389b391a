"""From results to cells: estimates over repetitions, efficiencies, and each arm's comparison with the reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.comparison import compare
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord
from virtgauge.report.isolation.model import SLICE_SHARES, Cell, Key, Series
from virtgauge.report.isolation.results import Results
from virtgauge.report.isolation.vocabulary import LOADING, TESTED
from virtgauge.report.trial_results import flag_counts, why_missing

_NO_PAIR = "no block has a valid trial of this cell and of its reference"


class CellBuilder:
    """Makes the cells of a report.

    Args:
        arms: of the manifest; those that were skipped get no series.
        results: of the run.
        nominal: the confidence wanted.
    """

    def __init__(self, arms: Sequence[ArmRecord], results: Results, nominal: float) -> None:
        self._arms = [arm for arm in arms if arm.usable]
        self._results, self._nominal = results, nominal
        self.aa_ratios: dict[Key, Estimate] = {}
        """Of the work, for each cell where both arms of the A/A pair were measured."""

    def cell(self, key: Key) -> Cell:
        """One cell with the series of all arms that were tried in it."""
        aa = self._results.aa_ratio(key, self._nominal)
        if aa is not None and aa.point is not None:
            self.aa_ratios[key] = aa
        series = tuple(self._series(key, arm, aa) for arm in self._arms if self._results.tried(key, arm.name))
        return Cell(key, series)

    def _series(self, key: Key, arm: ArmRecord, aa: Estimate | None) -> Series:
        name = arm.name
        tried, counted = self._results.tried(key, name), self._results.counted(key, name)
        work = self._results.work(key, name)
        comparison = None
        if arm.role != "reference" and work:
            reference = self._results.work(key, self._results.reference)
            comparison = compare(work, reference, aa, "units/s", self._nominal)
        unit = next((str(trial.result["value_unit"]) for trial in counted.values() if "value_unit" in trial.result), "")
        return Series(
            arm=name,
            blocks=tuple(sorted(counted)),
            value=self._estimate(self._results.scalar(key, name, "value").values(), unit),
            value_unit=unit,
            **self._efficiencies(key, name),
            received_cpus=self._nested(key, name, "cpu", TESTED, unit="CPUs"),
            loading_cpus=self._nested(key, name, "cpu", LOADING, unit="CPUs"),
            entitled_cpus=self._nested(key, name, "entitled", TESTED, unit="CPUs"),
            guest_seen_cpus=self._nested(key, name, "cpu", "guest_seen", unit="CPUs"),
            latency_p50_ns=self._late(key, name, 0.5),
            latency_p99_ns=self._late(key, name, 0.99),
            slice_quantiles=self._slices(key, name),
            throttled_share=self._told(key, name, _throttled_share),
            io_wait_share=self._nested(key, name, "io_wait_share"),
            frequency_ratio=self._told(key, name, _frequency_ratio),
            steal_seen_share=self._told(key, name, lambda result: _of_window(result, "seen_ns")),
            stopped_share=self._told(key, name, lambda result: _of_window(result, "stopped_ns")),
            comparison=comparison,
            flags=flag_counts(tried),
            missing=None if work else why_missing(tried, "rate"),
        )

    def _estimate(self, values: Iterable[float], unit: str) -> Estimate:
        return median_estimate(list(values), unit, self._nominal)

    def _nested(self, key: Key, arm: str, *path: str, unit: str = "share") -> Estimate:
        return self._estimate(self._results.nested(key, arm, *path).values(), unit)

    def _told(self, key: Key, arm: str, figure: Any) -> Estimate:
        return self._estimate(self._results.told(key, arm, figure).values(), "share")

    def _efficiencies(self, key: Key, arm: str) -> dict[str, Estimate]:
        found = self._results.efficiencies(key, arm).values()
        absent = {
            "relative": "",
            "q": "no share was declared that promises anything here",
            "q_share": "what it is entitled to is not known",
            "q_rate": "the CPU time is not known",
        }

        def over(field: str) -> Estimate:
            values = [value for one in found if (value := getattr(one, field)) is not None]
            if not values:
                return Estimate.missing("ratio", absent[field] if found else _NO_PAIR)
            estimate = self._estimate(values, "ratio")
            return dataclasses.replace(estimate, method=f"paired by block; {estimate.method}")

        return {field: over(field) for field in absent}

    def _late(self, key: Key, arm: str, share: float) -> Estimate:
        late = self._results.lateness_ns(key, arm, share)
        if not late and self._results.latencies(key, arm):
            return Estimate.missing("ns", f"a repetition has too few operations for a p{share * 100:.0f}")
        return self._estimate(late.values(), "ns")

    def _slices(self, key: Key, arm: str) -> tuple[float, ...] | None:
        """Quantiles of the slices of all repetitions, each beside its own block's reference."""
        references = self._results.scalar(key.reference, self._results.reference, "rate")
        parts = [
            np.asarray(trial.result.get("slices") or [], dtype=np.float64) / references[block]
            for block, trial in self._results.counted(key, arm).items()
            if references.get(block, 0) > 0
        ]
        slices = np.concatenate(parts) if parts else np.empty(0)
        return tuple(float(value) for value in np.quantile(slices, SLICE_SHARES)) if slices.size else None


def _throttled_share(result: Mapping[str, Any]) -> float | None:
    """Of the periods of the tested guest's quota, those in which it was stopped."""
    told = (result.get("throttling") or {}).get(TESTED)
    return told["throttled"] / told["periods"] if told and told.get("periods") else None


def _frequency_ratio(result: Mapping[str, Any]) -> float | None:
    told = result.get("frequency") or {}
    before, after = told.get("before_hz"), told.get("after_hz")
    return after / before if before and after else None


def _of_window(result: Mapping[str, Any], field: str) -> float | None:
    """A time of the steal account beside what all threads could have run."""
    told, elapsed = (result.get("steal") or {}).get(field), result.get("elapsed_ns")
    return told / (elapsed * result.get("threads", 1)) if told is not None and elapsed else None
