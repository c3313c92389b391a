"""Repetitions that are added until the papers' conclusions are decided, on a platform whose truth is known."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections import Counter
from pathlib import Path

import pytest
from isolation_results import Design as IsolationDesign
from isolation_results import isolation_arms, isolation_ledger
from suites.simulated_runs import Recorder, execute, plan_of, simulated

from virtgauge.console.runs import overridden
from virtgauge.decisions.verdicts import open_claims
from virtgauge.execution.progress import Notice, RunStarted
from virtgauge.execution.run import resume_run
from virtgauge.execution.runner import said_open
from virtgauge.ledger.store import Ledger
from virtgauge.plan.requirements import Budget
from virtgauge.results.table import ResultTable

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("private_state", "any_agent")]
BUDGET = {"repetitions": 14, "claims": True}
HALF, FIVE = "improved-half-the-cost", "more-than-the-five-left"


def run(folder: Path, tsc_ns: float, guest_sigma: float, **fields: object) -> tuple[list[str], int, Recorder]:
    """Open conclusions of a run in which a system call costs 100 ns, its repetitions, and what was shown."""
    truth = {
        "rdtscp": {"median_ns": tsc_ns, "guest_sigma": guest_sigma},
        "clock_gettime": {"median_ns": 100.0, "guest_sigma": 0.01},
    }
    design = {"timers": ["rdtscp", "clock_gettime"]}
    known = {"repetitions": 7, "design": design, "budget": BUDGET} | fields
    complete, recorder = execute(plan_of(simulated("a", truth=truth), **known), folder)
    assert complete
    with Ledger.open(folder) as ledger:
        return open_claims(ledger)[0].get("timing", []), max(trial.block for trial in ledger.trials()) + 1, recorder


def notices(recorder: Recorder) -> str:
    return "\n".join(event.text for event in recorder.events if isinstance(event, Notice))


def test_what_no_repetition_decides_ends_with_the_budget_and_is_named(tmp_path: Path) -> None:
    left, repetitions, recorder = run(tmp_path / "run", 55.0, 0.2)
    assert HALF in left
    assert repetitions == 14
    assert "(timing: improved-half-the-cost" in notices(recorder).partition("repetitions 8 to at most 14 follow")[0]
    assert "the budget of 14 repetitions is spent: 1 conclusion is open" in notices(recorder)


def test_the_start_of_a_run_says_that_it_may_go_on_and_how_long(tmp_path: Path) -> None:
    """The time that it names is that of the plan's repetitions."""
    budget = BUDGET | {"minutes": 120}
    _, _, recorder = run(tmp_path / "run", 30.0, 0.02, budget=budget)
    (started,) = (event for event in recorder.events if isinstance(event, RunStarted))
    told = Budget.model_validate(budget).told(requirements=False)
    assert told == "repeated until the papers' conclusions are decided, at most 14 repetitions in all or 120 minutes"
    assert started.about.startswith("about ") and started.about.endswith(f"; then {told}")
    _, _, recorder = run(tmp_path / "whole", 30.0, 0.02, budget=None)
    assert not any("repeated" in event.about for event in recorder.events if isinstance(event, RunStarted))


def test_what_is_decided_at_the_first_look_is_not_repeated(tmp_path: Path) -> None:
    left, repetitions, recorder = run(tmp_path / "run", 30.0, 0.02)
    assert left == []
    assert repetitions == 7
    assert "every requirement and other conclusion is decided after 7 repetitions" in notices(recorder)


def test_what_another_platform_contradicts_is_told_apart_from_what_is_open_everywhere(tmp_path: Path) -> None:
    """Exactly the five per cent that are left are neither more nor less, and gVisor gives less: that decides it."""
    host, _, _, gvisor, _ = isolation_arms()
    beside = IsolationDesign(loads=("none", "integer"), on=("loading",), shares=(95,))
    said = {}
    for name, arms in (("alone", [host]), ("both", [host, gvisor])):
        ledger = isolation_ledger(tmp_path / name, arms, [beside])
        claims = open_claims(ledger)[0]
        said[name] = said_open([], {"isolation": {FIVE: claims["isolation"][FIVE]}})
    assert said == {
        "alone": f"1 conclusion is open (isolation: {FIVE})",
        "both": f"1 conclusion is decided, but open on some platform (isolation: {FIVE})",
    }


def test_without_claims_in_the_budget_nothing_is_repeated_for_them(tmp_path: Path) -> None:
    left, repetitions, _ = run(tmp_path / "run", 55.0, 0.2, budget=None)
    assert HALF in left
    assert repetitions == 7


FUNCTION = "cost-function"


