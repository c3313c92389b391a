"""Two simulated guests of which one breaks: a trial beside a load that is not there never counts; faults are named."""

from __future__ import annotations

import pytest
from isolation_reports import rows_of
from suites.isolation_runs import cell, isolation_trials
from suites.simulated_runs import report_of

from virtgauge.ledger.records import TrialStatus

pytestmark = pytest.mark.usefixtures("private_state", "any_agent")

WRITE, READ, DISK = "memory-write-integer", "memory-read-simd", "disk-sequential-write"
LOADED = {"loads": ["none", "integer"]}


def flags(trial):
    return {flag.name for flag in trial.flags}


@pytest.mark.parametrize("kind", ["loader-dies", "loader-idle", "loader-lost"])
def test_a_loader_that_is_not_there_makes_a_trial_invalid_and_never_optimistic(tmp_path, kind):
    trials = isolation_trials(tmp_path / "run", design=LOADED, attempts=2, faults=[{"kind": kind}])
    beside = [trial for trial in trials if trial.factors["load"] == "integer"]
    assert [trial.status for trial in beside] == [TrialStatus.INVALID] * 2
    assert all("loader-died" in flags(trial) for trial in beside)
    assert [trial.status for trial in trials if trial not in beside] == [TrialStatus.VALID]
    found = report_of(tmp_path / "run")
    assert cell(found, load="integer").at("relative_work") is None
    assert "loader-died" in str(rows_of(found, "missing")[0].cells[-1])


def test_a_loader_that_was_lost_once_is_measured_again_beside_a_fresh_one(tmp_path):
    fault = {"kind": "loader-lost", "first_guests": 2}
    trials = isolation_trials(tmp_path / "run", design=LOADED, attempts=3, faults=[fault])
    beside = [trial for trial in trials if trial.factors["load"] == "integer"]
    assert [trial.status for trial in beside] == [TrialStatus.INVALID, TrialStatus.VALID]
    assert beside[0].guest_id != beside[1].guest_id
    assert cell(report_of(tmp_path / "run"), load="integer").at("relative_work") == pytest.approx(0.5)


@pytest.mark.parametrize(("kernel", "guest"), [(READ, "tested"), (WRITE, "loading")])
def test_an_exhausted_memory_limit_is_told_with_the_guest_that_met_it(tmp_path, kernel, guest):
    design = {"benchmarks": [READ], "loads": [WRITE]}
    fault = {"kind": "out-of-memory", "function": kernel}
    trials = isolation_trials(tmp_path / "run", design=design, faults=[fault])
    (beside,) = [trial for trial in trials if trial.factors["load"] == WRITE]
    assert beside.status is TrialStatus.INVALID
    (said,) = [flag.detail for flag in beside.flags if flag.name == "out-of-memory"]
    assert guest in said
    assert "MiB" in said


@pytest.mark.parametrize(("kernel", "guest"), [(READ, "tested"), (WRITE, "loading")])
def test_a_guest_that_is_killed_as_a_whole_never_counts_and_is_told_as_such(tmp_path, kernel, guest):
    design = {"benchmarks": [READ], "loads": [WRITE]}
    trials = isolation_trials(tmp_path / "run", design=design, faults=[{"kind": "killed", "function": kernel}])
    (beside,) = [trial for trial in trials if trial.factors["load"] == WRITE]
    assert beside.status in {TrialStatus.FAILED, TrialStatus.INVALID}
    said = " ".join([beside.error or "", *(flag.detail for flag in beside.flags if flag.name == "out-of-memory")])
    assert f"{guest} guest at its memory limit" in said


@pytest.mark.parametrize(("kind", "words"), [("disk-full", "os"), ("wrong-result", "wrong-result")])
def test_work_that_cannot_be_done_is_a_failed_trial_in_words_and_the_run_goes_on(tmp_path, kind, words):
    design = {"benchmarks": ["integer", DISK]}
    trials = isolation_trials(tmp_path / "run", design=design, faults=[{"kind": kind, "function": DISK}])
    by_benchmark = {trial.factors["benchmark"]: trial for trial in trials}
    assert by_benchmark[DISK].status is TrialStatus.FAILED
    assert words in by_benchmark[DISK].error
    assert by_benchmark["integer"].status is TrialStatus.VALID
