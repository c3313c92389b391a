"""Verdicts over hours, on platforms whose late cycles are known; a trial is 200 s of cycles of 10 ms."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from suites.simulated_runs import Recorder, execute, plan_of, report_of, simulated

from virtgauge.analysis.bounds import Outcome
from virtgauge.decisions.decisions import Decisions
from virtgauge.decisions.verdicts import Verdict
from virtgauge.execution.progress import ProgressEvent, TrialEnded
from virtgauge.execution.run import resume_run, start_run
from virtgauge.ledger.store import Ledger
from virtgauge.plan.model import Plan
from virtgauge.report.requirements import more_text

pytestmark = pytest.mark.slow

CYCLES = {"periods_us": [10_000], "seconds": 200, "worst": 50}
DESIGN = {"timers": [], "sleeps": [], "cycles": CYCLES}
NEVER = {"suite": "timing", "measure": "cycle.max", "at_most": 120, "unit": "us", "during": "30 min"}  # 9 trials
SELDOM = {"suite": "timing", "measure": "cycle.missed_count", "at_most": 1, "unit": "", "per": "10 min"}


def platform(name: str, *, stalls_a_minute: float = 0.0, **fields: Any) -> dict[str, Any]:
    """Cycles are 50 µs late, at most some 80; a stall lasts two periods and a half."""
    stalls = {"stall_probability": stalls_a_minute / 6000, "stall_ns": 25e6}
    return simulated(name, truth={"*": {"median_ns": 5e4, "guest_sigma": 0.0} | stalls}, **fields)


def soak(*platforms: dict[str, Any], repetitions: int = 9, require: dict[str, Any] = NEVER, **fields: Any) -> Plan:
    return plan_of(*platforms, repetitions=repetitions, design=DESIGN, require=[require], **fields)


def decided(folder: Path, plan: Plan) -> Decisions:
    execute(plan, folder)
    return report_of(folder).decisions


def verdict_on(decisions: Decisions, arm: str) -> Verdict:
    return next(one for one in decisions.verdicts if one.arm == arm)


def test_silence_for_so_long_is_met_and_one_cycle_beyond_is_not(tmp_path: Path) -> None:
    plan = soak(platform("calm"), platform("stalling", stalls_a_minute=1, seed=2))
    decisions = decided(tmp_path / "run", plan)
    calm, stalling = verdict_on(decisions, "calm"), verdict_on(decisions, "stalling")
    assert calm.outcome is Outcome.PASS
    assert "nothing beyond the bound in T = 30 min watched: at most 3/T = 5.99 an hour" in calm.reason
    assert "no larger one is foretold" in calm.reason, "half an hour is too short"
    assert calm.decisive is not None and len(calm.decisive.trials) == 9
    assert stalling.outcome is Outcome.FAIL
    assert stalling.decisive is not None and stalling.decisive.estimate.point == pytest.approx(25e6, rel=0.01)


def test_beside_a_longer_silence_stands_how_large_one_may_come(tmp_path: Path) -> None:
    plan = soak(platform("calm"), repetitions=14, require=NEVER | {"during": "45 min"})
    found = verdict_on(decided(tmp_path / "run", plan), "calm")
    assert found.outcome is Outcome.PASS
    assert "its peaks, extrapolated, exceed" in found.reason and "once in 45 min" in found.reason


def test_less_silence_is_undecided_and_says_how_much_more_it_takes(tmp_path: Path) -> None:
    found = verdict_on(decided(tmp_path / "run", soak(platform("calm"), repetitions=3)), "calm")
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "T = 10 min watched" in found.reason and "about 20 min more of that would meet it" in found.reason
    assert more_text(found) == "about 6 more repetitions would decide it"


def test_a_budget_ends_once_so_long_was_watched_and_at_the_first_cycle_beyond(tmp_path: Path) -> None:
    """Of the reference, too: nothing is compared with it."""
    stalling = platform("stalling", stalls_a_minute=3, seed=2)
    plan = soak(stalling, platform("calm"), repetitions=2, budget={"repetitions": 50})
    decisions = decided(tmp_path / "run", plan)
    assert [verdict_on(decisions, arm).outcome for arm in ("calm", "stalling")] == [Outcome.PASS, Outcome.FAIL]
    with Ledger.open(tmp_path / "run") as ledger:
        blocks = {arm: {one.block for one in ledger.trials() if one.arm == arm} for arm in ("calm", "stalling")}
    assert blocks == {"calm": set(range(9)), "stalling": {0, 1}}
    assert resume_run(tmp_path / "run", Recorder())
    with Ledger.open(tmp_path / "run") as ledger:
        assert len(ledger.trials()) == 11, "what is decided is not measured again"


def test_a_trial_that_was_begun_in_vain_withholds_that_it_is_met(tmp_path: Path) -> None:
    """The guest may have been lost by what is looked for; one that never came up has met nothing."""
    crash, absent = ([{"kind": kind, "first_guests": 1}] for kind in ("crash", "no-launch"))
    plan = soak(platform("lost", faults=crash), platform("late", faults=absent, seed=2), budget={"repetitions": 20})
    decisions = decided(tmp_path / "run", plan)
    lost = verdict_on(decisions, "lost")
    assert lost.outcome is Outcome.INCONCLUSIVE
    assert "trials begun in vain: 1" in lost.reason and "the stream ended inside a frame" in lost.reason
    assert not lost.open and more_text(lost) == "", "no further repetition would tell"
    assert verdict_on(decisions, "late").outcome is Outcome.PASS


def test_a_rate_is_judged_by_the_bounds_of_its_clusters(tmp_path: Path) -> None:
    plan = soak(platform("calm"), platform("stalling", stalls_a_minute=1, seed=2), require=SELDOM)
    decisions = decided(tmp_path / "run", plan)
    calm, stalling = verdict_on(decisions, "calm"), verdict_on(decisions, "stalling")
    assert calm.outcome is Outcome.PASS  # 3 times ten minutes of silence
    assert "0 clusters in T = 30 min watched: at most 3/T = 5.99 an hour" in calm.reason
    assert stalling.outcome is Outcome.FAIL
    found = stalling.decisive
    assert found is not None and found.estimate.low is not None and found.estimate.point is not None
    assert 1 < found.estimate.low < found.estimate.point
    assert 12 <= 3 * found.estimate.point <= 52, "of thirty that are expected; all but 2 in 10,000 runs have so many"
    short = decided(tmp_path / "short", soak(platform("calm"), require=SELDOM, repetitions=4))
    assert (verdict_on(short, "calm").outcome, verdict_on(short, "calm").more) == (Outcome.INCONCLUSIVE, 5)


def test_each_trial_that_was_begun_in_vain_may_have_had_a_cluster(tmp_path: Path) -> None:
    crash = [{"kind": "crash", "first_guests": 2}]  # two attempts at one repetition
    found = verdict_on(decided(tmp_path / "run", soak(platform("lost", faults=crash), require=SELDOM)), "lost")
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "0 to 2 clusters in T = 30 min watched" in found.reason


def test_a_rate_that_is_looked_at_again_and_again_takes_longer_silence(tmp_path: Path) -> None:
    plan = soak(platform("calm"), require=SELDOM, repetitions=2, budget={"repetitions": 50})
    assert verdict_on(decided(tmp_path / "run", plan), "calm").outcome is Outcome.PASS
    with Ledger.open(tmp_path / "run") as ledger:
        assert len(ledger.trials()) == 14  # 4.51 times ten minutes, of 200 s each


def test_misses_whose_times_are_not_known_count_as_one_and_as_many(tmp_path: Path) -> None:
    design = DESIGN | {"cycles": CYCLES | {"worst": 0}}
    plan = plan_of(platform("stalling", stalls_a_minute=3, seed=2), repetitions=3, design=design, require=[SELDOM])
    found = verdict_on(decided(tmp_path / "run", plan), "stalling")
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "3 to " in found.reason


# -- on one guest --------------------------------------------------------------------------------------------


class Stopping(Recorder):
    """Ends the run, as a kill would, after so many trials."""

    def __init__(self, trials: int) -> None:
        super().__init__()
        self._left = trials

    def show(self, event: ProgressEvent) -> None:
        super().show(event)
        self._left -= isinstance(event, TrialEnded)
        if isinstance(event, TrialEnded) and not self._left:
            raise RuntimeError("killed")


def guests_of(folder: Path, arm: str) -> list[list[int]]:
    """The blocks of each guest's trials, in the order of the guests."""
    with Ledger.open(folder) as ledger:
        trials = [one for one in ledger.trials() if one.arm == arm]
    return [[one.block for one in own] for _, own in itertools.groupby(trials, key=lambda one: one.guest_id)]


