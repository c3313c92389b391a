"""The bandwidth suite's charts: valid, and drawn from the figures of the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair
import pytest
from bandwidth_results import PAPER, BandwidthArm, Design, bandwidth_arms, bandwidth_ledger, figure, point
from synthetic import arm_record

from virtgauge import report
from virtgauge.ledger.records import Flag
from virtgauge.report.drawing import specification
from virtgauge.specs.bandwidth_insights import MOST_INSTANTS, thinned
from virtgauge.specs.blocks import Chart

pytestmark = pytest.mark.slow

MEDIANS = "Medians of the estimates against constant cross traffic: 300 Mbit/s"
VARIANCE = "Spread of the estimates against constant cross traffic: 300 Mbit/s"
INSTANTS = "Instant estimates: 10 Gbit/s, 20 ms, 1 Gbit/s constant"
ERRORS = "Signed error against the counted truth"
EFFECTS = "What precise timing does to the error"
GAPS, LATENESS = "Achieved gaps between bursts", "How late bursts leave"
IP = 1500 / 1514 * 1e6


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> report.Report:
    arms = [*bandwidth_arms(), BandwidthArm(arm_record("kvm", "qemu", "QEMU (kvm)"))]
    return report.build(bandwidth_ledger(tmp_path_factory.mktemp("figures") / "run", arms, PAPER, blocks=2))


def charts(built: report.Report) -> dict[str, Chart]:
    return {one.title: one for one in built.suite("bandwidth").blocks if isinstance(one, Chart)}


def rows_of(built: report.Report, title: str, panel: str, *kinds: str) -> list[dict[str, Any]]:
    (found,) = [one for one in charts(built)[title].panels if one.title == panel]
    return [dict(row) for row in found.rows if not kinds or row["kind"] in kinds]


def test_every_chart_is_valid_and_says_what_it_shows(built: report.Report) -> None:
    arms = [arm.record for arm in built.arms]
    for title in (MEDIANS, INSTANTS, ERRORS, EFFECTS, GAPS, LATENESS):
        drawn = specification(charts(built)[title], arms)
        altair.LayerChart.from_dict(drawn, validate=True).to_dict(validate=True)
        assert charts(built)[title].text


def test_there_are_the_papers_figures_and_ours(built: report.Report) -> None:
    assert [*charts(built)] == [
        MEDIANS,
        VARIANCE,
        "Instant estimates: 1 Gbit/s, 500 Mbit/s constant",
        INSTANTS,
        ERRORS,
        EFFECTS,
        GAPS,
        LATENESS,
    ]
    assert [panel.title for panel in charts(built)[MEDIANS].panels] == [
        "yaz-original, hptime",
        "yaz-original, system timing",
        "yaz-original, hptime by the shim",
        "yaz-original, system timing, without the shim",
    ]


@pytest.mark.parametrize(("title", "measure"), [(MEDIANS, "estimate"), (VARIANCE, "searches.half_iqr")])
@pytest.mark.parametrize(("timing", "words"), [("hptime", "hptime"), ("system", "system timing")])
def test_lines_against_the_cross_traffic_are_the_figures(
    built: report.Report, title: str, measure: str, timing: str, words: str
) -> None:
    rows = rows_of(built, title, f"yaz-original, {words}", "ours", "other")
    assert {row["arm"] for row in rows if row["kind"] == "other"} == {"host-aa"}
    for row in rows:
        at = {"timing": timing, "through": "inside", "capacity_mbps": 300, "cross_mbps": f"{row['x']:g}"}
        own = figure(built, measure, row["arm"], **at).estimate
        assert (row["y"], row["low"], row["high"]) == (own.point, own.low, own.high)
    without = {("qemu", 0)} if timing == "system" else set()
    assert {(row["arm"], row["x"]) for row in rows} == {
        (arm, cross)
        for arm in ("host", "host-aa", "runc", "gvisor", "qemu", "kvm")
        for cross in (0, 50, 100, 150, 200, 250)
    } - without


def test_what_was_available_and_what_could_not_be_paced_are_marked_beside_the_medians(built: report.Report) -> None:
    for panel in charts(built)[MEDIANS].panels:
        marks = rows_of(built, MEDIANS, panel.title, "mark")
        truth = {row["across"]: row["up"] for row in marks if row["shape"] == "stroke"}
        assert truth == {cross: pytest.approx((300 - cross) * IP) for cross in (0, 50, 100, 150, 200, 250)}
        assert not rows_of(built, VARIANCE, panel.title, "mark")
    refused = [row for row in rows_of(built, MEDIANS, "yaz-original, system timing", "mark") if "own" in row]
    assert [(row["across"], row["up"]) for row in refused] == [(0, 250e6)]
    assert refused[0]["t"] == "QEMU microvm (tcg) cannot pace more than 250 Mbit/s"
    assert "no estimate, the highest rate that could be paced" in charts(built)[MEDIANS].caption
    strips = [row["up"] for row in rows_of(built, INSTANTS, "kite2, hptime", "mark") if "own" in row]
    assert sorted(strips) == [800e6, 2500e6]


def test_instant_estimates_are_those_of_the_trials_with_their_median(built: report.Report) -> None:
    at = {"estimator": "kite2", "timing": "system", "through": "inside"}
    rows = rows_of(built, INSTANTS, "kite2, system timing", "raw", "median")
    assert sum(row["kind"] == "raw" and row["arm"] == "runc" for row in rows) == 20
    medians = {row["arm"]: row for row in rows if row["kind"] == "median"}
    assert medians["runc"]["y"] == point(built, "estimate", "runc", **at)
    places = [(row["x"], row["x2"]) for row in medians.values()]
    assert all(low < high for low, high in places) and len(set(places)) == len(places)


def test_published_figures_lie_in_the_strips_of_the_same_kind_of_platform(built: report.Report) -> None:
    def crosses(panel: str) -> dict[float, float]:
        rows = rows_of(built, INSTANTS, panel, "mark")
        return {row["across"]: row["up"] / 1e6 for row in rows if row["shape"] == "cross"}

    # Strips: host, its A/A arm, runc, gVisor, QEMU by KVM, and by emulation.
    assert crosses("kite2, hptime") == {0.5: 8922, 4.5: 8871, 5.5: 8871}
    assert crosses("kite2, system timing") == {0.5: 3600, 4.5: 1900, 5.5: 1900}
    assert crosses("kite2, hptime by the shim") == crosses("kite2, hptime")
    assert "measured on other hardware" in charts(built)[INSTANTS].caption
    assert "measured on other hardware" not in charts(built)[MEDIANS].caption


def test_errors_are_signed_and_effects_hollow_where_none_is_shown(built: report.Report) -> None:
    (row,) = [
        row
        for row in rows_of(built, ERRORS, "Yaz-original, hptime")
        if (row["arm"], row["category"]) == ("gvisor", "300 Mbit/s, 250 Mbit/s constant")
    ]
    at = {"timing": "hptime", "through": "inside", "cross_mbps": 250}
    own = figure(built, "signed_error", "gvisor", **at).estimate
    assert (row["x"], row["low"], row["high"]) == (pytest.approx(own.point, rel=1e-4), own.low, own.high)
    assert row["x"] == pytest.approx(-5, abs=0.3)
    rows = rows_of(built, EFFECTS, "hptime against system timing, built in")
    effect = figure(built, "timing_effect.error", "gvisor", **at)
    (drawn,) = [row for row in rows if row["arm"] == "gvisor" and "250 Mbit/s" in row["at"]]
    assert effect.compared is not None
    assert drawn["hollow"] == (not effect.compared.distinguishable)
    assert not any(row["arm"] == "gvisor" and row["at"].startswith("kite2") for row in rows)


def test_curves_are_drawn_for_each_timing_and_way_of_sending(tmp_path: Path, built: report.Report) -> None:
    rows = rows_of(built, GAPS, "system timing, by send", "curve")
    own = [(row["x"], row["y"]) for row in rows if row["arm"] == "gvisor"]
    assert own == sorted(own, key=lambda place: (place[0], -place[1])) and own[0][0] >= 0.1
    (late,) = [row for row in rows_of(built, LATENESS, "system timing, by send") if row["arm"] == "gvisor"]
    assert late["y"] == sorted(late["y"], reverse=True)
    designs = [Design(pacing=way, cross_mbps=(0,)) for way in ("gso", "send")]
    both = report.build(bandwidth_ledger(tmp_path / "run", bandwidth_arms()[:1], designs, blocks=1))
    expected = [f"{timing}, by {way}" for timing in ("hptime", "system timing") for way in ("send", "gso")]
    for title in (GAPS, LATENESS):
        assert [panel.title for panel in charts(both)[title].panels] == expected


def test_two_kinds_of_cross_traffic_are_two_charts_that_share_what_is_measured_without(tmp_path: Path) -> None:
    designs = [Design(traffic=kind, cross_mbps=(0, 100, 200)) for kind in ("constant", "poisson")]
    built = report.build(bandwidth_ledger(tmp_path / "run", designs=designs, blocks=1))
    for kind in ("constant", "poisson"):
        title = f"Medians of the estimates against {kind} cross traffic: 300 Mbit/s"
        assert {row["x"] for row in rows_of(built, title, "hptime", "ours")} == {0, 100, 200}
    assert not any(title.startswith("Instant") for title in charts(built))


def test_few_amounts_of_cross_traffic_are_strips_and_no_curve(tmp_path: Path) -> None:
    built = report.build(bandwidth_ledger(tmp_path / "run", designs=[Design(cross_mbps=(0, 150))], blocks=1))
    assert [*charts(built)][:3] == [
        "Instant estimates: 300 Mbit/s, no cross traffic",
        "Instant estimates: 300 Mbit/s, 150 Mbit/s constant",
        ERRORS,
    ]


def test_many_searches_are_thinned_and_keep_their_extremes() -> None:
    values = [float(number * 7919 % 1000) for number in range(800)]
    kept = thinned(values)
    assert len(kept) == MOST_INSTANTS
    assert (min(kept), max(kept)) == (min(values), max(values))


def test_a_run_without_valid_trials_draws_nothing(tmp_path: Path) -> None:
    flags = [Flag("path-changed", "capacity 300 and then 250 Mbit/s")]
    assert not charts(report.build(bandwidth_ledger(tmp_path / "run", blocks=1, flags=flags)))
