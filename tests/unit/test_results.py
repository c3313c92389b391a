"""The table of a run's results: which trials count, what each figure is, and why one is missing."""

from __future__ import annotations

import dataclasses
import itertools
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from storage_results import Design, storage_ledger
from suites.isolation_runs import isolation_trials
from synthetic import STARTED, arm_record, hdr_bins, manifest, synthetic_ledger, usual_arms

from virtgauge.analysis.comparison import compare, paired_ratio
from virtgauge.analysis.distribution import merge
from virtgauge.ledger.records import NS_PER_UNIT, Flag, Histogram, TrialRecord, TrialStatus, statistics_of
from virtgauge.ledger.store import Ledger
from virtgauge.results.columns import Cell, read_results
from virtgauge.results.measure import Across, Better, Derived, Field, Measure, Statistic, field
from virtgauge.results.quantities import COUNT
from virtgauge.results.table import ResultTable
from virtgauge.specs.suites import MEASURES, find_measure

pytestmark = pytest.mark.slow

ARMS = [arm_record("host", "host", "Host", "reference"), arm_record("aa", "host", "Host (A/A)", "aa")]
RATE = find_measure("storage", "throughput")
CELL = Cell("storage", "operations", (("database", "sqlite"),))


def record(arm: str, block: int, rate: object, attempt: int = 1, **fields: object) -> TrialRecord:
    whole = {
        **{"trial_id": 0, "key": f"{block}/{arm}", "suite": "storage", "probe": "operations", "arm": arm},
        **{"platform": "host", "block": block, "attempt": attempt, "factors": {"database": "sqlite"}},
        **{"status": TrialStatus.VALID, "flags": (), "result": {"operations_per_s": rate}, "accounting": {}},
        **{"error": None, "guest_id": None, "started_at": STARTED, "elapsed_ns": 1},
    }
    return TrialRecord(**(whole | fields))  # type: ignore[arg-type]


def table_of(folder: Path, *trials: TrialRecord) -> ResultTable:
    with Ledger.create(folder / "run", manifest(ARMS)) as ledger:
        for one in trials:
            ledger.add_trial(one)
    return ResultTable.open(folder / "run")


def test_the_last_valid_attempt_of_each_block_counts(tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        record("host", 1, 10.0),
        record("host", 0, 20.0, status=TrialStatus.INVALID, flags=(Flag("steal", "3 %"),)),
        record("host", 0, 30.0, attempt=2),
        record("host", 1, 40.0, attempt=2, key="again"),
        record("host", 2, None, status=TrialStatus.FAILED, error="the guest died"),
    )
    assert table.cells() == [CELL]
    assert table.values(RATE, CELL, "host") == {0: 30.0, 1: 40.0}
    assert table.numbers(CELL, "host") == {0: 3, 1: 4}
    assert table.estimate(RATE, CELL, "host").n == 2
    assert table.endings.flags([CELL], "host") == {"steal": 1}
    assert table.endings.statuses("host") == {"failed": 1, "invalid": 1, "valid": 3}
    assert [one.status.value for one in table.endings.attempts(CELL, "host")] == [
        "valid",
        "invalid",
        "valid",
        "valid",
        "failed",
    ]


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (record("host", 0, None, status=TrialStatus.FAILED, error="the guest died"), "failed: the guest died"),
        (
            record("host", 0, 3.0, status=TrialStatus.INVALID, flags=(Flag("note", "", False), Flag("steal", "3 %"))),
            "invalid: steal: 3 %",
        ),
        (record("host", 0, None), "the result has no throughput"),
        (record("host", 0, True), "the result has no throughput"),
        (record("aa", 0, 3.0), "not tried"),
    ],
)
def test_a_missing_figure_says_why(tmp_path: Path, last: TrialRecord, reason: str) -> None:
    estimate = table_of(tmp_path, last).estimate(RATE, CELL, "host")
    assert estimate.point is None
    assert estimate.method == reason


