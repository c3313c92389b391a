"""What the machine spoils is taken again on the same testbed, within bounds, and by its counters alone."""

import dataclasses

import numpy as np
import pytest

from virtgauge.execution.trial import RunPatience, run_trial
from virtgauge.host.load import CpuSnapshot, WatchedMachine
from virtgauge.ledger.records import Flag, TrialStatus
from virtgauge.network import NetworkError
from virtgauge.plan.model import ValidityLimits
from virtgauge.platforms.base import Accounting, LaunchError
from virtgauge.suites.base import Cell, Elapsed, Measurement, Sliced

CELL = Cell("storage", "load", {"operation": "single-write"}, {}, timeout_s=10)
SECOND = 1_000_000_000


class ScriptedMachine(WatchedMachine):
    """Steals as many seconds during each second of its time as the script says; then nothing."""

    def __init__(self, *stolen_s, foreign=0.0):
        self.stolen_s, self.foreign, self.now_ns, self.steal_ns = list(stolen_s), foreign, SECOND, 0

    def snapshot(self):
        return CpuSnapshot(int(self.foreign * self.now_ns), self.steal_ns, self.now_ns, 2, "scripted")

    def controller_ns(self):
        return 0

    async def wait(self, seconds):
        self.now_ns += int(seconds * SECOND)

    def measure(self):
        self.now_ns += SECOND
        self.steal_ns += int(self.stolen_s.pop(0) * SECOND) if self.stolen_s else 0


class StolenElsewhere(ScriptedMachine):
    """All of it from the CPU that the testbed is not on."""

    def snapshot(self):
        return dataclasses.replace(super().snapshot(), steal_of_each={0: self.steal_ns, 1: 0})


class ScriptedTestbed:
    """A guest on that machine."""

    timeout_factor, closed, kernel_work_hidden = 1.0, False, False

    def __init__(self, machine, *, here=True):
        self.machine, self.stage, self.here = machine, self, here

    def accounting(self):
        return Accounting(cpu_ns=0, method="scripted", of_this_machine=self.here)

    def peers_cpu_ns(self):
        return 0

    def confined_to(self):
        return (1,)


class CountingSuite:
    """Tells which take it was."""

    def __init__(self, testbed, flags=()):
        self.testbed, self.flags, self.takes = testbed, flags, 0

    def sliced(self, cell, testbed, on_progress):
        return None

    async def measure(self, cell, testbed, on_progress):
        self.takes += 1
        self.testbed.machine.measure()
        return Measurement({"take": self.takes}, {}, {"raw": np.empty(0, dtype=np.int64)}, flags=self.flags)


class FailingSuite(CountingSuite):
    """Fails so."""

    def __init__(self, testbed, error):
        super().__init__(testbed)
        self.error = error

    async def measure(self, cell, testbed, on_progress):
        raise self.error


class LateSlices(Sliced):
    """Ten slices, each of which lasts 50 ms and is answered 0.2 s later."""

    done, kept = 0.0, 0

    def __init__(self, testbed):
        self.testbed = testbed

    async def measure(self, seconds):
        await self.testbed.machine.wait(0.25)
        return Measurement({}, {}, {})

    def keep(self, slice_):
        self.kept += 1
        self.done = self.kept / 10

    def joined(self):
        clock = Elapsed("CLOCK_MONOTONIC", self.kept * 50_000_000, 0)
        return Measurement({}, {}, {}, guest_clocks=(clock,), controller_elapsed_ns=self.kept * 250_000_000)


class SlicedSuite:
    """Measured by those."""

    def sliced(self, cell, testbed, on_progress):
        return LateSlices(testbed)


async def outcome_of(*stolen_s, flags=(), here=True, **limits):
    testbed = ScriptedTestbed(ScriptedMachine(*stolen_s), here=here)
    return await run_trial(CELL, CountingSuite(testbed, flags), testbed, ValidityLimits(**limits), lambda _: None)


async def test_an_invalid_trial_is_taken_again_and_what_was_left_out_is_recorded():
    found = await outcome_of(0.5, 0.2, 0)
    assert (found.status, found.result["take"]) == (TrialStatus.VALID, 3)
    assert found.accounting["left_out"] == [
        {"reason": "steal", "share": 0.25, "elapsed_ns": SECOND},
        {"reason": "steal", "share": 0.1, "elapsed_ns": SECOND},
    ]
    assert found.accounting["waited_ns"] > 0
    assert (found.elapsed_ns, found.accounting["steal_ns"]) == (SECOND, 0)
    assert found.accounting["steal_at_most_ns"] == 30_000_000


