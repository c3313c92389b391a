"""The isolation report's figures on hand-made results: efficiencies, ratios, pressure, settings, conservation."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from isolation_reports import (
    AA,
    HOST,
    MEMORY,
    built,
    cell_of,
    interference_of,
    sentence_of,
    series_of,
)
from isolation_results import (
    Design,
    IsolationArm,
    isolation_of,
)
from synthetic import arm_record

from virtgauge import report
from virtgauge.ledger.records import Flag
from virtgauge.report.isolation.accounting import blind_words
from virtgauge.report.isolation.model import (
    Degree,
    Key,
)
from virtgauge.report.isolation.vocabulary import Resource

SLOW = IsolationArm(arm_record("slow", "oci", "Slow"), share=0.9, speed=0.8)


def test_efficiency_is_that_of_the_cpu_time_received_times_that_of_the_work_done_in_it(tmp_path: Path) -> None:
    found = isolation_of(built(tmp_path, Design(shares=(25, 75)), arms=(HOST, AA, SLOW)))
    for share in (0.25, 0.75):
        host, slow = (series_of(found, arm, load="integer", share=share) for arm in ("host", "slow"))
        assert host.relative.point == pytest.approx(share, rel=0.02)
        assert host.q.point == pytest.approx(1, rel=0.02)
        assert slow.q_share.point == pytest.approx(0.9, rel=0.001)
        assert slow.q_rate.point == pytest.approx(0.8, rel=0.02)
        assert slow.q.point == pytest.approx(0.72, rel=0.02)
        assert slow.q.low is not None and slow.q.high is not None and slow.q.low <= 0.72 <= slow.q.high


def test_the_reference_is_that_of_as_many_cores(tmp_path: Path) -> None:
    design = Design(cores=("1", "all"), policies=("none",), loads=("none", "integer"))
    found = isolation_of(built(tmp_path, design))
    one, both = (series_of(found, "host", load="none", cores=cores) for cores in ("1", "all"))
    assert both.value.point == pytest.approx(2 * (one.value.point or 0), rel=0.02)
    assert (one.relative.point, both.relative.point) == (1, 1)
    assert series_of(found, "host", load="integer", cores="all").relative.point == pytest.approx(0.5, rel=0.02)


def test_an_idle_neighbours_policy_bounds_nothing_so_that_the_free_cell_is_the_unloaded_one(tmp_path: Path) -> None:
    """As the suite has it: a bound for the neighbour's disk is tried only where the neighbour uses its disk."""

    def refused(arm: str, factors: Any) -> str | None:
        return "not tried" if factors["on"] == "loading" and factors["load"] == "none" else None

    design = Design(
        ("disk-sequential-read",),
        loads=("none", "flush"),
        policies=("none", "disk-limit"),
        on=("loading",),
        shares=(20,),
    )
    found = isolation_of(built(tmp_path, design, arms=(HOST, AA), refused=refused))
    beside = interference_of(found, "host", policy="disk-limit")
    assert beside.ratio.point == pytest.approx(1 / 1.1, rel=0.02)
    assert "with disk limit of 20 % on the loading guest" in sentence_of(found, "host", Resource.DISK).text


def test_losing_a_neighbours_idle_time_is_no_lack_of_isolation(tmp_path: Path) -> None:
    found = isolation_of(built(tmp_path, Design(policies=("none", "reservation"), shares=(75,))))
    assert series_of(found, "host", policy="reservation", load="none").relative.point == pytest.approx(1, rel=0.02)
    beside = interference_of(found, "host", policy="reservation")
    assert beside.ratio.point == pytest.approx(0.75, rel=0.02)
    assert beside.kept.point == pytest.approx(1, rel=0.02)
    assert sentence_of(found, "host", Resource.CPU).degree is Degree.ISOLATED


def test_what_is_left_by_the_loading_guest_is_what_the_tested_one_is_promised(tmp_path: Path) -> None:
    found = isolation_of(built(tmp_path, Design(on=("loading",), shares=(95,))))
    cell = cell_of(found, on="loading", load="integer")
    assert cell.key.promised == pytest.approx(0.05)
    assert series_of(found, "host", on="loading", load="integer").q.point == pytest.approx(1, rel=0.05)
    assert series_of(found, "host", on="loading", load="none").q.point == pytest.approx(20, rel=0.02)
    everything = isolation_of(built(tmp_path / "all", Design(on=("loading",), shares=(100,))))
    left = series_of(everything, "host", on="loading", load="integer")
    assert left.q.point is None
    assert left.relative.point is not None


def test_a_limit_leaves_cores_idle_and_a_weight_gives_them_away(tmp_path: Path) -> None:
    design = Design(policies=("limit", "weight"), on=("tested", "loading"), loads=("none",), shares=(40,))
    found = isolation_of(built(tmp_path, design, arms=(HOST, AA)))
    told = {(one.key.policy, one.key.on): one for one in found.conservation if one.arm == "host"}
    limit = told["limit", "tested"]
    assert limit.given.point == pytest.approx(0.4, rel=0.02)
    assert limit.unused.point == pytest.approx(0.6, abs=0.001)
    assert {place: one.conserving for place, one in told.items()} == {
        ("limit", "tested"): False,
        ("limit", "loading"): True,
        ("weight", "tested"): True,
        ("weight", "loading"): True,
    }
    assert told["weight", "tested"].unused.point == pytest.approx(0, abs=0.001)


