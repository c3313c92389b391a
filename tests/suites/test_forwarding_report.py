"""The report of forwarding runs against a known truth: what the simulated devices were told to be is what it says."""

from __future__ import annotations

import pytest
from shown import shown, value
from suites.simulated_runs import execute, plan_of, report_of, simulated

from virtgauge import report
from virtgauge.analysis.packets import bits_per_s, jain_index, two_level_shares
from virtgauge.platforms.simulated.forwarding import ForwardingTruth
from virtgauge.specs.headline import Tone

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("private_state", "any_agent")]

FAST = {"frame_ns": 1000.0, "byte_ns": 0.5, "guest_frame_ns": 2500.0, "queue_frames": 0, "testbed_sigma": 0.02}
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


def truth_bps(told, strong, size):
    shares = two_level_shares(3, strong, 0.01)
    return bits_per_s(ForwardingTruth(**told).throughput_pps(shares, size), size)


CELLS = [(strong, size) for strong in (1, 3) for size in (64, 1518)]


def figure(built, measure, arm, strong=3, size=64, *levels):
    return value(built, "forwarding", measure, arm, f"vector=k={strong}", f"frame_bytes={size}", *levels)


@pytest.mark.parametrize(("strong", "size"), CELLS)
def test_throughput_fairness_and_ratio_come_back(two, strong, size):
    fairness = figure(two, "jain", "", strong, size).estimate.point
    assert fairness == pytest.approx(jain_index(two_level_shares(3, strong, 0.01)))
    fast, slow = truth_bps(FAST, strong, size), truth_bps(SLOW, strong, size)
    for arm, wanted in (("fast", fast), ("fast-aa", fast), ("slow", slow)):
        found = figure(two, "ndr_bits", arm, strong, size).estimate
        assert found.point == pytest.approx(wanted, rel=0.03)
        assert found.low < found.point < found.high
        assert found.confidence >= 0.95
        assert found.n == 6
    compared = figure(two, "ndr_bits", "slow", strong, size).compared
    assert compared.ratio.point == pytest.approx(slow / fast, rel=0.05)
    assert compared.distinguishable


def test_identical_devices_are_told_to_be_identical_and_the_slower_one_to_be_slower(two):
    assert two.agreement.ok
    assert [(one.arm, one.tone) for one in two.suite("forwarding").headlines] == [
        ("fast", Tone.REFERENCE),
        ("slow", Tone.SLOWER),
    ]


@pytest.mark.parametrize(("strong", "size"), CELLS)
def test_latency_at_each_load_is_what_it_was_told(two, strong, size):
    for arm, wanted_ns in (("fast", 50e3), ("slow", 120e3)):
        throughput = figure(two, "ndr_bits", arm, strong, size).estimate.point
        for percent in (10, 50, 90, 100):
            at = f"at_{percent}"
            mean = figure(two, f"latency_{at}.weighted_mean", arm, strong, size)
            assert mean.estimate.point == pytest.approx(wanted_ns, rel=0.05)
            median = figure(two, f"latency_{at}.p50", arm, strong, size)
            assert median.estimate.point == pytest.approx(wanted_ns, rel=0.03)
            offered = figure(two, f"offered_{at}", arm, strong, size)
            assert offered.estimate.point == pytest.approx(throughput * percent / 100, rel=1e-6)


def of_arm(built, measure, arm):
    """A count over all cells; 0 where there is none."""
    return sum(one.estimate.point for one in shown(built, "forwarding", measure, arm) if not one.place.cell)


def test_every_lost_frame_has_its_place_in_the_report(two):
    for arm in ("fast", "fast-aa", "slow"):
        assert of_arm(two, "loss.trials", arm) == 24
        assert [of_arm(two, f"loss.{name}", arm) for name in ("unclosed", "unattributed", "excess")] == [0, 0, 0]
        places = ("shared path", "guest …")
        dropped = sum(of_arm(two, f"loss.dropped:{place}", arm) for place in places)
        assert 0 < of_arm(two, "loss.lost", arm) == dropped < of_arm(two, "loss.sent", arm)


def test_what_the_tester_limits_is_at_least_that_and_not_shown_to_be_less(tmp_path):
    limited = run_of(
        tmp_path / "run",
        simulated("fast", forwarding=FAST, seed=1),
        simulated("limited", forwarding=FAST | {"tester_mpps": 0.42}, seed=3),
        k=[3],
        frame_bytes=[64],
    )
    found = figure(limited, "ndr_bits", "limited")
    assert found.estimate.point == pytest.approx(bits_per_s(0.4e6, 64), rel=0.1)
    assert found.note == "at least that: generator-limited in 6 of 6"
    assert found.compared.ratio.high < 0.6 and not found.compared.distinguishable
    assert figure(limited, "tester.limit", "limited").estimate.point == pytest.approx(0.42e6, rel=0.06)
    assert "generator-limited: 6" in report.render_html(limited)
    headline = next(one for one in limited.suite("forwarding").headlines if one.arm == "limited")
    assert headline.tone is Tone.SAME


def test_unexplained_losses_are_counted_and_shown(tmp_path):
    hiding = run_of(
        tmp_path / "run",
        simulated("open", forwarding=FAST, seed=1),
        simulated("hiding", forwarding=FAST | {"hidden_loss": 1e-4}, seed=3),
        k=[3],
        frame_bytes=[64],
    )
    assert of_arm(hiding, "loss.unclosed", "hiding") > 0
    assert of_arm(hiding, "loss.unattributed", "hiding") > 0
    assert "no counter explains" in report.render_html(hiding)