async def test_patience_bounds_the_takes_and_the_last_is_kept_as_invalid():
    found = await outcome_of(*[0.5] * 20, patience_s=3.5)
    assert (found.status, found.result["take"]) == (TrialStatus.INVALID, 4)
    assert [flag.name for flag in found.flags] == ["steal"]
    assert len(found.accounting["left_out"]) == 3


@pytest.mark.parametrize("patience_s", [0, 0.5])
async def test_a_trial_longer_than_the_patience_is_judged_once(patience_s):
    found = await outcome_of(0.5, 0, patience_s=patience_s)
    assert (found.status, found.result["take"], found.accounting["left_out"]) == (TrialStatus.INVALID, 1, [])


async def test_what_went_wrong_by_itself_is_not_taken_again():
    found = await outcome_of(0.5, 0, flags=(Flag("wrong-answer", "3 rows"),))
    assert [flag.name for flag in found.flags] == ["wrong-answer", "steal"]
    assert (found.status, found.result["take"]) == (TrialStatus.INVALID, 1)


async def test_a_guest_of_another_machine_is_not_judged_by_this_one():
    found = await outcome_of(0.5, here=False)
    assert (found.status, found.result["take"]) == (TrialStatus.VALID, 1)


async def test_steal_of_a_cpu_that_the_testbed_is_not_on_spoils_nothing():
    testbed = ScriptedTestbed(StolenElsewhere(0.5))
    found = await run_trial(CELL, CountingSuite(testbed), testbed, ValidityLimits(), lambda _: None)
    assert (found.status, found.result["take"]) == (TrialStatus.VALID, 1)
    assert found.accounting.items() >= {"steal_ns": 0, "steal_processors": 1, "steal_at_most_ns": 20_000_000}.items()


async def test_steal_within_the_limit_counts_and_is_told():
    found = await outcome_of(0.03)
    assert (found.status, found.accounting["steal_at_most_ns"]) == (TrialStatus.VALID, 60_000_000)
    assert found.accounting["steal_largest_ns"] == 30_000_000
    assert found.accounting["left_out"] == []


def test_a_run_that_is_never_left_in_peace_has_a_minute_of_patience_in_all_and_then_judges_once():
    patience = RunPatience(ValidityLimits(patience_s=10))
    lost = {"waited_ns": 0, "left_out": [{"elapsed_ns": 10 * SECOND}]}
    for _ in range(5):
        assert patience.limits().patience_s == 10
        patience.spend(lost, seconds=10)
    patience.spend(lost, seconds=10)
    assert 0 < patience.limits().patience_s < 0.01  # slices stay, and none is taken again


def test_what_was_measured_in_peace_earns_patience():
    patience = RunPatience(ValidityLimits(patience_s=10))
    patience.spend({"waited_ns": 60 * SECOND, "left_out": []}, seconds=60)
    patience.spend({"waited_ns": 0, "left_out": []}, seconds=2)
    assert patience.limits().patience_s == 4


def test_no_patience_stays_none():
    assert RunPatience(ValidityLimits(patience_s=0)).limits().patience_s == 0


async def test_every_slice_of_a_trial_may_be_answered_late():
    found = await run_trial(CELL, SlicedSuite(), ScriptedTestbed(ScriptedMachine()), ValidityLimits(), lambda _: None)
    assert (found.status, found.flags) == (TrialStatus.VALID, ())


async def test_slices_are_kept_and_flagged_where_the_load_may_be_the_kernels_work_for_the_testbed():
    testbed = ScriptedTestbed(ScriptedMachine(foreign=0.2))
    testbed.kernel_work_hidden = True
    found = await run_trial(CELL, SlicedSuite(), testbed, ValidityLimits(), lambda _: None)
    assert (found.status, found.accounting["left_out"]) == (TrialStatus.VALID, [])
    assert [(flag.name, flag.fatal) for flag in found.flags] == [("foreign-load", False)]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (LaunchError("boot", "no root file system"), "boot: no root file system"),  # after its power was cut
        (NetworkError("the switch has ended", "start it again"), "the switch has ended"),
        (TimeoutError("the agent did not answer the request 'read' within 10 s"), "the request 'read' within 10 s"),
        (TimeoutError(), "no result within 10 s"),
    ],
)
async def test_what_fails_in_a_trial_is_a_failed_trial_and_tells_why(error, said):
    testbed = ScriptedTestbed(ScriptedMachine())
    found = await run_trial(CELL, FailingSuite(testbed, error), testbed, ValidityLimits(), lambda _: None)
    assert (found.status, found.guest_lost) == (TrialStatus.FAILED, True)
    assert said in found.error
