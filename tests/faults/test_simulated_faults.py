"""Guests that break: every fault is recorded, repeated up to the limit, and never averaged in."""

import pytest
from shown import value
from suites.simulated_runs import Recorder, execute, plan_of, report_of, simulated

from virtgauge.errors import UnavailableError, UsageError
from virtgauge.execution import prepare
from virtgauge.execution.progress import Notice
from virtgauge.execution.run import resume_run
from virtgauge.host.machine import fingerprint
from virtgauge.ledger.records import TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.suites import timing
from virtgauge.suites.testbed import Testbed

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("private_state", "any_agent")]


def trials_of(folder, arm=None):
    with Ledger.open(folder) as ledger:
        return [trial for trial in ledger.trials() if arm in (None, trial.arm)]


def faulty(kind, **fault):
    return simulated("faulty", seed=3, faults=[{"kind": kind} | fault])


def test_a_crash_in_the_first_guest_is_repeated_on_a_fresh_one(tmp_path):
    plan = plan_of(simulated("good"), faulty("crash", first_guests=1), repetitions=2)
    complete, _ = execute(plan, tmp_path / "run")
    trials = trials_of(tmp_path / "run", "faulty")
    assert complete
    assert [t.status for t in trials].count(TrialStatus.VALID) == 4
    (failed,) = [t for t in trials if t.status is TrialStatus.FAILED]
    assert "inside a frame" in failed.error
    retried = [t for t in trials if t.key == failed.key]
    assert [t.attempt for t in retried] == [1, 2]
    assert retried[0].guest_id != retried[1].guest_id


@pytest.mark.parametrize("kind", ["crash", "garbage", "refuse"])
def test_a_fault_that_stays_is_tried_as_often_as_the_plan_says_and_the_run_goes_on(tmp_path, kind):
    plan = plan_of(simulated("good"), faulty(kind, function="rdtsc"), repetitions=2, attempts=2)
    execute(plan, tmp_path / "run")
    broken = [t for t in trials_of(tmp_path / "run", "faulty") if t.factors["function"] == "rdtsc"]
    assert [t.status for t in broken] == [TrialStatus.FAILED] * 4
    assert all(t.error for t in broken)
    others = [t for t in trials_of(tmp_path / "run") if t not in broken]
    assert {t.status for t in others} == {TrialStatus.VALID}
    figure = value(report_of(tmp_path / "run"), "timing", "timer_cost.p50", "faulty", "function=rdtsc")
    assert figure.estimate.point is None
    assert figure.estimate.method


def test_a_guest_that_hangs_is_timed_out_and_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "_SET_UP_S", 0.1)
    monkeypatch.setattr(Testbed, "timeout_factor", 2.0)
    plan = plan_of(simulated("good"), faulty("hang"), repetitions=1, attempts=2, design={"max_seconds": 0.1})
    execute(plan, tmp_path / "run")
    hung = trials_of(tmp_path / "run", "faulty")
    assert {t.status for t in hung} == {TrialStatus.FAILED}
    assert {(flag.name, flag.detail) for t in hung for flag in t.flags} == {("time-out", "no result within 0.6 s")}
    assert len({t.guest_id for t in hung}) == len(hung)


def test_what_a_guest_cannot_do_is_not_tried_again(tmp_path):
    plan = plan_of(simulated("good"), faulty("unsupported", function="rdtsc"), repetitions=2)
    complete, _ = execute(plan, tmp_path / "run")
    unsupported = [t for t in trials_of(tmp_path / "run", "faulty") if t.factors["function"] == "rdtsc"]
    assert complete
    assert [t.status for t in unsupported] == [TrialStatus.UNSUPPORTED] * 2


def test_clocks_that_disagree_invalidate_but_are_kept(tmp_path):
    plan = plan_of(simulated("good"), faulty("clock-drift"), repetitions=1, attempts=2)
    execute(plan, tmp_path / "run")
    drifted = trials_of(tmp_path / "run", "faulty")
    assert {t.status for t in drifted} == {TrialStatus.INVALID}
    assert all("clock-drift" in {flag.name for flag in t.flags} for t in drifted)
    with Ledger.open(tmp_path / "run") as ledger:
        assert all(ledger.histograms_of(t.trial_id)["timer_cost"].n == 2000 for t in drifted)


def test_a_platform_whose_guests_never_come_up_is_given_up_and_said_so(tmp_path):
    plan = plan_of(simulated("good"), faulty("no-launch"), repetitions=4, attempts=2)
    complete, recorder = execute(plan, tmp_path / "run")
    assert not complete
    with Ledger.open(tmp_path / "run") as ledger:
        failed = [guest for guest in ledger.guests() if guest.error]
        assert len(failed) == 3
        assert "arm-given-up" in {event.kind for event in ledger.events()}
    assert any(isinstance(event, Notice) and "given up" in event.text for event in recorder.events)
    good = trials_of(tmp_path / "run", "good")
    assert [t.status for t in good] == [TrialStatus.VALID] * 8


def test_an_unusable_platform_is_skipped_with_its_reason(tmp_path):
    plan = plan_of(simulated("good"), simulated("other"), simulated("missing", usable=False), repetitions=1)
    complete, recorder = execute(plan, tmp_path / "run")
    assert complete
    (arm,) = [arm for arm in report_of(tmp_path / "run").arms if arm.record.name == "missing"]
    assert not arm.record.usable
    assert arm.record.fix == "set usable = true"
    assert any(isinstance(event, Notice) and "skipped missing" in event.text for event in recorder.events)


def test_an_unusable_reference_stops_before_anything_is_started(tmp_path):
    with pytest.raises(UnavailableError, match="reference platform 'gone'"):
        execute(plan_of(simulated("gone", usable=False)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_nothing_of_a_run_is_left_in_the_state_folder(tmp_path, private_state):
    execute(plan_of(simulated("good"), faulty("crash"), repetitions=1), tmp_path / "run")
    assert [entry.name for entry in private_state.iterdir() if entry.is_dir()] == []


def test_an_unknown_kind_is_refused_before_anything_is_probed(tmp_path):
    plan = plan_of(simulated("good"), {"name": "x", "kind": "nothing"})
    with pytest.raises(prepare.UsageError, match="no such kind"):
        execute(plan, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("fact", ["kernel_release", "cpu_model"])
def test_a_run_is_not_continued_on_another_kernel_or_cpu(tmp_path, monkeypatch, fact):
    run = tmp_path / "run"
    execute(plan_of(simulated("good"), repetitions=1), run)
    here = fingerprint()
    there = here | {"identity": here["identity"] | {fact: "another"}}
    monkeypatch.setattr("virtgauge.execution.run.fingerprint", lambda: there)
    with pytest.raises(UsageError, match=f"{fact}: .* then, 'another' now"):
        resume_run(run, Recorder())
    with Ledger.open(run) as ledger:
        assert "resumed" not in {event.kind for event in ledger.events()}
    assert resume_run(run, Recorder(), accept_changed_host=True)
