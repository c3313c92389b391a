"""The bandwidth report on hand-made results whose truth is known: figures, sentences, page, terminal and text."""

from __future__ import annotations

import dataclasses
import html
import io
import json
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
    bandwidth_arms,
    bandwidth_ledger,
    bandwidth_of,
    cell_of,
    effect_of,
    series_of,
    truth_mbps,
)
from rich.console import Console
from synthetic import arm_record

from virtgauge import report
from virtgauge.analysis.comparison import Judgement
from virtgauge.ledger.records import Flag
from virtgauge.report.bandwidth import tables
from virtgauge.report.bandwidth.model import Help
from virtgauge.report.bandwidth.vocabulary import arrangement, off, points, signed, timing_words, volume
from virtgauge.report.headline import Tone

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


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> report.Report:
    """Host, container, gVisor and an emulated machine on two links, with the timing swapped both ways."""
    both = ("inside", "shim")
    designs = (
        Design(("yaz", "yaz-original"), cross_mbps=(0, 150), through=both),
        dataclasses.replace(GIGABIT, estimators=("yaz",), through=both),
    )
    return built(tmp_path_factory.mktemp("bandwidth"), *designs, arms=bandwidth_arms())


@pytest.fixture(scope="module")
def page(usual: report.Report) -> str:
    return report.render_html(usual)


# -- estimates against the truth ---------------------------------------------------------------------


@pytest.mark.parametrize(("arm", "error"), [("host", 0.01), ("host-aa", 0.01), ("gvisor", -0.05), ("qemu", -0.3)])
def test_the_signed_error_is_the_one_that_was_given(usual: report.Report, arm: str, error: float) -> None:
    found = bandwidth_of(usual)
    for cross in (0, 150):
        levels = {"estimator": "yaz", "timing": "hptime", "through": "inside", "capacity_mbps": 300}
        series = series_of(found, arm, cross_mbps=cross, **levels)
        truth = truth_mbps({"capacity_mbps": "300", "cross_mbps": str(cross)})
        assert series.truth_mbps.point == pytest.approx(truth)
        assert series.error.point == pytest.approx(error, abs=0.003)
        assert series.off.point == pytest.approx(abs(error), abs=0.003)
        assert series.median_mbps.point == pytest.approx(truth * (1 + error), rel=0.003)
        assert series.error.low is not None and series.error.high is not None
        assert series.error.low < series.error.high
        assert len(series.blocks) == 6
        assert series.searches == len(series.instants_mbps) == 60


def test_coverage_counts_the_intervals_that_hold_the_truth(usual: report.Report) -> None:
    found = bandwidth_of(usual)
    levels = {"estimator": "yaz", "timing": "hptime", "through": "inside", "capacity_mbps": 300, "cross_mbps": 0}
    host, gvisor = (series_of(found, arm, **levels) for arm in ("host", "gvisor"))
    # Intervals reach three standard deviations, 1.5 %: an error of 1 % lies within, one of 5 % does not.
    assert (host.covered, host.intervals) == (6, 6)
    assert (gvisor.covered, gvisor.intervals) == (0, 6)


def test_half_the_interquartile_range_is_not_the_usual_mad_and_both_are_told(tmp_path: Path) -> None:
    fields = {"half_iqr_mbps": 20.82, "mad_mbps": 17.5}
    result = built(tmp_path, arms=(HOST,), fields=fields)
    series = series_of(bandwidth_of(result), "host", timing="hptime", cross_mbps=0)
    assert (series.half_iqr_mbps.point, series.mad_mbps.point) == (20.82, 17.5)
    assert "20.8 17.5" in section_of(report.render_html(result), "tables")


def test_an_answer_that_is_a_lower_bound_below_the_truth_has_no_error(tmp_path: Path) -> None:
    ceiling = BandwidthArm(HOST.record, {"hptime": Timed(error=-0.39), "system": Timed(error=-0.39)})
    result = built(tmp_path, GIGABIT, arms=(ceiling,), fields={"lower_bound": True, "covered": False})
    series = series_of(bandwidth_of(result), "host", timing="hptime")
    assert series.bounds == 6
    assert series.error.point is None and series.off.point is None
    assert (series.covered, series.intervals) == (0, 0)
    assert series.median_mbps.point == pytest.approx(302.2, rel=0.01)
    assert "≥ 30" in section_of(report.render_html(result), "tables")
    assert "all answers are lower bounds" in bandwidth_of(result).headlines[0].text
    above = built(tmp_path / "above", GIGABIT, arms=(HOST,), fields={"lower_bound": True})
    assert series_of(bandwidth_of(above), "host", timing="hptime").error.point == pytest.approx(0.01, abs=0.003)


