"""The forwarding report on hand-made results: figures, page, terminal and text."""

from __future__ import annotations

import dataclasses
import io
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import altair
import pytest
from forwarding_results import RouterArm, add_result, forwarding_ledger, paper_arms, result, virtual_machine
from rich.console import Console
from shown import shown, tables, told, value
from synthetic import arm_record

from virtgauge import report
from virtgauge.analysis.bounds import Outcome
from virtgauge.analysis.estimate import Estimate
from virtgauge.decisions.requirements import resolve
from virtgauge.decisions.verdicts import Judge, Verdict
from virtgauge.ledger.records import Flag
from virtgauge.ledger.store import Ledger
from virtgauge.plan.requirements import Requirement
from virtgauge.report.drawing import specification
from virtgauge.results.table import ResultTable
from virtgauge.specs.blocks import Chart, Value
from virtgauge.specs.forwarding_insights import interfaces_of, pairs
from virtgauge.specs.headline import Tone
from virtgauge.specs.suites import find_measure

pytestmark = pytest.mark.slow

EVIL = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=2>"


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> report.Report:
    return report.build(forwarding_ledger(tmp_path_factory.mktemp("forwarding") / "run"))


def charts_of(built: report.Report) -> list[Chart]:
    return [one for one in built.suite("forwarding").blocks if isinstance(one, Chart)]


def figure(built: report.Report, measure: str, arm: str, *levels: str) -> Estimate:
    return value(built, "forwarding", measure, arm, *levels).estimate


def printed(built: report.Report, width: int) -> str:
    file = io.StringIO()
    report.render_text(built, Console(file=file, width=width, color_system=None))
    return file.getvalue()


def test_the_papers_figures_are_drawn_and_valid_vega_lite(usual: report.Report) -> None:
    charts = charts_of(usual)
    assert [chart.title for chart in charts] == [
        "Throughput against fairness of the load",
        "Latency against frame size",
        "Latency against fairness of the load",
        "Latency against load, 1518 B frames",
        "Latency against load, J 0.085",
        "Loss against load",
    ]
    for chart in charts:
        altair.LayerChart.validate(specification(chart, [arm.record for arm in usual.arms]))
        assert chart.text
        assert all(panel.rows for panel in chart.panels)


def test_a_panel_of_throughput_holds_every_arm_at_every_fairness(usual: report.Report) -> None:
    panels = {panel.title: panel.rows for panel in charts_of(usual)[0].panels}
    assert list(panels) == ["64 B", "512 B", "1518 B"]
    ours = [row for row in panels["1518 B"] if row["kind"] == "ours"]
    assert len(ours) == 3 * 3
    (at_one,) = [row for row in ours if row["arm"] == "virtio" and row["x"] == 1.0]
    assert at_one["y"] == pytest.approx(1000e6, rel=0.02)
    assert at_one["low"] < at_one["y"] < at_one["high"]


def test_a_vector_that_the_paper_does_not_have_stands_off_the_line_where_its_fairness_was_found(tmp_path: Path) -> None:
    ledger = forwarding_ledger(tmp_path / "run", blocks=2, strong=[1, 12], sizes=[64], renamed={1: "worst"})
    (panel,) = charts_of(report.build(ledger))[0].panels
    assert {(row["kind"], round(row["x"], 3)) for row in panel.rows if row["arm"] == "virtio"} == {
        ("other", 0.085),
        ("ours", 1.0),
    }


def test_no_loss_has_a_place_on_the_axis_of_the_loss_curve(usual: report.Report) -> None:
    chart = charts_of(usual)[-1]
    assert "'symlog'" in str(specification(chart, [arm.record for arm in usual.arms]))
    rows = [row for row in chart.panels[0].rows if row["arm"] == "runc"]
    assert {row["y"] for row in rows if row["kind"] == "other"} == {0.0, 30.0}
    assert len([row for row in rows if row["kind"] == "rule"]) == 1


