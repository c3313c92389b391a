"""A run as tidy rows: all trials, valid or not, the same in CSV and in Parquet."""

import csv
import dataclasses
import json

import pytest
from exported_runs import exported
from synthetic import arm_record, cells, manifest, synthetic_ledger, trial

from virtgauge.errors import UsageError
from virtgauge.exchange import Format
from virtgauge.exchange.trials import COLUMNS, csv_cell
from virtgauge.ledger.records import NS_PER_UNIT, Flag, TrialStatus, statistics_of
from virtgauge.ledger.store import Ledger
from virtgauge.results.columns import Cell
from virtgauge.specs.suites import MEASURES, find_measure

HOSTILE = 'a "quoted", comma\nand =1+1 \x1b[31m'


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables") / "run"
    design = list(cells(timers=("rdtsc", "clock_gettime"), loads=("idle",)))
    synthetic_ledger(folder, blocks=3, design=design, invalid_share=0.2).close()
    return folder


@pytest.fixture(scope="module")
def rows(run, tmp_path_factory):
    with exported(run, Format.CSV, tmp_path_factory.mktemp("csv") / "run.csv").open(newline="") as text:
        return list(csv.DictReader(text))


def test_every_trial_has_a_row_for_each_measure_that_its_cell_can_have(run, rows):
    with Ledger.open(run) as ledger:
        trials = ledger.trials()
    found = {(int(row["trial_id"]), row["measure"]) for row in rows}
    assert found == {
        (one.trial_id, measure.name)
        for one in trials
        for measure in MEASURES["timing"].values()
        if measure.fits(Cell(one.suite, one.probe, tuple(one.factors.items())))
    }
    assert len(found) == len(rows)


def test_trials_that_do_not_count_are_there_without_a_value(rows):
    invalid = [row for row in rows if row["status"] == "invalid"]
    assert invalid
    assert {(row["value"], row["flags"]) for row in invalid} == {("", "foreign-load")}


def test_values_are_those_of_the_catalogue(run, rows):
    p99 = find_measure("timing", "sleep_lateness.p99")
    valid = {int(row["trial_id"]) for row in rows if row["status"] == "valid"}
    with Ledger.open(run) as ledger:
        expected = {
            number: statistics_of(histogram)["p99"] * NS_PER_UNIT[histogram.unit]
            for number, histogram in ledger.histograms(valid, "sleep_lateness")
        }
    found = {int(r["trial_id"]): float(r["value"]) for r in rows if r["measure"] == p99.name and r["value"]}
    assert found == pytest.approx(expected)


def test_a_quantile_that_a_trial_cannot_say_is_empty_and_not_zero(rows):
    """A thousand sleeps leave no ten beyond the 99.99th percentile."""
    valid = [row["value"] for row in rows if row["measure"] == "sleep_lateness.p99.99" and row["status"] == "valid"]
    assert set(valid) == {""}


def test_parquet_says_the_same_as_csv(run, rows, tmp_path):
    path = exported(run, Format.PARQUET, tmp_path / "run.parquet")
    import duckdb  # not at the head: conftest's frozen garbage would make it complain of leaks at the end

    found = duckdb.sql(f"SELECT * FROM read_parquet('{path}')")
    assert tuple(found.columns) == COLUMNS
    texts = [
        tuple("" if value is None else str(value).lower() if isinstance(value, bool) else str(value) for value in row)
        for row in found.fetchall()
    ]
    assert texts == [tuple(row.values()) for row in rows]


def test_factors_are_json_in_the_order_of_the_plan(rows):
    assert json.loads(rows[0]["factors"]) == {"function": "rdtsc", "load": "idle"}


def test_measures_can_be_chosen(run, tmp_path):
    path = exported(run, Format.CSV, tmp_path / "some.csv", ("timing.timer_cost.p50",))
    with path.open(newline="") as text:
        assert {row["measure"] for row in csv.DictReader(text)} == {"timer_cost.p50"}


@pytest.mark.parametrize(
    ("name", "words"),
    [("timing.timer_cost.p51", "did you mean"), ("p50", "named with its suite"), ("cooking.p50", "no such suite")],
)
def test_an_unknown_measure_is_refused(run, tmp_path, name, words):
    with pytest.raises(UsageError, match=words):
        exported(run, Format.CSV, tmp_path / "none.csv", (name,))
    assert not (tmp_path / "none.csv").exists()


def test_texts_of_a_trial_cannot_leave_their_field(tmp_path):
    arm = arm_record("host", "host", "Host", "reference")
    with Ledger.create(tmp_path / "run", manifest([arm])) as ledger:
        hostile = {"function": HOSTILE, "load": "idle"}
        ledger.add_trial(trial(arm, "timer_cost", hostile, 0, status=TrialStatus.FAILED, error=HOSTILE))
        ledger.add_trial(trial(arm, "no_such_probe", {}, 0, flags=(Flag("short", HOSTILE, fatal=False),)))
    with exported(tmp_path / "run", Format.CSV, tmp_path / "run.csv").open(newline="") as text:
        rows = list(csv.DictReader(text))
    assert {row["error"] for row in rows} == {HOSTILE.replace("\x1b", "�"), ""}
    assert json.loads(rows[0]["factors"])["function"] == HOSTILE
    assert [row["measure"] for row in rows if row["probe"] == "no_such_probe"] == [""]


def test_a_relation_of_two_trials_is_a_value_of_the_one_that_is_divided(tmp_path):
    """What a guest kept is work beside a load over work without it."""
    arm = arm_record("host", "host", "Host", "reference")
    with Ledger.create(tmp_path / "run", manifest([arm])) as ledger:
        for block in range(5):
            # In the last two there is nothing to divide by.
            alone = {3: {"none": 0.0}, 4: {}}.get(block, {"none": 200.0})
            for load, rate in (alone | {"cpu": 50.0 + block}).items():
                levels = {"benchmark": "integer", "load": load, "intensity": "0" if load == "none" else "1"}
                record = trial(arm, "kernel", levels, block, result={"rate": rate})
                ledger.add_trial(dataclasses.replace(record, suite="isolation"))
    path = exported(tmp_path / "run", Format.CSV, tmp_path / "run.csv", ("isolation.kept",))
    with path.open(newline="") as text:
        kept = [float(row["value"]) for row in csv.DictReader(text) if row["value"]]
    assert kept == [25.0, 25.5, 26.0]


def test_no_text_is_a_formula_and_numbers_stay_numbers():
    for text in ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1"):
        assert csv_cell(text)[0] == "'", text
    assert [csv_cell(value) for value in (-1, -0.5, None, True, "a=1", "")] == [-1, -0.5, None, "true", "a=1", ""]
    assert csv_cell("a\u202eb\nc") == "a�b\nc"
