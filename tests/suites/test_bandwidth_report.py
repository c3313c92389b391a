"""The report of bandwidth runs against a known truth: what the simulated estimators were told to be is what it says."""

from __future__ import annotations

import pytest
from bandwidth_results import effect, figure, helps, point
from shown import tables, value
from suites.simulated_runs import execute, plan_of, report_of, simulated

from virtgauge import report
from virtgauge.specs.bandwidth_figures import Help
from virtgauge.specs.headline import Tone
from virtgauge.suites.bandwidth import program

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("private_state", "any_agent")]

FINE = {
    "error": {"hptime": 0.01, "system": 0.08},
    "spread": {"hptime": 0.005, "system": 0.04},
    "max_paced_mbps": {"hptime": 20_000.0, "system": 3600.0},
    "testbed_sigma": 0.002,
    "late_us": {"hptime": 1.0, "system": 60.0},
}
POOR = FINE | {"error": {"hptime": -0.06, "system": 0.2}, "max_paced_mbps": {"hptime": 5000.0, "system": 700.0}}
SWAPPED = {"timings": ["system", "hptime"], "through": ["inside", "shim"], "estimates": 10}
DESIGNS = [
    SWAPPED | {"estimators": ["yaz-original"], "capacities_mbps": [300], "cross_mbps": [0, 150]},
    SWAPPED | {"estimators": ["kite2"], "capacities_mbps": [1000, 10_000], "cross_mbps": [0]},
]


@pytest.fixture(scope="module")
def two(simulated_machine, tmp_path_factory):
    """The report of two machines of which one is worse."""
    file = tmp_path_factory.mktemp("program") / "bandwidth-dynamic"
    file.write_bytes(b"a program that is never executed")
    fine, poor = simulated("fine", bandwidth=FINE, seed=1), simulated("poor", bandwidth=POOR, seed=2)
    plan = plan_of(fine, poor, aa=True, repetitions=6, attempts=1, suite={"bandwidth": DESIGNS})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(program.ENVIRONMENT_VARIABLE, str(file))
        assert execute(plan, simulated_machine / "run")[0]
    return report_of(simulated_machine / "run")


@pytest.mark.parametrize("through", ["inside", "shim"])
@pytest.mark.parametrize(("arm", "timing", "error"), [("fine", "hptime", 0.01), ("poor", "hptime", -0.06)])
def test_the_signed_error_comes_back_with_its_interval(two, arm, timing, error, through):
    for cross in (0, 150):
        levels = {"estimator": "yaz-original", "timing": timing, "through": through, "cross_mbps": cross}
        signed = figure(two, "signed_error", arm, **levels).estimate
        assert signed.point == pytest.approx(100 * error, abs=0.6)
        assert signed.low <= signed.point <= signed.high
        assert signed.confidence >= 0.95
        assert point(two, "truth", arm, **levels) == pytest.approx((300 - cross) * 1e6 * 1500 / 1514, rel=0.001)
        # Intervals reach 2 % to either side.
        held, of = (point(two, name, arm, **levels) for name in ("intervals.covered", "intervals"))
        assert (held, of) == (6 if abs(error) < 0.02 else 0, 6)


def test_precise_timing_helps_by_what_it_was_told_to(two):
    for arm, change in (("fine", 0.01 - 0.08), ("poor", 0.06 - 0.2)):
        for through in ("inside", "shim"):
            levels = {"through": through, "capacity_mbps": 300, "cross_mbps": 150}
            error, means = effect(two, arm, **levels)
            assert error.estimate.point == pytest.approx(100 * change, abs=5)
            assert means == Help.HELPS
            spread = figure(two, "timing_effect.spread", arm, timing="hptime", **levels).compared
            assert spread.ratio.point == pytest.approx(0.125, rel=0.8)


def test_what_is_not_paced_is_a_refusal_with_the_rate_that_was_told(two):
    assert helps(two, "fine", capacity_mbps=10_000, through="inside") == Help.ENABLES
    assert helps(two, "poor", capacity_mbps=10_000, through="inside") == Help.REFUSED
    assert helps(two, "poor", capacity_mbps=1000, through="inside") == Help.ENABLES
    at = {"capacity_mbps": 1000, "timing": "system", "through": "inside"}
    assert point(two, "refused", "poor", **at) == 6
    paced = figure(two, "max_paced", "poor", **at)
    assert (paced.estimate.point, paced.note) == (pytest.approx(700e6), "cannot pace more in 6 of 6")
    assert "cannot pace more in 6 of 6" in report.render_html(two)


def test_sentences_and_tones_follow_the_truth(two):
    fine, poor = two.suite("bandwidth").headlines
    assert (fine.tone, poor.tone) == (Tone.REFERENCE, Tone.SLOWER)
    assert "points off the error of system timing, the shim" in fine.text
    assert "system timing cannot pace 1 of 4 cases" in fine.text
    assert poor.text.startswith("estimates are 6.")


def test_lateness_is_that_of_the_timing(two):
    at = ("through=inside", "+method=send")
    late = {
        timing: value(two, "bandwidth", "pacing.lateness.p50", "fine", f"timing={timing}", *at).estimate.point
        for timing in ("system", "hptime")
    }
    assert late["system"] > 20 * late["hptime"]


def test_identical_machines_are_told_to_be_identical(two):
    assert two.agreement.ok


def test_cross_traffic_that_falls_short_spoils_its_trials_and_says_why(tmp_path):
    truth = FINE | {"cross_share": 0.8}
    plan = plan_of(
        simulated("short", bandwidth=truth, seed=1),
        repetitions=2,
        attempts=1,
        suite={"bandwidth": [{"cross_mbps": [0, 150], "timings": ["hptime"]}]},
    )
    execute(plan, tmp_path / "run")
    built = report_of(tmp_path / "run")
    assert point(built, "signed_error", "short", cross_mbps=0) is not None
    invalid = figure(built, "signed_error", "short", cross_mbps=150).estimate
    assert invalid.point is None and "cross-traffic-short" in invalid.method
    (missing,) = tables(built, "bandwidth", "missing")
    assert any("150 Mbit/s constant" in str(row.cells[0]) for row in missing.rows)
    assert "cross-traffic-short: 2" in report.render_html(built)
