"""The report says what the ledger holds: a known truth comes back, and what is missing is missing with its reason."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from synthetic import (
    SyntheticArm,
    arm_record,
    cells,
    hdr_bins,
    manifest,
    synthetic_ledger,
    timer_histogram,
    timing_of,
    trial,
    usual_arms,
)

from virtgauge import report
from virtgauge.analysis.comparison import Judgement
from virtgauge.ledger.records import Flag, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.report.headline import Tone
from virtgauge.report.model import Report
from virtgauge.report.timing.model import Cell, TimingFindings

CLOCK = {"function": "clock_gettime", "load": "idle"}


def find(built: Report, probe: str, **factors: str) -> Cell:
    """The one cell of a probe with these levels."""
    (cell,) = [
        cell for cell in timing_of(built).cells if cell.probe == probe and factors.items() <= cell.factors.items()
    ]
    return cell


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A finished run of the usual arms, with some spoilt attempts."""
    return report.build(synthetic_ledger(tmp_path_factory.mktemp("usual") / "run", invalid_share=0.05))


def test_the_simulated_ratio_comes_back(usual: Report) -> None:
    cell = find(usual, "timer_cost", **CLOCK)
    series = cell.of("gvisor")
    assert series is not None
    comparison = series.comparisons["p50"]
    assert comparison.judgement is Judgement.HIGHER
    assert not comparison.ratio.excludes(53)
    assert comparison.ratio.confidence == 0.95


def test_the_simulated_median_comes_back_in_nanoseconds(usual: Report) -> None:
    series = find(usual, "timer_cost", **CLOCK).of("host")
    assert series is not None
    assert series.statistics["p50"].point == pytest.approx(23, rel=0.05)
    assert series.statistics["p50"].unit == "ns"


def test_the_truth_is_covered_as_often_as_stated(tmp_path: Path) -> None:
    arms = [arm for arm in usual_arms() if arm.record.name in ("host", "host-aa", "gvisor")]
    covered = 0
    runs = 60
    for seed in range(runs):
        ledger = synthetic_ledger(
            tmp_path / str(seed), arms, design=[("timer_cost", CLOCK)], seed=seed, spread=0.1, reads=2000
        )
        (cell,) = timing_of(report.build(ledger)).cells
        series = cell.of("gvisor")
        assert series is not None
        covered += not series.comparisons["p50"].ratio.excludes(53)
        ledger.close()
    assert covered / runs >= 0.95 - 2.58 * (0.95 * 0.05 / runs) ** 0.5


def test_statistics_equal_those_of_the_raw_values(tmp_path: Path) -> None:
    host = arm_record("host", "host", "Host", "reference")
    ledger = Ledger.create(tmp_path / "run", manifest([host]))
    raw = np.random.default_rng(2).integers(1000, 2000, 200_000) * 1000  # values that are bins of their own
    ledger.add_trial(trial(host, "timer_cost", CLOCK, 0), {"timer_cost": hdr_bins(raw)})
    series = timing_of(report.build(ledger)).cells[0].series[0]
    bins = np.sort(hdr_bins(raw).values)
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)):
        exact = np.quantile(raw, share, method="inverted_cdf")
        expected = bins[np.searchsorted(bins, exact, side="right") - 1] / 1000
        assert series.statistics[name].point == pytest.approx(expected)
    assert series.statistics["min"].point == raw.min() / 1000
    assert series.statistics["max"].point == raw.max() / 1000
    assert series.statistics["mean"].point == pytest.approx(raw.mean() / 1000)


def test_only_valid_trials_count(tmp_path: Path) -> None:
    host = arm_record("host", "host", "Host", "reference")
    ledger = Ledger.create(tmp_path / "run", manifest([host]))
    rng = np.random.default_rng(1)
    flag = Flag("foreign-load", "40 % of the machine")
    spoilt = trial(host, "timer_cost", CLOCK, 0, status=TrialStatus.INVALID, flags=(flag,))
    ledger.add_trial(spoilt, {"timer_cost": timer_histogram(rng, 9000)})
    good = trial(host, "timer_cost", CLOCK, 0, attempt=2)
    ledger.add_trial(good, {"timer_cost": timer_histogram(rng, 20)})
    built = report.build(ledger)
    median = timing_of(built).cells[0].series[0].statistics["p50"].point
    assert median == pytest.approx(20, rel=0.05)
    assert [line.status for line in built.trials] == ["invalid", "valid"]
    assert built.trials[0].flags == ("foreign-load: 40 % of the machine",)


def test_a_tail_too_rare_for_one_repetition_comes_from_all_without_interval(usual: Report) -> None:
    series = find(usual, "sleep_lateness", function="usleep", slack="default", load="idle").of("host")
    assert series is not None
    assert series.statistics["p99"].has_interval
    assert series.statistics["p99.9"].point is None
    assert "10,000" in series.statistics["p99.9"].method