def test_measures_of_the_same_and_of_other_probes_read_each_result_once(tmp_path: Path) -> None:
    probes = {"knee": 2.0, "crash": 3.0, "operations": 5.0}
    trials = [record("host", 0, rate, key=probe, probe=probe) for probe, rate in probes.items()]
    table = table_of(tmp_path, *trials)
    rate, doubled = field("operations_per_s"), field("operations_per_s", factor=2.0)
    sources = {("operations", "knee"): rate, ("crash",): rate, ("operations",): doubled, ("knee", "crash"): doubled}
    measures = [
        Measure("storage", f"m{place}", COUNT, Better.HIGHER, "", frozenset(own), source)
        for place, (own, source) in enumerate(sources.items())
    ]
    read: list[int] = []

    def told(*asked: Any) -> Any:
        *_, paths = asked
        assert paths == [("operations_per_s",)]
        for numbers, rows in read_results(*asked):
            read.extend(numbers)
            yield numbers, rows

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("virtgauge.results.table.read_results", told)
        table.read(measures)
        cells = {cell.probe: cell for cell in table.cells()}
        for measure, (own, source) in zip(measures, sources.items(), strict=True):
            for probe, cell in cells.items():
                expected = {0: probes[probe] * source.factor} if probe in own else {}
                assert table.values(measure, cell, "host") == expected
    assert sorted(read) == [1, 2, 3]


def test_details_of_every_cell_and_arm_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = {"host": [1.0, 2.0], "aa": [3.0]}
    trials = [record(arm, block, 1.0, result={"steps": steps[arm]}) for arm in steps for block in (1, 0)]
    table = table_of(tmp_path, *trials, record("aa", 2, 1.0), record("aa", 2, 2.0, attempt=2))
    read: list[int] = []

    def told(*asked: Any) -> Any:
        for numbers, rows in read_results(*asked):
            read.extend(numbers)
            yield numbers, rows

    monkeypatch.setattr("virtgauge.results.table.read_results", told)
    for _ in range(2):
        assert table.details(CELL, "host", (("steps",),), str) == {0: "[1.0, 2.0]", 1: "[1.0, 2.0]"}
        assert table.details(CELL, "aa", (("steps",),), str) == {0: "[3.0]", 1: "[3.0]", 2: "None"}
    assert sorted(read) == [1, 2, 3, 4, 5, 6]


def test_a_result_that_sqlite_cannot_read_is_read_all_the_same(tmp_path: Path) -> None:
    table = table_of(tmp_path, record("host", 0, 5.0, result={"operations_per_s": 5.0, "other": float("nan")}))
    assert table.values(RATE, CELL, "host") == {0: 5.0}


def test_derived_figures_need_both_of_their_parts(tmp_path: Path) -> None:
    made = {"a": {"x": 6.0, "y": 3.0}, "b": {"x": 1.0, "y": 0.0}, "c": {"x": 1.0}}
    trials = [
        record("host", block, None, key=level, factors={"database": "sqlite", "level": level}, result=result)
        for block, (level, result) in enumerate(made.items())
    ]
    table = table_of(tmp_path, *trials)
    with np.errstate(divide="ignore"):
        parts = (field("x"), field("y"))
        quotient = Derived(parts, lambda x, y: np.where(y == 0, np.nan, x / y))
        measure = Measure("storage", "quotient", COUNT, Better.HIGHER, "x / y", RATE.probes, quotient)
        found = [table.values(measure, cell, "host") for cell in table.cells()]
    assert found == [{0: 2.0}, {}, {}]


def test_figures_and_comparisons_are_those_of_each_trial_by_itself(tmp_path: Path) -> None:
    with synthetic_ledger(tmp_path / "timing", blocks=4, invalid_share=0.2, reads=20_000) as ledger:
        _agrees(ledger, "timing")
    designs = [Design(operations=("single-write", "knee", "mixed"), loops=("closed",), crashes=("server",))]
    with storage_ledger(tmp_path / "storage", designs=designs, blocks=2) as ledger:
        _agrees(ledger, "storage")
    isolation_trials(tmp_path / "isolation", repetitions=2, design={"loads": ["none", "integer"]})
    with Ledger.open(tmp_path / "isolation") as ledger:
        _agrees(ledger, "isolation")


def value_of(source: Any, result: Mapping[str, Any], statistics: Mapping[str, float | None] | None) -> float | None:
    """The figure of one trial; None without one."""
    match source:
        case Field():
            value: Any = result
            for part in source.path:
                value = value.get(part) if isinstance(value, Mapping) else None
            return source.number(value)
        case Statistic() if statistics is None:
            return value_of(source.otherwise, result, None) if source.otherwise else None
        case Statistic():
            assert statistics is not None
            return statistics.get(source.name)
    known = [value_of(one, result, statistics) for one in source.of]
    found = float(source.function(*(np.array([np.nan if one is None else one]) for one in known))[0])
    return None if np.isnan(found) else found


