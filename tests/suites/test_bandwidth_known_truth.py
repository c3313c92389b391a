"""The bandwidth suite through the whole pipeline: what the simulated path was told to be is what the ledger says."""

from __future__ import annotations

import json
import math
import statistics

import pytest
from bandwidth_results import all_helps, figure, helps, point
from shown import shown
from suites.bandwidth_runs import TEST, bandwidth_trials, flags, only, valid
from suites.simulated_runs import report_of

from virtgauge.ledger.records import TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.specs.bandwidth_figures import Help
from virtgauge.suites.bandwidth import program

pytestmark = pytest.mark.usefixtures("private_state", "any_agent")

IP = 1500 / 1514
EXACT = {"spread": {"*": 0.0}}


@pytest.fixture
def any_program(tmp_path, monkeypatch):
    """Some file as the estimator's program: a simulated guest runs none."""
    path = tmp_path / "bandwidth-dynamic"
    path.write_bytes(b"a program that is never executed")
    monkeypatch.setenv(program.ENVIRONMENT_VARIABLE, str(path))


# -- the truth -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packet", [1500, 500])
def test_the_truth_is_what_the_shaper_leaves_of_ip_packets(tmp_path, packet):
    design = {"capacities_mbps": [300], "cross_mbps": [0, 50, 250], "packet_bytes": packet}
    trials = valid(bandwidth_trials(tmp_path / "run", designs=[design], **EXACT))
    for cross in (0, 50, 250):
        result = only(trials, cross_mbps=str(cross)).result
        truth = (300 - cross) * packet / (packet + 14)
        assert result["truth_mbps"] == pytest.approx(truth, rel=1e-6)
        assert result["median_mbps"] == pytest.approx(truth, rel=1e-6)
        assert result["error_ratio"] == pytest.approx(0, abs=1e-6)
        assert result["covered"] is True
        assert result["cross"]["counted_mbps"] == pytest.approx(cross, rel=1e-6)
        assert result["cross"]["asked_mbps"] == cross
        assert (result["layer"], result["packet_bytes"]) == ("ip", packet)


def test_an_error_is_that_of_its_timing_and_signed(tmp_path):
    design = {"timings": ["system", "hptime", "gettimeofday+usleep", "hptime+system"], "cross_mbps": [0, 150]}
    told = {"system": 0.1, "hptime": -0.005, "gettimeofday+usleep": 0.25, "*": -0.5}
    trials = valid(bandwidth_trials(tmp_path / "run", designs=[design], error=told, **EXACT))
    for timing, error in (("system", 0.1), ("hptime", -0.005), ("gettimeofday+usleep", 0.25), ("hptime+system", -0.5)):
        for cross in ("0", "150"):
            result = only(trials, timing=timing, cross_mbps=cross).result
            assert result["error_ratio"] == pytest.approx(error, abs=1e-6)
            assert result["covered"] is (abs(error) < 0.02)
            clock, _, sleep = timing.partition("+")
            assert (result["clock"], result["sleep"]) == (clock, sleep or clock)


def test_a_program_is_as_good_as_what_is_preloaded_over_it(tmp_path, any_program):
    design = {"timings": ["system", "hptime", "hptime+system"], "through": ["inside", "shim"]}
    told = {"error": {"system": 0.08, "hptime": 0.01, "hptime+system": 0.03}}
    trials = valid(bandwidth_trials(tmp_path / "run", designs=[design], **told, **EXACT))
    assert len(trials) == 3 + 2
    for timing, error in (("system", 0.08), ("hptime", 0.01)):
        for through in ("inside", "shim"):
            result = only(trials, timing=timing, through=through).result
            assert result["error_ratio"] == pytest.approx(error, abs=1e-6)
            assert (result["shim"] is None) == (through == "inside" or timing == "system")
    assert only(trials, timing="hptime", through="shim").result["shim"] == {
        **{"served": 1100, "passed": 0, "reasons": []},
    }


