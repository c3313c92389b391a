"""What loads achieved: their own figures, per repetition, and nothing that they did not tell."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from exported_runs import exported
from shown import tables, value
from synthetic import arm_record, manifest, trial

from virtgauge import report
from virtgauge.exchange import Format
from virtgauge.ledger.records import TrialRecord, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.report import Report
from virtgauge.results.columns import Cell
from virtgauge.specs.suites import MEASURES

HOST = arm_record("host", "host", "Host", "reference")
GUEST = arm_record("guest", "oci", "Guest")
ACHIEVED = {
    "elapsed_ns": 2_000_000_000,
    "cpu_busy_share": 0.5,
    "interrupts_per_s": 2500.0,
    "context_switches_per_s": 12_345.6,
}


def beside(
    load: str, told: dict[str, Any] | None, block: int = 0, arm: Any = HOST, function: str = "rdtsc", **fields: Any
) -> TrialRecord:
    return trial(arm, "timer_cost", {"function": function, "load": load}, block, result={"load": told}, **fields)


def built_of(tmp_path: Path, *trials: TrialRecord) -> Report:
    ledger = Ledger.create(tmp_path / "run", manifest([HOST, GUEST]))
    for one in trials:
        ledger.add_trial(one)
    return report.build(ledger)


def points(built: Report, load: str = "cpu", arm: str = "host") -> dict[str, float | None]:
    names = ("cpu_busy", "bytes", "operations", "interrupts", "switches")
    return {name: value(built, "timing", f"load.{name}", arm, f"load={load}").estimate.point for name in names}


def services(built: Report) -> list[tuple[str, str, object]]:
    return [(row.heads[0], row.arm, row.cells[0]) for table in tables(built, "timing", "loads") for row in table.rows]


def test_bytes_of_both_directions_count(tmp_path: Path) -> None:
    told = {"service": "nfs-ganesha", "fallback": None, "read_mb_per_s": 150.0, "written_mb_per_s": 50.0}
    built = built_of(tmp_path, beside("io", told | {"achieved": ACHIEVED}))
    assert services(built) == [("I/O load", "host", "nfs-ganesha")]
    expected = {"cpu_busy": 50.0, "bytes": 200e6, "interrupts": 2500.0, "switches": 12_345.6, "operations": None}
    assert points(built, "io") == expected


@pytest.mark.parametrize("told", [None, {}, {"achieved": None}, {"achieved": {"cpu_busy_share": None}}])
def test_what_a_load_does_not_tell_is_missing_and_not_zero(tmp_path: Path, told: dict[str, Any] | None) -> None:
    built = built_of(tmp_path, beside("cpu", told))
    assert set(points(built).values()) == {None}
    assert value(built, "timing", "load.bytes", "host").estimate.method == "not told"
    assert "not told" in report.render_html(built)


def test_a_load_that_moves_no_data_can_never_have_moved_some() -> None:
    cells = {load: Cell("timing", "timer_cost", (("load", load),)) for load in ("io", "cpu", "idle")}
    never = {load: MEASURES["timing"]["load.bytes"].never(cell) for load, cell in cells.items()}
    assert never == {"io": "", "cpu": "the load moves no data", "idle": "there is no load"}


def test_repetitions_count_once_however_many_trials_they_have(tmp_path: Path) -> None:
    def busy(function: str, block: int, share: float) -> TrialRecord:
        told = {"achieved": ACHIEVED | {"cpu_busy_share": share}}
        return beside("cpu", told, block, function=function)

    first = [busy(function, 0, 0.1) for function in ("rdtsc", "rdtscp", "hptime")]
    built = built_of(tmp_path, *first, busy("rdtsc", 1, 0.5), busy("rdtsc", 2, 0.9))
    found = value(built, "timing", "load.cpu_busy", "host").estimate
    assert (found.point, found.n) == (pytest.approx(50), 3)
    assert value(built, "timing", "load.trials", "host").estimate.point == 5


def test_a_service_that_stands_in_for_another_says_why(tmp_path: Path) -> None:
    told = {"service": "agent file service", "fallback": "ganesha.nfsd ended: no FSAL", "achieved": ACHIEVED}
    ((_, _, service),) = services(built_of(tmp_path, beside("io", told)))
    assert service == "agent file service: ganesha.nfsd ended: no FSAL"


def test_idle_and_invalid_trials_have_no_row_and_arms_keep_their_order(tmp_path: Path) -> None:
    built = built_of(
        tmp_path,
        beside("idle", None),
        beside("cpu", {"achieved": ACHIEVED}, arm=GUEST),
        beside("cpu", {"achieved": ACHIEVED}),
        beside("io", {"achieved": ACHIEVED}, status=TrialStatus.INVALID),
    )
    assert [(load, arm) for load, arm, _ in services(built)] == [("CPU load", "host"), ("CPU load", "guest")]


def test_operations_are_of_the_time_that_the_load_ran(tmp_path: Path) -> None:
    built = built_of(tmp_path, beside("cpu", {"elapsed_ns": 2 * 10**9, "operations": 4_560_000, "achieved": ACHIEVED}))
    assert points(built)["operations"] == 2_280_000
    assert "what the loads achieved" in report.render_html(built)


def test_what_a_load_achieved_is_exported_for_each_trial_that_has_one(tmp_path: Path) -> None:
    told = {"achieved": ACHIEVED}
    built_of(tmp_path, beside("cpu", told), beside("cpu", told, function="hptime"), beside("idle", None))
    with exported(tmp_path / "run", Format.CSV, tmp_path / "run.csv").open(newline="") as text:
        found = [one for one in csv.DictReader(text) if one["measure"] == "load.interrupts"]
    assert [(json.loads(one["factors"])["load"], one["value"]) for one in found] == [("cpu", "2500.0")] * 2
