"""What loads cost and what policies leave unused: ratios of one arm's own results, paired by block."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.comparison import paired_ratio
from virtgauge.analysis.estimate import Estimate
from virtgauge.analysis.isolation.smallest_setting import smallest_setting
from virtgauge.report.isolation.model import (
    Cell,
    Conservation,
    Interference,
    Key,
    Pressure,
    PressurePoint,
    SmallestSetting,
)
from virtgauge.report.isolation.results import Results
from virtgauge.report.isolation.vocabulary import LOADING, OF_THE_CORES, TESTED, Resource, percent

TARGET_Q = 0.9
"""Of the smallest setting, where the plan names no other."""
CONSERVING = 0.95
"""A guest that gets so much of what it gets without a policy is held back by nothing."""
_UNLOADED = Estimate.bare(1.0, "ratio", "without the load, by definition")


class Ratios:
    """Ratios of the arms that are told of.

    Args:
        results: of the run.
        arms: by name.
        nominal: the confidence wanted.
    """

    def __init__(self, results: Results, arms: Sequence[str], nominal: float) -> None:
        self._results, self._arms, self._nominal = results, arms, nominal

    def interference(self) -> tuple[Interference, ...]:
        """Of every cell with a load where the arm has valid results."""
        return tuple(
            Interference(arm, key, self._ratio(key, arm), self._kept(key, arm))
            for arm in self._arms
            for key in self._results.keys
            if not key.alone and self._results.work(key, arm)
        )

    def _ratio(self, key: Key, arm: str) -> Estimate:
        return self._paired(self._results.work(key, arm), self._results.unloaded(key, arm), "without the load")

    def _kept(self, key: Key, arm: str) -> Estimate:
        promised = key.promised
        if promised is None or promised == 1 or key.resource not in OF_THE_CORES:
            return self._ratio(key, arm)
        whole, unloaded = self._results.work(key.reference, arm), self._results.unloaded(key, arm)
        due = {block: min(promised * work, unloaded.get(block, promised * work)) for block, work in whole.items()}
        return self._paired(self._results.work(key, arm), due, "without load and policy")

    def _paired(self, test: Mapping[int, float], base: Mapping[int, float], what: str) -> Estimate:
        if not base:
            return Estimate.missing("ratio", f"the same {what} has no valid result")
        return paired_ratio(test, base, self._nominal)

    def pressure(self) -> tuple[Pressure, ...]:
        """Of every load that was tried at several intensities."""
        groups: dict[Key, list[Key]] = {}
        for key in self._results.keys:
            if not key.alone:
                groups.setdefault(dataclasses.replace(key, intensity=0), []).append(key)
        return tuple(
            Pressure(arm, keys[-1], points)
            for arm in self._arms
            for keys in groups.values()
            if len(keys) > 1 and len(points := tuple(self._points(keys, arm))) > 2
        )

    def _points(self, keys: Sequence[Key], arm: str) -> Iterator[PressurePoint]:
        """Without the load, then by intensity; those without valid results are left out."""
        unloaded = keys[0].unloaded
        if self._results.work(unloaded, arm):
            yield PressurePoint(
                0, self._nested(unloaded, arm, "cpu", LOADING), Estimate.bare(0.0, "units/s", "no load"), _UNLOADED
            )
        for key in keys:
            if self._results.work(key, arm):
                yield PressurePoint(
                    key.intensity,
                    self._nested(key, arm, "cpu", LOADING),
                    self._nested(key, arm, "load", "rate", unit="units/s"),
                    self._ratio(key, arm),
                )

    def _nested(self, key: Key, arm: str, *path: str, unit: str = "CPUs") -> Estimate:
        return median_estimate(list(self._results.nested(key, arm, *path).values()), unit, self._nominal)

    def conservation(self) -> tuple[Conservation, ...]:
        """Of every cell with a policy of the cores and without a load: of CPU benchmarks, where there are any."""
        alone = [key for key in self._results.keys if key.alone and not key.free and key.promised is not None]
        alone = [key for key in alone if key.resource in OF_THE_CORES]
        told = [key for key in alone if key.resource is Resource.CPU] or alone
        return tuple(self._conserved(key, arm) for arm in self._arms for key in told if self._results.work(key, arm))

    def _conserved(self, key: Key, arm: str) -> Conservation:
        given = self._paired(self._results.work(key, arm), self._results.work(key.unbounded, arm), "without the policy")
        capacity = self._results.nested(key, arm, "capacity_cpus")
        tested, loading = (self._results.nested(key, arm, "cpu", guest) for guest in (TESTED, LOADING))
        apart = key.cores == "1-apart"  # where the other guest's idle core is its own
        unused = [
            1 - (cpus + (0.0 if apart else loading.get(block, 0.0))) / capacity[block]
            for block, cpus in tested.items()
            if capacity.get(block)
        ]
        low, high = (given.low, given.high) if given.has_interval else (given.point, given.point)
        conserving = None
        if low is not None and high is not None:
            conserving = True if low >= CONSERVING else False if high < CONSERVING else None
        return Conservation(arm, key, given, median_estimate(unused, "share", self._nominal), conserving)


def smallest_settings(
    cells: Sequence[Cell], arms: Sequence[str], target_q: float = TARGET_Q
) -> tuple[SmallestSetting, ...]:
    """The smallest share of the cores that gives the tested guest an efficiency, wherever several were tried.

    Args:
        cells: of the report.
        arms: to tell of, by name.
        target_q: that the interval's lower end must reach; the point where there is no interval.
    """
    groups: dict[Key, list[Cell]] = {}
    for cell in cells:
        if cell.key.on == TESTED and cell.key.promised is not None and cell.key.resource in OF_THE_CORES:
            groups.setdefault(dataclasses.replace(cell.key, share=1.0), []).append(cell)
    found = []
    for arm in arms:
        for group in groups.values():
            points = {}
            for cell in group:
                series = cell.of(arm)
                if series is not None and series.q.point is not None:
                    low = series.q.low
                    points[cell.key.share] = series.q.point if low is None else low
            if len(points) > 1:
                key = next(cell.key for cell in group if cell.key.share == max(points))
                found.append(_smallest(arm, key, points, target_q))
    return tuple(found)


def _smallest(arm: str, key: Key, points: Mapping[float, float], target_q: float) -> SmallestSetting:
    share = smallest_setting(list(points.items()), target_q)
    tried = f"{len(points)} shares from {percent(min(points))} to {percent(max(points))}"
    at_most = share == min(points)
    if share is None:
        reason = f"q is {points[max(points)]:.2f} at {percent(max(points))}, the largest of {tried}"
    elif at_most:
        reason = f"the smallest of {tried}; smaller ones may do too"
    else:
        reason = f"interpolated between {tried}"
    return SmallestSetting(arm, key, target_q, share, at_most, reason)
