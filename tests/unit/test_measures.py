"""The catalogue of measures, the figures that it finds, and their units."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import pytest
from exported_runs import exported
from shown import tables
from suites.isolation_runs import isolation_trials
from suites.simulated_runs import execute, plan_of, report_of, simulated
from synthetic import arm_record, manifest, trial

from virtgauge.analysis.bounds import Outcome
from virtgauge.compare.comparison import Wanted, compare_runs
from virtgauge.errors import UsageError
from virtgauge.exchange import Format
from virtgauge.ledger.store import Ledger
from virtgauge.results.measure import Better, Measure, Statistic, field
from virtgauge.results.quantities import BY_UNIT, DURATION, FRAME_RATE, SHARE
from virtgauge.results.table import ResultTable
from virtgauge.specs import suites
from virtgauge.specs.blocks import Value, values_of
from virtgauge.specs.suites import MEASURES, find_measure, headline_measures
from virtgauge.specs.timing import TIMING


def test_every_measure_has_one_source_and_says_what_it_means() -> None:
    for suite, measures in MEASURES.items():
        for name, measure in measures.items():
            assert (measure.suite, measure.name) == (suite, name)
            # Other tools give quantiles with or without the histogram behind them.
            otherwise = isinstance(measure.source, Statistic) and measure.source.otherwise is not None
            assert otherwise == (suite == "imported" and isinstance(measure.source, Statistic))
            assert measure.meaning and measure.probes
            assert BY_UNIT[measure.quantity.unit] is measure.quantity
    assert {one.suite for one in headline_measures()} >= {"timing", "bandwidth", "forwarding", "storage", "isolation"}


def test_units_convert_and_unknown_ones_are_refused_with_those_that_there_are() -> None:
    assert DURATION.to_base(2.5, "ms") == 2_500_000
    assert FRAME_RATE.to_base(1.5, "Mpps") == 1_500_000
    assert SHARE.to_base(0.25, "ratio") == 25
    with pytest.raises(UsageError, match=r"did you mean 'ms'.*\n.*use one of ns") as refused:
        DURATION.to_base(1, "msec")
    assert "unit = 'msec'" in str(refused.value)


def test_figures_of_a_run_are_those_of_its_truth(tmp_path: Path) -> None:
    truth = {"*": {"median_ns": 500.0, "guest_sigma": 0.0}}
    plan = plan_of(simulated("a", truth=truth), repetitions=3)
    execute(plan, tmp_path / "run")
    p50 = find_measure("timing", "timer_cost.p50")
    with Ledger.open(tmp_path / "run") as ledger:
        table = ResultTable(ledger)
        found = [table.values(p50, cell, "a") for cell in table.cells("timing") if cell.probe == "timer_cost"]
    for blocks in found:
        assert sorted(blocks) == [0, 1, 2]
        assert all(value == pytest.approx(500, rel=0.05) for value in blocks.values())
    assert found
    assert p50.better is Better.LOWER


def test_work_kept_is_of_the_same_repetition_without_the_load(tmp_path: Path) -> None:
    design = {"loads": ["none", "integer"]}
    isolation_trials(tmp_path / "run", repetitions=2, design=design)
    kept, work = find_measure("isolation", "kept"), find_measure("isolation", "work")
    with Ledger.open(tmp_path / "run") as ledger:
        table = ResultTable(ledger)
        first = {cell.factors["load"]: cell for cell in reversed(table.cells("isolation"))}
        alone, beside = first["none"], first["integer"]
        shares = table.values(kept, beside, "test")
        works = [table.values(work, cell, "test") for cell in (beside, alone)]
        assert table.values(kept, alone, "test") == {}
    assert len(shares) == 2
    for block, share in shares.items():
        assert share == pytest.approx(100 * works[0][block] / works[1][block])


def test_an_unknown_measure_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'throughput'"):
        find_measure("storage", "thruput")
    with pytest.raises(UsageError, match="there is no such suite"):
        find_measure("storrage", "throughput")


def test_a_new_measure_is_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Report, verdict, comparison and exports have it, though none of them knows of it."""
    probes = frozenset({"timer_cost"})
    new = Measure("timing", "timer_cost.first", DURATION, Better.LOWER, "the first read", probes, field("first_ns"))
    spec = dataclasses.replace(TIMING, measures=(*TIMING.measures, new))
    monkeypatch.setattr(suites, "SPECS", tuple(spec if one is TIMING else one for one in suites.SPECS))
    monkeypatch.setitem(MEASURES, spec.name, {one.name: one for one in spec.measures})
    arms = [arm_record("host", "host", "Host", "reference"), arm_record("guest", "simulated", "Guest")]
    required = {"suite": "timing", "measure": new.name, "at_most": 50, "unit": "ns"}
    plan = plan_of(*(simulated(arm.name) for arm in arms), repetitions=8, require=[required]).to_toml()
    with Ledger.create(tmp_path / "run", manifest(arms, plan_text=plan)) as ledger:
        for block in range(8):
            for arm, first_ns in zip(arms, (30.0, 60.0), strict=True):
                levels = {"function": "rdtsc", "load": "idle"}
                ledger.add_trial(trial(arm, "timer_cost", levels, block, result={"first_ns": first_ns + block}), {}, {})

    built = report_of(tmp_path / "run")
    others = [one for one in values_of(tables(built, "timing", "others")) if isinstance(one, Value)]
    assert {(one.measure, one.place.arm, one.estimate.point) for one in others} == {
        (new.name, "host", 33.5),
        (new.name, "guest", 63.5),
    }
    assert [one.outcome for one in built.decisions.verdicts] == [Outcome.PASS, Outcome.FAIL]
    (change,) = compare_runs([tmp_path / "run"], Wanted([find_measure("timing", new.name)], ["host=guest"])).changes
    assert change.measure.full_name == new.full_name and change.own.ratio.point == pytest.approx(63.5 / 33.5, rel=0.01)

    with exported(tmp_path / "run", Format.CSV, tmp_path / "csv").open(newline="") as text:
        values = [float(row["value"]) for row in csv.DictReader(text) if row["measure"] == new.name]
    assert values == [start + block for block in range(8) for start in (30, 60)]
    document = json.loads(exported(tmp_path / "run", Format.JSON, tmp_path / "json").read_text())
    assert [one["value"] for one in document["rows"] if one["measure"] == new.full_name] == values
    found = {one["arm"]: one["value"] for one in document["estimates"] if one["measure"] == new.full_name}
    assert found == {"host": 33.5, "guest": 63.5}
    assert [one["meaning"] for one in document["measures"] if one["measure"] == new.full_name] == [new.meaning]
    metrics = exported(tmp_path / "run", Format.OPENMETRICS, tmp_path / "metrics").read_text()
    assert "# HELP virtgauge_timing_timer_cost_first_seconds the first read; median over the repetitions" in metrics