def test_published_figures_stand_in_the_panels_that_they_are_about(usual: report.Report) -> None:
    charts = charts_of(usual)

    def marks(chart: int, panel: int) -> set[str]:
        return {row["t"] for row in charts[chart].panels[panel].rows if row["kind"] == "published"}

    assert marks(0, 0) == set()
    assert marks(0, 2) == {"KVM: 1.00 Gbit/s"}
    assert marks(1, 0) == {
        *("Xen: above 80.0 µs", "Xen: up to 170 µs"),
        *("KVM: up to 100 µs", "KVM: above 300 µs"),
    }
    assert "KVM: 400 µs" in marks(3, 0)


def test_published_rows_stand_beside_ours_with_the_same_interfaces(usual: report.Report) -> None:
    (table,) = tables(usual, "forwarding", "published")
    ours = {(row.heads[0].split(",")[0], row.heads[2]): row for row in table.rows}
    assert len(ours) == 8

    def ends(platform: str, condition: str, arm: str) -> tuple[float, float]:
        row = ours[platform, condition]
        _, low, high, _ = row.cells
        assert row.arm == arm and isinstance(low, Value) and isinstance(high, Value)
        assert low.estimate.point is not None and high.estimate.point is not None
        return low.estimate.point, high.estimate.point

    assert ends("Xen", "every frame size", "e1000") == (pytest.approx(2, rel=0.01), pytest.approx(2, rel=0.01))
    assert ends("KVM", "1518 B frame", "virtio")[0] == pytest.approx(1000e6, rel=0.02)
    low, high = ends("KVM / Xen", "every frame size", "virtio")
    assert 3 < low < high < 8
    assert ends("KVM", "1518 B frame at 950 Mbit/s", "virtio")[1] == pytest.approx(350e3, rel=0.03)
    assert ours["KVM", "below 512 B frame"].cells[0] == "up to 100 µs"


def test_only_arms_that_differ_in_their_interfaces_alone_are_compared() -> None:
    virtio, e1000 = virtual_machine("one", "virtio").record, virtual_machine("two", "e1000").record
    larger = virtual_machine("three", "e1000").record
    larger.settings["vcpus"] = 4
    container = arm_record("runc", "oci", "runc")
    assert interfaces_of(container) is None
    assert pairs([container, e1000, virtio, larger]) == [(virtio, e1000)]


def test_the_ratio_of_the_interfaces_comes_back_with_its_interval(usual: report.Report) -> None:
    (table,) = tables(usual, "forwarding", "interfaces")
    assert len(table.rows) == 9
    for row in table.rows:
        first, second, ratio = (one.estimate for one in row.cells[:3] if isinstance(one, Value))
        assert first.point is not None and second.point is not None
        assert ratio.point == pytest.approx(first.point / second.point, rel=0.03)
        assert ratio.has_interval


def test_an_end_of_the_critical_rate_that_a_soak_lacks_is_no_median_of_the_others(tmp_path: Path) -> None:
    """The third soak has no upper end below the loads tried: that of the cell is above those of two, or nowhere."""

    def soak(high: float | None) -> dict[str, object]:
        found = {"point": 0.9e6, "low": 0.8e6, "high": high}
        return {"soak": {"loss_ratio": {"point": 1e-8, "high": 1e-7}, "critical_pps": found}}

    arm = next(arm for arm in paper_arms() if arm.record.name == "virtio")
    ledger = forwarding_ledger(tmp_path / "run", blocks=2, strong=[12], sizes=[64], fields=soak(1e6))
    assert figure(report.build(ledger), "soak.critical_rate_high", "virtio").point == 1e6
    add_result(ledger, arm.record, "k=12", 64, 2, result(arm, 12, 64, 1.0, **soak(None)))
    built = report.build(ledger)
    assert figure(built, "soak.critical_rate_low", "virtio").n == 3
    high = figure(built, "soak.critical_rate_high", "virtio")
    assert (high.point, high.method) == (None, "1 of 3 soaks cannot tell it from the loads tried")


def test_the_label_of_rfc_2544_stands_only_where_every_result_says_so_and_claims_no_more(tmp_path: Path) -> None:
    partial = report.build(forwarding_ledger(tmp_path / "not", blocks=2, strong=[12], sizes=[64]))
    said = "durations and repetitions, without learning frames and rests"
    assert told(partial, "forwarding", "rfc2544_durations", "runc").text == "no"
    for key in ("rfc2544_durations", "rfc2544_complete"):  # the second in runs of versions before
        ledger = forwarding_ledger(tmp_path / key, blocks=2, strong=[12], sizes=[64], fields={key: True})
        assert told(report.build(ledger), "forwarding", "rfc2544_durations", "runc").text == said


