"""The catalogue of measures, the figures that it finds, and their units."""

from __future__ import annotations

from pathlib import Path

import pytest
from suites.isolation_runs import isolation_trials
from suites.simulated_runs import execute, plan_of, simulated

from virtgauge.errors import UsageError
from virtgauge.ledger.store import Ledger
from virtgauge.results.measure import Better, Statistic
from virtgauge.results.quantities import BY_UNIT, DURATION, FRAME_RATE, SHARE
from virtgauge.results.table import ResultTable
from virtgauge.specs.suites import MEASURES, find_measure, headline_measures


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