def test_a_library_that_serves_nothing_is_said_inside_and_over_a_program(tmp_path, any_program):
    design = {"timings": ["system", "hptime"], "through": ["inside", "shim"]}
    trials = valid(
        bandwidth_trials(tmp_path / "run", designs=[design], hptime_fallback_reason="the counter is trapped")
    )
    for trial in trials:
        precise = trial.factors["timing"] == "hptime"
        assert flags(trial) == ({"hptime-refused"} if precise else set())
        assert trial.result["hptime_fallback_reason"] == ("the counter is trapped" if precise else None)
    assert only(trials, timing="hptime", through="shim").result["shim"]["served"] == 0


def test_the_spread_of_searches_is_what_was_told(tmp_path):
    design = {"timings": ["system", "hptime"], "estimates": 400}
    trials = valid(bandwidth_trials(tmp_path / "run", designs=[design], spread={"system": 0.08, "hptime": 0.02}))
    for timing, sigma in (("system", 0.08), ("hptime", 0.02)):
        result = only(trials, timing=timing).result
        rates = [instant["mbps"] for instant in result["instants"]]
        assert len(rates) == 400
        # A normal value's quartiles are 0.6745 standard deviations from its middle, and so is the middle deviation.
        assert result["half_iqr_mbps"] == pytest.approx(0.6745 * sigma * 300 * IP, rel=0.15)
        assert result["mad_mbps"] == pytest.approx(0.6745 * sigma * 300 * IP, rel=0.15)
        assert result["median_mbps"] == pytest.approx(statistics.median(rates))
        assert statistics.stdev(map(math.log, rates)) == pytest.approx(sigma, rel=0.15)


def test_what_an_estimate_costs_is_added_up(tmp_path):
    (trial,) = valid(bandwidth_trials(tmp_path / "run", designs=[{"estimates": 7}], search_ms=300, trains=9))
    result = trial.result
    assert result["bytes_sent"] == 7 * 9 * 50 * 1500 == sum(instant["bytes"] for instant in result["instants"])
    assert result["duration_ns"] == 7 * 300_000_000 == sum(one["duration_ns"] for one in result["instants"])
    assert result["streams"] == 63


# -- refusals and ceilings -------------------------------------------------------------------------------------------


def test_a_rate_that_the_sender_cannot_pace_is_a_result_of_its_own(tmp_path, any_program):
    design = {"timings": ["system", "hptime"], "through": ["inside", "shim"], "cross_mbps": [0, 250]}
    told = {"max_paced_mbps": {"system": 120, "hptime": 2000}}
    trials = valid(bandwidth_trials(tmp_path / "run", designs=[design], attempts=3, **told, **EXACT))
    for trial in trials:
        result, refused = trial.result, trial.factors["timing"] == "system" and trial.factors["cross_mbps"] == "0"
        assert flags(trial) == ({"cannot-pace"} if refused else set())
        assert result["pacing"]["refused"] is refused
        assert result["truth_mbps"] > 0
        if refused:
            assert result["pacing"]["max_paced_mbps"] == result["pacing"]["carried_mbps"] == 120
            assert "120.0 Mbit/s" in result["pacing"]["message"]
            assert result["instants"] == []
            missing = ("median_mbps", "low_mbps", "high_mbps", "half_iqr_mbps", "mad_mbps", "error_ratio", "covered")
            assert {result[name] for name in (*missing, "duration_ns")} == {None}
            assert result["bytes_sent"] == 10 * 20 * 50 * 1500
            assert result["lower_bound"] is False
        else:
            assert result["error_ratio"] == pytest.approx(0, abs=1e-6)


def test_yaz_original_ends_at_its_own_ceiling_and_says_so(tmp_path):
    designs = [
        {"estimators": ["yaz-original"], "capacities_mbps": [1000]},
        {"estimators": ["yaz-original"], "capacities_mbps": [1100], "first_gap_us": 10},
        {"estimators": ["kite2"], "capacities_mbps": [1000]},
    ]
    trials = valid(bandwidth_trials(tmp_path / "run", designs=designs, **EXACT))
    at_300 = only(trials, estimator="yaz-original", capacity_mbps="1000")
    assert (at_300.result["median_mbps"], at_300.result["lower_bound"]) == (pytest.approx(300), True)
    assert flags(at_300) == {"ceiling"}
    assert all(instant["at_ceiling"] for instant in at_300.result["instants"])
    below = only(trials, estimator="yaz-original", capacity_mbps="1100")
    assert (below.result["lower_bound"], flags(below)) == (False, set())
    assert only(trials, estimator="kite2").result["median_mbps"] == pytest.approx(1000 * IP)


