"""The report of bandwidth runs against a known truth: what the simulated estimators were told to be is what it says."""

from __future__ import annotations

import json

import pytest
from bandwidth_results import bandwidth_of, effect_of, series_of
from suites.simulated_runs import execute, plan_of, report_of, simulated

from virtgauge import report
from virtgauge.report.bandwidth.model import Help
from virtgauge.report.headline import Tone
from virtgauge.suites.bandwidth import program

pytestmark = pytest.mark.usefixtures("private_state", "any_agent")

FINE = {
    "error": {"hptime": 0.01, "system": 0.08},
    "spread": {"hptime": 0.005, "system": 0.04},
    "honest_mbps": {"hptime": 20_000.0, "system": 3600.0},
    "bench_sigma": 0.002,
    "late_us": {"hptime": 1.0, "system": 60.0},
}
POOR = FINE | {"error": {"hptime": -0.06, "system": 0.2}, "honest_mbps": {"hptime": 5000.0, "system": 700.0}}
SWAPPED = {"timings": ["system", "hptime"], "through": ["inside", "shim"], "estimates": 10}
DESIGNS = [
    SWAPPED | {"estimators": ["yaz"], "capacities_mbps": [300], "cross_mbps": [0, 150]},
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
        levels = {"estimator": "yaz", "timing": timing, "through": through, "cross_mbps": cross}
        series = series_of(bandwidth_of(two), arm, **levels)
        assert series.error.point == pytest.approx(error, abs=0.006)
        assert series.error.low <= series.error.point <= series.error.high
        assert series.error.confidence >= 0.95
        assert series.truth_mbps.point == pytest.approx((300 - cross) * 1500 / 1514, rel=0.001)
        # Intervals reach 2 % to either side.
        assert (series.covered, series.intervals) == (6 if abs(error) < 0.02 else 0, 6)


def test_precise_timing_helps_by_what_it_was_told_to(two):
    for arm, change in (("fine", 0.01 - 0.08), ("poor", 0.06 - 0.2)):
        for through in ("inside", "shim"):
            one = effect_of(bandwidth_of(two), arm, through, capacity_mbps=300, cross_mbps=150)
            assert one.error.estimate.point == pytest.approx(change, abs=0.05)
            assert one.help is Help.HELPS
            assert one.spread.ratio.point == pytest.approx(0.125, rel=0.8)


def test_what_is_not_paced_is_a_refusal_with_the_rate_that_was_told(two):
    found = bandwidth_of(two)
    assert effect_of(found, "fine", capacity_mbps=10_000).help is Help.ENABLES
    assert effect_of(found, "poor", capacity_mbps=10_000).help is Help.REFUSED
    assert effect_of(found, "poor", capacity_mbps=1000).help is Help.ENABLES
    refused = series_of(found, "poor", capacity_mbps=1000, timing="system", through="inside")
    assert (refused.refused, refused.honest_mbps.point) == (6, pytest.approx(700))
    assert "cannot pace more than 700 Mbit/s" in report.render_html(two)


def test_sentences_and_tones_follow_the_truth(two):
    fine, poor = bandwidth_of(two).headlines
    assert (fine.tone, poor.tone) == (Tone.REFERENCE, Tone.SLOWER)
    assert "points off the error of system timing, the shim" in fine.text
    assert "system timing cannot pace 1 of 4 cases" in fine.text
    assert poor.text.startswith("estimates are 6.")


def test_lateness_is_that_of_the_timing(two):
    rows = {one.arrangement: one for one in bandwidth_of(two).pacing if one.arm == "fine"}
    assert rows["system timing"].late_p50_ns > 20 * rows["hptime"].late_p50_ns
    assert all(one.gap is not None for one in rows.values())


def test_identical_machines_are_told_to_be_identical(two):
    assert two.agreement.ok


def test_the_json_form_holds_the_same(two):
    read = json.loads(report.render_json(two))
    (suite,) = [one for one in read["suites"] if one["suite"] == "bandwidth"]
    found = bandwidth_of(two)
    assert [cell["key"]["timing"] for cell in suite["cells"]] == [cell.key.timing for cell in found.cells]
    assert suite["cells"][0]["series"][0]["error"]["point"] == found.cells[0].series[0].error.point


def test_cross_traffic_that_falls_short_spoils_its_trials_and_says_why(tmp_path):
    truth = FINE | {"cross_share": 0.8}
    plan = plan_of(
        simulated("short", bandwidth=truth, seed=1),
        repetitions=2,
        attempts=1,
        suite={"bandwidth": [{"estimators": ["yaz"], "cross_mbps": [0, 150], "timings": ["hptime"]}]},
    )
    execute(plan, tmp_path / "run")
    built = report_of(tmp_path / "run")
    found = bandwidth_of(built)
    assert series_of(found, "short", cross_mbps=0).missing is None
    assert "cross-traffic-short" in series_of(found, "short", cross_mbps=150).missing
    assert found.flags["short"]["cross-traffic-short"] == 2
    assert any("150 Mbit/s constant" in row.what for row in found.not_measured)
    assert "cross-traffic-short" in report.render_html(built)
