"""Isolation runs of the simulated platform for tests: truth in, ledger and figures of the report out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from isolation_reports import rows_of
from shown import value
from suites.simulated_runs import execute, plan_of, simulated

from virtgauge.ledger.records import TrialRecord
from virtgauge.ledger.store import Ledger
from virtgauge.report import Report
from virtgauge.specs.blocks import Row, Value

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


def cell(result: Report, **factors: Any) -> CellFigures:
    """Of the arm under test, the only cell with these factors, without load and policy but those named."""
    levels = {"load": "none", "policy": "none", "on": "tested" if "policy" in factors else "none"} | factors
    if "share" in levels:
        levels["share"] = f"{100 * levels['share']:g}"
    return CellFigures(result, tuple(f"{name}={level}" for name, level in levels.items()))


@dataclasses.dataclass(frozen=True)
class CellFigures:
    """What a report shows of a cell."""

    result: Report
    levels: tuple[str, ...]

    def __getitem__(self, measure: str) -> Value:
        return value(self.result, "isolation", measure, TEST, *self.levels)

    def at(self, measure: str) -> Any:
        """A figure in its measure's unit."""
        return self[measure].estimate.point

    @property
    def efficiencies(self) -> tuple[float | None, ...]:
        """q, and the two that it is the product of."""
        return self.at("q"), self.at("entitlement") / 100, self.at("q_rate")

    @property
    def flags(self) -> str:
        """How many repetitions are valid, and the flags of all."""
        (row,) = [row for row in rows_of(self.result, "tables") if self._is(row)]
        return str(row.cells[-1])

    def _is(self, row: Row) -> bool:
        of = next(one.place for one in row.cells if isinstance(one, Value))
        return of.arm == TEST and set(self.levels) <= set(of.cell.split(";"))
