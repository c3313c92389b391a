"""Isolation runs of the simulated platform for tests: truth in, ledger and cells of the report out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from isolation_results import isolation_of
from suites.simulated_runs import execute, plan_of, report_of, simulated

from virtgauge.ledger.records import TrialRecord
from virtgauge.ledger.store import Ledger
from virtgauge.report.isolation.model import Cell, IsolationFindings, Series

QUICK = {"seconds": 2.0, "warmup_s": 0.5, "benchmarks": ["integer"], "loads": ["none"], "policies": ["none"]}
REFERENCE, TEST = "reference", "test"


def isolation_trials(
    folder: Path,
    *,
    repetitions: int = 1,
    attempts: int = 1,
    seed: int = 1,
    design: Any = None,
    faults: Sequence[dict[str, Any]] = (),
    reference: dict[str, Any] | None = None,
    **truth: Any,
) -> list[TrialRecord]:
    """The trials of a run.

    Args:
        reference: truth of a reference arm; None: the arm under test is its own reference.
        truth: of the arm under test, which is the reference too where there is no other.
    """
    platforms = [simulated(TEST, isolation=truth, faults=list(faults), seed=2 * seed)]
    if reference is not None:
        platforms = [simulated(REFERENCE, isolation=reference, seed=2 * seed + 1), *platforms]
    plan = plan_of(
        *platforms,
        seed=seed,
        repetitions=repetitions,
        attempts=attempts,
        suite={"isolation": [QUICK | (design or {})]},
    )
    execute(plan, folder)
    with Ledger.open(folder) as ledger:
        return ledger.trials()


def findings_of(folder: Path) -> IsolationFindings:
    """What the report says."""
    return isolation_of(report_of(folder))


def cells_of(folder: Path) -> tuple[Cell, ...]:
    """The report's cells."""
    return findings_of(folder).cells


def cell(cells: Sequence[Cell], **factors: Any) -> Series:
    """The series of the arm under test in the only cell with these factors, without load and policy but those named."""
    wanted = {"load": "none", "policy": "none", "on": "tested" if "policy" in factors else "none"} | factors
    (found,) = [one for one in cells if all(getattr(one.key, name) == level for name, level in wanted.items())]
    series = found.of(TEST)
    assert series is not None
    return series