def test_the_highest_rate_of_a_design_is_the_ceiling_of_kite2(tmp_path):
    design = {"estimators": ["kite2"], "highest_mbps": 100}
    for trial in valid(bandwidth_trials(tmp_path / "run", designs=[design], **EXACT)):
        assert trial.result["median_mbps"] == pytest.approx(100)
        assert flags(trial) == {"ceiling"}


# -- the path --------------------------------------------------------------------------------------------------------


def test_the_capacity_is_measured_before_and_after_and_one_that_changes_is_no_result(tmp_path):
    (short,) = bandwidth_trials(tmp_path / "short", capacity_share=0.9)
    assert (short.status, flags(short)) == (TrialStatus.INVALID, {"path-short"})
    (steady,) = valid(bandwidth_trials(tmp_path / "steady", capacity_share=0.995))
    assert steady.result["capacity"] == {
        **{"declared_mbps": 300, "measured_mbps": 298.5, "measured_after_mbps": 298.5},
    }
    (drifted,) = bandwidth_trials(tmp_path / "drifted", capacity_drift=0.95)
    assert drifted.status is TrialStatus.INVALID
    assert flags(drifted) == {"path-changed"}
    (unseen,) = valid(bandwidth_trials(tmp_path / "unseen", capacity_drift=0.95, flood_fills=False))
    assert unseen.result["capacity"]["measured_mbps"] is None
    (unwanted,) = valid(bandwidth_trials(tmp_path / "unwanted", designs=[{"capacity_s": 0}], capacity_drift=0.95))
    assert unwanted.result["capacity"]["measured_after_mbps"] is None


@pytest.mark.parametrize(("share", "short"), [(0.98, False), (0.9, True), (1.1, True), (0.0, True)])
def test_cross_traffic_counts_as_it_is_and_not_as_it_was_asked_for(tmp_path, share, short):
    design = {"cross_mbps": [150]}
    (trial,) = bandwidth_trials(tmp_path / "run", designs=[design], cross_share=share, **EXACT)
    assert trial.result["cross"]["counted_mbps"] == pytest.approx(150 * share, rel=1e-6)
    assert trial.result["truth_mbps"] == pytest.approx((300 - 150 * share) * IP, rel=1e-6)
    assert trial.result["error_ratio"] == pytest.approx(0, abs=1e-6)  # whatever was asked for
    assert trial.status is (TrialStatus.INVALID if short else TrialStatus.VALID)
    assert flags(trial) == ({"cross-traffic-short"} if short else set())


def test_cross_traffic_of_other_lengths_and_kinds_is_counted_alike(tmp_path):
    design = {"cross_mbps": [100], "traffic": ["constant", "poisson"], "cross_packet_bytes": 200}
    for trial in valid(bandwidth_trials(tmp_path / "run", designs=[design], **EXACT)):
        assert trial.result["truth_mbps"] == pytest.approx(200 * IP, rel=1e-6)
        assert trial.result["cross"]["frames"] == pytest.approx(100e6 / 8 / 214 * 5, rel=1e-3)


def test_delay_and_loss_are_those_of_the_cell_and_told_with_what_made_them(tmp_path):
    design = {"delays_ms": [0, 20], "losses": [0, 0.01], "shaper": "htb"}
    trials = valid(bandwidth_trials(tmp_path / "run", designs=[design], emulator_late_ns=7000))
    for trial in trials:
        link = trial.result["link"]
        assert (link["delay_ms"], link["loss"]) == (float(trial.factors["delay_ms"]), float(trial.factors["loss"]))
        emulated = bool(link["delay_ms"] or link["loss"])
        assert link["kind"] == ("emulator" if emulated else "htb")
        assert link["lateness_p99_ns"] == (7000 if emulated else None)