def test_repetitions_in_a_row_share_a_guest_and_platforms_take_turns(tmp_path: Path) -> None:
    crash = [{"kind": "crash", "first_guests": 1}]
    plan = soak(platform("calm"), platform("lost", faults=crash, seed=2), repetitions=7, repetitions_per_guest=3)
    execute(plan, tmp_path / "run")
    assert guests_of(tmp_path / "run", "calm") == [[0, 1, 2], [3, 4, 5], [6]]
    assert guests_of(tmp_path / "run", "lost") == [[0], [0, 1, 2], [3, 4, 5], [6]]
    with Ledger.open(tmp_path / "run") as ledger:
        arms = [(one.arm, one.block // 3) for one in ledger.trials()]
    assert len(list(itertools.groupby(arms))) == 6, "three turns of each"
    assert any("Up to 3 repetitions share a guest" in one for one in report_of(tmp_path / "run").caveats)


@pytest.mark.parametrize("trials", [1, 4, 8])
def test_a_soak_that_was_killed_goes_on_on_a_fresh_guest(tmp_path: Path, trials: int) -> None:
    budget = {"repetitions": 40}
    plan = soak(platform("calm"), platform("other", seed=2), repetitions=2, repetitions_per_guest=3, budget=budget)
    with pytest.raises(RuntimeError, match="killed"):
        start_run(plan, "test", tmp_path / "run", Stopping(trials))
    assert resume_run(tmp_path / "run", Recorder())
    for arm in ("calm", "other"):
        blocks = [block for own in guests_of(tmp_path / "run", arm) for block in own]
        assert sorted(blocks) == list(range(9)), "each once, none lost, and no turn after nine"


def test_what_takes_fresh_guests_takes_no_shared_ones() -> None:
    with pytest.raises(ValueError, match=r"repetitions_per_guest = 3: budget\.claims takes a fresh guest"):
        soak(platform("calm"), repetitions_per_guest=3, budget={"repetitions": 20, "claims": True})
