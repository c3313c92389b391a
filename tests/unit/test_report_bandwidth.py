"""The bandwidth report on hand-made results whose truth is known: figures, sentences, page, terminal and text."""

from __future__ import annotations

import dataclasses
import html
import io
import re
from pathlib import Path
from typing import Any

import pytest
from bandwidth_results import (
    COARSE,
    PRECISE,
    BandwidthArm,
    Design,
    Timed,
    all_helps,
    bandwidth_arms,
    bandwidth_ledger,
    effect,
    figure,
    helps,
    point,
    truth_mbps,
)
from rich.console import Console
from shown import shown, tables, value
from synthetic import arm_record

from virtgauge import report
from virtgauge.analysis.comparison import Comparison, Difference, Judgement
from virtgauge.ledger.records import Flag
from virtgauge.results.columns import Cell
from virtgauge.specs.bandwidth_figures import Help
from virtgauge.specs.bandwidth_formatting import points
from virtgauge.specs.blocks import Table, Value, values_of
from virtgauge.specs.headline import Headline, Tone
from virtgauge.specs.suites import cell_name

pytestmark = pytest.mark.slow

EVIL = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=2>"
HOST, AA, RUNC, GVISOR, QEMU = bandwidth_arms()
GIGABIT = Design(capacity_mbps=1000, cross_mbps=(500,))


def built(folder: Path, *designs: Design, arms: Any = (HOST, AA, RUNC), **fields: Any) -> report.Report:
    return report.build(bandwidth_ledger(folder / "run", list(arms), designs or (Design(),), **fields))


def printed(result: report.Report, width: int = 160) -> str:
    file = io.StringIO()
    report.render_text(result, Console(file=file, width=width, color_system=None))
    return file.getvalue()


def section_of(page: str, anchor: str) -> str:
    """A section's text without its markup."""
    part = page.partition(f'<section id="bandwidth-{anchor}">')[2].partition("</section>")[0]
    assert part, f"there is no section {anchor}"
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", part)).split())


def headlines(result: report.Report) -> dict[str, Headline]:
    return {one.arm: one for one in result.suite("bandwidth").headlines}


def difference(one: Value) -> Difference:
    assert isinstance(one.compared, Difference)
    return one.compared


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> report.Report:
    """Host, container, gVisor and an emulated machine on two links, with the timing swapped both ways."""
    both = ("inside", "shim")
    designs = (
        Design(("kite2", "yaz-original"), cross_mbps=(0, 150), through=both),
        dataclasses.replace(GIGABIT, estimators=("kite2",), through=both),
    )
    return built(tmp_path_factory.mktemp("bandwidth"), *designs, arms=bandwidth_arms())


@pytest.fixture(scope="module")
def page(usual: report.Report) -> str:
    return report.render_html(usual)


# -- estimates against the truth ---------------------------------------------------------------------


@pytest.mark.parametrize(("arm", "error"), [("host", 0.01), ("host-aa", 0.01), ("gvisor", -0.05), ("qemu", -0.3)])
def test_the_signed_error_is_the_one_that_was_given(usual: report.Report, arm: str, error: float) -> None:
    for cross in (0, 150):
        levels = {
            "estimator": "kite2",
            "timing": "hptime",
            "through": "inside",
            "capacity_mbps": 300,
            "cross_mbps": cross,
        }
        truth = 1e6 * truth_mbps({"capacity_mbps": "300", "cross_mbps": str(cross)})
        signed = figure(usual, "signed_error", arm, **levels).estimate
        assert point(usual, "truth", arm, **levels) == pytest.approx(truth)
        assert signed.point == pytest.approx(100 * error, abs=0.3)
        assert point(usual, "error", arm, **levels) == pytest.approx(100 * abs(error), abs=0.3)
        assert point(usual, "estimate", arm, **levels) == pytest.approx(truth * (1 + error), rel=0.003)
        assert signed.low is not None and signed.high is not None and signed.low < signed.high
        assert signed.n == 6
        assert point(usual, "searches", arm, **levels) == 60


def test_coverage_counts_the_intervals_that_hold_the_truth(usual: report.Report) -> None:
    levels = {"estimator": "kite2", "timing": "hptime", "through": "inside", "capacity_mbps": 300, "cross_mbps": 0}
    # Intervals reach three standard deviations, 1.5 %: an error of 1 % lies within, one of 5 % does not.
    for arm, held in (("host", 6), ("gvisor", 0)):
        assert point(usual, "intervals.covered", arm, **levels) == held
        assert point(usual, "intervals", arm, **levels) == 6


