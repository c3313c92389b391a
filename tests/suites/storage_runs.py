"""Storage runs of the simulated platform for tests: truth in, ledger and report out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from suites.simulated_runs import execute, plan_of, simulated

from virtgauge.ledger.records import Histogram, TrialRecord
from virtgauge.ledger.store import Ledger

QUICK = {"databases": ["postgresql"], "seconds": 2.0, "warmup_s": 0.0, "calibration_s": 0.1}


def storage_trials(
    folder: Path, *, repetitions: int = 1, attempts: int = 1, design: Any = None, **truth: Any
) -> list[TrialRecord]:
    """The trials of a run on one simulated database."""
    plan = plan_of(
        simulated("device", storage=truth),
        repetitions=repetitions,
        attempts=attempts,
        suite={"storage": [QUICK | (design or {})]},
    )
    execute(plan, folder)
    with Ledger.open(folder) as ledger:
        return ledger.trials()


def histogram_of(folder: Path, trial: TrialRecord, measure: str) -> Histogram:
    """One of a trial's histograms."""
    with Ledger.open(folder) as ledger:
        return ledger.histograms_of(trial.trial_id)[measure]
