"""The bandwidth suite's figures: valid, and drawn from the findings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair
import pytest
from bandwidth_results import (
    PAPER,
    BandwidthArm,
    Design,
    bandwidth_arms,
    bandwidth_ledger,
    bandwidth_of,
    cell_of,
    series_of,
)
from synthetic import arm_record

from virtgauge import report
from virtgauge.ledger.records import ArmRecord, Flag
from virtgauge.report.bandwidth.cells import MOST_INSTANTS
from virtgauge.report.bandwidth.figures import draw
from virtgauge.report.bandwidth.model import BandwidthFindings
from virtgauge.report.charts import Drawn, Figure

MEDIANS = "Medians of the estimates against constant cross traffic: 300 Mbit/s"
VARIANCE = "Variance of the estimates against constant cross traffic: 300 Mbit/s"
INSTANTS = "Instant estimates: 10 Gbit/s, 20 ms, 1 Gbit/s constant"
ERRORS = "Signed error against the counted truth"
EFFECTS = "What precise timing does to the error"
GAPS, LATENESS = "Achieved gaps between bursts", "How late bursts leave"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> report.Report:
    arms = [*bandwidth_arms(), BandwidthArm(arm_record("kvm", "qemu", "QEMU (kvm)"))]
    return report.build(bandwidth_ledger(tmp_path_factory.mktemp("figures") / "run", arms, PAPER, blocks=2))


@pytest.fixture(scope="module")
def found(built: report.Report) -> BandwidthFindings:
    return bandwidth_of(built)


@pytest.fixture(scope="module")
def drawn(built: report.Report, found: BandwidthFindings) -> Drawn:
    return draw(found, arms_of(built))


def arms_of(built: report.Report) -> list[ArmRecord]:
    return [arm.record for arm in built.arms]


def figure_of(drawn: Drawn, title: str) -> Figure:
    (figure,) = [figure for figure in drawn.figures if figure.title == title]
    return figure


def rows_of(drawn: Drawn, title: str, panel: str) -> list[dict[str, Any]]:
    (name,) = [one.data for one in figure_of(drawn, title).panels if one.title == panel]
    return [dict(row) for row in drawn.data[name].rows]


def short(value: float | None) -> float | None:
    """As the page carries it."""
    return None if value is None else float(f"{value:.5g}")


def test_every_figure_is_valid_and_every_panel_has_its_own_data(drawn: Drawn) -> None:
    names = [panel.data for figure in drawn.figures for panel in figure.panels]
    assert len(set(names)) == len(names)
    assert set(names) == drawn.data.keys()
    # One of each kind of chart, for a validation takes half a second.
    for title in (MEDIANS, INSTANTS, ERRORS, GAPS, LATENESS):
        altair.LayerChart.from_dict(figure_of(drawn, title).spec, validate=True).to_dict(validate=True)


def test_there_are_the_papers_figures_and_ours(drawn: Drawn) -> None:
    assert [figure.title for figure in drawn.figures] == [
        MEDIANS,
        VARIANCE,
        "Instant estimates: 1 Gbit/s, 500 Mbit/s constant",
        INSTANTS,
        ERRORS,
        EFFECTS,
        GAPS,
        LATENESS,
    ]
    panels = [panel.title for panel in figure_of(drawn, MEDIANS).panels]
    assert panels == [
        "yaz-original: hptime",
        "yaz-original: system timing",
        "yaz-original: hptime by the shim",
        "yaz-original: system timing, without the shim",
    ]


@pytest.mark.parametrize(("title", "field"), [(MEDIANS, "median_mbps"), (VARIANCE, "half_iqr_mbps")])
@pytest.mark.parametrize(("timing", "words"), [("hptime", "hptime"), ("system", "system timing")])
def test_lines_against_the_cross_traffic_are_the_findings(
    drawn: Drawn, found: BandwidthFindings, title: str, field: str, timing: str, words: str
) -> None:
    rows = rows_of(drawn, title, f"yaz-original: {words}")
    ours = {(row["arm"], row["x"]): row for row in rows if row["kind"] in ("ours", "other")}
    expected = {}
    for cross in (0, 50, 100, 150, 200, 250):
        for arm in ("host", "host-aa", "runc", "gvisor", "qemu", "kvm"):
            levels = {"estimator": "yaz-original", "timing": timing, "through": "inside", "capacity_mbps": 300}
            estimate = getattr(series_of(found, arm, cross_mbps=cross, **levels), field)
            if estimate.point is not None:
                expected[arm, cross] = estimate
    assert ours.keys() == expected.keys()
    for place, estimate in expected.items():
        row = ours[place]
        assert (row["y"], row["low"], row["high"]) == (short(estimate.point), short(estimate.low), short(estimate.high))
    assert {row["arm"] for row in rows if row["kind"] == "other"} == {"host-aa"}


def test_what_was_available_is_a_line_beside_the_medians_alone(drawn: Drawn) -> None:
    for panel in figure_of(drawn, MEDIANS).panels:
        guides = [row for row in rows_of(drawn, MEDIANS, panel.title) if row["kind"] == "guide"]
        assert [(row["across"], row["up"]) for row in guides] == [
            (cross, short((300 - cross) * 1500 / 1514)) for cross in (0, 50, 100, 150, 200, 250)
        ]
        assert not any(row["kind"] == "guide" for row in rows_of(drawn, VARIANCE, panel.title))


def test_what_could_not_be_paced_is_shown_at_its_highest_honest_rate(drawn: Drawn) -> None:
    refused = [row for row in rows_of(drawn, MEDIANS, "yaz-original: system timing") if row["kind"] == "refused"]
    assert [(row["arm"], row["across"], row["up"]) for row in refused] == [("qemu", 0, 250)]
    assert "no estimate, the highest rate that could be paced" in figure_of(drawn, MEDIANS).caption
    strips = [row for row in rows_of(drawn, INSTANTS, "kite2: hptime") if row["kind"] == "refused"]
    assert [(row["arm"], row["up"]) for row in strips] == [("gvisor", 2500), ("qemu", 800)]


def test_instant_estimates_are_those_of_the_trials_with_their_median_and_the_truth(
    drawn: Drawn, found: BandwidthFindings
) -> None:
    rows = rows_of(drawn, INSTANTS, "kite2: system timing")
    series = series_of(found, "runc", estimator="kite2", timing="system", through="inside")
    assert tuple(row["y"] for row in rows if row["kind"] == "raw" and row["arm"] == "runc") == series.instants_mbps
    assert len(series.instants_mbps) == 20
    (median,) = [row for row in rows if row["kind"] == "median" and row["arm"] == "runc"]
    assert median["y"] == short(series.median_mbps.point)
    (truth,) = [row for row in rows if row["kind"] == "truth"]
    assert truth["y"] == short(9000 * 1500 / 1514)
    places = {row["arm"]: (row["x"], row["x2"]) for row in rows if row["kind"] == "median"}
    assert all(low < high for low, high in places.values())
    assert len(set(places.values())) == len(places)


def test_published_figures_lie_in_the_strips_of_the_same_kind_of_platform(drawn: Drawn) -> None:
    def crosses(panel: str) -> dict[float, float]:
        return {row["x"]: row["y"] for row in rows_of(drawn, INSTANTS, panel) if row["kind"] == "published"}

    # Strips: host, its A/A arm, runc, gVisor, QEMU by emulation and by KVM.
    assert crosses("kite2: hptime") == {0.5: 8922, 4.5: 8871, 5.5: 8871}
    assert crosses("kite2: system timing") == {0.5: 3600, 4.5: 1900, 5.5: 1900}
    assert crosses("kite2: hptime by the shim") == crosses("kite2: hptime")
    assert "measured on other hardware" in figure_of(drawn, INSTANTS).caption
    assert "measured on other hardware" not in figure_of(drawn, MEDIANS).caption


def test_errors_are_signed_and_the_findings(drawn: Drawn, found: BandwidthFindings) -> None:
    rows = rows_of(drawn, ERRORS, "hptime")
    assert len({row["category"] for row in rows}) == 8
    (row,) = [row for row in rows if row["arm"] == "gvisor" and row["category"].endswith("|250 Mbit/s constant")]
    series = series_of(found, "gvisor", timing="hptime", through="inside", cross_mbps=250)
    assert (row["x"], row["low"], row["high"]) == tuple(
        short(end) for end in (series.error.point, series.error.low, series.error.high)
    )
    assert row["x"] == pytest.approx(-0.05, abs=0.003)
    assert not any(row["arm"] == "gvisor" for row in rows if row["category"].startswith("kite2"))


def test_effects_are_the_paired_differences_and_hollow_where_none_is_shown(
    drawn: Drawn, found: BandwidthFindings
) -> None:
    rows = rows_of(drawn, EFFECTS, "hptime against system timing, by the shim")
    expected = {
        (one.arm, one.key.path.label): one
        for one in found.effects
        if one.key.through == "shim" and one.error.estimate.point is not None
    }
    assert {(row["arm"], row["at"].partition(", ")[2]) for row in rows} == expected.keys()
    for row in rows:
        one = expected[row["arm"], row["at"].partition(", ")[2]]
        assert (row["x"], row["hollow"]) == (short(one.error.estimate.point), not one.error.distinguishable)


def test_curves_of_gaps_and_lateness_are_those_of_the_findings(drawn: Drawn, found: BandwidthFindings) -> None:
    (pacing,) = [one for one in found.pacing if (one.arm, one.arrangement) == ("gvisor", "system timing")]
    assert pacing.gap is not None and pacing.lateness is not None
    rows = [row for row in rows_of(drawn, GAPS, "system timing, by send") if row["arm"] == "gvisor"]
    curve = [(row["x"], row["y"]) for row in rows if row["kind"] == "curve"]
    assert curve == list(zip(pacing.gap.values, pacing.gap.shares, strict=True))
    assert [row["x"] for row in rows if row["kind"] == "mean"] == [pacing.gap.mean]
    (late,) = [row for row in rows_of(drawn, LATENESS, "system timing, by send") if row["arm"] == "gvisor"]
    assert (tuple(late["x"]), late["mean"]) == (pacing.lateness.values, pacing.lateness.mean)
    assert {drawn.data[panel.data].kind for panel in figure_of(drawn, LATENESS).panels} == {"curves"}


def test_two_kinds_of_cross_traffic_are_two_figures_that_share_what_is_measured_without(tmp_path: Path) -> None:
    designs = [Design(traffic=kind, cross_mbps=(0, 100, 200)) for kind in ("constant", "poisson")]
    built = report.build(bandwidth_ledger(tmp_path / "run", designs=designs, blocks=1))
    drawn = draw(bandwidth_of(built), arms_of(built))
    for kind in ("constant", "poisson"):
        rows = rows_of(drawn, f"Medians of the estimates against {kind} cross traffic: 300 Mbit/s", "hptime")
        assert {row["x"] for row in rows if row["kind"] == "ours"} == {0, 100, 200}
    assert not any(figure.title.startswith("Instant") for figure in drawn.figures)


def test_few_amounts_of_cross_traffic_are_strips_and_no_curve(tmp_path: Path) -> None:
    built = report.build(bandwidth_ledger(tmp_path / "run", designs=[Design(cross_mbps=(0, 150))], blocks=1))
    titles = [figure.title for figure in draw(bandwidth_of(built), arms_of(built)).figures]
    assert titles[:3] == [
        "Instant estimates: 300 Mbit/s, no cross traffic",
        "Instant estimates: 300 Mbit/s, 150 Mbit/s constant",
        ERRORS,
    ]


def test_each_way_of_sending_has_its_own_gaps_and_errors(tmp_path: Path) -> None:
    designs = [Design(pacing=way, cross_mbps=(0,)) for way in ("gso", "send")]
    built = report.build(bandwidth_ledger(tmp_path / "run", bandwidth_arms()[:1], designs, blocks=1))
    drawn = draw(bandwidth_of(built), arms_of(built))
    for title in (GAPS, LATENESS):
        assert [panel.title for panel in figure_of(drawn, title).panels] == [
            "hptime, by send",
            "hptime, by gso",
            "system timing, by send",
            "system timing, by gso",
        ]
    assert [row["category"] for row in rows_of(drawn, ERRORS, "hptime")] == [
        "300 Mbit/s|no cross traffic, gso",
        "300 Mbit/s|no cross traffic, send",
    ]


def test_many_searches_are_thinned_and_keep_their_extremes(tmp_path: Path) -> None:
    built = report.build(bandwidth_ledger(tmp_path / "run", bandwidth_arms()[:1], blocks=2, searches=400))
    cell = cell_of(bandwidth_of(built), timing="system", cross_mbps=0)
    (series,) = cell.series
    assert len(series.instants_mbps) == MOST_INSTANTS
    assert max(series.instants_mbps) > sorted(series.instants_mbps)[-2]
    assert min(series.instants_mbps) < sorted(series.instants_mbps)[1]


def test_a_run_without_valid_trials_draws_nothing(tmp_path: Path) -> None:
    flags = [Flag("path-changed", "capacity 300 and then 250 Mbit/s")]
    built = report.build(bandwidth_ledger(tmp_path / "run", blocks=1, flags=flags))
    assert draw(bandwidth_of(built), arms_of(built)) == Drawn((), {})