def test_half_the_interquartile_range_is_not_the_usual_mad_and_both_are_told(tmp_path: Path) -> None:
    result = built(tmp_path, arms=(HOST,), fields={"half_iqr_mbps": 20.82, "mad_mbps": 17.5})
    half, mad = (point(result, f"searches.{n}", "host", timing="hptime", cross_mbps=0) for n in ("half_iqr", "mad"))
    assert (half, mad) == (pytest.approx(20.82e6), pytest.approx(17.5e6))
    assert "20.8 Mbit/s" in section_of(report.render_html(result), "tables")


def test_an_answer_that_is_a_lower_bound_below_the_truth_has_no_error(tmp_path: Path) -> None:
    ceiling = BandwidthArm(HOST.record, {"hptime": Timed(error=-0.39), "system": Timed(error=-0.39)})
    result = built(tmp_path, GIGABIT, arms=(ceiling,), fields={"lower_bound": True, "covered": False})
    assert point(result, "bounds", "host", timing="hptime") == 6
    assert shown(result, "bandwidth", "signed_error", "host") == []
    assert value(result, "bandwidth", "error", "host", "*", "timing=hptime").estimate.point is None
    assert point(result, "intervals", "host", timing="hptime") == 0
    estimate = figure(result, "estimate", "host", timing="hptime")
    assert (estimate.estimate.point, estimate.note) == (pytest.approx(302.2e6, rel=0.01), "a lower bound")
    assert "all answers are lower bounds" in headlines(result)["host"].text
    partly = BandwidthArm(HOST.record, ceiling.timed | {"system": Timed(silent=True)})
    result = built(tmp_path / "silent", GIGABIT, arms=(partly,), fields={"lower_bound": True, "covered": False})
    assert "all answers are lower bounds" in headlines(result)["host"].text
    above = built(tmp_path / "above", GIGABIT, arms=(HOST,), fields={"lower_bound": True})
    assert point(above, "signed_error", "host", timing="hptime") == pytest.approx(1, abs=0.3)


def test_each_platform_stands_beside_the_reference_on_the_same_path(usual: report.Report) -> None:
    levels = {"estimator": "kite2", "timing": "hptime", "through": "inside", "capacity_mbps": 300, "cross_mbps": 0}
    host, runc, gvisor = (figure(usual, "error", arm, **levels) for arm in ("host", "runc", "gvisor"))
    assert host.compared is None
    assert difference(runc).judgement is Judgement.INCONCLUSIVE
    assert difference(gvisor).judgement is Judgement.HIGHER
    assert gvisor.judged == "worse"
    assert difference(gvisor).estimate.point == pytest.approx(4, abs=0.3)


# -- what precise timing does ------------------------------------------------------------------------


def test_the_effect_of_timing_is_paired_and_the_one_that_was_given(usual: report.Report) -> None:
    for through in ("inside", "shim"):
        levels = {"through": through, "estimator": "yaz-original", "cross_mbps": 0}
        error, means = effect(usual, "runc", **levels)
        assert error.estimate.point == pytest.approx(-5, abs=2.5)
        assert error.judgement is Judgement.LOWER
        assert means == Help.HELPS
        spread = figure(usual, "timing_effect.spread", "runc", timing="hptime", **levels).compared
        assert isinstance(spread, Comparison)
        assert spread.ratio.point == pytest.approx(PRECISE.spread / COARSE.spread, abs=0.15)


def test_timing_that_changes_nothing_is_told_so(tmp_path: Path) -> None:
    alike = {"hptime": PRECISE, "system": PRECISE}
    result = built(tmp_path, arms=[BandwidthArm(arm.record, alike) for arm in (HOST, AA, RUNC)])
    assert all_helps(result, "host") == all_helps(result, "runc") == {Help.SAME}
    assert "no difference to system timing is shown by precise timing (" in headlines(result)["host"].text


