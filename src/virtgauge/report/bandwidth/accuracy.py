"""How far off each arm is, by estimator and timing, and what an estimate costs."""

from __future__ import annotations

from collections.abc import Sequence

from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.differences import Difference, band_of
from virtgauge.analysis.estimate import Estimate
from virtgauge.report.bandwidth.keys import Key
from virtgauge.report.bandwidth.model import Accuracy
from virtgauge.report.bandwidth.pooling import from_zero, identical_arms, less, over_cells, paired, share_estimate
from virtgauge.report.bandwidth.results import Results, error_of, nested

Place = tuple[tuple[str, ...], str, str]
"""Estimators, timing, way of swapping it."""


def accuracies(results: Results, arms: Sequence[str]) -> tuple[Accuracy, ...]:
    """By arm: for every estimator, timing and way of swapping it, and then over all estimators together.

    Args:
        results: of the run.
        arms: to tell of, by name.
    """
    groups: dict[Place, list[Key]] = {}
    for key in results.keys:
        groups.setdefault(((key.estimator,), key.timing, key.through), []).append(key)
    every: dict[tuple[str, str], list[Key]] = {}
    for (_, timing, through), keys in groups.items():
        every.setdefault((timing, through), []).extend(keys)
    for (timing, through), keys in every.items():
        names = tuple(dict.fromkeys(key.estimator for key in keys))
        groups.setdefault((names, timing, through), keys)
    return tuple(
        _accuracy(results, arm, place, own)
        for arm in arms
        for place, keys in groups.items()
        if (own := [key for key in keys if results.counted(key, arm)])
    )


def _accuracy(results: Results, arm: str, place: Place, keys: Sequence[Key]) -> Accuracy:
    estimators, timing, through = place
    off = {key: own for key in keys if (own := results.off(key, arm))}
    trials = [trial.result for key in keys for trial in results.counted(key, arm).values()]
    covered = [bool(one["covered"]) for one in trials if error_of(one) is not None and one.get("covered") is not None]
    return Accuracy(
        arm=arm,
        estimators=estimators,
        timing=timing,
        through=through,
        cells=len(off),
        refused=sum(not results.estimated(key, arm) for key in keys),
        off=share_estimate(over_cells(off).values(), results.nominal),
        covered=sum(covered),
        intervals=len(covered),
        sent_bytes=_pooled(results, arm, keys, "bytes_sent", "B"),
        duration_ns=_pooled(results, arm, keys, "duration_ns", "ns"),
        beside=_beside(results, arm, off),
    )


def _beside(results: Results, arm: str, off: dict[Key, dict[int, float]]) -> Difference | None:
    if arm == results.reference or not off:
        return None
    reference = {key: results.off(key, results.reference) for key in off}
    found = over_cells(paired(off, reference, less))
    return from_zero(found, band_of([identical_arms(results, list(off))]), results.nominal)


def _pooled(results: Results, arm: str, keys: Sequence[Key], field: str, unit: str) -> Estimate:
    """Of the trials that gave an estimate."""
    found = {
        key: results.told(key, arm, lambda one: None if one.get("median_mbps") is None else nested(one, field))
        for key in keys
    }
    return median_estimate(list(over_cells(found).values()), unit, results.nominal)