def test_pooled_tail_needs_all_repetitions_together(tmp_path: Path) -> None:
    host = arm_record("host", "host", "Host", "reference")
    ledger = Ledger.create(tmp_path / "run", manifest([host]))
    rng = np.random.default_rng(1)
    for block in range(5):
        histogram = timer_histogram(rng, 20, samples=2_500)
        ledger.add_trial(trial(host, "timer_cost", CLOCK, block), {"timer_cost": histogram})
    tail = timing_of(report.build(ledger)).cells[0].series[0].statistics["p99.9"]
    assert tail.point is not None
    assert not tail.has_interval
    assert "together" in tail.method


def test_identical_arms_agree(usual: Report) -> None:
    assert usual.agreement.ok is True
    assert usual.agreement.cells == len(timing_of(usual).cells)


def test_an_aa_arm_that_differs_is_said_first_and_makes_small_differences_inconclusive(tmp_path: Path) -> None:
    arms = [
        SyntheticArm(arm_record("host", "host", "Host", "reference")),
        SyntheticArm(arm_record("host-aa", "host", "Host (A/A)", "aa"), 1.4, 1.4),
        SyntheticArm(arm_record("runc", "oci", "runc"), 1.3, 1.3),
    ]
    built = report.build(synthetic_ledger(tmp_path / "run", arms))
    assert built.agreement.ok is False
    assert any("A/A" in caveat for caveat in built.caveats)
    series = find(built, "timer_cost", **CLOCK).of("runc")
    assert series is not None
    assert series.comparisons["p50"].judgement is Judgement.INCONCLUSIVE


def test_headlines_name_each_platform_once_emulated_and_skipped_last(usual: Report) -> None:
    assert [headline.arm for headline in timing_of(usual).headlines] == [
        "host",
        "runc",
        "gvisor",
        "qemu-microvm",
        "kata",
    ]
    tones = {headline.arm: headline.tone for headline in timing_of(usual).headlines}
    assert tones["gvisor"] is Tone.SLOWER
    assert tones["qemu-microvm"] is Tone.EMULATED
    assert tones["kata"] is Tone.MISSING


def test_the_headline_says_how_much_with_its_interval(usual: Report) -> None:
    text = next(headline.text for headline in timing_of(usual).headlines if headline.arm == "gvisor")
    assert "reads the clock 5" in text
    assert "× slower than the host (5" in text
    assert "sleeps wake" in text


def test_an_emulated_arm_is_never_ranked(usual: Report) -> None:
    text = next(headline.text for headline in timing_of(usual).headlines if headline.arm == "qemu-microvm")
    assert "not ranked" in text
    assert "slower" not in text


def test_a_skipped_arm_keeps_its_reason_and_fix(usual: Report) -> None:
    record = usual.arm("kata").record
    assert record.fix == "apt-get install kata-containers"
    assert "not installed" in next(headline.text for headline in timing_of(usual).headlines if headline.arm == "kata")


def test_published_figures_stand_beside_the_same_function_load_and_platform(usual: Report) -> None:
    rows = {(row.function, row.platform, row.load): row for row in timing_of(usual).published}
    row = rows["System Call", "QEMU", "CPU-bound"]
    assert row.median_ns == 64.0
    assert (timing_of(usual).cells[row.cell].factors["function"], row.arm) == ("clock_gettime", "qemu-microvm")
    assert all(
        timing_of(usual).cells[row.cell].factors.get("slack", "default") == "default"
        for row in timing_of(usual).published
    )
    assert {row.arm for row in timing_of(usual).published} == {"host", "qemu-microvm"}
    assert "Kirova" in timing_of(usual).citations[0]


def test_a_run_without_trials_says_so(tmp_path: Path) -> None:
    built = report.build(Ledger.create(tmp_path / "run", manifest([arm.record for arm in usual_arms()])))
    assert built.suites == built.cells == ()
    assert not built.run.finished
    assert any("no valid trial" in caveat for caveat in built.caveats)
    assert any("not finished" in caveat for caveat in built.caveats)


def test_a_run_with_failures_only_gives_the_reason(tmp_path: Path) -> None:
    host = arm_record("host", "host", "Host", "reference")
    ledger = Ledger.create(tmp_path / "run", manifest([host]))
    ledger.add_guest(
        arm="host", platform="host", block=0, launched_at="", ready_ns=None, facts={}, error="no agent answered"
    )
    ledger.add_trial(
        trial(host, "timer_cost", CLOCK, 0, status=TrialStatus.FAILED, error="the guest was lost", result={})
    )
    built = report.build(ledger)
    assert timing_of(built).cells[0].series[0].missing == "failed: the guest was lost"
    assert built.arm("host").failed_guests == 1
    assert timing_of(built).headlines[0].tone is Tone.MISSING
    assert "the guest was lost" in timing_of(built).headlines[0].text


