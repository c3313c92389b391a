"""The forwarding report on hand-made results: figures, page, terminal and text."""

from __future__ import annotations

import io
import json
from pathlib import Path

import altair
import pytest
from forwarding_results import RouterArm, forwarding_ledger, forwarding_of, paper_arms, result, virtual_machine
from rich.console import Console
from synthetic import arm_record

from virtgauge import report
from virtgauge.ledger.records import Flag
from virtgauge.report.forwarding import tables
from virtgauge.report.forwarding.figures import Drawn, draw
from virtgauge.report.forwarding.interfaces import interfaces_of, pairs
from virtgauge.report.forwarding.rates import bit_rate, loss
from virtgauge.report.headline import Tone
from virtgauge.report.tables import rate_class

EVIL = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=2>"


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> report.Report:
    return report.build(forwarding_ledger(tmp_path_factory.mktemp("forwarding") / "run"))


def drawn_of(built: report.Report) -> Drawn:
    return draw(forwarding_of(built), [arm.record for arm in built.arms])


def printed(built: report.Report, width: int) -> str:
    file = io.StringIO()
    report.render_text(built, Console(file=file, width=width, color_system=None))
    return file.getvalue()


def test_the_papers_figures_are_drawn_and_valid_vega_lite(usual: report.Report) -> None:
    drawn = drawn_of(usual)
    titles = [figure.title for figure in drawn.figures]
    assert titles == [
        "Throughput against fairness of the load",
        "Latency against frame size",
        "Latency against fairness of the load",
        "Latency against load, 1518 B frames",
        "Latency against load, J 0.085",
        "Loss against load",
    ]
    for figure in drawn.figures:
        altair.LayerChart.validate(figure.spec)
        for panel in figure.panels:
            assert drawn.data[panel.data].rows


def test_a_panel_of_throughput_holds_every_arm_at_every_fairness(usual: report.Report) -> None:
    drawn = drawn_of(usual)
    panels = {panel.title: drawn.data[panel.data].rows for panel in drawn.figures[0].panels}
    assert list(panels) == ["64 B", "512 B", "1518 B"]
    ours = [row for row in panels["1518 B"] if row["kind"] == "ours"]
    assert len(ours) == 3 * 3
    (at_one,) = [row for row in ours if row["arm"] == "virtio" and row["x"] == 1.0]
    assert at_one["y"] == pytest.approx(1000, rel=0.02)
    assert at_one["low"] < at_one["y"] < at_one["high"]


def test_published_figures_stand_in_the_panels_that_they_are_about(usual: report.Report) -> None:
    drawn = drawn_of(usual)

    def marks(figure: int, panel: int) -> set[str]:
        rows = drawn.data[drawn.figures[figure].panels[panel].data].rows
        return {row["t"] for row in rows if row["kind"] == "published"}

    assert marks(0, 0) == set()
    assert marks(0, 2) == {"KVM: 1.00 Gbit/s"}
    assert marks(1, 0) == {
        *("Xen: above 80.0 µs", "Xen: up to 170 µs"),
        *("KVM: up to 100 µs", "KVM: above 300 µs"),
    }
    assert "KVM: 400 µs" in marks(3, 0)


def test_published_rows_stand_beside_ours_with_the_same_interfaces(usual: report.Report) -> None:
    rows = {(row.figure.platform, row.figure.condition): row for row in forwarding_of(usual).published}
    assert len(rows) == 8
    twofold = rows["Xen", "every frame size"]
    assert (twofold.arm, twofold.low, twofold.high) == ("e1000", pytest.approx(2, rel=0.01), pytest.approx(2, rel=0.01))
    medium = rows["KVM", "1518 B frame"]
    assert (medium.arm, medium.low) == ("virtio", pytest.approx(1000, rel=0.02))
    five = rows["KVM / Xen", "every frame size"]
    assert five.low is not None and five.high is not None
    assert 3 < five.low < five.high < 8
    loaded = rows["KVM", "1518 B frame at 950 Mbit/s"]
    assert loaded.high == pytest.approx(350, rel=0.03)


def test_only_arms_that_differ_in_their_interfaces_alone_are_compared() -> None:
    virtio, e1000 = virtual_machine("one", "virtio").record, virtual_machine("two", "e1000").record
    larger = virtual_machine("three", "e1000").record
    larger.settings["vcpus"] = 4
    container = arm_record("runc", "oci", "runc")
    assert interfaces_of(container) is None
    assert pairs([container, e1000, virtio, larger]) == [(virtio, e1000)]


def test_the_ratio_of_the_interfaces_comes_back_with_its_interval(usual: report.Report) -> None:
    found = forwarding_of(usual)
    assert len(found.interfaces) == 9
    for ratio in found.interfaces:
        cell = found.cells[ratio.cell]
        first, second = cell.of("virtio"), cell.of("e1000")
        assert first is not None and second is not None
        assert first.throughput_mbps.point is not None and second.throughput_mbps.point is not None
        wanted = first.throughput_mbps.point / second.throughput_mbps.point
        assert ratio.throughput.point == pytest.approx(wanted, rel=0.03)
        assert ratio.throughput.has_interval


def test_the_label_of_rfc_2544_stands_only_where_every_result_says_so(tmp_path: Path) -> None:
    partial = report.build(forwarding_ledger(tmp_path / "not", blocks=2, strong=[12], sizes=[64]))
    complete = report.build(
        forwarding_ledger(tmp_path / "complete", blocks=2, strong=[12], sizes=[64], fields={"rfc2544_complete": True})
    )
    assert "RFC 2544 complete" not in report.render_html(partial)
    assert "RFC 2544 complete" in report.render_html(complete)