def test_timing_that_harms_is_told_so(tmp_path: Path) -> None:
    swapped = {"hptime": COARSE, "system": PRECISE}
    result = built(tmp_path, arms=[BandwidthArm(arm.record, swapped) for arm in (HOST, AA, RUNC)])
    assert all_helps(result, "host") == all_helps(result, "runc") == {Help.HURTS}
    text = headlines(result)["host"].text
    assert re.search(r"precise timing adds 5\.\d \(.*\) points to the error of system timing", text)


def test_without_an_identical_arm_no_effect_is_called_one(tmp_path: Path) -> None:
    result = built(tmp_path, arms=(HOST, RUNC))
    assert all_helps(result, "runc") == {Help.SAME}
    assert "no A/A interval" in effect(result, "runc", cross_mbps=0)[0].reason


def test_what_only_precise_timing_can_pace_is_made_possible(usual: report.Report) -> None:
    """gVisor paces 400 Mbit/s with system timing, and half of 1 Gbit/s is available."""
    at = {"capacity_mbps": 1000, "through": "inside"}

    def told(name: str) -> float | None:
        return point(usual, f"timing_effect.{name}", "gvisor", **at)

    assert helps(usual, "gvisor", **at) == helps(usual, "gvisor", **at | {"through": "shim"}) == Help.ENABLES
    assert (told("refused"), told("base_refused"), told("blocks"), told("base_blocks")) == (0, 6, 6, 6)
    assert told("base_max_paced") == 400e6
    assert figure(usual, "timing_effect.error", "gvisor", **at).compared is None
    assert helps(usual, "host", **at) == Help.HELPS
    pooled = [
        value(usual, "bandwidth", f"timing_effect.{name}", "gvisor", "*", "through=inside").estimate.point
        for name in ("cells", "enabled", "lost")
    ]
    assert pooled == [4, 1, 0]


def test_mixed_timings_are_compared_with_system_timing_too(tmp_path: Path) -> None:
    timings = ("hptime", "system", "hptime+system", "gettimeofday+usleep")
    result = built(tmp_path, Design(timings=timings, cross_mbps=(0,)), arms=(HOST, AA))
    places = {one.place for one in shown(result, "bandwidth", "timing_effect.help", "host")}
    assert {place.against for place in places} == {"timing=system"}
    compared = {level for place in places for level in place.cell.split(";") if level.startswith("timing=")}
    assert compared == {"timing=hptime", "timing=hptime+system", "timing=gettimeofday+usleep"}
    factors = {"estimator": "kite2", "timing": "hptime+system", "capacity_mbps": "300", "cross_mbps": "0"}
    name = cell_name(Cell("bandwidth", "estimate", tuple(factors.items())))
    assert name == "Bandwidth: kite2, clock hptime, sleep system, 300 Mbit/s, no cross traffic"


def test_hptime_that_answers_from_the_systems_clock_is_named(tmp_path: Path) -> None:
    result = built(tmp_path, arms=(HOST, AA), fields={"hptime_fallback_reason": "the counter is trapped"})
    assert headlines(result)["host"].text.endswith("; hptime answers from the system’s clock here.")
    text = section_of(report.render_html(result), "timing")
    assert "Host: hptime answers from the system’s clock, so that both timings are the same: the counter is" in text


# -- what cannot be paced ----------------------------------------------------------------------------


def test_a_refusal_is_a_result_with_the_highest_rate_that_was_paced(usual: report.Report, page: str) -> None:
    at = {"timing": "system", "through": "inside", "capacity_mbps": 1000}
    assert [point(usual, name, "gvisor", **at) for name in ("refused", "estimate", "error")] == [6, None, None]
    paced = figure(usual, "max_paced", "gvisor", **at)
    assert (paced.estimate.point, paced.note) == (400e6, "cannot pace more in 6 of 6")
    assert point(usual, "carried", "gvisor", **at) == 396e6
    assert "400 Mbit/s" in section_of(page, "tables") and "cannot pace more in 6 of 6" in section_of(page, "tables")
    assert pacing(usual, "gvisor", "max_paced", "system") == 400e6
    assert (pacing(usual, "gvisor", "refused", "system"), pacing(usual, "gvisor", "trials", "system")) == (6, 30)


def pacing(result: report.Report, arm: str, measure: str, timing: str, through: str = "inside") -> float | None:
    levels = ("*", f"timing={timing}", f"through={through}", "+method=send")
    found = shown(result, "bandwidth", f"pacing.{measure}", arm, *levels)
    return found[0].estimate.point if found and isinstance(found[0], Value) else None


