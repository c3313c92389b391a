"""The time left of a run: the first figure that is shown is within a factor of 1.5 of what it turns out to be."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from suites.simulated_runs import execute, plan_of, simulated
from synthetic import arm_record

from virtgauge.execution.prepare import check_plan
from virtgauge.execution.progress import TrialEnded
from virtgauge.execution.remaining import RemainingTime, RememberedCosts
from virtgauge.execution.schedule import schedule
from virtgauge.ledger.records import ArmRecord
from virtgauge.plan.load import load_plan
from virtgauge.suites.base import Cell

ARMS = {
    "host": arm_record("host", "host", "Host", "reference"),
    "host-aa": arm_record("host-aa", "host", "Host (A/A)", "aa"),
    "runc": arm_record("runc", "oci", "runc", settings={"runtime": "runc"}),
    "gvisor": arm_record("gvisor", "oci", "gVisor", settings={"runtime": "runsc"}),
    "qemu": arm_record("qemu", "qemu", "QEMU (tcg)", emulated=True),
}

BENCH_S = {"host": 0.05, "host-aa": 0.05, "runc": 0.4, "gvisor": 1.2, "qemu": 9.0}
SLOWNESS = {"host": 1.0, "host-aa": 1.0, "runc": 1.05, "gvisor": 1.6, "qemu": 6.0}
"""As a run of the preset ``quick`` had it on two cores without KVM, rounded."""


@dataclasses.dataclass(frozen=True)
class Told:
    """When the time left was told first, what it was, and what it should have been; seconds."""

    at: float
    said: float
    truth: float
    whole: float

    @property
    def factor(self) -> float:
        return max(self.said / self.truth, self.truth / self.said)


def followed(
    plan: str,
    arms: Mapping[str, ArmRecord],
    trial_s: Callable[[str, Cell], float],
    *,
    seed: int = 1,
    repetitions: int | None = None,
    remembered: RememberedCosts | None = None,
    invalid: float = 0.0,
) -> Told:
    """Let a schedule pass as fast as the processor can, and look what is told.

    Args:
        plan: preset.
        arms: that can be used.
        trial_s: what a trial really takes.
        invalid: share of the trials that are repeated.
    """
    loaded, source = load_plan(plan)
    design = check_plan(loaded, source)
    rng = random.Random(seed)
    batches = list(schedule(seed, repetitions or loaded.repetitions, list(arms), design.cells))
    clock = RemainingTime(arms, remembered or RememberedCosts(None))
    for batch in batches:
        clock.expect(batch.arm, batch.testbed, batch.cells)
    now, told = 0.0, None
    for batch in batches:
        launch_s = BENCH_S[batch.arm] * rng.uniform(0.8, 1.2)
        now += launch_s
        clock.launched(batch.arm, batch.testbed, launch_s)
        for cell in batch.cells:
            for over in (False, True) if rng.random() < invalid else (True,):
                seconds = trial_s(batch.arm, cell) * rng.uniform(0.8, 1.2)
                now += seconds
                clock.trial(batch.arm, cell, seconds, over=over)
                if told is None and clock.seconds is not None:
                    told = now, clock.seconds
        clock.closed(batch.arm, batch.testbed, launch_s)
        clock.over(batch.arm, batch.testbed)
    assert told is not None
    assert clock.seconds == pytest.approx(0)
    clock.keep()
    return Told(told[0], told[1], now - told[0], now)


def usual_s(arm: str, cell: Cell) -> float:
    """Timing trials take what samples take, an emulated guest longer; databases by the clock, with what it takes to
    start them."""
    if cell.suite == "timing":
        samples = cell.params["samples"]
        each = 40e-9 if cell.probe == "timer_cost" else (cell.params["target_ns"] + 80_000) / 1e9
        if cell.probe == "sleep_lateness" and cell.factors["load"] == "cpu":
            each = 9e-3
        return 0.05 + min(samples * each * SLOWNESS[arm], cell.params["max_ns"] / 1e9)
    return 0.6 * SLOWNESS[arm]


@pytest.mark.parametrize("seed", range(8))
def test_the_first_figure_of_a_first_run_is_good_and_comes_early(seed: int) -> None:
    told = followed("quick", ARMS, usual_s, seed=seed)
    assert told.factor < 1.5
    assert told.at < 0.2 * told.whole


@pytest.mark.parametrize("seed", range(8))
def test_it_is_good_where_one_platform_takes_twenty_times_as_long_as_the_host(seed: int) -> None:
    arms = {name: ARMS[name] for name in ("host", "host-aa", "qemu")}
    cells = len(check_plan(*load_plan("quick")).cells)
    told = followed("quick", arms, lambda arm, cell: (31 if arm == "qemu" else 2) / cells * 4, seed=seed)
    assert told.factor < 1.5


@pytest.mark.parametrize("seed", range(8))
def test_trials_that_are_repeated_count(seed: int) -> None:
    assert followed("quick", ARMS, usual_s, seed=seed, invalid=0.27).factor < 1.5


@pytest.mark.parametrize("plan", ["storage-quick", "isolation-quick", "bandwidth-quick", "forwarding-quick"])
def test_suites_whose_trials_take_long_are_told_of_as_well(plan: str) -> None:
    arms = {name: arm for name, arm in ARMS.items() if name != "gvisor"}
    # These end by the clock, so that a slow guest takes longer only before and after.
    told = followed(plan, arms, lambda arm, cell: 1.7 * cell.expected_s * math.sqrt(SLOWNESS[arm]))
    assert told.factor < 1.5


@pytest.mark.parametrize("seed", range(4))
def test_what_an_earlier_run_has_cost_makes_the_first_trial_enough(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "cache" / "durations.json"
    followed("quick", ARMS, usual_s, remembered=RememberedCosts(path), repetitions=1)
    told = followed("quick", ARMS, usual_s, seed=seed, remembered=RememberedCosts(path))
    assert told.factor < 1.3
    assert told.at < 0.01 * told.whole + 15  # at the end of the first trial, be it of the slowest guest


def test_a_slower_day_is_seen_by_the_platforms_that_were_met(tmp_path: Path) -> None:
    path = tmp_path / "durations.json"
    followed("quick", ARMS, usual_s, remembered=RememberedCosts(path), repetitions=1)
    told = followed("quick", ARMS, lambda arm, cell: 2 * usual_s(arm, cell), remembered=RememberedCosts(path))
    assert told.factor < 1.5


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": "b"}', '{"a": -1}', "null", '{"a": null}'])
def test_a_broken_memory_is_an_empty_one(tmp_path: Path, text: str) -> None:
    path = tmp_path / "durations.json"
    path.write_text(text)
    assert RememberedCosts(path).get("a") is None
    RememberedCosts(path).keep({"a": 2.0})
    assert RememberedCosts(path).get("a") == 2.0


def test_a_memory_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    RememberedCosts(tmp_path / "file" / "durations.json").keep({"a": 1.0})


def test_the_memory_is_bounded_and_forgets_what_was_met_longest_ago(tmp_path: Path) -> None:
    path = tmp_path / "durations.json"
    RememberedCosts(path).keep({f"{number}": 1.0 for number in range(20_000)})
    RememberedCosts(path).keep({"newest": 1.0})
    found = json.loads(path.read_text())
    assert len(found) == 20_000
    assert "newest" in found
    assert "0" not in found


def test_a_platform_that_is_given_up_takes_no_more_time() -> None:
    cell = Cell("timing", "timer_cost", {"function": "rdtsc"}, {}, 10)
    clock = RemainingTime(ARMS, RememberedCosts(None))
    for arm in ("host", "qemu"):
        clock.expect(arm, "guest", [cell])
    clock.given_up("qemu")
    clock.trial("host", cell, 1.0, over=True)
    clock.closed("host", "guest", 0.1)
    clock.over("host", "guest")
    assert clock.seconds == 0


def test_a_run_tells_of_no_time_left_when_its_last_trial_has_ended(tmp_path: Path, private_state, any_agent) -> None:
    plan = plan_of(simulated("a"), simulated("b", seed=2), repetitions=3)
    _, recorder = execute(plan, tmp_path / "run")
    told = [event.remaining_s for event in recorder.events if isinstance(event, TrialEnded)]
    assert told[-1] is not None
    assert told[-1] < 1
    assert not (tmp_path / "run" / "durations.json").exists()
