"""Cycles on all platforms at once: who gets which CPUs, what is refused, and what is expected of the time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from suites.simulated_runs import execute, plan_of, simulated
from synthetic import arm_record

from virtgauge.errors import UsageError
from virtgauge.execution import run
from virtgauge.execution.prepare import check_plan
from virtgauge.execution.remaining import RemainingTime, RememberedCosts
from virtgauge.execution.schedule import Gate, schedule, shares_of_cpus, together, turns
from virtgauge.ledger.store import Ledger
from virtgauge.plan.load import PlanError
from virtgauge.suites import testbed

CYCLES = {"timers": [], "sleeps": [], "loads": ["idle"], "cycles": {"seconds": 10}}


def plan(design: dict[str, Any] = CYCLES, **fields: Any) -> Any:
    platforms = simulated("calm"), simulated("other", seed=2)
    return plan_of(*platforms, design=design, at_the_same_time=True, **{"aa": False} | fields)


def test_each_has_as_many_cpus_and_from_turn_to_turn_the_next_ones() -> None:
    arms, cores = ["a", "b"], [(0, 4), (1, 5), (2, 6)]
    assert shares_of_cpus(arms, cores, 0) == {"a": (0, 4), "b": (1, 5)}
    assert shares_of_cpus(arms, cores, 1) == {"a": (1, 5), "b": (0, 4)}
    assert shares_of_cpus(arms, cores, 2) == shares_of_cpus(arms, cores, 0)
    assert shares_of_cpus(arms, [(0, 1)], 0) == {"a": (0,), "b": (1,)}, "threads of the only core"
    with pytest.raises(UsageError, match=r"2 platforms \(a, b\) and 1 CPUs"):
        shares_of_cpus(arms, [(0,)], 0)


async def test_no_row_begins_before_all_others_are_as_far() -> None:
    gate, begun = Gate(["a", "b"]), list[tuple[str, int]]()

    async def rows(arm: str, *blocks: int) -> None:
        for block in blocks:
            await gate.reach(arm, block)
            begun.append((arm, block))
        gate.leave(arm)

    fast = asyncio.create_task(rows("a", 0, 1, 2))
    await asyncio.sleep(0)
    assert begun == [], "the other has no guest yet"
    await asyncio.gather(fast, rows("b", 0, 1))
    place = {one: number for number, one in enumerate(begun)}
    assert place["b", 0] < place["a", 1] and place["b", 1] < place["a", 2] == 4
    late = Gate(["a", "b"])
    await asyncio.wait_for(asyncio.gather(late.reach("a", 5), late.reach("b", 5)), 5)
    waiting = asyncio.create_task(late.reach("a", 6))
    await late.reach("b", 2)  # once more what was before
    assert not waiting.done()
    late.leave("b")
    await asyncio.wait_for(waiting, 5)


def test_what_others_have_used_does_not_jump_when_they_come_or_go() -> None:
    used = {"a": 100, "b": 7000}

    def stage(name: str) -> Any:
        guest = SimpleNamespace(accounting=lambda: SimpleNamespace(cpu_ns=used.get(name)))
        made = testbed.Stage.__new__(testbed.Stage)
        made.guests = [guest]
        return made

    a, b, beside = stage("a"), stage("b"), testbed.Beside()
    for one in (a, b):
        beside.join(one)
    assert a.beside is beside
    then = beside.cpu_ns(a)
    used["a"] += 5  # its own
    used["b"] += 50
    assert beside.cpu_ns(a) - then == 50
    del used["b"]  # it has died
    assert beside.cpu_ns(a) - then == 50
    beside.leave(b)
    beside.leave(b)
    assert beside.cpu_ns(a) - then == 50
    used["b"] = 90_000
    beside.join(stage("b"))
    assert beside.cpu_ns(a) - then == 50


def test_more_virtual_cpus_than_a_share_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "allowed_cores", lambda: [(0,), (1,)])
    arms = [arm_record("host", "host", "host"), arm_record("vm", "qemu", "vm", settings={"vcpus": 2})]
    with pytest.raises(UsageError, match="vm has 2 virtual CPUs, and its share of the machine 1"):
        run._at_the_same_time(plan(), arms)
    arms[1] = arm_record("vm", "qemu", "vm", settings={"vcpus": 1})
    assert "threads of the same core" not in run._at_the_same_time(plan(), arms)
    monkeypatch.setattr(run, "allowed_cores", lambda: [(0, 1)])
    assert "threads of the same core" in run._at_the_same_time(plan(), arms)
    assert run._at_the_same_time(plan_of(simulated("calm"), design=CYCLES), arms) == ""


@pytest.mark.parametrize(("last", "turns"), [(None, None), (1, 1), (2, 2), (3, 2), (4, None), (5, None), (6, 4)])
def test_turns_that_are_no_multiple_are_told_of_those_that_there_were(last: int | None, turns: int | None) -> None:
    """Of three arms with two repetitions on a guest; a budget makes more turns than the plan begins with."""
    arms = [arm_record(name, "host", name) for name in ("a", "b", "c")]
    shared = plan(repetitions=2, repetitions_per_guest=2)
    ledger: Any = SimpleNamespace(rows=lambda sql: [(last,)])
    told = run._unequal_turns(shared, arms, ledger)
    assert (f"different CPUs, {turns} each" in told) if turns else (told == "")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sleeps": ["usleep"]}, "suite.timing's sleep_lateness needs the machine to itself"),
        ({"loads": ["io"]}, "load 'io' needs the machine to itself"),
        ({"cycles": {"cpus": [0]}}, r"cycles.cpus = \[0\]: each platform gets CPUs of its own"),
        ({"cycles": {"classes": ["deadline"]}}, "deadline"),
        ({"cycles": {"trace": True}}, "cycles.trace = true"),
        ({"cycles": {"idle_states": ["shallow"]}}, "cycles.idle_states"),
    ],
)
def test_what_needs_the_machine_or_has_cpus_of_its_own_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        check_plan(plan(CYCLES | changes), "test")


def test_a_guest_whose_threads_have_cpus_is_refused() -> None:
    pinned = {"name": "vm", "kind": "qemu", "tuning": {"vcpu_cpus": [0]}}
    mixed = plan_of(simulated("calm"), pinned, design=CYCLES, at_the_same_time=True, aa=False)
    with pytest.raises(PlanError, match=r"platform 'vm': tuning.vcpu_cpus names CPUs, and each turn has others"):
        check_plan(mixed, "test")


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
        seen.append((platform.label, stage.cpus))
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
