"""Cycles on all platforms at once: who gets which CPUs, what is refused, and what is expected of the time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from suites.simulated_runs import execute, plan_of, simulated
from synthetic import arm_record

from virtgauge.errors import UsageError
from virtgauge.execution.prepare import check_plan, shares_of_cpus
from virtgauge.execution.remaining import RemainingTime, RememberedCosts
from virtgauge.ledger.store import Ledger
from virtgauge.plan.load import PlanError
from virtgauge.plan.schedule import schedule, together, turns
from virtgauge.suites import testbed

CYCLES = {"timers": [], "sleeps": [], "loads": ["idle"], "cycles": {"seconds": 10}}


def plan(design: dict[str, Any] = CYCLES, **fields: Any) -> Any:
    platforms = simulated("calm"), simulated("other", seed=2)
    return plan_of(*platforms, design=design, at_the_same_time=True, **{"aa": False} | fields)


def test_each_has_as_many_cpus_and_from_turn_to_turn_the_next_ones() -> None:
    arms = ["a", "b"]
    assert shares_of_cpus(arms, [0, 4, 1, 5, 2], 0) == {"a": (0, 4), "b": (1, 5)}
    assert shares_of_cpus(arms, [0, 4, 1, 5, 2], 1) == {"a": (1, 5), "b": (0, 4)}
    assert shares_of_cpus(arms, [0, 4, 1, 5, 2], 2) == shares_of_cpus(arms, [0, 4, 1, 5, 2], 0)
    with pytest.raises(UsageError, match=r"2 platforms \(a, b\) and 1 CPUs"):
        shares_of_cpus(arms, [0], 0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sleeps": ["usleep"]}, "suite.timing's sleep_lateness needs the machine to itself"),
        ({"loads": ["io"]}, "load 'io' needs the machine to itself"),
        ({"cycles": {"cpus": [0]}}, r"cycles.cpus = \[0\]: each platform gets CPUs of its own"),
        ({"cycles": {"classes": ["deadline"]}}, "deadline"),
        ({"cycles": {"trace": True}}, "cycles.trace = true"),
    ],
)
def test_what_needs_the_machine_or_has_cpus_of_its_own_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        check_plan(plan(CYCLES | changes), "test")


def test_an_attached_machine_is_refused() -> None:
    attached = {"name": "box", "kind": "attached", "via": "ssh", "host": "box"}
    mixed = plan_of(simulated("calm"), attached, design=CYCLES, at_the_same_time=True, aa=False)
    with pytest.raises(PlanError, match="platform 'box' cannot be kept on CPUs of its own"):
        check_plan(mixed, "test")


def test_turns_of_all_arms_are_together() -> None:
    cells = check_plan(plan(), "test").cells
    found = list(together(turns(schedule(1, 4, ["a", "b"], cells, each=2), 2), 2))
    assert [sorted(turn[0].arm for turn in among) for among in found] == [["a", "b"]] * 2
    assert [[batch.block for batch in turn] for among in found for turn in among] == [[0, 1]] * 2 + [[2, 3]] * 2


@pytest.mark.parametrize(("at_the_same_time", "seconds"), [(False, 31.4), (True, 20.7)])
def test_what_is_at_the_same_time_takes_as_long_as_the_slowest(at_the_same_time: bool, seconds: float) -> None:
    arms = {name: arm_record(name, "host", name) for name in ("a", "b")}
    (cell,) = check_plan(plan(), "test").cells
    clock = RemainingTime(arms, RememberedCosts(None), at_the_same_time=at_the_same_time)
    for arm, number in (("a", 2), ("b", 1)):
        clock.expect(arm, "guest", [cell] * number)
    each = cell.expected_s
    assert clock.expected == pytest.approx((3 * each + 1.4) if not at_the_same_time else 2 * each + 0.7)
    clock.launched("a", "guest", 0.5)
    assert clock.expected == pytest.approx((3 * each + 0.9) if not at_the_same_time else 2 * each + 0.2)


def test_a_run_says_so_and_gives_every_guest_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, launch = list[tuple[str, tuple[int, ...]]](), testbed.Stage._launch

    async def watched(stage: Any, platform: Any, among: Any, name: str, wanted: Any) -> Any:
        seen.append((platform.label, stage._cpus))
        return await launch(stage, platform, among, name, wanted)

    monkeypatch.setattr(testbed.Stage, "_launch", watched)
    cpus = testbed.allowed_cpus()
    execute(plan(repetitions=2), tmp_path / "run")
    half = len(cpus) // 2
    assert len(seen) == 4
    for pair in (seen[:2], seen[2:]):
        (_, one), (_, other) = pair
        assert (len(one), len(other), set(one) & set(other)) == (half, half, set())
    with Ledger.open(tmp_path / "run") as ledger:
        assert any("at the same time" in event.detail for event in ledger.events())
        assert [trial.status for trial in ledger.trials()] == ["valid"] * 4