def test_an_effect_that_is_shown_to_be_none_is_repeated_for_no_longer(tmp_path: Path) -> None:
    """Both functions cost the same: that they differ is contradicted, and was open to the end of any budget."""
    left, _, _ = run(tmp_path / "run", 100.0, 0.01)
    assert FUNCTION not in left and "cost-summary-function" not in left
    with Ledger.open(tmp_path / "run") as ledger:
        assert "cost-load" in open_claims(ledger)[1]["timing"], "a single load was measured"


def test_what_the_budget_is_too_small_to_decide_is_left_out_and_the_notice_says_so(tmp_path: Path) -> None:
    """Two functions on four guests have no exact p below 0.05, and on fourteen they have."""
    few = {"repetitions": 3, "budget": {"repetitions": 4, "claims": True}, "confidence": 0.5}
    _, _, recorder = run(tmp_path / "few", 30.0, 0.02, **few)
    with Ledger.open(tmp_path / "few") as ledger:
        assert FUNCTION not in open_claims(ledger, 4)[0].get("timing", [])
        assert FUNCTION in open_claims(ledger, 4)[1]["timing"]
        assert FUNCTION in open_claims(ledger, 14)[0]["timing"]
    assert re.search(r"conclusions are left out of .* none within the budget would decide them", notices(recorder))


def test_the_looks_share_the_chance_of_an_error(tmp_path: Path) -> None:
    budget = Budget(repetitions=14, claims=True)
    assert budget.looks(7) == (7, 14)
    assert budget.looks(14) == (14,)
    assert budget.looks(5) == (5, 10, 14)
    assert Budget(repetitions=64, claims=True).looks(8) == (8, 16, 32, 64)
    assert budget.claims_confidence(0.95, 7) == pytest.approx(1 - 0.05 / 2)
    assert Budget(repetitions=14).claims_confidence(0.95, 7) == 0.95
    run(tmp_path / "run", 30.0, 0.02)
    with Ledger.open(tmp_path / "run") as ledger:
        assert ResultTable(ledger).claims_confidence == pytest.approx(1 - 0.05 / 2)
        assert ResultTable(ledger).confidence == 0.95


def test_a_resumed_run_goes_on_with_what_its_last_look_saw(tmp_path: Path) -> None:
    """What was measured since is not looked at: that would be one look more than the intervals allow for."""
    folder = tmp_path / "run"
    run(folder, 55.0, 0.2, budget={"repetitions": 9, "claims": True})

    def in_each_block() -> Counter[int]:
        with Ledger.open(folder) as ledger:
            return Counter(trial.block for trial in ledger.trials())

    whole = in_each_block()
    with contextlib.closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger, ledger:
        ledger.execute("DELETE FROM trials WHERE block = 8")
        ledger.execute("DELETE FROM trials WHERE trial_id = (SELECT max(trial_id) FROM trials)")
        for table in ("histograms", "summaries"):
            ledger.execute(f"DELETE FROM {table} WHERE trial_id NOT IN (SELECT trial_id FROM trials)")
    assert in_each_block()[7] == whole[7] - 1
    recorder = Recorder()
    assert resume_run(folder, recorder)
    assert in_each_block() == whole
    assert re.search(rf"timing: .*{HALF}.* repetitions 8 to at most 9 follow", notices(recorder))


def test_a_run_that_spent_its_budget_and_is_resumed_does_not_say_that_repetitions_follow(tmp_path: Path) -> None:
    run(tmp_path / "run", 55.0, 0.2, budget={"repetitions": 9, "claims": True})
    recorder = Recorder()
    assert resume_run(tmp_path / "run", recorder)
    assert "follow" not in notices(recorder)
    assert "the budget of 9 repetitions is spent" in notices(recorder)


def test_more_repetitions_than_the_budget_has_are_in_the_budget_too(tmp_path: Path) -> None:
    plan = plan_of(simulated("a"), repetitions=7, design={"timers": ["rdtscp"]}, budget=BUDGET)
    more = overridden(plan, "a.toml", 28, None, None)
    assert (more.repetitions, more.budget and more.budget.repetitions) == (28, 28)
    fewer = overridden(plan, "a.toml", 9, None, None)
    assert (fewer.repetitions, fewer.budget and fewer.budget.repetitions) == (9, 14)


def test_a_requirement_and_a_conclusion_are_both_repeated_for(tmp_path: Path) -> None:
    required = {"suite": "timing", "measure": "timer_cost.p50", "unit": "ns", "at_most": 100}
    left, repetitions, recorder = run(tmp_path / "run", 30.0, 0.02, require=[required])
    assert left == []
    assert repetitions > 7, "the system call's 100 ns are neither within nor beyond the bound"
    assert "verdict is undecided" in notices(recorder)