def test_back_to_back_frames_have_a_column_only_where_they_were_measured(tmp_path: Path) -> None:
    bursts = {"rate_pps": 5e6, "bursts": [300, 320], "implied_buffer_s": 6e-5, "corrected_buffer_s": 5e-5, "reason": ""}
    design = {"blocks": 6, "strong": [12], "sizes": [64]}
    built = report.build(forwarding_ledger(tmp_path / "run", fields={"back_to_back": bursts}, **design))
    assert figure(built, "back_to_back.burst", "runc").point == 310
    assert figure(built, "back_to_back.buffer", "runc").point == pytest.approx(50e3)
    assert "back-to-back" in report.render_html(built)
    without = report.build(forwarding_ledger(tmp_path / "without", **design))
    assert "back-to-back" not in report.render_html(without)


def test_flags_are_counted_and_invalid_results_give_no_figure(tmp_path: Path) -> None:
    flags = [Flag("late", "7 % left late"), Flag("stretched", "1 of 3 trials", fatal=False)]
    built = report.build(forwarding_ledger(tmp_path / "run", blocks=2, strong=[12], sizes=[64], flags=flags))
    (row, *_) = tables(built, "forwarding", "tables")[0].rows
    assert "late: 2, stretched: 2" in row.cells
    assert not shown(built, "forwarding", "ndr_bits", "runc")
    (missing,) = tables(built, "forwarding", "missing")
    assert [row.cells[-1] for row in missing.rows] == ["invalid: late: 7 % left late"]
    assert figure(built, "tester.limit", "runc").point == 5e6
    assert {headline.tone for headline in built.suite("forwarding").headlines} == {Tone.MISSING}
    assert not charts_of(built)


def flagged(folder: Path, name: str, blocks: Mapping[str, int], **fields: Any) -> Ledger:
    """Ten blocks of a container, the same once more, and a virtual machine that carries 0.22 times as much.

    Of some arms the first so many blocks have a flag, and these fields.
    """
    runc, virtio, _ = paper_arms()
    arms = [runc, dataclasses.replace(runc, record=arm_record("runc-aa", "oci", "runc again", "aa")), virtio]
    ledger = forwarding_ledger(folder, arms, blocks=0)
    for block, arm in itertools.product(range(10), arms):
        there = block < blocks.get(arm.record.name, 0)
        found = result(arm, 12, 64, 1 + block / 1000, **(fields if there else {}))
        add_result(ledger, arm.record, "k=12", 64, block, found, (Flag(name, "why", fatal=False),) if there else ())
    return ledger


@pytest.mark.parametrize("name", ["unaccounted-loss", "unclosed-ledger"])
def test_losses_that_nothing_explains_are_told_of_runs_of_before_too(tmp_path: Path, name: str) -> None:
    built = report.build(flagged(tmp_path / "run", name, {paper_arms()[1].record.name: 2}))
    assert "with losses that nothing explains" in report.render_html(built)


def judged(ledger: Ledger, **wanted: Any) -> Verdict:
    """A requirement on the virtual machine's NDR, in frames/s, or on its ratio to the container's."""
    unit = "x" if "compared_with" in wanted else "frames/s"
    requirement = Requirement(suite="forwarding", measure="ndr", unit=unit, **wanted)
    judge = Judge(resolve([requirement], None, ["virtio"], 0.95, "test"), ResultTable(ledger), any_time_valid=False)
    return judge.verdicts()[0]


