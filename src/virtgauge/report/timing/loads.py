"""What each load really achieved on each arm: one that could hardly run beside a probe explains its figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import TrialRecord, TrialStatus

_MEASURES = {"cpu_busy": "share", "bytes": "MB/s", "interrupts": "/s", "switches": "/s", "operations": "/s"}


@dataclasses.dataclass(frozen=True)
class AchievedLoad:
    """One load on one arm, over its valid trials.

    Attributes:
        arm, load: by name.
        service: what did the work, as the load names it; None where it does not.
        fallback: why a service that would come first did not serve; None where it did, or was not asked for.
        measures: ``cpu_busy`` (share of the guest's processors), ``bytes`` (read and written, MB/s), ``interrupts``,
            ``switches`` and ``operations`` (a second), as medians over repetitions; a missing one was not told.
        trials: valid ones beside this load.
    """

    arm: str
    load: str
    service: str | None
    fallback: str | None
    measures: dict[str, Estimate]
    trials: int


def achieved_loads(trials: Sequence[TrialRecord], arms: Sequence[str], nominal: float) -> tuple[AchievedLoad, ...]:
    """Every load on every arm that it ran on, by load, arms in the order given."""
    groups: dict[tuple[str, str], list[TrialRecord]] = {}
    for trial in trials:
        load = trial.factors.get("load", "idle")
        if load != "idle" and trial.status is TrialStatus.VALID:
            groups.setdefault((load, trial.arm), []).append(trial)
    ordered = sorted(groups.items(), key=lambda item: (item[0][0], arms.index(item[0][1])))
    return tuple(_achieved(arm, load, found, nominal) for (load, arm), found in ordered)


def _achieved(arm: str, load: str, trials: Sequence[TrialRecord], nominal: float) -> AchievedLoad:
    by_block: dict[str, dict[int, list[float]]] = {name: {} for name in _MEASURES}
    services: dict[str, None] = {}
    fallbacks: dict[str, None] = {}
    for trial in trials:
        told = trial.result.get("load")
        if not isinstance(told, Mapping):
            continue
        for field, texts in (("service", services), ("fallback", fallbacks)):
            if isinstance(told.get(field), str):
                texts[told[field]] = None
        for name, value in _figures(told).items():
            if value is not None:
                by_block[name].setdefault(trial.block, []).append(value)
    measures = {}
    for name, blocks in by_block.items():
        values = [sum(found) / len(found) for found in blocks.values()]
        unit = _MEASURES[name]
        measures[name] = median_estimate(values, unit, nominal) if values else Estimate.missing(unit, "not told")
    return AchievedLoad(arm, load, ", ".join(services) or None, "; ".join(fallbacks) or None, measures, len(trials))


def _figures(told: Mapping[str, Any]) -> dict[str, float | None]:
    """The measures of one trial's load, as docs/protocol.md has them; None for what it did not tell."""
    own = told.get("achieved")
    machine: Mapping[str, Any] = own if isinstance(own, Mapping) else {}
    rates = [rate for field in ("read_mb_per_s", "written_mb_per_s") if (rate := _number(told, field)) is not None]
    elapsed_s = (_number(told, "elapsed_ns") or 0.0) / 1e9
    operations = _number(told, "operations")
    return {
        "cpu_busy": _number(machine, "cpu_busy_share"),
        "bytes": sum(rates) if rates else None,
        "interrupts": _number(machine, "interrupts_per_s"),
        "switches": _number(machine, "context_switches_per_s"),
        "operations": operations / elapsed_s if operations is not None and elapsed_s else None,
    }


def _number(told: Mapping[str, Any], field: str) -> float | None:
    value = told.get(field)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