def test_who_stamped_who_intruded_and_how_often_the_sender_stood_still(tmp_path):
    told = {"stamp": "program", "foreign_packets": 12, "stalled_share": 0.3}
    (trial,) = valid(bandwidth_trials(tmp_path / "run", **told))
    assert flags(trial) == {"user-timestamps", "sender-stalls"}
    result = trial.result
    assert (result["stamp"], result["foreign_packets"], result["stalled"]) == ("program", 12, 60)


def test_gaps_and_lateness_are_kept_as_histograms(tmp_path, any_program):
    design = {"timings": ["system", "hptime"], "through": ["inside", "shim"]}
    trials = valid(bandwidth_trials(tmp_path / "run", designs=[design], late_us={"system": 60, "hptime": 0.5}))
    with Ledger.open(tmp_path / "run") as ledger:
        for trial in trials:
            gap, lateness = (ledger.histograms_of(trial.trial_id)[name] for name in ("gap", "lateness"))
            assert (gap.unit, lateness.unit) == ("permille", "ns")
            middles = [one.values[one.counts.cumsum() >= one.n / 2][0] for one in (gap, lateness)]
            late_ns = {"system": 60e3, "hptime": 500}[trial.factors["timing"]]
            assert middles == [pytest.approx(1000, rel=0.1), pytest.approx(late_ns, rel=0.1)]


def test_a_result_can_be_kept(tmp_path):
    (trial,) = valid(bandwidth_trials(tmp_path / "run"))
    assert json.loads(json.dumps(trial.result)) == trial.result


# -- what is concluded -----------------------------------------------------------------------------------------------

BOTH = {"timings": ["system", "hptime"], "through": ["inside", "shim"], "cross_mbps": [0, 150]}


@pytest.mark.slow
def test_errors_spreads_and_costs_are_reported_as_they_were_told(tmp_path, any_program):
    told = {"error": {"system": 0.08, "hptime": 0.005}, "spread": {"system": 0.03, "hptime": 0.002}}
    valid(bandwidth_trials(tmp_path / "run", repetitions=6, designs=[BOTH], search_ms=250, **told))
    found = report_of(tmp_path / "run")
    for timing, error, sigma in (("system", 0.08, 0.03), ("hptime", 0.005, 0.002)):
        for through in ("inside", "shim"):
            for cross in (0, 150):
                at = {"timing": timing, "through": through, "cross_mbps": cross}
                truth = (300 - cross) * IP * 1e6
                assert point(found, "signed_error", TEST, **at) == pytest.approx(100 * error, abs=100 * sigma)
                assert point(found, "truth", TEST, **at) == pytest.approx(truth, rel=1e-6)
                assert point(found, "searches.half_iqr", TEST, **at) == pytest.approx(0.6745 * sigma * truth, rel=0.6)
                assert point(found, "bytes_sent", TEST, **at) == 10 * 20 * 50 * 1500
                assert point(found, "duration", TEST, **at) == 2_500_000_000
                held, of = (point(found, name, TEST, **at) for name in ("intervals.covered", "intervals"))
                assert (held == of) == (timing == "hptime")


@pytest.mark.slow
def test_timing_helps_where_it_was_told_to_and_nowhere_else(tmp_path):
    design = {"timings": ["system", "hptime"], "cross_mbps": [0, 150]}
    better, alike = {"error": {"system": 0.1, "hptime": 0.01}}, {"error": {"system": 0.02, "hptime": 0.02}}
    for name, told, expected in (("better", better, Help.HELPS), ("alike", alike, Help.SAME)):
        spread = {"spread": {"*": 0.003}}
        told = {"reference": told | spread, **told, **spread, "repetitions": 6, "aa": True}
        valid(bandwidth_trials(tmp_path / name, designs=[design], **told))
        built = report_of(tmp_path / name)
        assert [helps(built, TEST, cross_mbps=cross) for cross in (0, 150)] == [expected, expected]