def test_each_platform_stands_beside_the_reference_on_the_same_path(usual: report.Report) -> None:
    found = bandwidth_of(usual)
    levels = {"estimator": "yaz", "timing": "hptime", "through": "inside", "capacity_mbps": 300, "cross_mbps": 0}
    runc, gvisor = (series_of(found, arm, **levels) for arm in ("runc", "gvisor"))
    assert series_of(found, "host", **levels).beside is None
    assert runc.beside is not None and runc.beside.judgement is Judgement.INCONCLUSIVE
    assert gvisor.beside is not None and gvisor.beside.judgement is Judgement.HIGHER
    assert gvisor.beside.estimate.point == pytest.approx(0.04, abs=0.003)


# -- what precise timing does ------------------------------------------------------------------------


def test_the_effect_of_timing_is_paired_and_the_one_that_was_given(usual: report.Report) -> None:
    found = bandwidth_of(usual)
    for through in ("inside", "shim"):
        one = next(
            one
            for one in found.effects
            if (one.arm, one.key.through, one.key.estimator) == ("runc", through, "yaz-original")
        )
        assert one.base == "system"
        assert one.error.estimate.point == pytest.approx(-0.05, abs=0.025)
        assert one.error.judgement is Judgement.LOWER
        assert one.help is Help.HELPS
        assert one.spread.ratio.point == pytest.approx(PRECISE.spread / COARSE.spread, abs=0.15)


def test_timing_that_changes_nothing_is_told_so(tmp_path: Path) -> None:
    alike = {"hptime": PRECISE, "system": PRECISE}
    arms = [BandwidthArm(arm.record, alike) for arm in (HOST, AA, RUNC)]
    found = bandwidth_of(built(tmp_path, arms=arms))
    assert {one.help for one in found.effects} == {Help.SAME}
    assert "no difference to system timing is shown by precise timing (" in found.headlines[0].text


def test_timing_that_harms_is_told_so(tmp_path: Path) -> None:
    swapped = {"hptime": COARSE, "system": PRECISE}
    arms = [BandwidthArm(arm.record, swapped) for arm in (HOST, AA, RUNC)]
    found = bandwidth_of(built(tmp_path, arms=arms))
    assert {one.help for one in found.effects} == {Help.HURTS}
    assert re.search(r"precise timing adds 5\.\d \(.*\) points to the error of system timing", found.headlines[0].text)


def test_without_an_identical_arm_no_effect_is_called_one(tmp_path: Path) -> None:
    found = bandwidth_of(built(tmp_path, arms=(HOST, RUNC)))
    assert {one.help for one in found.effects} == {Help.SAME}
    assert all("no A/A interval" in one.error.reason for one in found.effects)
    assert all(one.error.estimate.point is not None and one.error.estimate.point < -0.02 for one in found.effects)


def test_what_only_precise_timing_can_pace_is_made_possible(usual: report.Report) -> None:
    """gVisor paces 400 Mbit/s with system timing, and half of 1 Gbit/s is available."""
    found = bandwidth_of(usual)
    one = effect_of(found, "gvisor", capacity_mbps=1000)
    assert one.help is Help.ENABLES
    assert (one.refused, one.base_refused, one.blocks, one.base_blocks) == (0, 6, 6, 6)
    assert one.base_honest_mbps.point == 400
    assert one.error.estimate.point is None
    assert effect_of(found, "gvisor", "shim", capacity_mbps=1000).help is Help.ENABLES
    assert effect_of(found, "host", capacity_mbps=1000).help is Help.HELPS
    (pooled,) = [one for one in found.pooled if (one.arm, one.through) == ("gvisor", "inside")]
    assert (pooled.cells, pooled.enabled, pooled.lost) == (4, 1, 0)