def test_back_to_back_frames_have_a_column_only_where_they_were_measured(tmp_path: Path) -> None:
    bursts = {"rate_pps": 5e6, "bursts": [300, 320], "implied_buffer_s": 6e-5, "corrected_buffer_s": 5e-5, "reason": ""}
    design = {"blocks": 6, "strong": [12], "sizes": [64]}
    built = report.build(forwarding_ledger(tmp_path / "run", fields={"back_to_back": bursts}, **design))
    series = forwarding_of(built).cells[0].series[0]
    assert series.burst_frames.point == 310
    assert series.buffer_ns.point == pytest.approx(50e3)
    assert "back-to-back" in report.render_html(built)
    without = report.build(forwarding_ledger(tmp_path / "without", **design))
    assert "back-to-back" not in report.render_html(without)


def test_flags_are_counted_and_invalid_results_give_no_figure(tmp_path: Path) -> None:
    flags = [Flag("late", "7 % left late"), Flag("stretched", "1 of 3 trials", fatal=False)]
    built = report.build(forwarding_ledger(tmp_path / "run", blocks=2, strong=[12], sizes=[64], flags=flags))
    found = forwarding_of(built)
    assert found.flags["runc"] == {"late": 2, "stretched": 2}
    series = found.cells[0].series[0]
    assert series.throughput_mbps.point is None
    assert series.missing == "invalid: late: 7 % left late"
    assert series.tester.limit_pps.point == 5e6
    assert {headline.tone for headline in found.headlines} == {Tone.MISSING}
    assert "no valid result to draw" in report.render_html(built)


def test_lost_frames_are_listed_by_kind_of_place_and_by_guest(usual: report.Report) -> None:
    found = forwarding_of(usual)
    rows = tables.accounts(found, [arm.record for arm in usual.arms])
    assert [(line.place, line.share) for line in rows[0].lines] == [
        ("guest … IP layer", 0.6),
        ("host backlog", 0.3),
        ("port in…", 0.1),
    ]
    series = found.cells[0].series[0]
    assert [guest.dropped for guest in series.guests[:3]] == [600 * 6, 100 * 6, 0]
    assert sum(guest.share for guest in series.guests) == pytest.approx(1)


def test_emulated_platforms_are_marked_and_never_ranked(tmp_path: Path) -> None:
    arms = [*paper_arms()[:1], virtual_machine("tcg", "virtio", emulated=True)]
    built = report.build(forwarding_ledger(tmp_path / "run", arms, strong=[12], sizes=[64]))
    headline = forwarding_of(built).headlines[-1]
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
    found = forwarding_of(built)
    assert {one.arm: one.tone for one in found.headlines} == {
        "host": Tone.REFERENCE,
        "less": Tone.SLOWER,
        "more": Tone.FASTER,
    }
    classes = {s.arm: rate_class(s.comparison, False) for s in found.cells[0].series}
    assert classes == {"host": "plain", "host-aa": "plain", "less": "worse", "more": "better"}
    assert "0.50× the host" in next(one.text for one in found.headlines if one.arm == "less")


def test_the_page_holds_every_section_and_names_cannot_leave_their_place(tmp_path: Path) -> None:
    arms = [RouterArm(arm_record("evil", "oci", EVIL, "reference"))]
    built = report.build(forwarding_ledger(tmp_path / "run", arms, strong=[1, 12], sizes=[64]))
    text = report.render_html(built)
    for anchor in ("figures", "tables", "guests", "losses", "claims"):
        assert f'id="forwarding-{anchor}"' in text
    assert "<img src=x" not in text
    assert "<script>window.pwned" not in text


def test_the_json_form_is_read_back(usual: report.Report) -> None:
    read = json.loads(report.render_json(usual))
    (suite,) = read["suites"]
    assert suite["suite"] == "forwarding"
    assert len(suite["cells"]) == 9
    assert len(suite["interfaces"]) == 9
    assert suite["cells"][0]["design"]["guests"] == 12


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_the_text_form_fits_the_terminal(usual: report.Report, width: int) -> None:
    lines = printed(usual, width).splitlines()
    assert max(len(line) for line in lines) <= width
    assert any("para-virtual / emulated" in line for line in lines)


def test_the_text_form_shows_latency_at_the_load_that_was_measured(usual: report.Report, tmp_path: Path) -> None:
    arm = RouterArm(arm_record("runc", "oci", "Container (runc)", "reference"), latency_us=lambda j, s: 123.0)
    at_half = [level for level in result(arm, 6, 64, 1.0)["latency"] if level["load_percent"] == 50.0]
    text = printed(report.build(forwarding_ledger(tmp_path / "run", [arm], fields={"latency": at_half})), 100)
    assert "latency at 50 %" in text
    assert "123 µs" in text
    assert "latency at" not in printed(usual, 100)


def test_rates_and_losses_are_told_in_a_persons_units() -> None:
    assert [bit_rate(value) for value in (None, 0.0512, 98.44, 999.96, 1234.0)] == [
        *("–", "51.2 kbit/s", "98.4 Mbit/s"),
        *("1.00 Gbit/s", "1.23 Gbit/s"),
    ]
    assert [loss(value) for value in (None, 0.0, 1e-6, 0.3)] == ["–", "0", "0.00010 %", "30.0 %"]