def test_a_platform_that_paces_nothing_says_so_with_its_rate(tmp_path: Path) -> None:
    slow = BandwidthArm(RUNC.record, {"hptime": Timed(max_paced_mbps=100), "system": Timed(max_paced_mbps=50)})
    result = built(tmp_path, arms=(HOST, AA, slow))
    expected = "no estimate: it cannot pace the probes; the highest rate that it paces is 100 Mbit/s."
    assert headlines(result)["runc"].text == expected
    assert all_helps(result, "runc") == {Help.REFUSED}
    assert (pacing(result, "runc", "refused", "hptime"), pacing(result, "runc", "trials", "hptime")) == (12, 12)


def test_a_timing_that_gets_no_answer_gives_no_estimate(tmp_path: Path) -> None:
    silent = Timed(silent=True)
    result = built(tmp_path, arms=(HOST, AA, BandwidthArm(RUNC.record, {"system": silent})))
    assert all_helps(result, "runc") == {Help.ENABLES}
    assert headlines(result)["runc"].text.endswith("; system timing gives no estimate in 2 of 2 cases.")
    never = BandwidthArm(RUNC.record, {"system": silent, "hptime": silent})
    result = built(tmp_path / "never", arms=(HOST, AA, never))
    assert all_helps(result, "runc") == {Help.SILENT}
    assert headlines(result)["runc"].text == "no estimate: the path gives no answer."


def test_gaps_and_lateness_are_those_of_the_histograms(usual: report.Report) -> None:
    (table,) = tables(usual, "bandwidth", "pacing")
    assert [row.heads[0] for row in table.rows if row.arm == "host"] == [
        *("hptime", "system timing", "hptime by the shim", "system timing, without the shim")
    ]
    assert pacing(usual, "host", "gap.p50", "hptime") == pytest.approx(1, abs=0.005)
    for timing, timed, close in (("hptime", PRECISE, 0.01), ("system", COARSE, 0.05)):
        assert pacing(usual, "host", "gap.p99", timing) == pytest.approx(1 + 2.326 * timed.gap, abs=close)
        assert pacing(usual, "host", "lateness.p50", timing) == pytest.approx(timed.late_ns, rel=0.02)
    assert pacing(usual, "host", "shim.answered", "hptime") is None
    assert pacing(usual, "host", "shim.answered", "hptime", "shim") == 1200 * 30
    assert pacing(usual, "host", "shim.passed", "hptime", "shim") == 3 * 30
    assert pacing(usual, "host", "shim.answered", "system", "shim") is None


# -- what it costs, and what was true ----------------------------------------------------------------


def test_bytes_and_time_are_those_of_a_trial(usual: report.Report) -> None:
    at = ("host", "*", "estimator=kite2", "timing=hptime", "through=inside")
    told = [value(usual, "bandwidth", name, *at).estimate.point for name in ("cells", "bytes_sent", "duration")]
    assert told == [3, 4e6, 12e9]


def test_the_paths_are_told_as_declared_measured_and_counted(usual: report.Report, page: str) -> None:
    (table,) = tables(usual, "bandwidth", "paths")
    link = "TBF, a bucket of 3.03 kB, a queue of 96.9 kB"
    assert [row.heads[0] for row in table.rows if row.arm == "gvisor"] == [
        f"300 Mbit/s, no cross traffic\n{link}",
        f"300 Mbit/s, 150 Mbit/s constant\n{link}",
        f"1 Gbit/s, 500 Mbit/s constant\n{link}",
    ]

    def told(name: str) -> float | None:
        at = ("gvisor", "*", "capacity_mbps=300", "cross_mbps=150")
        return value(usual, "bandwidth", f"path.{name}", *at).estimate.point

    assert (told("capacity"), told("cross_traffic")) == (pytest.approx(299.7e6), pytest.approx(150.15e6))
    assert told("truth") == pytest.approx(148.6e6, rel=1e-3)
    assert told("cross_dropped") == 7 * 48  # two estimators, two timings, two ways, six repetitions
    assert "a queue of 96.9 kB" in section_of(page, "paths")