def test_one_repetition_has_figures_and_no_interval(tmp_path: Path) -> None:
    built = report.build(synthetic_ledger(tmp_path / "run", blocks=1))
    series = find(built, "timer_cost", **CLOCK).of("gvisor")
    assert series is not None
    assert series.statistics["p50"].point is not None
    assert not series.statistics["p50"].has_interval
    assert series.comparisons["p50"].judgement is Judgement.INCONCLUSIVE
    assert any("One repetition" in caveat for caveat in built.caveats)


def test_three_repetitions_state_the_confidence_they_reach(tmp_path: Path) -> None:
    built = report.build(synthetic_ledger(tmp_path / "run", blocks=3))
    series = find(built, "timer_cost", **CLOCK).of("gvisor")
    assert series is not None
    assert series.statistics["p50"].confidence == 0.75
    assert any("75" in caveat for caveat in built.caveats)


@pytest.mark.parametrize(
    ("events", "finished"),
    [
        (["started"], False),
        (["started", "completed"], True),
        (["started", "interrupted"], False),
        (["started", "interrupted", "resumed", "completed"], True),
        (["started", "completed", "resumed"], False),
    ],
)
def test_a_run_is_finished_when_it_recorded_its_end(tmp_path: Path, events: list[str], finished: bool) -> None:
    ledger = Ledger.create(tmp_path / "run", manifest([arm_record("host", "host", "Host", "reference")]))
    for kind in events:
        ledger.add_event(kind, "")
    assert report.build(ledger).run.finished is finished


def test_a_changed_host_is_said(tmp_path: Path) -> None:
    ledger = synthetic_ledger(tmp_path / "run", blocks=2, design=[("timer_cost", CLOCK)])
    ledger.add_event("changed-host", "kernel 6.1 is now 6.12")
    assert any("host changed" in caveat for caveat in report.build(ledger).caveats)


def test_what_the_probe_said_of_itself_is_kept(usual: Report) -> None:
    clock = find(usual, "timer_cost", **CLOCK).of("host")
    sleep = find(usual, "sleep_lateness", function="usleep", slack="default", load="idle").of("host")
    assert clock is not None and sleep is not None
    assert clock.methods == ("self",)
    assert clock.scalars["resolution"].point == 1.0
    assert sleep.scalars["cpu_per_sleep"].point == 3200.0


def test_foreign_load_is_a_share_of_the_machine(tmp_path: Path) -> None:
    host = arm_record("host", "host", "Host", "reference")
    ledger = Ledger.create(tmp_path / "run", manifest([host]))
    accounting = {"foreign_ns": 80_000_000, "processors": 2}
    record = trial(host, "timer_cost", CLOCK, 0, accounting=accounting, elapsed_ns=1_000_000_000)
    ledger.add_trial(record, {"timer_cost": timer_histogram(np.random.default_rng(1), 20)})
    assert report.build(ledger).trials[0].foreign_share == pytest.approx(0.04)


def test_building_twice_gives_the_same(tmp_path: Path) -> None:
    ledger = synthetic_ledger(tmp_path / "run", blocks=3, design=list(cells(loads=["idle"])))
    assert report.render_json(report.build(ledger)) == report.render_json(report.build(ledger))


def test_json_holds_every_figure_and_a_schema_version(usual: Report) -> None:
    document = json.loads(report.render_json(usual))
    assert document["schema_version"] == 2
    assert len(document["trials"]) == len(usual.trials)
    (suite,) = document["suites"]
    assert suite["suite"] == "timing"
    assert {field.name for field in dataclasses.fields(TimingFindings)} == suite.keys() - {"suite"}
    series = suite["cells"][0]["series"][0]
    assert series["statistics"]["p50"]["unit"] == "ns"
    assert series["statistics"].keys() == timing_of(usual).cells[0].series[0].statistics.keys()
    assert document["run"]["plan_text"] == usual.run.plan_text
    assert {field.name for field in dataclasses.fields(Report)} == document.keys()


def test_a_probe_that_the_report_does_not_know_is_shown_all_the_same(tmp_path: Path) -> None:
    host = arm_record("host", "host", "Host", "reference")
    ledger = Ledger.create(tmp_path / "run", manifest([host]))
    histogram = timer_histogram(np.random.default_rng(1), 20)
    ledger.add_trial(trial(host, "page_fault", {"size": "4 KiB"}, 0), {"page_fault": histogram})
    built = report.build(ledger)
    assert timing_of(built).cells[0].function == "size 4 KiB"
    assert "page fault" in report.render_html(built)
