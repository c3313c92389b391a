"""The report says what the ledger holds: a known truth comes back, and what is missing is missing with its reason."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from shown import tables, value
from synthetic import (
    SyntheticArm,
    arm_record,
    cells,
    hdr_bins,
    manifest,
    synthetic_ledger,
    timer_histogram,
    trial,
    usual_arms,
)

from virtgauge import report
from virtgauge.analysis.comparison import Comparison, Judgement
from virtgauge.ledger.records import Flag, GuestRecord, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.report.model import Report
from virtgauge.specs.blocks import Chart, Text, Value
from virtgauge.specs.headline import Tone

pytestmark = pytest.mark.slow

CLOCK = {"function": "clock_gettime", "load": "idle"}


AT = ("function=clock_gettime", "load=idle")
SLEEP = ("function=usleep", "slack=default", "load=idle")


def clock(built: Report, arm: str, statistic: str = "p50") -> Value:
    """A statistic of reading the clock on an idle system."""
    return value(built, "timing", f"timer_cost.{statistic}", arm, *AT)


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A finished run of the usual arms, with some invalid attempts."""
    return report.build(synthetic_ledger(tmp_path_factory.mktemp("usual") / "run", invalid_share=0.05))


def test_the_simulated_ratio_comes_back(usual: Report) -> None:
    comparison = clock(usual, "gvisor").compared
    assert isinstance(comparison, Comparison)
    assert comparison.judgement is Judgement.HIGHER
    assert not comparison.ratio.excludes(53)
    assert comparison.ratio.confidence == 0.95


def test_the_simulated_median_comes_back_in_nanoseconds(usual: Report) -> None:
    median = clock(usual, "host").estimate
    assert median.point == pytest.approx(23, rel=0.05)
    assert median.unit == "ns"


def test_the_truth_is_covered_as_often_as_stated(tmp_path: Path) -> None:
    arms = [arm for arm in usual_arms() if arm.record.name in ("host", "host-aa", "gvisor")]
    covered = 0
    runs = 60
    for seed in range(runs):
        ledger = synthetic_ledger(
            tmp_path / str(seed), arms, design=[("timer_cost", CLOCK)], seed=seed, spread=0.1, reads=2000
        )
        comparison = clock(report.build(ledger), "gvisor").compared
        assert isinstance(comparison, Comparison)
        covered += not comparison.ratio.excludes(53)
        ledger.close()
    assert covered / runs >= 0.95 - 2.58 * (0.95 * 0.05 / runs) ** 0.5


def test_statistics_equal_those_of_the_raw_values(tmp_path: Path) -> None:
    host = arm_record("host", "host", "Host", "reference")
    ledger = Ledger.create(tmp_path / "run", manifest([host]))
    raw = np.random.default_rng(2).integers(1000, 2000, 200_000) * 1000  # values that are bins of their own
    ledger.add_trial(trial(host, "timer_cost", CLOCK, 0), {"timer_cost": hdr_bins(raw)})
    built = report.build(ledger)
    bins = np.sort(hdr_bins(raw).values)
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)):
        exact = np.quantile(raw, share, method="inverted_cdf")
        expected = bins[np.searchsorted(bins, exact, side="right") - 1] / 1000
        assert clock(built, "host", name).estimate.point == pytest.approx(expected)
    assert clock(built, "host", "min").estimate.point == raw.min() / 1000
    assert clock(built, "host", "max").estimate.point == raw.max() / 1000
    assert clock(built, "host", "mean").estimate.point == pytest.approx(raw.mean() / 1000)


def test_only_valid_trials_count(tmp_path: Path) -> None:
    host = arm_record("host", "host", "Host", "reference")
    ledger = Ledger.create(tmp_path / "run", manifest([host]))
    rng = np.random.default_rng(1)
    flag = Flag("foreign-load", "40 % of the machine")
    invalid = trial(host, "timer_cost", CLOCK, 0, status=TrialStatus.INVALID, flags=(flag,))
    ledger.add_trial(invalid, {"timer_cost": timer_histogram(rng, 9000)})
    good = trial(host, "timer_cost", CLOCK, 0, attempt=2)
    ledger.add_trial(good, {"timer_cost": timer_histogram(rng, 20)})
    built = report.build(ledger)
    assert clock(built, "host").estimate.point == pytest.approx(20, rel=0.05)
    assert [line.status for line in built.trials] == ["invalid", "valid"]
    assert built.trials[0].flags == ("foreign-load: 40 % of the machine",)
    ((_, *told, samples),) = built.trials.sums()
    assert told == ["host", 2, 1]
    assert samples == sum(line.samples or 0 for line in built.trials)


def test_a_tail_too_rare_for_one_repetition_comes_from_all_without_interval(usual: Report) -> None:
    assert value(usual, "timing", "sleep_lateness.p99", "host", *SLEEP).estimate.has_interval
    rare = value(usual, "timing", "sleep_lateness.p99.9_of_all", "host", *SLEEP).estimate
    assert rare.point is None
    assert "10,000" in rare.method