def test_mixed_timings_are_compared_with_system_timing_too(tmp_path: Path) -> None:
    timings = ("hptime", "system", "hptime+system", "gettimeofday+usleep")
    found = bandwidth_of(built(tmp_path, Design(timings=timings, cross_mbps=(0,)), arms=(HOST, AA)))
    assert {(one.key.timing, one.base) for one in found.effects} == {
        ("hptime", "system"),
        ("hptime+system", "system"),
        ("gettimeofday+usleep", "system"),
    }
    assert timing_words("hptime+system") == "clock hptime, sleep system"
    one = cell_of(found, timing="hptime+system")
    assert one.key.label == "yaz-original · clock hptime, sleep system · 300 Mbit/s, no cross traffic"


def test_hptime_that_answers_from_the_systems_clock_is_named(tmp_path: Path) -> None:
    result = built(tmp_path, arms=(HOST, AA), fields={"hptime_refusal": "the counter is trapped"})
    found = bandwidth_of(result)
    assert found.headlines[0].text.endswith("; hptime answers from the system’s clock here.")
    text = section_of(report.render_html(result), "timing")
    assert "Host: hptime answers from the system’s clock, so that both timings are the same: the counter is" in text


# -- what cannot be paced ----------------------------------------------------------------------------


def test_a_refusal_is_a_result_with_the_highest_honest_rate(usual: report.Report, page: str) -> None:
    series = series_of(bandwidth_of(usual), "gvisor", timing="system", through="inside", capacity_mbps=1000)
    assert (series.refused, len(series.blocks), series.missing) == (6, 6, None)
    assert series.median_mbps.point is None and series.error.point is None
    assert (series.honest_mbps.point, series.carried_mbps.point) == (400, 396)
    text = section_of(page, "tables")
    assert "cannot pace more than 400 Mbit/s; the path carried 396 Mbit/s at least" in text
    rows = [one for one in bandwidth_of(usual).pacing if one.arm == "gvisor" and one.arrangement == "system timing"]
    (row,) = rows
    assert (row.method, row.trials, row.refused, row.honest_mbps.point) == ("send", 30, 6, 400)
    assert re.search(r"system timing send 400 Mbit/s .*? 6 of 30", section_of(page, "pacing"))


def test_a_platform_that_paces_nothing_says_so_with_its_rate(tmp_path: Path) -> None:
    slow = BandwidthArm(RUNC.record, {"hptime": Timed(honest_mbps=100), "system": Timed(honest_mbps=50)})
    result = built(tmp_path, arms=(HOST, AA, slow))
    found = bandwidth_of(result)
    headline = next(one for one in found.headlines if one.arm == "runc")
    assert headline.text == (
        "no estimate: it cannot pace the probes; the highest rate that it keeps honestly is 100 Mbit/s."
    )
    assert {one.help for one in found.effects if one.arm == "runc"} == {Help.REFUSED}
    assert (
        "runc: cannot pace 12 of 12 trials with hptime (send, honest up to 100 Mbit/s); "
        "12 of 12 trials with system timing (send, honest up to 50 Mbit/s)"
    ) in " ".join(printed(result).split())


def test_gaps_and_lateness_are_those_of_the_histograms(usual: report.Report) -> None:
    rows = {one.arrangement: one for one in bandwidth_of(usual).pacing if one.arm == "host"}
    assert list(rows) == ["hptime", "system timing", "hptime by the shim", "system timing, without the shim"]
    precise, coarse = rows["hptime"], rows["system timing"]
    assert precise.gap_p50 == pytest.approx(1, abs=0.005)
    assert precise.gap_p99 == pytest.approx(1 + 2.326 * PRECISE.gap, abs=0.01)
    assert coarse.gap_p99 == pytest.approx(1 + 2.326 * COARSE.gap, abs=0.05)
    assert precise.late_p50_ns == pytest.approx(PRECISE.late_ns, rel=0.02)
    assert coarse.late_p50_ns == pytest.approx(COARSE.late_ns, rel=0.02)
    assert precise.gap is not None and list(precise.gap.shares) == sorted(precise.gap.shares, reverse=True)
    assert (precise.answered, rows["hptime by the shim"].answered) == (None, 1200 * 30)
    assert rows["hptime by the shim"].passed == 3 * 30
    assert rows["system timing, without the shim"].answered is None


