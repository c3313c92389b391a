"""The isolation report's figures on hand-made results: efficiencies, ratios, pressure, settings, conservation."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from isolation_reports import AA, HOST, MEMORY, at, built, panel_of, rows_of, sentence_of, shown_at
from isolation_results import Design, IsolationArm
from shown import shown, told
from synthetic import arm_record

from virtgauge import report
from virtgauge.ledger.records import Flag
from virtgauge.results.columns import Cell
from virtgauge.specs.blocks import Value
from virtgauge.specs.isolation_formatting import Resource, promised
from virtgauge.specs.isolation_insights import Degree
from virtgauge.specs.isolation_work import reference

SLOW = IsolationArm(arm_record("slow", "oci", "Slow"), share=0.9, speed=0.8)


def test_efficiency_is_that_of_the_cpu_time_received_times_that_of_the_work_done_in_it(tmp_path: Path) -> None:
    found = built(tmp_path, Design(shares=(25, 75)), arms=(HOST, AA, SLOW))
    for share in (25, 75):
        where = {"load": "integer", "share": share}
        assert at(found, "host", "relative_work", **where).point == pytest.approx(share / 100, rel=0.02)
        assert at(found, "host", "q", **where).point == pytest.approx(1, rel=0.02)
        assert at(found, "slow", "entitlement", **where).point == pytest.approx(90, rel=0.001)
        assert at(found, "slow", "q_rate", **where).point == pytest.approx(0.8, rel=0.02)
        q = at(found, "slow", "q", **where)
        assert q.point == pytest.approx(0.72, rel=0.02)
        assert q.low is not None and q.high is not None and q.low <= 0.72 <= q.high


def test_the_worst_of_many_noisy_figures_is_no_lack_of_isolation(tmp_path: Path) -> None:
    """Of 24 whose repetitions differ by a tenth, and of which nothing is lost, the least lies at 91 %."""
    found = built(tmp_path, Design(shares=tuple(range(10, 90, 7)), loads=("none", "integer")), blocks=8, spread=0.1)
    for arm in ("host", "runc"):
        assert sentence_of(found, arm, Resource.CPU).degree in (Degree.UNDECIDED, Degree.ISOLATED)


def test_the_reference_is_that_of_as_many_cores(tmp_path: Path) -> None:
    found = built(tmp_path, Design(cores=("1", "all"), policies=("none",), loads=("none", "integer")))
    one, both = (at(found, "host", "value", load="none", cores=cores).point or 0 for cores in ("1", "all"))
    assert both == pytest.approx(2 * one, rel=0.02)
    for cores in ("1", "all"):
        assert at(found, "host", "relative_work", load="none", cores=cores).point == 1
    assert at(found, "host", "relative_work", load="integer", cores="all").point == pytest.approx(0.5, rel=0.02)


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
    found = built(tmp_path, design, arms=(HOST, AA), refused=refused)
    beside = at(found, "host", "work_beside_load", policy="disk-limit")
    assert beside.point == pytest.approx(1 / 1.1, rel=0.02)
    sentence = sentence_of(found, "host", Resource.DISK)
    assert sentence.text.startswith("With disk limit of 20 % on the loading guest")


def test_losing_a_neighbours_idle_time_is_no_lack_of_isolation(tmp_path: Path) -> None:
    found = built(tmp_path, Design(policies=("none", "reservation"), shares=(75,)))
    alone = at(found, "host", "relative_work", policy="reservation", load="none")
    assert alone.point == pytest.approx(1, rel=0.02)
    where = {"policy": "reservation", "load": "integer"}
    assert at(found, "host", "work_beside_load", **where).point == pytest.approx(0.75, rel=0.02)
    assert at(found, "host", "kept_of_promised", **where).point == pytest.approx(1, rel=0.02)
    assert sentence_of(found, "host", Resource.CPU).degree is Degree.ISOLATED


def test_what_is_left_by_the_loading_guest_is_what_the_tested_one_is_promised(tmp_path: Path) -> None:
    found = built(tmp_path, Design(on=("loading",), shares=(95,)))
    assert at(found, "host", "q", on="loading", load="integer").point == pytest.approx(1, rel=0.05)
    assert at(found, "host", "q", on="loading", load="none").point == pytest.approx(20, rel=0.02)
    everything = built(tmp_path / "all", Design(on=("loading",), shares=(100,)))
    assert at(everything, "host", "q", on="loading", load="integer").point is None
    assert at(everything, "host", "relative_work", on="loading", load="integer").point is not None


def test_a_limit_leaves_cores_idle_and_a_weight_gives_them_away(tmp_path: Path) -> None:
    design = Design(policies=("limit", "weight"), on=("tested", "loading"), loads=("none",), shares=(40,))
    found = built(tmp_path, design, arms=(HOST, AA))
    given = at(found, "host", "conservation.given", policy="limit", on="tested")
    assert given.point == pytest.approx(0.4, rel=0.02)
    unused = {
        policy: at(found, "host", "conservation.unused", policy=policy, on="tested").point
        for policy in ("limit", "weight")
    }
    assert unused == {"limit": pytest.approx(60, abs=0.1), "weight": pytest.approx(0, abs=0.1)}
    for policy, on, conserving in (
        *(("limit", "tested", "no"), ("limit", "loading", "yes")),
        *(("weight", "tested", "yes"), ("weight", "loading", "yes")),
    ):
        where = (f"policy={policy}", f"on={on}")
        assert told(found, "isolation", "conservation.conserving", "host", *where).text == conserving


def test_pressure_falls_with_the_load_that_was_made_with(tmp_path: Path) -> None:
    intensities = (20, 50, 100)
    design = Design((MEMORY,), loads=("none", MEMORY), intensities=intensities, cores=("1-apart",), policies=("none",))
    found = built(tmp_path, design)
    for intensity in intensities:
        share = intensity / 100
        beside = at(found, "host", "work_beside_load", intensity=intensity)
        assert beside.point == pytest.approx(1 / (1 + 0.5 * share), rel=0.02)
        assert at(found, "host", "loading_cpus", intensity=intensity).point == pytest.approx(share)
    assert sentence_of(found, "host", Resource.MEMORY).kept.point == pytest.approx(200 / 3, rel=0.02)
    title = "Memory write (integers, 64 MiB), memory write (integers) load, no policy, a core each"
    rows = panel_of(found, "Under growing pressure", title)
    assert [row["x"] for row in rows if row["arm"] == "host"] == list(intensities)


def test_the_smallest_setting_reaches_the_target_with_the_intervals_lower_end(tmp_path: Path) -> None:
    design = Design((MEMORY,), loads=("none", MEMORY), shares=(50, 90))
    found = built(tmp_path, design)

    def smallest(load: str) -> Value:
        (one,) = shown(found, "isolation", "smallest_setting.share", "host", f"load={load}")
        assert isinstance(one, Value)
        return one

    # Beside the load q is 1 / (1 + (1 - s) / 2): 0.80 at one half, 0.952 at 90 %.
    expected = 50 + 40 * (0.9 - 0.8) / (0.952 - 0.8)
    assert smallest(MEMORY).estimate.point == pytest.approx(expected, abs=3)
    assert (smallest(MEMORY).note, smallest("none").note) == ("", "or less")
    assert smallest("none").estimate.point == 50
    missed = built(tmp_path / "less", dataclasses.replace(design, shares=(25, 50)))
    rows = [row for row in rows_of(missed, "shares") if row.arm == "host" and row.cells[0] == "none"]
    assert "at 50 %, the largest of 2 shares from 25 % to 50 %" in str(rows[0].cells[1])


def test_no_share_of_the_cores_is_asked_for_where_it_promises_nothing(tmp_path: Path) -> None:
    designs = (
        Design(("wake",), loads=("none", "integer"), shares=(25, 75)),
        Design(("disk-sequential-read",), loads=("none",), shares=(25, 75)),
    )
    found = built(tmp_path, *designs, arms=(HOST, AA))
    assert rows_of(found, "shares") == []
    assert all(
        one.estimate.point is None
        for one in shown(found, "isolation", "q", "host", "benchmark=wake")
        if isinstance(one, Value)
    )


def test_without_the_references_cell_relative_figures_are_missing_with_their_reason(tmp_path: Path) -> None:
    def refused(arm: str, factors: Any) -> str | None:
        return "no figure" if arm == "host" and factors["load"] == "none" else None

    found = built(tmp_path, Design(policies=("none",)), arms=(HOST, IsolationArm(SLOW.record)), refused=refused)
    assert at(found, "slow", "value", load="integer").point is not None
    assert "relative_work" not in {
        one.measure for row in rows_of(found, "tables") for one in row.cells if isinstance(one, Value)
    }
    assert sentence_of(found, "host", Resource.CPU).degree is Degree.OPEN
    assert sentence_of(found, "slow", Resource.CPU).degree is Degree.NOT


def test_a_starved_guest_is_a_result(tmp_path: Path) -> None:
    """No work at all has a ratio of nothing, and is no missing figure."""
    starving = IsolationArm(arm_record("starved", "oci", "Starved"), share=0.0)
    found = built(tmp_path, Design(policies=("none",)), arms=(HOST, AA, starving))
    where = {"load": "integer"}
    assert at(found, "starved", "relative_work", **where).point == 0
    assert at(found, "starved", "entitlement", **where).point == 0
    beside = at(found, "starved", "work_beside_load", **where)
    assert beside.method == "a ratio needs positive figures; see the difference"


def test_blind_guests_are_counted(tmp_path: Path) -> None:
    flags = (Flag("guest-blind", "stopped 50 % of the time, and sees nothing of it", fatal=False),)
    result = built(tmp_path, Design(), arms=(HOST, AA), flags=flags, blocks=2)
    html = report.render_html(result)
    assert "Host: in 8 trials the guest was stopped and sees little or nothing of it" in html
    assert shown_at(result, "host", "steal_seen_share", load="none", policy="none").note == "blind: 2"


def test_a_share_of_everything_for_the_neighbour_promises_nothing() -> None:
    levels = {"benchmark": "integer", "block": "", "load": "integer", "intensity": "100", "cores": "1"}
    cell = Cell("isolation", "kernel", tuple({**levels, "policy": "limit", "on": "loading", "share": "100"}.items()))
    assert promised(cell) is None
    assert promised(cell.at(on="tested")) == 1
    assert promised(cell.at(policy="disk-limit", share="50")) is None
    free = {"load": "none", "intensity": "0", "policy": "none", "on": "none", "share": "100"}
    assert reference(cell) == cell.at(**free)