def test_pooled_tail_needs_all_repetitions_together(tmp_path: Path) -> None:
    host = arm_record("host", "host", "Host", "reference")
    ledger = Ledger.create(tmp_path / "run", manifest([host]))
    rng = np.random.default_rng(1)
    for block in range(5):
        histogram = timer_histogram(rng, 20, samples=2_500)
        ledger.add_trial(trial(host, "timer_cost", CLOCK, block), {"timer_cost": histogram})
    tail = clock(report.build(ledger), "host", "p99.9_of_all").estimate
    assert tail.point is not None
    assert not tail.has_interval
    assert "together" in tail.method


@pytest.mark.parametrize(
    ("blocks", "samples", "said"),
    [(120, 20_000, "50 of 120"), (50, 50_000, "32 of 50"), (120, 2_000, ""), (32, 50_000, "")],
)
def test_a_curve_of_some_repetitions_says_of_how_many(tmp_path: Path, blocks: int, samples: int, said: str) -> None:
    host, rng = arm_record("host", "host", "Host", "reference"), np.random.default_rng(1)
    with Ledger.create(tmp_path / "run", manifest([host])) as ledger:
        histogram = timer_histogram(rng, 20, samples=samples)
        for block in range(blocks):
            ledger.add_trial(trial(host, "timer_cost", CLOCK, block), {"timer_cost": histogram})
        (suite,) = report.build(ledger).suites
    (curves,) = [one for one in suite.blocks if isinstance(one, Chart) and one.kind == "ccdf"]
    assert ("Of very many repetitions" in curves.caption) == bool(said)
    assert said in curves.caption
    assert "drawn" not in curves.panels[0].rows[0]


def test_identical_arms_agree(usual: Report) -> None:
    assert usual.agreement.ok is True
    assert usual.agreement.cells == len(usual.cells)


def test_an_aa_arm_that_differs_is_said_first_and_makes_small_differences_inconclusive(tmp_path: Path) -> None:
    arms = [
        SyntheticArm(arm_record("host", "host", "Host", "reference")),
        SyntheticArm(arm_record("host-aa", "host", "Host (A/A)", "aa"), 1.4, 1.4),
        SyntheticArm(arm_record("runc", "oci", "runc"), 1.3, 1.3),
    ]
    built = report.build(synthetic_ledger(tmp_path / "run", arms))
    assert built.agreement.ok is False
    assert any("A/A" in caveat for caveat in built.caveats)
    comparison = clock(built, "runc").compared
    assert comparison is not None and comparison.judgement is Judgement.INCONCLUSIVE


def test_headlines_name_each_platform_once_emulated_and_skipped_last(usual: Report) -> None:
    assert [headline.arm for headline in usual.suite("timing").headlines] == [
        "host",
        "runc",
        "gvisor",
        "qemu-microvm",
        "kata",
    ]
    tones = {headline.arm: headline.tone for headline in usual.suite("timing").headlines}
    assert tones["gvisor"] is Tone.SLOWER
    assert tones["qemu-microvm"] is Tone.EMULATED
    assert tones["kata"] is Tone.MISSING


def test_the_headline_says_how_much_with_its_interval(usual: Report) -> None:
    text = next(headline.text for headline in usual.suite("timing").headlines if headline.arm == "gvisor")
    assert text.startswith("reads the clock in ")
    assert re.search(r"\(clock_gettime, 5\d× the host, [\d.]+–[\d.]+×\)", text)
    assert "; wakes late by " in text


def test_an_emulated_arm_is_never_ranked(usual: Report) -> None:
    text = next(headline.text for headline in usual.suite("timing").headlines if headline.arm == "qemu-microvm")
    assert "not ranked" in text
    assert "×" not in text


def test_a_skipped_arm_keeps_its_reason_and_fix(usual: Report) -> None:
    record = usual.arm("kata").record
    assert record.fix == "apt-get install kata-containers"
    assert "not installed" in next(
        headline.text for headline in usual.suite("timing").headlines if headline.arm == "kata"
    )


def test_published_figures_stand_beside_the_same_function_load_and_platform(usual: Report) -> None:
    (table,) = tables(usual, "timing", "published")
    (row,) = [row for row in table.rows if row.cells[0] == "System Call, QEMU, CPU-bound"]
    assert (row.heads, row.arm) == (("clock_gettime, CPU load",), "qemu-microvm")
    paper, *_, ours, _, _, _ = (one for one in row.cells if isinstance(one, Value))
    assert paper.estimate.point == 64.0
    assert ours.estimate == value(usual, "timing", "timer_cost.p50", "qemu-microvm", *AT[:1], "load=cpu").estimate
    assert not [row for row in table.rows if "minimal" in row.heads[0]]
    assert {row.arm for row in table.rows} == {"host", "qemu-microvm"}
    texts = [one for one in usual.suite("timing").blocks if isinstance(one, Text)]
    assert any("Kirova" in paragraph and "179" in paragraph for one in texts for paragraph in one.paragraphs)