def test_a_lower_bound_keeps_a_requirement_and_fails_none(tmp_path: Path) -> None:
    """Of ten the end of the interval is the largest but one, so that two may be the ones that it is."""
    many = flagged(tmp_path / "many", "generator-limited", {"virtio": 2})
    assert judged(many, at_least=1e3).outcome is Outcome.PASS
    for one in (judged(many, at_least=1e9), judged(many, at_most=1e9)):
        assert one.outcome is Outcome.INCONCLUSIVE
        assert "the figure is a lower bound" in one.reason
        assert not one.open, "more repetitions find the same limit"
    few = flagged(tmp_path / "few", "generator-limited", {"virtio": 1})
    assert [judged(few, at_least=1e9).outcome, judged(few, at_most=1e9).outcome] == [Outcome.FAIL, Outcome.PASS]
    assert judged(few, at_most=1e9, of="every").outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("limited", "outcomes"),
    [
        ((), (Outcome.PASS, Outcome.FAIL)),
        (("virtio",), (Outcome.PASS, Outcome.INCONCLUSIVE)),
        (("runc",), (Outcome.INCONCLUSIVE, Outcome.FAIL)),
        (("runc", "virtio"), (Outcome.INCONCLUSIVE, Outcome.INCONCLUSIVE)),
    ],
)
def test_a_ratio_is_bounded_on_the_side_of_the_arm_that_is_limited(
    tmp_path: Path, limited: tuple[str, ...], outcomes: tuple[Outcome, Outcome]
) -> None:
    ledger = flagged(tmp_path / "run", "generator-limited", dict.fromkeys(limited, 10))
    found = [judged(ledger, at_least=ratio, compared_with="reference").outcome for ratio in (0.1, 0.5)]
    assert (*found,) == outcomes


def test_a_device_that_carries_nothing_fails_what_is_required_and_is_shown_to_carry_no_more(tmp_path: Path) -> None:
    nothing = {"throughput_pps": None, "throughput_bps": None}
    failing = flagged(tmp_path / "run", "no-throughput", {"virtio": 10}, **nothing)
    assert judged(failing, at_least=1e3).outcome is Outcome.FAIL
    table, ndr, soak = ResultTable(failing), *(find_measure("forwarding", name) for name in ("ndr", "soak.loss"))
    (cell,) = table.cells()
    assert table.missing_reason(ndr, cell, "virtio") == "the result has no ndr: why"
    assert table.missing_reason(soak, cell, "virtio") == "the result has no soak.loss"
    for blocks, known in ((4, False), (1, True)):
        table = ResultTable(flagged(tmp_path / str(blocks), "no-throughput", {"runc": blocks}, **nothing))
        assert table.compared(ndr, cell, "virtio").distinguishable is known


def test_searches_without_end_decide_nothing_and_are_told(tmp_path: Path) -> None:
    nothing = {"throughput_pps": None, "throughput_bps": None}
    told = flagged(tmp_path / "run", "search-failed", {"virtio": 2}, **nothing)
    found = judged(told, at_least=1e3)
    assert (found.outcome, found.reason) == (
        Outcome.INCONCLUSIVE,
        "2 of 10 valid repetitions have no such figure: their searches did not end within budget_s",
    )
    few = flagged(tmp_path / "few", "search-failed", {"virtio": 1}, **nothing)
    assert judged(few, at_least=1e3).outcome is Outcome.PASS
    built = report.build(told)
    assert "search without end in 2 of 10" in report.render_html(built)
    assert any("2 attempts whose search did not end" in one.text for one in built.suite("forwarding").headlines)


@pytest.mark.parametrize(("name", "note"), [("generator-limited", "at least that"), ("medium-limited", "")])
def test_latency_at_parts_of_the_testers_limit_is_at_least_that(tmp_path: Path, name: str, note: str) -> None:
    built = report.build(flagged(tmp_path / "run", name, {"virtio": 10}))
    for measure in ("latency_at_50.weighted_mean", "latency_at_100.p99"):
        assert value(built, "forwarding", measure, "virtio").note == note


def test_lost_frames_are_listed_by_kind_of_place_and_by_guest(usual: report.Report) -> None:
    table = next(one for one in tables(usual, "forwarding", "losses") if one.title == "Dropped at")
    shares = {row.heads[0]: row.cells[1] for row in table.rows if row.arm == "runc"}
    assert {place: one.estimate.point for place, one in shares.items() if isinstance(one, Value)} == {
        "guest … IP layer": 60,
        "host backlog": 30,
        "port in…": 10,
    }
    assert "54,000" in report.render_html(usual), "counts stand in full"
    cell = ("vector=k=1", "frame_bytes=64")
    dropped = [figure(usual, "guest.dropped", "runc", *cell, f"+guest={guest}").point for guest in range(3)]
    assert dropped == [600 * 6, 100 * 6, 0]
    of_guests = [figure(usual, "guest.share", "runc", *cell, f"+guest={guest}").point or 0 for guest in range(12)]
    assert sum(of_guests) == pytest.approx(100)


