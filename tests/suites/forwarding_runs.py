"""Forwarding runs of the simulated platform for tests: truth in, ledger and report out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from suites.simulated_runs import execute, plan_of, simulated

from virtgauge.ledger.records import TrialRecord
from virtgauge.ledger.store import Ledger

QUICK = {
    "guests": 3,
    "k": [1, 3],
    "frame_bytes": [64],
    "duration_sum_s": 3.0,
    "latency_loads": [50, 100],
    "latency_s": 1.0,
    "min_pps": 1000,
}


def forwarding_trials(folder: Path, *, repetitions: int = 1, design: Any = None, **truth: Any) -> list[TrialRecord]:
    """The trials of a run on one simulated device."""
    plan = plan_of(
        simulated("device", forwarding=truth),
        repetitions=repetitions,
        attempts=1,
        suite={"forwarding": [{name: value for name, value in (QUICK | (design or {})).items() if value is not None}]},
    )
    execute(plan, folder)
    with Ledger.open(folder) as ledger:
        return ledger.trials()


def by_vector(trials: list[TrialRecord]) -> dict[str, TrialRecord]:
    """The only trial of each vector."""
    assert len({trial.factors["vector"] for trial in trials}) == len(trials)
    return {trial.factors["vector"]: trial for trial in trials}
