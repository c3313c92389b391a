"""The report's figures are those of recorded runs of every suite, to the last digit."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from support.figures import (
    COLUMNS,
    Figure,
    cell_of,
    differences,
    figures_path,
    figures_text,
    read,
    record,
    restore,
    write,
)

from virtgauge import report
from virtgauge.ledger.read_only import ReadOnlyLedger
from virtgauge.specs.blocks import Value, values_of
from virtgauge.specs.model import ChartSpec

pytestmark = pytest.mark.slow

RECORDED = sorted((Path(__file__).parents[1] / "data" / "recorded").glob("*.sql"))
FIGURE = Figure(
    "timing", "timer_cost.p50", "timer_cost;load=idle", "runc", "reference", "ratio", 1.2, 1.1, 1.3, 0.95, 6
)


@pytest.mark.parametrize("recording", RECORDED, ids=lambda path: path.stem)
def test_every_figure_interval_and_verdict_of_a_recorded_run_is_what_it_was(recording: Path) -> None:
    changed = list(differences(figures_path(recording).read_text(), figures_text(recording)))
    assert not changed, "\n".join(changed[:20])


@pytest.mark.parametrize("recording", RECORDED, ids=lambda path: path.stem)
def test_every_measure_that_has_a_figure_is_shown(recording: Path, tmp_path: Path) -> None:
    with ReadOnlyLedger.open(restore(recording.read_text(), tmp_path / "run")) as ledger:
        for suite in report.build(ledger).suites:
            shown = {one.measure for one in values_of(suite.blocks) if isinstance(one, Value)}
            parts = (part for section in suite.context.spec.sections for part in section.parts)
            drawn = {name for part in parts if isinstance(part, ChartSpec) for name in part.measures}
            has = suite.context.table.has
            found = {
                measure.name
                for measure in suite.context.spec.measures
                for cell in suite.context.cells
                for arm in suite.context.arms
                if has(measure, cell, arm.name)
            }
            assert not found - shown - drawn


def test_the_recordings_have_every_suite_and_every_outcome() -> None:
    rows = [row for recording in RECORDED for row in read(figures_path(recording).read_text()).values()]
    assert {row["suite"] for row in rows} >= {
        *("timing", "bandwidth", "forwarding", "storage", "isolation", "imported", "run")
    }
    compared = {row["verdict"] for row in rows if row["part"] == "ratio"}
    assert compared >= {"higher", "lower", "inconclusive", "better", "worse", "equivalent", "not shown"}
    required = {row["verdict"] for row in rows if row["measure"].startswith("requirement:")}
    assert required >= {"pass", "fail", "inconclusive", "not judged"}
    ended = {row["measure"] for row in rows if row["measure"].startswith("trials.")}
    assert ended == {"trials.valid", "trials.invalid", "trials.failed", "trials.unsupported"}
    assert any("+host=" in row["cell"] for row in rows), "a fleet"
    assert any(row["part"] == "replay" for row in rows), "a replay of a paper"


def test_a_recording_is_the_run_again(tmp_path: Path) -> None:
    smallest = min(RECORDED, key=lambda path: path.stat().st_size)
    first = restore(smallest.read_text(), tmp_path / "first")
    again = restore(record(first), tmp_path / "again")
    assert (again / "plan.toml").read_text() == (first / "plan.toml").read_text()
    assert record(again) == record(first)


@pytest.mark.parametrize(
    "change", [{"estimate": 1.21}, {"low": None}, {"n": 5}, {"verdict": "higher"}, {"unit": "ns"}, {"confidence": 0.9}]
)
def test_whatever_changes_in_a_figure_is_told_with_both_values(change: dict[str, object]) -> None:
    (name,) = change
    (told,) = differences(write([FIGURE]), write([dataclasses.replace(FIGURE, **change)]))
    assert told.startswith("changed") and f"{name} " in told and " → " in told


def test_figures_that_come_and_go_are_told() -> None:
    other = dataclasses.replace(FIGURE, arm="gvisor")
    told = list(differences(write([FIGURE]), write([other])))
    assert [line.split()[0] for line in told] == ["new", "missing"]


def test_rounding_in_the_last_digits_is_no_change_and_an_excepted_figure_is_not_compared() -> None:
    near = dataclasses.replace(FIGURE, estimate=1.2 * (1 + 1e-10))
    far = dataclasses.replace(FIGURE, estimate=1.2 * (1 + 1e-8))
    assert not list(differences(write([FIGURE]), write([near])))
    assert list(differences(write([FIGURE]), write([far])))
    assert not list(differences(write([FIGURE]), write([far]), ["timing timer_cost.*"]))


def test_the_same_figure_in_another_unit_is_the_same() -> None:
    share = Figure("bandwidth", "error", estimate=0.05, low=0.04, high=0.06, unit="share")
    percent = Figure("bandwidth", "error", estimate=5.0, low=4.0, high=6.0, unit="%")
    assert not list(differences(write([share]), write([percent])))


def test_two_figures_of_one_key_are_refused_and_missing_ones_have_no_line() -> None:
    with pytest.raises(ValueError, match="one key, two figures"):
        write([FIGURE, dataclasses.replace(FIGURE, estimate=2.0)])
    missing = dataclasses.replace(FIGURE, estimate=None, low=None, high=None)
    assert write([missing]) == "\t".join(COLUMNS) + "\n"


def test_a_cell_is_its_probe_and_its_levels_sorted_by_factor() -> None:
    levels = {"vector": "k=1", "jain": "0.085", "frame_bytes": "64"}
    assert cell_of("throughput", levels, guest=2) == "throughput;frame_bytes=64;vector=k=1;+guest=2"