def one_by_one(ledger: Ledger, measures: list[Measure]) -> dict[tuple[str, Cell, str], dict[int, float]]:
    """The same figures, from each trial's own record."""
    found: dict[tuple[str, Cell, str], dict[int, float]] = {}
    trials = [one for one in ledger.trials() if one.status is TrialStatus.VALID]
    for measure, trial in itertools.product(measures, trials):
        cell = Cell(trial.suite, trial.probe, tuple(trial.factors.items()))
        if measure.fits(cell):
            statistics = None
            if measure.histogram and (own := dict(ledger.histograms([trial.trial_id], measure.histogram))):
                unit = NS_PER_UNIT[own[trial.trial_id].unit]
                known = statistics_of(own[trial.trial_id])
                statistics = {name: None if value is None else value * unit for name, value in known.items()}
            if (value := value_of(measure.source, trial.result, statistics)) is not None:
                found.setdefault((measure.name, cell, trial.arm), {})[trial.block] = value
    return found


def _agrees(ledger: Ledger, suite: str) -> None:
    # What is made of several cells has no figure of a trial by itself.
    measures = [one for one in MEASURES[suite].values() if not (one.relatives or isinstance(one.source, Across))]
    values, table = one_by_one(ledger, measures), ResultTable(ledger)
    table.read(measures)
    reference = table.reference
    seen = 0
    for measure, cell, arm in itertools.product(measures, table.cells(), table.trials.arms):
        blocks = values.get((measure.name, cell, arm), {})
        found = table.values(measure, cell, arm)
        assert found.keys() == blocks.keys()
        assert [*found.values()] == pytest.approx([blocks[block] for block in found], rel=1e-12)
        seen += len(found)
        if blocks and arm not in (reference, table.aa):
            base, aa = (values.get((measure.name, cell, name), {}) for name in (reference, table.aa))
            identical = paired_ratio(aa, base, table.confidence) if aa and base else None
            expected = compare(blocks, base, identical, measure.quantity.unit, table.confidence)
            compared = table.compared(measure, cell, arm)
            assert compared.judgement is expected.judgement
            assert compared.reason == expected.reason
            assert compared.ratio.low == pytest.approx(expected.ratio.low)
            assert compared.difference.high == pytest.approx(expected.difference.high)
    assert seen > 10


def test_statistics_are_recorded_and_computed_where_they_were_not(tmp_path: Path) -> None:
    p99 = find_measure("timing", "timer_cost.p99")
    with synthetic_ledger(tmp_path / "run", usual_arms()[:2], blocks=2, reads=20_000):
        pass
    table = ResultTable.open(tmp_path / "run")
    cells = [cell for cell in table.cells() if cell.probe == "timer_cost"]
    told = {cell: table.values(p99, cell, "host") for cell in cells}
    assert all(len(blocks) == 2 for blocks in told.values())
    with sqlite3.connect(tmp_path / "run/ledger.sqlite") as database:
        # as a run that a former version began and this one has gone on with
        database.execute("DELETE FROM summaries WHERE trial_id <= (SELECT max(trial_id) / 2 FROM trials)")
    halved = ResultTable.open(tmp_path / "run")
    assert {cell: halved.values(p99, cell, "host") for cell in told} == told
    with sqlite3.connect(tmp_path / "run/ledger.sqlite") as database:
        # as one of before it told them otherwise
        database.execute("ALTER TABLE summaries RENAME TO statistics")
        database.execute('UPDATE statistics SET "p99" = 0')
    before = ResultTable.open(tmp_path / "run")
    assert {cell: before.values(p99, cell, "host") for cell in told} == told


def test_histograms_of_repetitions_are_merged_when_asked_for(tmp_path: Path) -> None:
    parts = [hdr_bins(np.random.default_rng(seed).integers(1000, 9000, 500)) for seed in range(3)]
    with Ledger.create(tmp_path / "run", manifest(ARMS)) as ledger:
        for block, one in enumerate(parts):
            ledger.add_trial(record("host", block, 1.0), {"service": one})
        ledger.add_trial(record("host", 3, 1.0, status=TrialStatus.INVALID), {"service": parts[0]})
    found = ResultTable.open(tmp_path / "run").distributions.pooled("service", CELL, "host")
    assert found is not None
    whole, ns, *_ = found
    expected = merge(parts)
    assert (whole.n, ns) == (1500, 1e-3)
    assert whole.quantile(0.9) == expected.quantile(0.9)


