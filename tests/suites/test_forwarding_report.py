"""The report of forwarding runs against a known truth: what the simulated devices were told to be is what it says."""

from __future__ import annotations

import json

import pytest
from forwarding_results import forwarding_of
from suites.simulated_runs import execute, plan_of, report_of, simulated

from virtgauge import report
from virtgauge.analysis.forwarding.line_rate import bits_per_s
from virtgauge.analysis.forwarding.load_vectors import jain_index, two_level_shares
from virtgauge.platforms.simulated.forwarding import ForwardingTruth
from virtgauge.report.headline import Tone

pytestmark = pytest.mark.usefixtures("private_state", "any_agent")

FAST = {"frame_ns": 1000.0, "byte_ns": 0.5, "guest_frame_ns": 2500.0, "queue_frames": 0, "bench_sigma": 0.02}
SLOW = FAST | {"frame_ns": 4000.0, "guest_frame_ns": 9000.0}
DESIGN = {"guests": 3, "k": [1, 3], "frame_bytes": [64, 1518], "duration_sum_s": 3.0, "latency_s": 0.5}


def run_of(folder, *platforms, **design):
    plan = plan_of(
        *platforms, aa=True, repetitions=6, attempts=1, suite={"forwarding": [DESIGN | {"min_pps": 1000} | design]}
    )
    assert execute(plan, folder)[0]
    return report_of(folder)


@pytest.fixture(scope="module")
def two(simulated_machine):
    """The report of two devices that differ by a known factor."""
    return run_of(
        simulated_machine / "run",
        simulated("fast", forwarding=FAST, seed=1),
        simulated("slow", forwarding=SLOW | {"latency_us": 120.0}, seed=2),
    )


def truth_mbps(told, strong, size):
    shares = two_level_shares(3, strong, 0.01)
    return bits_per_s(ForwardingTruth(**told).throughput_pps(shares, size), size) / 1e6


def test_throughput_fairness_and_ratio_come_back(two):
    cells = forwarding_of(two).cells
    assert [(cell.vector, cell.frame_bytes) for cell in cells] == [
        ("k=1", 64),
        ("k=1", 1518),
        ("k=3", 64),
        ("k=3", 1518),
    ]
    for cell in cells:
        strong = int(cell.vector.removeprefix("k="))
        assert cell.jain == pytest.approx(jain_index(two_level_shares(3, strong, 0.01)))
        fast, slow = truth_mbps(FAST, strong, cell.frame_bytes), truth_mbps(SLOW, strong, cell.frame_bytes)
        for arm, wanted in (("fast", fast), ("fast-aa", fast), ("slow", slow)):
            series = cell.of(arm)
            assert series.throughput_mbps.point == pytest.approx(wanted, rel=0.03)
            assert series.throughput_mbps.low < series.throughput_mbps.point < series.throughput_mbps.high
            assert series.throughput_mbps.confidence >= 0.95
            assert len(series.blocks) == 6
        assert cell.of("slow").comparison.ratio.point == pytest.approx(slow / fast, rel=0.05)
        assert cell.of("slow").comparison.distinguishable


def test_identical_devices_are_told_to_be_identical_and_the_slower_one_to_be_slower(two):
    assert two.agreement.ok
    assert [(one.arm, one.tone) for one in two.suite("forwarding").headlines] == [
        ("fast", Tone.REFERENCE),
        ("slow", Tone.SLOWER),
    ]


def test_latency_at_each_load_is_what_it_was_told(two):
    for cell in forwarding_of(two).cells:
        for arm, wanted_ns in (("fast", 50e3), ("slow", 120e3)):
            levels = cell.of(arm).latency
            assert [level.load_percent for level in levels] == [10, 50, 90, 100]
            for level in levels:
                assert level.total_ns.point == pytest.approx(wanted_ns, rel=0.05)
                assert level.p50_ns.point == pytest.approx(wanted_ns, rel=0.03)
                throughput = cell.of(arm).throughput_mbps.point
                assert level.load_mbps.point == pytest.approx(throughput * level.load_percent / 100, rel=1e-6)


def test_every_lost_frame_has_its_place_in_the_report(two):
    accounts = forwarding_of(two).accounts
    assert set(accounts) == {"fast", "fast-aa", "slow"}
    for account in accounts.values():
        assert account.trials == 24
        assert account.unclosed == account.unattributed == account.excess == 0
        assert 0 < account.lost == sum(account.places.values()) < account.sent
        assert set(account.places) <= {"shared path", "guest 0", "guest 1", "guest 2"}


def test_the_json_form_holds_the_same(two):
    read = json.loads(report.render_json(two))
    (suite,) = [one for one in read["suites"] if one["suite"] == "forwarding"]
    assert len(suite["cells"]) == 4
    assert suite["cells"][0]["series"][0]["throughput_mbps"]["point"] == pytest.approx(
        forwarding_of(two).cells[0].series[0].throughput_mbps.point
    )
    assert {claim["verdict"] for claim in suite["paper_claims"]} == {"not testable here"}


def test_a_tester_that_is_too_slow_is_said_and_its_results_do_not_count(tmp_path):
    limited = run_of(
        tmp_path / "run",
        simulated("fast", forwarding=FAST, seed=1),
        simulated("limited", forwarding=FAST | {"tester_mpps": 0.42}, seed=3),
        k=[3],
        frame_bytes=[64],
    )
    (cell,) = forwarding_of(limited).cells
    series = cell.of("limited")
    assert series.missing is not None and "generator-limited" in series.missing
    assert series.tester.limit_pps.point == pytest.approx(0.42e6, rel=0.06)
    assert forwarding_of(limited).flags["limited"]["generator-limited"] == 6
    headline = next(one for one in limited.suite("forwarding").headlines if one.arm == "limited")
    assert headline.tone is Tone.MISSING


def test_an_unclosed_ledger_is_counted_and_shown(tmp_path):
    hiding = run_of(
        tmp_path / "run",
        simulated("open", forwarding=FAST, seed=1),
        simulated("hiding", forwarding=FAST | {"hidden_loss": 1e-4}, seed=3),
        k=[3],
        frame_bytes=[64],
    )
    account = forwarding_of(hiding).accounts["hiding"]
    assert account.unclosed > 0
    assert account.unattributed > 0
    assert "no counter explains" in report.render_html(hiding)
