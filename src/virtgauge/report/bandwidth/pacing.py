"""How well each arm sends when it should: the highest honest rate by method, and distributions of gaps and lateness."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from virtgauge.analysis import distribution as dist
from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.distribution import Distribution
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import Histogram, TrialRecord
from virtgauge.measures.figures import NS_PER_UNIT
from virtgauge.report.bandwidth.model import Curve, Pacing
from virtgauge.report.bandwidth.results import Results, is_refusal, nested
from virtgauge.report.bandwidth.vocabulary import THROUGH, TIMINGS

_METHODS = ("send", "sendmmsg", "gso")
_GAP_UNITS = {"permille": 1e-3}
_POINTS = 100
"""Of a curve on the page."""
Place = tuple[str, str, str]
"""Timing, way of swapping it, method."""


def pacings(results: Results, arms: Sequence[str]) -> tuple[Pacing, ...]:
    """By arm, timing and method of sending.

    Args:
        results: of the run.
        arms: to tell of, by name.
    """
    gaps, lateness = (dict(results.distributions(measure)) for measure in ("gap", "lateness"))
    found = []
    for arm in arms:
        groups: dict[Place, list[TrialRecord]] = {}
        for key in results.keys:
            for trial in results.counted(key, arm).values():
                method = (trial.result.get("pacing") or {}).get("method")
                if method is not None:
                    groups.setdefault((key.timing, key.through, str(method)), []).append(trial)
        found += [_pacing(arm, place, groups[place], gaps, lateness, results) for place in sorted(groups, key=_rank)]
    return tuple(found)


def _pacing(
    arm: str,
    place: Place,
    trials: Sequence[TrialRecord],
    gaps: dict[int, Histogram],
    lateness: dict[int, Histogram],
    results: Results,
) -> Pacing:
    timing, through, method = place
    numbers = [trial.trial_id for trial in trials]
    gap, gap_unit = _merged((gaps[number] for number in numbers if number in gaps), _GAP_UNITS)
    late, late_unit = _merged((lateness[number] for number in numbers if number in lateness), NS_PER_UNIT)
    shims = [trial.result["shim"] for trial in trials if trial.result.get("shim") is not None]
    return Pacing(
        arm=arm,
        timing=timing,
        through=through,
        method=method,
        trials=len(trials),
        refused=sum(is_refusal(trial.result) for trial in trials),
        honest_mbps=_honest(trials, results.nominal),
        gap=_curve(gap, gap_unit),
        lateness=_curve(late, late_unit),
        gap_p50=_tail(gap, gap_unit, 0.5),
        gap_p99=_tail(gap, gap_unit, 0.99),
        late_p50_ns=_tail(late, late_unit, 0.5),
        late_p99_ns=_tail(late, late_unit, 0.99),
        answered=sum(int(one.get("served") or 0) for one in shims) if shims else None,
        passed=sum(int(one.get("passed") or 0) for one in shims) if shims else None,
    )


def _rank(place: Place) -> tuple[object, ...]:
    timing, through, method = place
    return (
        THROUGH.index(through) if through in THROUGH else len(THROUGH),
        TIMINGS.index(timing) if timing in TIMINGS else len(TIMINGS),
        timing,
        _METHODS.index(method) if method in _METHODS else len(_METHODS),
        method,
    )


def _honest(trials: Sequence[TrialRecord], nominal: float) -> Estimate:
    """The highest of each repetition, for a trial tells no more than it was asked for."""
    by_block: dict[int, float] = {}
    for trial in trials:
        honest = nested(trial.result, "pacing", "honest_mbps")
        if honest is not None:
            by_block[trial.block] = max(honest, by_block.get(trial.block, 0.0))
    return median_estimate(list(by_block.values()), "Mbit/s", nominal)


def _merged(histograms: Iterable[Histogram], units: dict[str, float]) -> tuple[Distribution | None, float]:
    """All values in a unit that is known, with the factor that makes a plain number of it."""
    usable = [one for one in histograms if one.unit in units and one.n]
    if not usable:
        return None, 1.0
    unit = usable[0].unit
    parts = [
        Distribution(one.values, one.counts, float(one.minimum), float(one.maximum), one.mean)
        for one in usable
        if one.unit == unit
    ]
    return dist.merge(parts), units[unit]


def _curve(distribution: Distribution | None, factor: float) -> Curve | None:
    if distribution is None:
        return None
    values, shares = dist.ccdf(distribution, _POINTS)
    return Curve(
        tuple(float(f"{value * factor:.4g}") for value in values),
        tuple(float(f"{share:.4g}") for share in shares),
        float(f"{distribution.mean * factor:.4g}"),
    )


def _tail(distribution: Distribution | None, factor: float, share: float) -> float | None:
    if distribution is None or distribution.n < dist.samples_needed(share):
        return None
    return distribution.quantile(share) * factor