def test_latency_is_told_at_every_load_that_was_measured(usual: report.Report) -> None:
    table = tables(usual, "forwarding", "latency")[0]
    assert {row.heads[1] for row in table.rows if row.arm == "virtio"} == {"2 %", "10 %", "50 %", "90 %", "100 %"}
    idle = figure(usual, "latency_at_2.weighted_mean", "virtio", "vector=k=1", "frame_bytes=64")
    assert idle.point == pytest.approx(80e3 * 1.5 / 1.6, rel=0.02)
    carried = figure(usual, "ndr_bits", "virtio", "vector=k=1", "frame_bytes=64").point
    offered = figure(usual, "offered_at_2", "virtio", "vector=k=1", "frame_bytes=64").point
    assert carried is not None and offered == pytest.approx(0.02 * carried)


def test_emulated_platforms_are_marked_and_never_ranked(tmp_path: Path) -> None:
    arms = [*paper_arms()[:1], virtual_machine("tcg", "virtio", emulated=True)]
    built = report.build(forwarding_ledger(tmp_path / "run", arms, strong=[12], sizes=[64]))
    headline = built.suite("forwarding").headlines[-1]
    assert headline.tone is Tone.EMULATED
    assert headline.text.startswith("not ranked: carries")
    assert "×" not in headline.text


def test_a_proven_difference_sets_the_tone_and_less_is_worse(tmp_path: Path) -> None:
    same = {"mbps": lambda j, s: 100.0}
    arms = [
        RouterArm(arm_record("host", "host", "Host", "reference"), **same),
        RouterArm(arm_record("host-aa", "host", "Host (A/A)", "aa"), **same),
        RouterArm(arm_record("less", "oci", "Less"), mbps=lambda j, s: 50.0),
        RouterArm(arm_record("more", "oci", "More"), mbps=lambda j, s: 200.0),
    ]
    built = report.build(forwarding_ledger(tmp_path / "run", arms, strong=[12], sizes=[64]))
    found = built.suite("forwarding")
    assert {one.arm: one.tone for one in found.headlines} == {
        "host": Tone.REFERENCE,
        "less": Tone.SLOWER,
        "more": Tone.FASTER,
    }
    arms_judged = {arm: value(built, "forwarding", "ndr_bits", arm).judged for arm in ("host-aa", "less", "more")}
    assert arms_judged == {"host-aa": "plain", "less": "worse", "more": "better"}
    assert "0.50× the host" in next(one.text for one in found.headlines if one.arm == "less")


def test_the_page_holds_every_section_and_names_cannot_leave_their_place(tmp_path: Path) -> None:
    arms = [RouterArm(arm_record("evil", "oci", EVIL, "reference"))]
    built = report.build(forwarding_ledger(tmp_path / "run", arms, strong=[1, 12], sizes=[64]))
    text = report.render_html(built)
    for anchor in ("figures", "tables", "guests", "losses", "claims"):
        assert f'id="forwarding-{anchor}"' in text
    assert "<img src=x" not in text
    assert "<script>window.pwned" not in text


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_the_text_form_fits_the_terminal(usual: report.Report, width: int) -> None:
    lines = printed(usual, width).splitlines()
    assert max(len(line) for line in lines) <= width
    assert "virtio / e1000, 3.67 to 7.34× the throughput over 9 cells" in " ".join(line.strip() for line in lines)


def test_the_text_form_shows_latency_at_the_load_that_was_measured(usual: report.Report, tmp_path: Path) -> None:
    arm = RouterArm(arm_record("runc", "oci", "Container (runc)", "reference"), latency_us=lambda j, s: 123.0)
    at_half = [level for level in result(arm, 6, 64, 1.0)["latency"] if level["load_percent"] == 50.0]
    text = printed(report.build(forwarding_ledger(tmp_path / "run", [arm], fields={"latency": at_half})), 100)
    assert "at 50 %" in text and "at 100 %" not in text
    assert "123 µs" in text
    assert "at 100 %" in printed(usual, 100)
