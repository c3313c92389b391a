"""How the report's suites address a cell."""

from __future__ import annotations

from virtgauge.ledger.records import TrialRecord

CellKey = tuple[str, str, tuple[tuple[str, str], ...]]
"""Suite, probe, and the levels of the factors in the order of the plan."""


def cell_key(trial: TrialRecord) -> CellKey:
    """What trials have in common that differ in arm and repetition only."""
    return trial.suite, trial.probe, tuple(trial.factors.items())
