"""What is repeated of a figure that is relative to others, and which cells a requirement on it is about."""

from __future__ import annotations

import itertools
import sqlite3
from pathlib import Path

import pytest
from isolation_reports import AA, HOST, RUNC
from isolation_results import Design, isolation_ledger

from virtgauge.analysis.bounds import Outcome
from virtgauge.decisions.requirements import BoundRequirement, resolve
from virtgauge.decisions.verdicts import Judge, Verdict, needed_for
from virtgauge.errors import UsageError
from virtgauge.plan.requirements import Requirement
from virtgauge.results.columns import Cell
from virtgauge.results.table import ResultTable
from virtgauge.specs.suites import find_measure

POLICY = "limit+reservation"
FREE, LOADED, BOUND, BOTH = (load + policy for policy in ("none", POLICY) for load in ("none ", "integer "))
"""The cells of a design by load and policy: the reference's, with either, and with both."""


def required(
    measure: str, cells: list[Cell] | None = None, at_least: float = 0.5, **conditions: str
) -> BoundRequirement:
    unit = find_measure("isolation", measure).quantity.unit
    fields = {"measure": measure, "unit": unit, "at_least": at_least, "platforms": ["runc"]}
    one = Requirement.model_validate({"suite": "isolation", "conditions": conditions} | fields)
    (found,) = resolve([one], cells, ["host", "runc"], 0.95, "test")
    return found


def name_of(cell: Cell) -> str:
    return f"{cell.factors['load']} {cell.factors['policy']}"


OWN = {(arm, BOTH) for arm in ("runc", "host", "host-aa")}


@pytest.mark.parametrize(
    ("measure", "others"),
    [
        ("work", set[tuple[str, str]]()),
        *((name, {("host", FREE)}) for name in ("relative_work", "q", "q_rate")),
        *((name, {(arm, BOUND) for arm, _ in OWN}) for name in ("kept", "work_beside_load")),
        ("kept_of_promised", {(arm, other) for (arm, _), other in itertools.product(OWN, (BOUND, FREE))}),
        ("conservation.given", {(arm, LOADED) for arm, _ in OWN}),
    ],
)
def test_what_a_figure_is_relative_to_is_repeated_with_it(
    measure: str, others: set[tuple[str, str]], tmp_path: Path
) -> None:
    requirement = required(measure, load="integer", policy=POLICY)
    with isolation_ledger(tmp_path / "run", [HOST, AA, RUNC], blocks=2) as ledger:
        table = ResultTable(ledger)
        verdicts = Judge([requirement], table, any_time_valid=True).verdicts()
        assert verdicts[0].open
        needed = needed_for(verdicts, [requirement], table.arms)
        places = itertools.product(("host", "host-aa", "runc"), table.cells())
        assert {(arm, name_of(cell)) for arm, cell in places if needed(arm, cell)} == OWN | others


@pytest.mark.parametrize(
    ("measure", "about"),
    [
        ("work", {FREE, LOADED, BOUND, BOTH}),
        ("q", {FREE, BOUND, BOTH}),
        *((name, {LOADED, BOTH}) for name in ("kept", "work_beside_load", "kept_of_promised")),
    ],
)
def test_a_requirement_is_about_the_cells_that_can_have_the_figure(measure: str, about: set[str]) -> None:
    cells = [Cell("isolation", "kernel", tuple(factors.items())) for factors in Design().cells()]
    requirement = required(measure, cells)
    assert {name_of(cell) for cell in cells if requirement.covers(cell)} == about


def test_what_no_trial_of_a_plan_can_have_is_not_required() -> None:
    cells = [Cell("isolation", "kernel", tuple(factors.items())) for factors in Design().cells()]
    with pytest.raises(UsageError, match="no trial of the plan measures"):
        required("memory_latency", cells)


def judged(folder: Path, requirement: BoundRequirement, status: str, where: str) -> Verdict:
    """On twenty repetitions, of which some trials ended otherwise."""
    isolation_ledger(folder, [HOST, AA, RUNC], blocks=20).close()
    with sqlite3.connect(folder / "ledger.sqlite") as written:
        written.execute(f"UPDATE trials SET status = '{status}' WHERE {where}")
    table = ResultTable.open(folder)
    (found,) = Judge([requirement], table, any_time_valid=True).verdicts()
    table.ledger.close()
    return found


UNLOADED = "json_extract(factors, '$.load') = 'none'"


def test_repetitions_without_a_valid_one_of_what_a_figure_is_relative_to_are_not_silent(tmp_path: Path) -> None:
    free = f"arm = 'host' AND block < 6 AND json_extract(factors, '$.policy') = 'none' AND {UNLOADED}"
    found = judged(tmp_path / "run", required("q", load="integer", policy=POLICY), "invalid", free)
    assert (found.outcome, found.cells[0].estimate.n) == (Outcome.PASS, 14)


def test_guests_that_fail_in_what_a_figure_is_relative_to_are_silent(tmp_path: Path) -> None:
    requirement = required("work_beside_load", load="integer", policy=POLICY)
    found = judged(tmp_path / "run", requirement, "failed", f"arm = 'runc' AND block < 12 AND {UNLOADED}")
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "12 of 20 repetitions have no such figure, and 12 of them failed" in found.reason


def test_a_guest_that_does_nothing_beside_a_load_fails_what_bounds_its_work(tmp_path: Path) -> None:
    with isolation_ledger(
        tmp_path / "run",
        [HOST, RUNC],
        blocks=20,
        fields=lambda factors: {"rate": 0.0} if factors["load"] != "none" else {},
    ) as ledger:
        table, requirements = ResultTable(ledger), [required("work_beside_load", load="integer", policy=POLICY)]
        (found,) = Judge(requirements, table, any_time_valid=True).verdicts()
        estimate = table.estimate(requirements[0].measure, found.cells[0].cell, "runc")
    assert (found.outcome, found.cells[0].estimate.point) == (Outcome.FAIL, 0)
    assert estimate.point is None and "20 of 20 repetitions have one of 0 or less" in estimate.method