def test_an_emulated_link_tells_how_late_it_is(tmp_path: Path) -> None:
    link = {"kind": "emulator", "burst_bytes": None, "limit_bytes": 500_000, "lateness_p99_ns": 12_500}
    design = Design(delay_ms=20, loss=0.01, cross_mbps=(0,))
    result = built(tmp_path, design, arms=(HOST,), fields={"link": link, "stamp": "program"})
    (row,) = tables(result, "bandwidth", "paths")[0].rows
    named = "300 Mbit/s, 20 ms, 1 % lost, no cross traffic\nlink emulator, a queue of 500 kB"
    assert row.heads == (named,)
    assert value(result, "bandwidth", "path.link_lateness.p99", "host").estimate.point == 12_500
    assert "program" in section_of(report.render_html(result), "tables")


# -- sentences ---------------------------------------------------------------------------------------


def test_one_sentence_for_each_platform_says_how_far_off_and_whether_timing_helps(usual: report.Report) -> None:
    told = headlines(usual)
    assert list(told) == ["host", "runc", "gvisor", "qemu"]
    assert [one.tone for one in told.values()] == [Tone.REFERENCE, Tone.SAME, Tone.SLOWER, Tone.EMULATED]
    number = r"[\d.]+ \([\d.]+–[\d.]+\)"
    assert re.fullmatch(
        rf"estimates are [\d.]+ % off \([\d.]+–[\d.]+ %\) with hptime; precise timing takes {number} points off the "
        rf"error of system timing, the shim {number}\.",
        told["host"].text,
    )
    assert told["gvisor"].text.endswith("; system timing cannot pace 1 of 5 cases.")
    assert told["qemu"].text.startswith("not ranked: estimates are 30 % off")


def test_a_better_platform_than_the_reference_is_told_so(tmp_path: Path) -> None:
    worse = [BandwidthArm(arm.record, {"hptime": Timed(error=0.05)}) for arm in (HOST, AA)]
    assert headlines(built(tmp_path, arms=[*worse, RUNC]))["runc"].tone is Tone.FASTER


def test_the_summary_is_of_each_estimator_and_of_all_together(usual: report.Report) -> None:
    (table,) = usual.suite("bandwidth").summary
    assert isinstance(table, Table)
    assert list(dict.fromkeys(row.heads[0] for row in table.rows)) == ["kite2", "yaz-original", "all estimators"]
    error, *_, cells, refused, _, _ = next(
        row.cells for row in table.rows if (row.arm, row.heads) == ("gvisor", ("kite2", "system timing"))
    )
    assert isinstance(error, Value) and isinstance(cells, Value) and isinstance(refused, Value)
    assert (cells.estimate.point, refused.estimate.point, refused.note) == (2, 1, "cannot pace")
    at = ("gvisor", "*", "estimator=kite2", "timing=hptime", "through=inside")
    precise = value(usual, "bandwidth", "error", *at)
    assert precise.estimate.point == pytest.approx(5, abs=0.3)
    assert difference(precise).judgement is Judgement.HIGHER


# -- what was not measured ---------------------------------------------------------------------------


def test_what_a_platform_cannot_do_is_named_once_with_its_reason(tmp_path: Path) -> None:
    reason = "the platform has no NICs"
    result = built(tmp_path, refused={"runc": reason})
    rows = {row.heads[0]: row.cells for row in tables(result, "bandwidth", "missing")[0].rows}
    assert rows["yaz-original"][1:] == ("Container (runc)", f"unsupported: {reason}")
    assert rows["the shim"][2] == "the plan has no cell with through = shim"
    assert headlines(result)["runc"].tone is Tone.MISSING
    assert reason in section_of(report.render_html(result), "missing")
    assert reason in " ".join(printed(result, 250).split())


def test_an_estimator_of_an_older_version_is_reported_by_its_name_after_the_others(tmp_path: Path) -> None:
    result = built(tmp_path, Design(("yaz", "kite2"), cross_mbps=(0,)), arms=(HOST, AA))
    assert [table.title.partition(",")[0] for table in tables(result, "bandwidth", "tables")][:4:2] == ["Kite2", "Yaz"]
    assert point(result, "signed_error", "host", estimator="yaz", timing="hptime") == pytest.approx(1, abs=0.3)