# -- what it costs, and what was true ----------------------------------------------------------------


def test_bytes_and_time_are_those_of_a_trial(usual: report.Report, page: str) -> None:
    (one,) = [
        one
        for one in bandwidth_of(usual).accuracy
        if (one.arm, one.estimators, one.arrangement) == ("host", ("yaz",), "hptime")
    ]
    assert (one.cells, one.sent_bytes.point, one.duration_ns.point) == (3, 4e6, 12e9)
    assert "4.00 MB, 12.0 s" in section_of(page, "cost")
    assert (volume(1.2e9), volume(950e3), volume(0), volume(None)) == ("1.20 GB", "950 kB", "0 B", "–")


def test_the_paths_are_told_as_declared_measured_and_counted(usual: report.Report, page: str) -> None:
    rows = {one.path.label: one for one in bandwidth_of(usual).paths if one.arm == "gvisor"}
    assert list(rows) == [
        "300 Mbit/s, no cross traffic",
        "300 Mbit/s, 150 Mbit/s constant",
        "1 Gbit/s, 500 Mbit/s constant",
    ]
    one = rows["300 Mbit/s, 150 Mbit/s constant"]
    assert (one.measured_mbps.point, one.counted_mbps.point) == (pytest.approx(299.7), pytest.approx(150.15))
    assert one.truth_mbps.point == pytest.approx(148.6, rel=1e-3)
    assert one.link == "TBF, a bucket of 3.03 kB, a queue of 96.9 kB"
    assert one.dropped == 7 * 48  # two estimators, two timings, two ways, six repetitions
    assert "299.7 Mbit/s − 150.1 Mbit/s" in section_of(page, "paths")


def test_an_emulated_link_tells_how_late_it_is(tmp_path: Path) -> None:
    link = {"kind": "emulator", "burst_bytes": None, "limit_bytes": 500_000, "lateness_p99_ns": 12_500}
    design = Design(delay_ms=20, loss=0.01, cross_mbps=(0,))
    result = built(tmp_path, design, arms=(HOST,), fields={"link": link, "stamp": "program"})
    (one,) = bandwidth_of(result).paths
    assert one.path.label == "300 Mbit/s, 20 ms, 1 % lost, no cross traffic"
    assert (one.link, one.late_p99_ns.point) == ("link emulator, a queue of 500 kB", 12_500)
    page = report.render_html(result)
    assert "late 12.5 µs" in section_of(page, "paths")
    assert "program" in section_of(page, "tables")


# -- sentences ---------------------------------------------------------------------------------------


def test_one_sentence_for_each_platform_says_how_far_off_and_whether_timing_helps(usual: report.Report) -> None:
    headlines = {one.arm: one for one in bandwidth_of(usual).headlines}
    assert list(headlines) == ["host", "runc", "gvisor", "qemu"]
    assert [one.tone for one in headlines.values()] == [Tone.REFERENCE, Tone.SAME, Tone.SLOWER, Tone.EMULATED]
    number = r"[\d.]+ \([\d.]+–[\d.]+\)"
    assert re.fullmatch(
        rf"estimates are [\d.]+ % off \([\d.]+–[\d.]+ %\) with hptime; precise timing takes {number} points off the "
        rf"error of system timing, the shim {number}\.",
        headlines["host"].text,
    )
    assert headlines["gvisor"].text.endswith("; system timing cannot pace 1 of 5 cases.")
    assert headlines["qemu"].text.startswith("not ranked: estimates are 30 % off")


def test_a_better_platform_than_the_reference_is_told_so(tmp_path: Path) -> None:
    worse = [BandwidthArm(arm.record, {"hptime": Timed(error=0.05)}) for arm in (HOST, AA)]
    found = bandwidth_of(built(tmp_path, arms=[*worse, RUNC]))
    assert next(one.tone for one in found.headlines if one.arm == "runc") is Tone.FASTER


