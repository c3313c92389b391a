"""What a verdict reads of a run: the figures that its requirements need, and no trial's record."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import synthetic_ledger

from virtgauge.decisions.requirements import resolve
from virtgauge.decisions.verdicts import Judge
from virtgauge.ledger.store import Ledger
from virtgauge.plan.requirements import Requirement
from virtgauge.results.table import ResultTable

pytestmark = pytest.mark.slow


def test_a_verdict_reads_no_record_and_no_other_histogram(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synthetic_ledger(tmp_path / "run", blocks=6).close()
    table = ResultTable.open(tmp_path / "run")
    asked: list[object] = []
    rows = table.ledger.rows

    def listening(sql: str, bound: tuple[object, ...] = ()) -> object:
        asked.extend(bound)
        return rows(sql, bound)

    def refused(*_: object) -> None:
        raise AssertionError("a verdict needs no trial's record")

    monkeypatch.setattr(table.ledger, "rows", listening)
    monkeypatch.setattr(Ledger, "trials", refused)
    required = Requirement(suite="timing", measure="timer_cost.p50", at_most=1, unit="ms")
    requirements = resolve([required], None, ["host", "gvisor"], 0.95, "test")
    found = Judge(requirements, table, any_time_valid=False).verdicts()
    table.ledger.close()
    assert [one.outcome for one in found] == ["pass", "pass"]
    assert "timer_cost" in asked
    assert "sleep_lateness" not in asked