def test_a_plan_with_one_timing_says_that_nothing_can_be_said_of_timing(tmp_path: Path) -> None:
    result = built(tmp_path, Design(timings=("system",), cross_mbps=(0,)))
    assert tables(result, "bandwidth", "timing") == []
    rows = {row.heads[0]: row.cells[2] for row in tables(result, "bandwidth", "missing")[0].rows}
    assert rows["what precise timing does"] == "the plan has a single timing"
    assert rows["cross traffic"] == "the plan has none"
    assert re.fullmatch(r"estimates are .* % off \(.*\) with system timing\.", headlines(result)["host"].text)


def test_invalid_trials_give_no_figures_and_their_flags_are_shown(tmp_path: Path) -> None:
    flags = (Flag("cross-traffic-short", "asked for 150 Mbit/s, counted 120"),)
    result = built(tmp_path, arms=(HOST, AA), flags=flags)
    assert headlines(result)["host"].tone is Tone.MISSING
    assert "cross-traffic-short: asked for 150 Mbit/s, counted 120" in headlines(result)["host"].text
    found = result.suite("bandwidth")
    assert not [one for one in values_of(found.blocks) if isinstance(one, Value) and one.estimate.point is not None]
    assert "0 valid, cross-traffic-short: 6" in section_of(report.render_html(result), "tables")
    assert "no valid figures" in printed(result)


def test_flags_that_do_not_spoil_a_trial_stand_with_its_figures(tmp_path: Path) -> None:
    flags = (Flag("user-timestamps", "the receiver stamps by its program", fatal=False),)
    result = built(tmp_path, arms=(HOST,), flags=flags)
    assert "6 valid, user-timestamps: 6" in section_of(report.render_html(result), "tables")


def test_one_platform_and_one_repetition_make_a_report_without_intervals(tmp_path: Path) -> None:
    result = built(tmp_path, arms=(HOST,), blocks=1)
    assert all_helps(result, "host") == {Help.OPEN}
    assert re.fullmatch(
        r"estimates are [\d.]+ % off with hptime; precise timing changes the error of system timing by −[\d.]+ points "
        r"\(no interval\)\.",
        headlines(result)["host"].text,
    )
    assert printed(result)


def test_few_searches_tell_no_outliers(tmp_path: Path) -> None:
    few = figure(built(tmp_path / "few", blocks=1), "searches.outliers", "host", timing="hptime", cross_mbps=0)
    assert (few.estimate.point, few.estimate.method) == (None, "needs 20 searches, has 10")
    many = built(tmp_path / "many", blocks=2, searches=500)
    share = point(many, "searches.outliers", "host", timing="hptime", cross_mbps=0)
    assert share == pytest.approx(0.7, abs=0.7)  # of normal values


# -- forms -------------------------------------------------------------------------------------------


def test_the_page_holds_every_section_and_every_sentence(usual: report.Report, page: str) -> None:
    for anchor in ("timing", "figures", "pacing", "paths", "tables", "published"):
        assert section_of(page, anchor)
    for one in headlines(usual).values():
        assert one.text in html.unescape(page)
    assert "What a path still carries without queueing" in page


def test_the_terminal_holds_the_errors_and_what_could_not_be_paced(usual: report.Report) -> None:
    text = printed(usual)
    assert "all estimators, hptime" in text
    assert "cannot pace" in text
    assert printed(usual, 60)


def test_points_are_written_with_their_sign() -> None:
    assert [points(one) for one in (1.23, -0.31, 0.001)] == ["+1.2", "−0.31", "±0.00"]


def test_nothing_of_a_run_becomes_markup_on_the_page(tmp_path: Path) -> None:
    evil = BandwidthArm(arm_record("evil", "oci", EVIL))
    fields = {
        "stamp": EVIL,
        "link": {"kind": EVIL},
        "pacing": {"method": EVIL, "max_paced_mbps": 1.0, "refused": False},
    }
    design = Design(estimators=(EVIL,), timings=(EVIL, "system"), through=(EVIL,), traffic=EVIL, pacing=EVIL)
    flags = (Flag(EVIL, EVIL, fatal=False),)
    result = built(tmp_path, design, arms=(HOST, AA, evil), blocks=2, fields=fields, flags=flags)
    assert EVIL not in report.render_html(result)
    assert printed(result)
    refused = built(tmp_path / "refused", arms=(HOST, evil), blocks=1, refused={"evil": EVIL})
    assert EVIL not in report.render_html(refused)