def test_the_glance_has_the_figures_of_the_built_in_timing(usual: report.Report) -> None:
    found = bandwidth_of(usual)
    arms = [arm.record for arm in usual.arms]
    table = tables.glance(found, arms)
    assert table.estimators == (("yaz", 2), ("yaz-original", 2))
    assert table.timings == ("hptime", "system timing") * 2
    assert [row.arm.name for row in table.rows] == ["host", "runc", "gvisor", "qemu"]
    gvisor = table.rows[2].columns
    assert gvisor[1] is not None and (gvisor[1].cells, gvisor[1].refused) == (2, 1)
    assert gvisor[0] is not None and gvisor[0].off.point == pytest.approx(0.05, abs=0.003)
    assert {one.through for row in table.rows for one in row.columns if one is not None} == {"inside"}


# -- what was not measured ---------------------------------------------------------------------------


def test_what_a_platform_cannot_do_is_named_once_with_its_reason(tmp_path: Path) -> None:
    reason = "the platform has no NICs"
    result = built(tmp_path, refused={"runc": reason})
    found = bandwidth_of(result)
    rows = {row.what: row for row in found.not_measured}
    assert (rows["everything"].arms, rows["everything"].reason) == (("runc",), f"unsupported: {reason}")
    assert rows["the shim"].reason == "the plan has no cell with through = shim"
    assert next(one for one in found.headlines if one.arm == "runc").tone is Tone.MISSING
    assert reason in section_of(report.render_html(result), "missing")
    assert f"not measured: everything: unsupported: {reason}" in printed(result)


def test_a_plan_with_one_timing_says_that_nothing_can_be_said_of_timing(tmp_path: Path) -> None:
    result = built(tmp_path, Design(timings=("system",), cross_mbps=(0,)))
    found = bandwidth_of(result)
    assert found.effects == () and found.pooled == ()
    rows = {row.what: row.reason for row in found.not_measured}
    assert rows["what precise timing does"] == "the plan has a single timing"
    assert rows["cross traffic"] == "the plan has none"
    assert re.fullmatch(r"estimates are .* % off \(.*\) with system timing\.", found.headlines[0].text)
    assert 'id="bandwidth-timing"' not in report.render_html(result)


def test_invalid_trials_give_no_figures_and_their_flags_are_shown(tmp_path: Path) -> None:
    flags = (Flag("cross-traffic-short", "asked for 150 Mbit/s, counted 120"),)
    result = built(tmp_path, arms=(HOST, AA), flags=flags)
    found = bandwidth_of(result)
    assert found.headlines[0].tone is Tone.MISSING
    assert "cross-traffic-short: asked for 150 Mbit/s, counted 120" in found.headlines[0].text
    assert all(series.missing for cell in found.cells for series in cell.series)
    assert found.flags["host"] == {"cross-traffic-short": 24}
    assert found.effects == () and found.pacing == () and found.paths == ()
    page = report.render_html(result)
    assert "cross-traffic-short" in section_of(page, "tables")
    assert "There is no valid result to draw." in section_of(page, "figures")
    assert "no valid figures" in printed(result)


def test_flags_that_do_not_spoil_a_trial_stand_with_its_figures(tmp_path: Path) -> None:
    flags = (Flag("user-timestamps", "the receiver stamps by its program", fatal=False),)
    result = built(tmp_path, arms=(HOST,), flags=flags)
    series = series_of(bandwidth_of(result), "host", timing="hptime", cross_mbps=0)
    assert tables.validity(series) == ["6 valid", "user-timestamps: 6"]
    assert "user-timestamps: 6" in section_of(report.render_html(result), "tables")


def test_one_platform_and_one_repetition_make_a_report_without_intervals(tmp_path: Path) -> None:
    result = built(tmp_path, arms=(HOST,), blocks=1)
    found = bandwidth_of(result)
    assert not any(series.error.has_interval for cell in found.cells for series in cell.series)
    assert {one.help for one in found.effects} == {Help.OPEN}
    assert re.fullmatch(
        r"estimates are [\d.]+ % off with hptime; precise timing changes the error of system timing by −[\d.]+ points "
        r"\(no interval\)\.",
        found.headlines[0].text,
    )
    assert "(no interval)" in section_of(report.render_html(result), "timing")
    assert printed(result)