def test_a_timing_that_cannot_pace_makes_it_impossible_and_the_other_makes_it_possible(tmp_path):
    told = {"max_paced_mbps": {"system": 120}, "repetitions": 3}
    valid(bandwidth_trials(tmp_path / "run", designs=[{"timings": ["system", "hptime"]}], **told))
    found = report_of(tmp_path / "run")
    assert all_helps(found, TEST) == {Help.ENABLES}
    assert point(found, "timing_effect.base_max_paced", TEST) == pytest.approx(120e6)
    refused, paced = (point(found, name, TEST, timing="system") for name in ("refused", "max_paced"))
    assert (refused, paced) == (3, pytest.approx(120e6))
    assert not shown(found, "bandwidth", "estimate", TEST, "timing=system")


# -- uncertainty -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_testbeds_differ_as_they_were_told_and_arms_by_their_own_truth(tmp_path):
    told = {"error": {"*": 0.1}, "testbed_sigma": 0.03}
    trials = bandwidth_trials(
        tmp_path / "run", repetitions=30, reference={"testbed_sigma": 0.0} | EXACT, **told, **EXACT
    )
    errors = {arm: [t.result["error_ratio"] for t in valid(trials) if t.arm == arm] for arm in ("reference", "test")}
    assert errors["reference"] == pytest.approx([0.0] * 30, abs=1e-6)
    spread = statistics.stdev(math.log(1 + error) for error in errors["test"])
    assert spread == pytest.approx(0.03, rel=0.5)
    assert statistics.median(errors["test"]) == pytest.approx(0.1, abs=0.02)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_intervals_cover_the_truth_as_often_as_they_say(tmp_path):
    """Counted over many seeds: testbeds whose estimates differ by 3 %, and searches by 4 %."""
    covered, total, confidences = 0, 0, set()
    for seed in range(60):
        told = {"error": {"*": 0.05}, "testbed_sigma": 0.03, "spread": {"*": 0.04}}
        valid(bandwidth_trials(tmp_path / str(seed), repetitions=6, seed=seed, **told))
        interval = figure(report_of(tmp_path / str(seed)), "signed_error", TEST, timing="hptime").estimate
        covered, total = covered + (interval.low <= 5 <= interval.high), total + 1
        confidences.add(interval.confidence)
    stated = min(confidences)
    print(f"coverage of {total} intervals: {covered / total:.3f}, stated {stated:.3f}")
    assert stated >= 0.95
    assert covered / total >= stated - 4 * math.sqrt(stated * (1 - stated) / total)


# -- a path as it is -------------------------------------------------------------------------------------------------

AS_IS = {"estimators": ["kite2"], "timings": ["system", "hptime"], "capacities_mbps": ["as-is"], "estimates": 10}


def test_of_a_path_as_it_is_there_is_an_estimate_and_no_truth(tmp_path):
    trials = valid(
        bandwidth_trials(tmp_path / "run", designs=[AS_IS], quick={}, as_is_mbps=94, error={"system": 0.1}, **EXACT)
    )
    assert [trial.factors["capacity_mbps"] for trial in trials] == ["as-is", "as-is"]
    for timing, error in (("system", 0.1), ("hptime", 0.0)):
        result = only(trials, timing=timing).result
        assert result["median_mbps"] == pytest.approx(94 * IP * (1 + error), rel=1e-6)
        unknown = ("truth_mbps", "error_ratio", "covered")
        assert [result[name] for name in unknown] == [None] * 3
        assert "the path is as it is" in result["no_truth"]
        assert set(result["capacity"].values()) == {None}
        assert result["cross"] == {"asked_mbps": 0, "counted_mbps": None, "frames": None, "dropped": None}
        assert (result["receiver"], result["link"]["kind"]) == ("peer", "as-is")


def test_the_report_tells_the_estimate_of_a_path_as_it_is_and_that_its_truth_is_not_known(tmp_path):
    bandwidth_trials(tmp_path / "run", repetitions=6, designs=[AS_IS], quick={}, as_is_mbps=94, **EXACT)
    built = report_of(tmp_path / "run")
    (said,) = built.suite("bandwidth").headlines
    assert said.text.startswith("estimates 93.1 Mbit/s by kite2 with hptime")
    assert "nobody knows" in said.text
