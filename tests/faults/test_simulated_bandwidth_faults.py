"""A simulated path on which something goes wrong: it is told in words, is no figure, and the run goes on."""

from __future__ import annotations

import pytest
from shown import value
from suites.bandwidth_runs import TEST, bandwidth_trials, flags, only
from suites.simulated_runs import report_of

from virtgauge.ledger.records import TrialStatus

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("private_state", "any_agent")]

NAMES = ["yaz-original", "kite2"]
BOTH = {"estimators": NAMES}


@pytest.mark.parametrize("kind", ["peer-lost", "peer-version", "clock-step", "refuse"])
def test_an_estimate_that_fails_is_a_failed_trial_in_words_and_the_run_goes_on(tmp_path, kind):
    trials = bandwidth_trials(tmp_path / "run", designs=[BOTH], faults=[{"kind": kind, "function": "yaz-original"}])
    failed = only(trials, estimator="yaz-original")
    assert failed.status is TrialStatus.FAILED
    assert {"refuse": "internal"}.get(kind, kind) in failed.error
    assert only(trials, estimator="kite2").status is TrialStatus.VALID
    assert failed.guest_id == only(trials, estimator="kite2").guest_id  # the testbed is still of use


def test_a_path_that_gives_no_answer_is_a_result_and_is_not_measured_again(tmp_path):
    trials = bandwidth_trials(
        tmp_path / "run", designs=[BOTH], attempts=2, faults=[{"kind": "no-answer", "function": "yaz-original"}]
    )
    silent = only(trials, estimator="yaz-original")
    assert silent.status is TrialStatus.VALID
    assert flags(silent) == {"no-estimate"}
    assert silent.result["median_mbps"] is None
    assert silent.result["pacing"]["refused"] is False
    assert silent.result["truth_mbps"] > 0
    assert only(trials, estimator="kite2").status is TrialStatus.VALID
    told = [value(report_of(tmp_path / "run"), "bandwidth", "no_answer", TEST, f"estimator={name}") for name in NAMES]
    assert [one.estimate.point for one in told] == [1, 0]


def test_a_way_of_sending_that_a_guest_has_not_is_unsupported_and_else_it_is_tried_again(tmp_path):
    fault = {"kind": "unsupported"}
    design = {"pacings": ["auto", "gso"]}
    trials = bandwidth_trials(tmp_path / "run", designs=[design], attempts=2, faults=[fault])
    asked = [trial for trial in trials if trial.factors["pacing"] == "gso"]
    assert [trial.status for trial in asked] == [TrialStatus.UNSUPPORTED]
    left = [trial for trial in trials if trial.factors["pacing"] == "auto"]
    assert [trial.status for trial in left] == [TrialStatus.FAILED] * 2
    assert left[0].error.startswith("not-possible")


@pytest.mark.parametrize("kind", ["crash", "garbage", "killed"])
def test_a_tested_guest_that_is_lost_is_a_failure_and_the_next_testbed_a_fresh_one(tmp_path, kind):
    fault = {"kind": kind, "first_guests": 3}  # the three of the first testbed
    trials = bandwidth_trials(tmp_path / "run", attempts=2, faults=[fault])
    assert [trial.status for trial in trials] == [TrialStatus.FAILED, TrialStatus.VALID]
    assert trials[0].guest_id != trials[1].guest_id


def test_clocks_that_disagree_are_no_result(tmp_path):
    (trial,) = bandwidth_trials(tmp_path / "run", faults=[{"kind": "clock-drift"}])
    assert trial.status is TrialStatus.INVALID
    assert "clock-drift" in flags(trial)