def test_few_searches_tell_no_outliers(tmp_path: Path) -> None:
    few = series_of(bandwidth_of(built(tmp_path / "few", blocks=1)), "host", timing="hptime", cross_mbps=0)
    assert few.outliers.point is None and few.outliers.method == "needs 20 searches, has 10"
    many = built(tmp_path / "many", blocks=2, searches=500)
    series = series_of(bandwidth_of(many), "host", timing="hptime", cross_mbps=0)
    assert series.outliers.point == pytest.approx(0.007, abs=0.007)  # of normal values
    assert len(series.instants_mbps) == 120


# -- forms -------------------------------------------------------------------------------------------


def test_the_page_holds_every_section_and_every_series(usual: report.Report, page: str) -> None:
    found = bandwidth_of(usual)
    for anchor in ("timing", "figures", "pacing", "cost", "paths", "tables", "published", "claims"):
        assert section_of(page, anchor)
    assert section_of(page, "tables").count("6 valid") == sum(len(cell.series) for cell in found.cells)
    for headline in found.headlines:
        assert headline.text in html.unescape(page)
    assert "What a path still carries without queueing" in page


def test_every_figure_of_the_tables_is_the_one_of_the_findings(usual: report.Report, page: str) -> None:
    text = section_of(page, "tables")
    for cell in bandwidth_of(usual).cells:
        for series in cell.series:
            if series.error.point is not None:
                assert signed(series.error.point) in text
    timing = section_of(page, "timing")
    for one in bandwidth_of(usual).effects:
        if one.error.estimate.point is not None:
            assert f"{points(one.error.estimate.point)} (" in timing
            assert f"{off(one.base_off.point)} → {off(one.off.point)}" in timing


def test_the_text_form_holds_every_figure(usual: report.Report) -> None:
    document = json.loads(report.render_json(usual))
    (suite,) = [suite for suite in document["suites"] if suite["suite"] == "bandwidth"]
    found = bandwidth_of(usual)
    assert len(suite["cells"]) == len(found.cells)
    assert suite["cells"][0]["key"]["path"]["link"]["capacity_mbps"] == 300
    assert suite["effects"][0]["help"] in [help_.value for help_ in Help]
    assert {"error", "covered", "honest_mbps", "half_iqr_mbps"} <= set(suite["cells"][0]["series"][0])


def test_the_terminal_holds_the_errors_and_what_could_not_be_paced(usual: report.Report) -> None:
    text = printed(usual)
    assert "median error without its sign" in text
    assert "gvisor: cannot pace 6 of 30 trials with system timing (send, honest up to 400 Mbit/s)" in text
    assert "30 %" in text
    assert printed(usual, 60)


def test_nothing_of_a_run_becomes_markup_on_the_page(tmp_path: Path) -> None:
    evil = BandwidthArm(arm_record("evil", "oci", EVIL))
    fields = {"stamp": EVIL, "link": {"kind": EVIL}, "pacing": {"method": EVIL, "honest_mbps": 1.0, "refused": False}}
    design = Design(estimators=(EVIL,), timings=(EVIL, "system"), through=(EVIL,), traffic=EVIL, pacing=EVIL)
    flags = (Flag(EVIL, EVIL, fatal=False),)
    result = built(tmp_path, design, arms=(HOST, AA, evil), blocks=2, fields=fields, flags=flags)
    assert EVIL not in report.render_html(result)
    assert printed(result)
    refused = built(tmp_path / "refused", arms=(HOST, evil), blocks=1, refused={"evil": EVIL})
    assert EVIL not in report.render_html(refused)


def test_names_of_cells_say_what_was_done(usual: report.Report) -> None:
    names = {cell.name for cell in usual.cells}
    assert "Bandwidth: yaz · hptime by the shim · 300 Mbit/s, no cross traffic" in names
    assert "Bandwidth: yaz-original · system timing, without the shim · 300 Mbit/s, 150 Mbit/s constant" in names
    assert arrangement("system", "inside") == "system timing"
    assert (off(0.0123), off(0.18), off(0.0004), signed(-0.0123), points(1.234)) == (
        "1.2 %",
        "18 %",
        "0.04 %",
        "−1.2 %",
        "+123",
    )