def test_of_many_repetitions_with_many_values_some_are_merged_of_every_part_of_the_run(tmp_path: Path) -> None:
    """No step that repetitions have in common, such as two of each guest, is met each time; the mean is of all."""
    blocks, values = 400, 5000
    rng = np.random.default_rng(3)
    with Ledger.create(tmp_path / "run", manifest(ARMS)) as ledger:
        for block in range(blocks):
            samples = np.full(values, 1000 + 2000 * (block % 2)) + rng.integers(0, 100, values)
            ledger.add_trial(record("host", block, 1.0), {"service": hdr_bins(samples)})
    table = ResultTable.open(tmp_path / "run")
    found = table.distributions.pooled("service", CELL, "host")
    assert found is not None
    assert (found.places.size, found.of) == (1_000_000 // values, blocks)
    drawn = table.trials.block[found.places]
    assert drawn.tolist() == sorted(set(drawn.tolist()))
    assert [np.count_nonzero((drawn >= at) & (drawn < at + 40)) for at in range(0, blocks, 40)] == [20] * 10
    assert all(np.unique(drawn % period).size == period for period in range(2, 11))
    assert found.values.n == drawn.size * values
    mean_ns = table.distributions.mean_ns("service", CELL, "host")
    assert mean_ns is not None and mean_ns / found.ns == pytest.approx(2049.5, rel=1e-3)


def test_a_host_of_a_fleet_is_its_own_blocks(tmp_path: Path) -> None:
    from virtgauge.ledger.records import BLOCKS_PER_HOST, HostRecord

    hosts = tuple(HostRecord(f"h{n}", n, {}, {}, ("host", "aa")) for n in range(2))
    with Ledger.create(tmp_path / "run", manifest(ARMS, hosts=hosts)) as ledger:
        ledger.add_trial(record("host", 0, 1.0))
        ledger.add_trial(record("host", BLOCKS_PER_HOST, 2.0))
    assert ResultTable.open(tmp_path / "run").values(RATE, CELL, "host") == {0: 1.0, BLOCKS_PER_HOST: 2.0}
    assert ResultTable.open(tmp_path / "run", "h1").values(RATE, CELL, "host") == {BLOCKS_PER_HOST: 2.0}


def test_a_hundred_thousand_trials_are_read_without_a_record_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger.create(tmp_path / "run", manifest(ARMS)) as ledger:
        ledger.add_trial(record("host", 0, 1.0))
        ledger.add_trial(record("aa", 0, 2.0))
    with sqlite3.connect(tmp_path / "run/ledger.sqlite") as database:
        columns = [str(row[1]) for row in database.execute("PRAGMA table_info(trials)")]
        changed = {
            "trial_id": "trial_id + 2 * n.value",
            "key": "key || '@' || n.value",
            "block": "n.value",
            "result": "json_object('operations_per_s', n.value)",
        }
        database.execute(
            f"INSERT INTO trials SELECT {', '.join(changed.get(name, name) for name in columns)} FROM trials, "
            "(WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 50000) "
            "SELECT value FROM n) AS n"
        )
    made = []
    monkeypatch.setattr(TrialRecord, "__init__", lambda self, *_, **__: made.append(self))
    table = ResultTable.open(tmp_path / "run")
    assert table.trials.number.size == 100_002
    values = table.values(RATE, CELL, "aa")
    assert len(values) == 50_001
    assert values[77] == 77.0
    assert table.estimate(RATE, CELL, "host").point == pytest.approx(25_000, rel=0.01)
    assert made == []


def test_a_quantile_needs_values_beyond_it() -> None:
    few = Histogram(np.arange(99), np.ones(99, dtype=np.uint64), 0, 98, 49.0, "ns")
    assert statistics_of(few)["p90"] is None
    enough = dataclasses.replace(few, values=np.arange(100), counts=np.ones(100, dtype=np.uint64))
    assert statistics_of(enough)["p90"] == 89.0


def test_the_median_of_a_clock_takes_20_values_and_its_maximum_one(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "run", manifest(ARMS)) as ledger:
        for block, n in enumerate((19, 20)):
            trial = dataclasses.replace(record("host", block, 1.0), suite="timing", probe="timer_cost")
            ledger.add_trial(trial, {"timer_cost": hdr_bins(np.arange(1, n + 1))})
    table = ResultTable.open(tmp_path / "run")
    (cell,) = table.cells("timing")
    for name, blocks in {"p50": [1], "half_iqr": [1], "mad": [1], "max": [0, 1]}.items():
        measure = find_measure("timing", f"timer_cost.{name}")
        assert [*table.values(measure, cell, "host")] == blocks
        assert np.flatnonzero(~np.isnan(table.column(measure))).tolist() == blocks
