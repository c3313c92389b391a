"""The suites in their shortest form on the real Xen of the nested lab: the plan beside this file, suite by suite."""

from __future__ import annotations

from pathlib import Path

import pytest
from platforms.conftest import require
from suites.simulated_runs import execute
from xen_lab.packages import find_lab_parts
from xen_lab.platform import REGISTRATION

from virtgauge.errors import UnavailableError
from virtgauge.ledger.records import TrialRecord, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.plan.load import load_plan
from virtgauge.platforms import KINDS
from virtgauge.platforms.base import Availability

pytestmark = [pytest.mark.slow, pytest.mark.lab, pytest.mark.timeout(1500)]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, path in REGISTRATION.items():
        monkeypatch.setitem(KINDS, kind, path)


def measured(suite: str, folder: Path) -> list[TrialRecord]:
    """The plan's trials of one suite: for each cell its last, which is valid, and said to be emulated."""
    try:
        find_lab_parts()
    except UnavailableError as error:
        require(Availability(False, error.message, error.remedy), "xen")
    plan, _ = load_plan(str(Path(__file__).with_name("plan.toml")))
    complete, recorder = execute(plan.model_copy(update={"suite": {suite: plan.suite[suite]}}), folder)
    with Ledger.open(folder) as ledger:
        trials, guests, (arm,) = ledger.trials(), ledger.guests(), ledger.manifest().arms
    told = "\n".join(map(str, recorder.events))
    assert complete, told
    last = list({trial.key: trial for trial in trials}.values())
    assert {trial.status for trial in last} == {TrialStatus.VALID}, told
    assert arm.emulated
    assert "emulated" in arm.label
    assert all(guest.facts["clocksource"]["current"] == "xen" for guest in guests if guest.error is None)
    return last


def test_timing(tmp_path: Path, private_state: Path) -> None:
    trials = measured("timing", tmp_path / "run")
    assert {(trial.probe, trial.factors["load"]) for trial in trials} == {
        *(("timer_cost", "idle"), ("timer_cost", "cpu"), ("sleep_lateness", "idle"), ("sleep_lateness", "cpu"))
    }
    assert all(trial.result["n"] > 0 for trial in trials)


def test_forwarding(tmp_path: Path, private_state: Path) -> None:
    (trial,) = measured("forwarding", tmp_path / "run")
    assert trial.result["throughput_pps"] > 10
    assert trial.result["loss_accounting"]["closed"]
    (latency,) = trial.result["latency"]
    assert latency["load_percent"] == 50


def test_isolation(tmp_path: Path, private_state: Path) -> None:
    trials = measured("isolation", tmp_path / "run")
    received = {(trial.factors["load"], trial.factors["policy"]): trial.result["cpu"]["tested"] for trial in trials}
    assert set(received) == {(load, policy) for load in ("none", "integer") for policy in ("none", "limit")}
    # by Xen's own account: alone, the cap takes most of it away
    assert received["none", "limit"] < 0.17
    assert received["none", "none"] > 1.3 * received["none", "limit"]
    capped = [trial.result["policy_applied"]["tested"] for trial in trials if trial.factors["policy"] == "limit"]
    assert all(applied["in_force"]["credit2 cap"] == "15 %" for applied in capped)