def test_pressure_falls_with_the_load_that_was_made_with(tmp_path: Path) -> None:
    intensities = (20, 50, 100)
    design = Design((MEMORY,), loads=("none", MEMORY), intensities=intensities, cores=("1-apart",), policies=("none",))
    found = isolation_of(built(tmp_path, design))
    (curve,) = [one for one in found.pressure if one.arm == "host"]
    assert curve.key.intensity == 100
    assert [point.intensity for point in curve.points] == [0, *intensities]
    for point in curve.points:
        share = point.intensity / 100
        assert point.ratio.point == pytest.approx(1 / (1 + 0.5 * share), rel=0.02)
        assert point.loading_cpus.point == pytest.approx(share)
    assert sentence_of(found, "host", Resource.MEMORY).worst.point == pytest.approx(2 / 3, rel=0.02)


def test_the_smallest_setting_reaches_the_target_with_the_intervals_lower_end(tmp_path: Path) -> None:
    design = Design((MEMORY,), loads=("none", MEMORY), shares=(50, 90))
    found = isolation_of(built(tmp_path, design))
    told = {one.key.load: one for one in found.smallest if one.arm == "host"}
    # Beside the load q is 1 / (1 + (1 - s) / 2): 0.80 at one half, 0.952 at 90 %.
    beside = told[MEMORY]
    assert beside.share == pytest.approx(0.5 + 0.4 * (0.9 - 0.8) / (0.952 - 0.8), abs=0.03)
    assert not beside.at_most
    assert told["none"].share == 0.5
    assert told["none"].at_most
    assert "smaller ones may do too" in told["none"].reason
    missed = isolation_of(built(tmp_path / "less", dataclasses.replace(design, shares=(25, 50))))
    none = next(one for one in missed.smallest if (one.arm, one.key.load) == ("host", MEMORY))
    assert none.share is None
    assert "at 50 %, the largest of 2 shares from 25 % to 50 %" in none.reason


def test_no_share_of_the_cores_is_asked_for_where_it_promises_nothing(tmp_path: Path) -> None:
    designs = (
        Design(("wake",), loads=("none", "integer"), shares=(25, 75)),
        Design(("disk-sequential-read",), loads=("none",), shares=(25, 75)),
    )
    found = isolation_of(built(tmp_path, *designs, arms=(HOST, AA)))
    assert found.smallest == ()
    assert found.conservation == ()
    assert all(series.q.point is None for cell in found.cells if cell.key.benchmark == "wake" for series in cell.series)


def test_without_the_references_cell_relative_figures_are_missing_with_their_reason(tmp_path: Path) -> None:
    def refused(arm: str, factors: Any) -> str | None:
        return "no figure" if arm == "host" and factors["load"] == "none" else None

    found = isolation_of(built(tmp_path, Design(policies=("none",)), refused=refused))
    series = series_of(found, "runc", load="integer")
    assert series.value.point is not None
    assert series.relative.point is None
    assert series.relative.method == "no block has a valid trial of this cell and of its reference"
    assert sentence_of(found, "host", Resource.CPU).degree is Degree.OPEN
    assert sentence_of(found, "runc", Resource.CPU).degree is Degree.NOT


def test_a_starved_guest_is_a_result(tmp_path: Path) -> None:
    """No work at all has a ratio of nothing, and is no missing figure."""
    starving = IsolationArm(arm_record("starved", "oci", "Starved"), share=0.0)
    found = isolation_of(built(tmp_path, Design(policies=("none",)), arms=(HOST, AA, starving)))
    series = series_of(found, "starved", load="integer")
    assert series.missing is None
    assert (series.relative.point, series.q_share.point) == (0, 0)


def test_blind_guests_are_counted(tmp_path: Path) -> None:
    flags = (Flag("guest-blind", "stopped 50 % of the time, and sees nothing of it", fatal=False),)
    result = built(tmp_path, Design(), arms=(HOST, AA), flags=flags, blocks=2)
    found = isolation_of(result)
    arms = [arm.record for arm in result.arms]
    counts = {arm.name: number for arm, number in blind_words(found, arms)}
    assert counts == {"host": 2 * len(found.cells), "host-aa": 2 * len(found.cells)}
    assert "sees nothing of it" in report.render_html(result)


def test_a_share_of_everything_for_the_neighbour_promises_nothing() -> None:
    key = Key("integer", "", "integer", 100, "1", "limit", "loading", 1.0)
    assert key.promised is None
    assert dataclasses.replace(key, on="tested").promised == 1
    assert dataclasses.replace(key, policy="disk-limit", share=0.5).promised is None
    assert key.reference == Key("integer", "", "none", 0, "1", "none", "none", 1.0)
