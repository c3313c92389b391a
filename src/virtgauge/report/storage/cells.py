"""From results to cells: estimates over repetitions, each arm's comparison with the reference, ranks within a level."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from virtgauge.analysis import distribution as dist
from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.comparison import Comparison, compare, paired_ratio
from virtgauge.analysis.distribution import ccdf, merge
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord, TrialRecord
from virtgauge.report.storage.loads import explained
from virtgauge.report.storage.model import Cell, Curve, Key, Latency, Series, Step
from virtgauge.report.storage.results import Results, settings_of
from virtgauge.report.storage.vocabulary import KNEE, MIXED, PLAIN
from virtgauge.report.trial_results import Durations, flag_counts, why_missing

_STREAMS = {"": "", "write": "/write", "read": "/read"}
"""What names of histograms end with; a mixed load has two streams."""
_CURVE_POINTS = 160


class CellBuilder:
    """Makes the cells of a report.

    Args:
        arms: of the manifest; those that were skipped get no series.
        results: of the run.
        facts: of each arm's first guest.
        nominal: the confidence wanted.
    """

    def __init__(
        self, arms: Sequence[ArmRecord], results: Results, facts: Mapping[str, Mapping[str, Any]], nominal: float
    ) -> None:
        self._arms = [arm for arm in arms if arm.usable]
        self._results, self._facts, self._nominal = results, facts, nominal
        self._reference = next((arm.name for arm in arms if arm.role == "reference"), "")
        self._databases = list(dict.fromkeys(key.database for key in results.keys))
        self._aa = next((arm.name for arm in arms if arm.role == "aa"), None)
        self.aa_ratios: list[Estimate] = []
        """Of the rates, one for each cell where both arms of the A/A pair were measured."""

    def cells(self, keys: Sequence[Key]) -> tuple[Cell, ...]:
        """Every cell, ranked within its level."""
        made = [self._cell(key) for key in keys]
        return tuple(self._ranked(cell) for cell in made)

    def _cell(self, key: Key) -> Cell:
        """One cell with the series of all arms that were tried in it."""
        aa = self._aa_ratio(key)
        if aa is not None and aa.point is not None:
            self.aa_ratios.append(aa)
        series = tuple(self._series(key, arm, aa) for arm in self._arms if self._results.tried(key, arm.name))
        return Cell(key, series)

    def _aa_ratio(self, key: Key) -> Estimate | None:
        if self._aa is None or key.operation not in PLAIN or not key.closed:
            return None
        return paired_ratio(
            self._results.rates(key, self._aa), self._results.rates(key, self._reference), self._nominal
        )

    def _scalar(self, key: Key, arm: str, field: str, unit: str, scale: float = 1.0) -> Estimate:
        values = [value * scale for value in self._results.scalar(key, arm, field).values()]
        return median_estimate(values, unit, self._nominal)

    def _series(self, key: Key, arm: ArmRecord, aa: Estimate | None) -> Series:
        tried, counted = self._results.tried(key, arm.name), self._results.counted(key, arm.name)
        rates = self._results.rates(key, arm.name)
        comparison: Comparison | None = None
        if arm.role != "reference" and rates and key.operation in PLAIN and key.closed:
            comparison = compare(rates, self._results.rates(key, self._reference), aa, key.unit, self._nominal)
        reasoned = explained(key, counted, self._facts.get(arm.name, {}), self._latency_means(key, arm.name))
        has_figure = bool(rates) or (bool(counted) and key.operation not in PLAIN)
        return Series(
            arm=arm.name,
            blocks=tuple(sorted(counted)),
            rate=median_estimate(list(rates.values()), key.unit, self._nominal),
            comparison=comparison,
            rank=None,
            service=self._latencies(key, arm.name, "service"),
            response=self._latencies(key, arm.name, "response"),
            curve=self._curve(key, arm.name),
            server_cpu_ns=self._scalar(key, arm.name, "server_cpu_ns_per_operation", "ns"),
            client_cpu_ns=self._scalar(key, arm.name, "client_cpu_ns_per_operation", "ns"),
            flushes_per_operation=self._scalar(key, arm.name, "flushes_per_operation", "flushes"),
            client_limit_per_s=self._scalar(key, arm.name, "client_limit_per_s", "operations/s"),
            disk_before_per_s=self._scalar(key, arm.name, "disk_before_per_s", "flushes/s"),
            disk_after_per_s=self._scalar(key, arm.name, "disk_after_per_s", "flushes/s"),
            client_limited=sum(any(f.name == "client-limited" for f in t.flags) for t in counted.values()),
            explanation=reasoned.explanation if reasoned else None,
            reasons=reasoned.words if reasoned else (),
            knee_per_s=self._scalar(key, arm.name, "knee_per_s", "operations/s"),
            objective_ns=self._scalar(key, arm.name, "objective_ms", "ns", 1e6),
            steps=tuple(_steps(counted)) if key.operation == KNEE else (),
            settings=settings_of(counted),
            version=next((str(t.result["database"]) for t in counted.values() if t.result.get("database")), ""),
            flags=flag_counts(tried),
            missing=None if has_figure else why_missing(tried, "rate"),
        )

    def _streams(self, key: Key) -> Iterator[tuple[str, str]]:
        for name, suffix in _STREAMS.items():
            if bool(name) == (key.operation == MIXED):
                yield name, suffix

    def _latencies(self, key: Key, arm: str, measure: str) -> dict[str, Latency]:
        found = {}
        for name, suffix in self._streams(key):
            durations = self._results.durations(key, arm, f"{measure}{suffix}")
            if durations:
                found[name] = self._latency(durations)
        return found

    def _latency(self, durations: Mapping[int, Durations]) -> Latency:
        def at(share: float) -> Estimate:
            needed = dist.samples_needed(share) if share > 0.5 else 1
            values = [one.quantile_ns(share) for one in durations.values() if one.distribution.n >= needed]
            if durations and not values:
                return Estimate.missing("ns", f"needs {needed:,} operations in a repetition")
            return median_estimate(values, "ns", self._nominal)

        most = [one.distribution.maximum * one.ns_per_unit for one in durations.values()]
        return Latency(at(0.5), at(0.99), at(0.999), median_estimate(most, "ns", self._nominal))

    def _latency_means(self, key: Key, arm: str) -> dict[int, float]:
        found = self._results.durations(key, arm, "service").items()
        return {block: one.distribution.mean * one.ns_per_unit for block, one in found}

    def _curve(self, key: Key, arm: str) -> Curve | None:
        durations = self._results.durations(key, arm, "service") if key.closed and key.operation in PLAIN else {}
        if not durations:
            return None
        scale = next(iter(durations.values())).ns_per_unit
        values, shares = ccdf(merge(one.distribution for one in durations.values()), _CURVE_POINTS)
        return Curve(tuple(float(value) * scale for value in values), tuple(float(share) for share in shares))

    def _ranked(self, cell: Cell) -> Cell:
        """Ranks of a cell's series among databases that differ in nothing else, the level least of all."""
        if cell.key.operation not in PLAIN or not cell.key.closed:
            return cell
        ranked = [dataclasses.replace(series, rank=self._rank(cell.key, series.arm)) for series in cell.series]
        return Cell(cell.key, tuple(ranked))

    def _rank(self, key: Key, arm: str) -> int | None:
        """One more than the databases that were shown to be faster; an emulated processor is never ranked."""
        record = next(one for one in self._arms if one.name == arm)
        own = self._results.rates(key, arm)
        others = [dataclasses.replace(key, database=name) for name in self._databases if name != key.database]
        rivals = [rates for other in others if (rates := self._results.rates(other, arm))]
        if record.emulated or record.role == "aa" or not own or not rivals:
            return None
        ratios = [paired_ratio(rates, own, self._nominal) for rates in rivals]
        return 1 + sum(ratio.low is not None and ratio.low > 1 for ratio in ratios)


def _steps(counted: Mapping[int, TrialRecord]) -> Iterator[Step]:
    """What the searches of a knee offered, in all repetitions."""
    for trial in counted.values():
        for step in trial.result.get("steps") or ():
            if step.get("p99_ms") is not None:
                yield Step(float(step["rate_per_s"]), float(step["p99_ms"]) * 1e6, bool(step.get("met")))