def test_a_run_without_trials_says_so(tmp_path: Path) -> None:
    built = report.build(Ledger.create(tmp_path / "run", manifest([arm.record for arm in usual_arms()])))
    assert built.suites == built.cells == ()
    assert not built.finished
    assert any("no valid trial" in caveat for caveat in built.caveats)
    assert any("not finished" in caveat for caveat in built.caveats)


def test_a_run_with_failures_only_gives_the_reason(tmp_path: Path) -> None:
    host = arm_record("host", "host", "Host", "reference")
    ledger = Ledger.create(tmp_path / "run", manifest([host]))
    ledger.put_guest(
        GuestRecord(
            arm="host",
            platform="host",
            block=0,
            launched_at="2026-01-01T00:00:00+00:00",
            ready_ns=None,
            facts={},
            error="no agent answered",
        )
    )
    ledger.add_trial(
        trial(host, "timer_cost", CLOCK, 0, status=TrialStatus.FAILED, error="the guest was lost", result={})
    )
    built = report.build(ledger)
    assert clock(built, "host").estimate.method == "failed: the guest was lost"
    assert built.arm("host").failed_guests == 1
    assert built.suite("timing").headlines[0].tone is Tone.MISSING
    assert "the guest was lost" in built.suite("timing").headlines[0].text


def test_one_repetition_has_figures_and_no_interval(tmp_path: Path) -> None:
    built = report.build(synthetic_ledger(tmp_path / "run", blocks=1))
    found = clock(built, "gvisor")
    assert found.estimate.point is not None and not found.estimate.has_interval
    assert found.compared is not None and found.compared.judgement is Judgement.INCONCLUSIVE
    assert any("One repetition" in caveat for caveat in built.caveats)


def test_three_repetitions_state_the_confidence_they_reach(tmp_path: Path) -> None:
    built = report.build(synthetic_ledger(tmp_path / "run", blocks=3))
    assert clock(built, "gvisor").estimate.confidence == 0.75
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
    assert report.build(ledger).finished is finished


def test_a_changed_host_is_said(tmp_path: Path) -> None:
    ledger = synthetic_ledger(tmp_path / "run", blocks=2, design=[("timer_cost", CLOCK)])
    ledger.add_event("changed-host", "kernel 6.1 is now 6.12")
    assert any("host changed" in caveat for caveat in report.build(ledger).caveats)


def test_what_the_probe_said_of_itself_is_kept(usual: Report) -> None:
    assert value(usual, "timing", "timer_cost.resolution", "host", *AT).estimate.point == 1.0
    assert value(usual, "timing", "sleep_lateness.cpu_per_sleep", "host", *SLEEP).estimate.point == 3200.0
    (row,) = [
        row
        for table in tables(usual, "timing", "tables")
        for row in table.rows
        if row.arm == "host" and row.heads == ("Timer cost, clock_gettime",) and "idle" in table.title
    ]
    assert row.cells[-1] == "self"


def test_foreign_load_is_a_share_of_the_machine(tmp_path: Path) -> None:
    host = arm_record("host", "host", "Host", "reference")
    ledger = Ledger.create(tmp_path / "run", manifest([host]))
    accounting = {"foreign_ns": 80_000_000, "processors": 2}
    record = trial(host, "timer_cost", CLOCK, 0, accounting=accounting, elapsed_ns=1_000_000_000)
    ledger.add_trial(record, {"timer_cost": timer_histogram(np.random.default_rng(1), 20)})
    assert report.build(ledger).trials[0].foreign_share == pytest.approx(0.04)


def test_building_twice_gives_the_same(tmp_path: Path) -> None:
    ledger = synthetic_ledger(tmp_path / "run", blocks=3, design=list(cells(loads=["idle"])))
    assert report.render_html(report.build(ledger)) == report.render_html(report.build(ledger))


def test_platforms_of_one_label_are_told_apart_in_every_form(tmp_path: Path) -> None:
    alike = [SyntheticArm(arm_record("host", "simulated", "simulated", "reference"))]
    alike.append(SyntheticArm(arm_record("host-aa", "simulated", "simulated (A/A)", "aa")))
    alike += [
        SyntheticArm(arm_record(name, "simulated", "simulated"), factor) for name, factor in ((("a"), 1.85), ("b", 3))
    ]
    with synthetic_ledger(tmp_path / "run", alike) as ledger:
        built = report.build(ledger)
    labels = [arm.record.label for arm in built.arms]
    assert labels == ["simulated [host]", "simulated (A/A)", "simulated [a]", "simulated [b]"]
    written = io.StringIO()
    report.render_text(built, Console(file=written, width=160))
    assert "× simulated [host]" in written.getvalue()
    page = report.render_html(built)
    assert ">simulated<" not in page
    assert not re.search(r"simulated (?![\[(])", page.partition('<section id="environment"')[0].partition("<main>")[2])
