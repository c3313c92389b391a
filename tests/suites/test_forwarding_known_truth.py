"""The forwarding suite through the whole pipeline: what the simulated device was told to be is what the ledger says."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from suites.forwarding_runs import by_vector, forwarding_trials
from suites.simulated_runs import execute, plan_of, simulated
from synthetic import hdr_bins

from virtgauge.analysis.packets import two_level_shares
from virtgauge.ledger.records import TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.platforms.simulated.forwarding import ForwardingTruth
from virtgauge.suites.forwarding.at_throughput import LatencyAtLoad
from virtgauge.suites.forwarding.settings import ForwardingSettings
from virtgauge.suites.forwarding.suite import _late
from virtgauge.suites.forwarding.trial import FlowResult, TrialResult

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("private_state", "any_agent")]

LIMITED_GUESTS = {"frame_ns": 1000.0, "guest_frame_ns": 5000.0, "guest_byte_ns": 10.0, "queue_frames": 64}


def flags(trial):
    return {flag.name for flag in trial.flags}


def test_throughput_grows_with_fairness_where_guests_have_limits_of_their_own(tmp_path):
    truth = ForwardingTruth(**LIMITED_GUESTS)
    trials = forwarding_trials(tmp_path / "run", design={"frame_bytes": [64, 1518]}, **LIMITED_GUESTS)
    assert len(trials) == 4
    for trial in trials:
        assert trial.status is TrialStatus.VALID, trial.flags
        shares = two_level_shares(3, int(trial.factors["vector"].removeprefix("k=")), 0.01)
        size = int(trial.factors["frame_bytes"])
        wanted = truth.throughput_pps(shares, size)
        assert trial.result["throughput_pps"] == pytest.approx(wanted, rel=0.012)
        assert trial.result["throughput_bps"] == pytest.approx(wanted * size * 8, rel=0.012)
        assert trial.result["jain"] == pytest.approx(float(trial.factors["jain"]), abs=5e-4)
        assert trial.result["shares"] == pytest.approx(shares)


def test_where_the_path_is_shared_fairness_does_not_matter(tmp_path):
    found = by_vector(forwarding_trials(tmp_path / "run", frame_ns=4000, queue_frames=64))
    assert found["k=1"].result["throughput_pps"] == pytest.approx(250e3, rel=0.012)
    assert found["k=3"].result["throughput_pps"] == pytest.approx(250e3, rel=0.012)


def test_latency_grows_with_load_as_it_was_told_to(tmp_path):
    told = {"frame_ns": 4000, "queue_frames": 16, "latency_us": 80.0, "latency_sigma": 0.0, "congestion": 0.1}
    truth = ForwardingTruth(**told)
    design = {"k": [3], "latency_loads": [10, 50, 90], "load_curve": [20, 120]}
    (trial,) = forwarding_trials(tmp_path / "run", design=design, **told)
    by_load = {entry["load_percent"]: entry for entry in trial.result["latency"]}
    assert list(by_load) == [10, 20, 50, 90, 120]
    for percent in (10, 20, 50, 90):
        entry = by_load[percent]
        wanted = truth.latency_ns(entry["rate_pps"], [1 / 3] * 3, 64)
        assert entry["total_ns"] == pytest.approx(wanted, rel=0.002)
        assert entry["guest_mean_ns"] == pytest.approx([wanted] * 3, rel=0.002)
        assert entry["lost"] == 0
    assert by_load[120]["loss_ratio"] == pytest.approx(1 - 1 / 1.2, abs=0.01)


def test_every_guest_has_a_latency_histogram_of_its_own_at_the_throughput(tmp_path):
    forwarding_trials(tmp_path / "run", design={"k": [1]}, latency_us=70.0, latency_sigma=0.2)
    with Ledger.open(tmp_path / "run") as ledger:
        (trial,) = ledger.trials()
        together = ledger.histograms_of(trial.trial_id)["latency@100%"]
        each = [ledger.histograms_of(trial.trial_id)[f"latency@100%/guest{index}"] for index in range(3)]
    assert together.n == sum(one.n for one in each)
    assert each[0].n == pytest.approx(0.99 * together.n, rel=0.001)
    assert together.mean / 1000 == pytest.approx(70e3, rel=0.06)


def test_the_tester_is_calibrated_and_near_its_limit_a_result_says_so(tmp_path):
    found = by_vector(forwarding_trials(tmp_path / "run", frame_ns=1000, tester_mpps=0.9))
    for trial in found.values():
        assert trial.status is TrialStatus.VALID
        assert "generator-limited" in flags(trial)
        assert trial.result["calibration"]["limit_pps"] == pytest.approx(0.9e6, rel=0.06)


def test_a_medium_bounds_the_load_and_is_named(tmp_path):
    design = {"medium_mbps": 100, "frame_bytes": [1518], "k": [3]}
    (trial,) = forwarding_trials(tmp_path / "run", design=design, frame_ns=1000)
    assert trial.status is TrialStatus.VALID
    assert "medium-limited" in flags(trial)
    assert trial.result["throughput_pps"] == pytest.approx(8127, rel=0.001)


def test_the_highest_load_of_the_plan_bounds_the_search_and_is_named(tmp_path):
    (trial,) = forwarding_trials(tmp_path / "run", design={"max_pps": 50_000, "k": [3]}, frame_ns=1000)
    assert trial.status is TrialStatus.VALID
    assert any(flag.name == "generator-limited" and "or max_pps" in flag.detail for flag in trial.flags)


@pytest.mark.parametrize(
    ("told", "flag"),
    [
        ({"hidden_loss": 2e-5}, "unaccounted-loss"),
        ({"duplicates": 1e-3}, "duplicated"),
        ({"late": 0.2}, "late"),
    ],
)
def test_what_must_not_count_is_invalid_and_says_why(tmp_path, told, flag):
    (trial,) = forwarding_trials(tmp_path / "run", design={"k": [3], "min_pps": 100}, **told)
    assert trial.status is TrialStatus.INVALID
    assert flag in flags(trial)


def test_a_device_that_carries_nothing_is_a_result(tmp_path):
    (trial,) = forwarding_trials(tmp_path / "run", design={"k": [3]}, frame_ns=2e7, queue_frames=0)
    assert trial.status is TrialStatus.VALID
    assert "no-throughput" in flags(trial)
    assert trial.result["throughput_pps"] is None


def test_the_account_of_lost_frames_closes_and_names_the_places(tmp_path):
    (trial,) = forwarding_trials(tmp_path / "run", design={"k": [1]}, **LIMITED_GUESTS)
    account = trial.result["loss_accounting"]
    assert account["closed"]
    assert account["lost"] > 0
    assert sum(account["places"].values()) == account["lost"]
    assert set(account["places"]) == {"shared path", "guest 0"}  # beyond all bounds, and beyond guest 0's own


def test_stretched_trials_are_said_and_counted_as_failed(tmp_path):
    (trial,) = forwarding_trials(tmp_path / "run", design={"k": [3]}, frame_ns=4000, stretches=True)
    assert trial.status is TrialStatus.VALID
    assert "stretched" in flags(trial)
    assert trial.result["throughput_pps"] == pytest.approx(250e3, rel=0.02)


@pytest.mark.parametrize("late", [0.0, 0.04])
def test_losses_that_the_testers_own_stalls_may_be_are_said(tmp_path, late):
    stalls = {"frame_ns": 4000, "stalls_per_s": 0.5, "stall_ms": 6.0, "late": late}
    (trial,) = forwarding_trials(tmp_path / "run", design={"k": [3]}, **stalls)
    lossy = [one for one in trial.result["loss_curve"] if 0 < one["loss_ratio"] < 0.01]
    assert lossy and all((one["late"] > 0) == (late > 0) for one in lossy)
    assert ("late-losses" in flags(trial)) == (late > 0)


def test_the_worst_vector_is_searched_for(tmp_path):
    design = {"vectors": ["worst"], "k": None}
    (trial,) = forwarding_trials(tmp_path / "run", design=design, **LIMITED_GUESTS)
    assert trial.result["jain"] == pytest.approx(1 / (3 * (0.99**2 + 2 * 0.005**2)))
    assert trial.result["searched_vectors"] == ["k=1"]


def test_other_vectors_and_searches(tmp_path):
    design = {
        "vectors": ["equal", "zipf"],
        "user_vectors": {"mine": [4, 1, 1]},
        "search": "rfc2544",
        "trial_s": 2,
        "back_to_back": 2,
    }
    truth = ForwardingTruth(**LIMITED_GUESTS)
    found = by_vector(forwarding_trials(tmp_path / "run", design=design, **LIMITED_GUESTS))
    assert set(found) == {"equal", "zipf", "mine"}
    for trial in found.values():
        wanted = truth.throughput_pps(trial.result["shares"], 64)
        assert trial.result["throughput_pps"] == pytest.approx(wanted, rel=0.012)
        assert trial.result["back_to_back"]["corrected_buffer_s"] > 0
        assert trial.result["rfc2544_durations"] is False


def test_a_soak_tells_the_loss_at_a_load_and_the_rate_that_loses_hardly_any(tmp_path):
    """The simulated device loses nothing below its rate and all above: the critical rate is that rate."""
    design = {"k": [3], "soak_s": 60, "soak_load": 100}
    (trial,) = forwarding_trials(tmp_path / "run", design=design, frame_ns=4000)
    soak = trial.result["soak"]
    assert (soak["lost"], soak["lossy_trials"], soak["trials"], soak["seconds"]) == (0, 0, 6, 60)
    assert soak["loss_ratio"]["high"] == pytest.approx(3.69 / soak["sent"], rel=0.01)
    assert soak["critical_pps"]["low"] <= 250e3 * 1.01
    assert soak["critical_pps"]["point"] == pytest.approx(250e3, rel=0.02)


def test_a_soak_beyond_the_devices_rate_loses_what_is_beyond(tmp_path):
    design = {"k": [3], "soak_s": 30, "soak_load": 110}
    (trial,) = forwarding_trials(tmp_path / "run", design=design, frame_ns=4000, queue_frames=10)
    soak = trial.result["soak"]
    assert soak["loss_ratio"]["point"] == pytest.approx(1 - 250e3 / soak["rate_pps"], rel=0.02)
    assert soak["lossy_trials"] == soak["trials"] == 5  # the fewest that tell how their losses are dispersed


def test_without_a_soak_there_is_none(tmp_path):
    (trial,) = forwarding_trials(tmp_path / "run", design={"k": [3]}, frame_ns=4000)
    assert trial.result["soak"] is None


@pytest.mark.parametrize("design", [{"k": [3]}, {"k": None, "vectors": ["worst"]}])
def test_a_search_without_end_is_a_result_that_says_so(tmp_path, design):
    """Attempts that are made until a search ends would be chosen by what they found."""
    (trial,) = forwarding_trials(tmp_path / "run", design=design | {"budget_s": 2, "duration_sum_s": 2})
    assert trial.status is TrialStatus.VALID
    assert {"search-failed", "no-throughput"} & flags(trial) == {"search-failed"}
    told = trial.result
    assert [told["throughput_pps"], told["throughput_bps"], told["pdr"]["rate_pps"], told["jain"]] == [None] * 4
    assert told["ndr"]["reason"] == "the search did not end within 2 s of offered load"
    assert len(told["loss_curve"]) == told["trials"] == 2
    assert told["maximum_receive_pps"] == max(one["received_pps"] for one in told["loss_curve"])


@pytest.mark.parametrize("kind", ["crash", "refuse"])
def test_a_guest_that_dies_in_a_trial_is_a_failed_trial_and_the_run_goes_on(tmp_path, kind):
    broken = simulated("broken", faults=[{"kind": kind, "function": "packet_trial", "probability": 0.2}])
    plan = plan_of(
        simulated("good"),
        broken,
        repetitions=1,
        attempts=2,
        suite={"forwarding": [{"guests": 2, "k": [2], "frame_bytes": [64], "duration_sum_s": 3}]},
    )
    execute(plan, tmp_path / "run")
    with Ledger.open(tmp_path / "run") as ledger:
        trials, guests = ledger.trials(), ledger.guests()
    failed = [trial for trial in trials if trial.arm == "broken"]
    assert {trial.status for trial in failed} == {TrialStatus.FAILED}
    assert all(trial.error for trial in failed)
    assert [trial.status for trial in trials if trial.arm == "good"] == [TrialStatus.VALID]
    assert guests


def test_repetitions_are_independent_testbeds(tmp_path):
    trials = forwarding_trials(
        tmp_path / "run", repetitions=6, design={"k": [3]}, frame_ns=4000, testbed_sigma=0.05, queue_frames=0
    )
    figures = [trial.result["throughput_pps"] for trial in trials]
    assert len({trial.guest_id for trial in trials}) == 6
    assert len(set(figures)) > 3  # two may agree to the search's resolution
    assert min(figures) < 250e3 < max(figures)


@pytest.mark.parametrize(
    ("changed", "kept"),
    [({}, True), ({"tagged_latency": False}, False), ({"latency_s": 119}, False), ({"latency_repeats": 19}, False)],
)
def test_a_result_has_rfc_2544s_durations_only_with_its_repeats_and_tagged_frames(
    tmp_path, private_state, any_agent, changed, kept
):
    strict = {
        "search": "rfc2544",
        "k": [3],
        "resolution": 0.1,
        "max_pps": 20_000,
        "latency_loads": [100],
        "latency_s": 120,
        "latency_repeats": 20,
        "tagged_latency": True,
        "duration_sum_s": None,
    }
    [trial] = forwarding_trials(tmp_path / "run", design=strict | changed)
    assert trial.result["rfc2544_durations"] is kept
    assert trial.result["latency_mode"] == ("one_tagged" if changed.get("tagged_latency", True) else "every_frame")


def test_too_few_frames_of_a_guest_are_told_and_judge_nothing(tmp_path):
    design = {"guests": 12, "k": [1], "trial_s": 0.1, "duration_sum_s": 0.3, "resolution": 0.05}
    (trial,) = forwarding_trials(tmp_path / "run", design=design, frame_ns=50_000, queue_frames=64)
    assert trial.status is TrialStatus.VALID
    told = next(flag.detail for flag in trial.flags if flag.name == "few-frames")
    assert told.startswith("not enough frames for guests 2 to 12: 5 of the 600 needed"), told
    (plenty,) = forwarding_trials(tmp_path / "other", design={"k": [3]}, frame_ns=4000, queue_frames=64)
    assert "few-frames" not in flags(plenty)


def test_a_partial_drop_rate_that_cannot_differ_is_left_out(tmp_path):
    design = {"guests": 12, "k": [12], "min_pps": 100, "trial_s": 0.1, "duration_sum_s": 0.3, "resolution": 0.05}
    (trial,) = forwarding_trials(tmp_path / "run", design=design, frame_ns=1_000_000, queue_frames=1)
    assert trial.result["ndr"]["rate_pps"] is not None
    assert trial.result["pdr"]["rate_pps"] is None
    assert "cannot differ from the NDR" in trial.result["pdr"]["reason"]


def test_a_soak_and_the_latency_streams_are_each_late_by_themselves():
    late = TrialResult(1000.0, 0.1, 0.1, (FlowResult(100, 0),), late=20)
    calm, stretched = TrialResult(1000.0, 5.0, 5.0, (FlowResult(5000, 0),)), dataclasses.replace(late, stretched=True)

    def found(stream, soaked, load=100):
        settings = ForwardingSettings(soak_load=load)
        return [flag.detail.partition(";")[0] for flag in _late([LatencyAtLoad(100.0, (stream,))], [soaked], settings)]

    assert found(late, calm) == ["20.0% of the frames left late in the latency streams"]
    assert found(calm, late) == ["20.0% of the frames left late in the soak"]
    assert found(calm, late, load=110) == found(calm, stretched) == []


def test_latency_that_leaves_a_guest_out_says_so():
    flows = (FlowResult(100, 0, latency=hdr_bins(np.full(100, 80_000_000))), FlowResult(1, 1))
    record = LatencyAtLoad(100.0, (TrialResult(1010.0, 0.1, 0.1, flows),)).record([0.99, 0.01])
    assert record["total_ns"] == pytest.approx(80_000, rel=0.002)
    assert record["without_latency"] == [1]
