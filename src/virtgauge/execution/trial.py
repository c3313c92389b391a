"""One trial on one testbed: measured beside a noisy machine, and judged.

What others spoil is left out and taken again on the same testbed.  A take is what is judged at once: a whole trial, or
one slice of it where the suite can be measured in slices.  Only the machine's own counters decide what is left out
(steal, foreign load), never what was measured.  docs/noise.md says what that can hide.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from virtgauge.agent.channel import AgentError, ChannelClosedError
from virtgauge.agent.messages import ProtocolError
from virtgauge.execution.validity import MachineUsage, clock_flags, machine_flags
from virtgauge.host.load import TICK_NS, CpuSnapshot, load_between
from virtgauge.ledger.records import Flag, Histogram, TrialStatus
from virtgauge.network import NetworkError
from virtgauge.plan.model import ValidityLimits
from virtgauge.platforms.base import LaunchError
from virtgauge.suites.base import Cell, Measurement, Sliced, Suite
from virtgauge.suites.testbed import Testbed

_FIRST_SLICE_S, _SHORTEST_SLICE_S, _LONGEST_SLICE_S = 0.25, 0.03, 1.0
"""Slices grow with each that is kept and are halved by each that is not: long on a quiet machine, because each costs
a request and begins cold, and on a noisy one short enough to fit between bursts."""
_GROWTH, _GROWTH_BESIDE_NOISE = 2.0, 1.2
_WATCHED_S = 0.02  # Without steal and foreign load for so long is a quiet moment
_RUN_PATIENCE_S, _RUN_PATIENCE_SHARE, _LEAST_PATIENCE_S = 60.0, 2.0, 0.001
_OF_ALL_TAKES = 2.0  # Times the bound of one: a guest whose slices never add up to a trial does not go on for ever
_ENOUGH = 0.5  # Of what a sliced trial wants has to be kept when its patience has ended


@dataclasses.dataclass(frozen=True)
class Reading:
    """The counters of the machine, the testbed and the controller at one moment."""

    machine: CpuSnapshot
    guest_ns: int | None
    peers_ns: int
    controller_ns: int

    @classmethod
    def take(cls, testbed: Testbed, confined_to: tuple[int, ...]) -> Reading:
        """What is ours is read first here and last in :meth:`until_now`: reading it is nobody's foreign load."""
        stage = testbed.stage
        guest_ns, peers_ns = stage.accounting().cpu_ns, stage.peers_cpu_ns()
        controller_ns = stage.machine.controller_ns()
        return cls(stage.machine.snapshot().of_cpus(confined_to), guest_ns, peers_ns, controller_ns)

    def until_now(self, testbed: Testbed) -> tuple[MachineUsage, CpuSnapshot]:
        """Who used the machine since, and its counters now."""
        stage = testbed.stage
        now = stage.machine.snapshot().of_cpus(self.machine.stolen_from)
        controller_ns = stage.machine.controller_ns() - self.controller_ns
        accounting = stage.accounting()
        guest_ns = None if accounting.cpu_ns is None or self.guest_ns is None else accounting.cpu_ns - self.guest_ns
        peers_ns = stage.peers_cpu_ns() - self.peers_ns
        elsewhere = not accounting.of_this_machine
        load, hidden = load_between(self.machine, now), stage.kernel_work_hidden
        return MachineUsage(load, guest_ns, peers_ns, controller_ns, elsewhere, hidden), now


class RunPatience:
    """How much longer a run may take because of others: a minute, and twice what it has measured in peace.

    Without a bound for all of them, the trials of a run on a machine that is never quiet would each wait in vain.
    """

    def __init__(self, limits: ValidityLimits) -> None:
        self._limits = limits
        self._left_s = _RUN_PATIENCE_S

    def limits(self) -> ValidityLimits:
        """The plan's limits for the next trial, with what is left of the patience."""
        patience_s = min(self._limits.patience_s, max(self._left_s, _LEAST_PATIENCE_S))
        return self._limits.model_copy(update={"patience_s": patience_s})

    def spend(self, accounting: Mapping[str, Any], seconds: float) -> None:
        lost_ns = accounting["waited_ns"] + sum(one["elapsed_ns"] for one in accounting["left_out"])
        self._left_s += _RUN_PATIENCE_SHARE * max(0.0, seconds - lost_ns / 1e9) - lost_ns / 1e9


class Takes:
    """The takes of one trial."""

    def __init__(self, testbed: Testbed, limits: ValidityLimits, *, in_peace: bool = True) -> None:
        self._testbed, self._limits, self._in_peace = testbed, limits, in_peace
        self._confined_to = testbed.stage.confined_to()
        # Takes that do not count, in their order: ``reason`` (``steal`` or ``foreign-load``), ``elapsed_ns``, and the
        # ``share`` that it lost so of the CPU time that is judged.
        self.left_out: list[dict[str, Any]] = []
        self.kept = 0  # number of the takes that count
        self.usage: MachineUsage | None = None  # who used the machine during those, together; None while there is none
        self.waited_ns = 0  # for quiet moments
        self._stretches = 0
        self._steal_largest_ns = 0
        self._steal_seen_ns: int | None = None  # The counter when the last take that counts had ended

    async def whole(self, measure: Callable[[], Awaitable[Measurement]]) -> Measurement:
        """Take a trial until the machine leaves it in peace, or patience ends; the last take counts as it is.

        Returns that take, flagged by what the machine did to it.
        """
        while True:
            before = Reading.take(self._testbed, self._confined_to)
            measured = await measure()
            usage, after = before.until_now(self._testbed)
            flags = machine_flags(usage, self._limits)
            if not self._in_peace:
                flags = [dataclasses.replace(flag, fatal=False) for flag in flags]
            invalid = _fatal(flags)
            invalid_otherwise = self._testbed.closed or any(flag.fatal for flag in measured.flags)
            if not invalid or invalid_otherwise or not self._patient(usage.load.elapsed_ns):
                self._count(usage, before.machine, after)
                return dataclasses.replace(measured, flags=(*measured.flags, *flags))
            self._leave_out(usage, invalid)
            await self._wait_for_quiet()

    async def slices(
        self, sliced: Sliced, measure: Callable[[float | None], Awaitable[Measurement]]
    ) -> tuple[Flag, ...]:
        """Keep slices until there are enough, or patience ends.

        ``measure`` takes a slice of so many seconds; None: of all that is wanted.  Returns what the machine did to the
        trial: fatal where too little could be kept.
        """
        seconds = _FIRST_SLICE_S
        while True:
            before = Reading.take(self._testbed, self._confined_to)
            judged = self._testbed.stage.accounting().of_this_machine
            measured = await measure(seconds if judged else None)
            usage, after = before.until_now(self._testbed)
            together = usage if self.usage is None else self.usage + usage
            of_all = machine_flags(together, self._limits)
            invalid = _fatal(machine_flags(usage, self._limits, of_slice=True)) or _fatal(of_all)
            patient = self._patient(usage.load.elapsed_ns)
            if not invalid or (not patient and self.usage is None):  # a figure that does not count is one all the same
                sliced.keep(measured)
                self._count(usage, before.machine, after)
            if not invalid:
                if sliced.done >= 1:
                    return tuple(of_all)
                seconds = min(seconds * (_GROWTH_BESIDE_NOISE if self.left_out else _GROWTH), _LONGEST_SLICE_S)
                continue
            if not patient:
                return (self._ended_early(0.0 if together is usage else sliced.done, invalid[0]),)
            self._leave_out(usage, invalid)
            seconds = max(seconds / 2, _SHORTEST_SLICE_S)
            await self._wait_for_quiet()

    def _ended_early(self, done: float, last: Flag) -> Flag:
        text = f"{done:.0%} of the trial could be measured in peace within patience_s = {self._limits.patience_s:g}"
        enough = done >= _ENOUGH
        return Flag("left-out" if enough else last.name, f"{text}; at last {last.detail}", fatal=not enough)

    def accounting(self) -> dict[str, Any]:
        """For the trial's record: what was left out, and the most steal that what counts can hold.

        ``steal_at_most_ns`` is what the counters told, and for every unbroken stretch of takes a tick, to which their
        sum is rounded down (of some CPUs, each by itself), and one of each CPU, whose kernel counts steal at its next
        jiffy (10 ms at most).  ``steal_largest_ns`` is the most that was told of a single take that counts.
        """
        usage = self.usage
        steal_ns = None if usage is None else usage.load.steal_ns
        rounds = 0 if usage is None else usage.load.steal_cpus + (len(usage.load.stolen_from) or 1)
        return {
            "steal_at_most_ns": None if steal_ns is None else steal_ns + self._stretches * rounds * TICK_NS,
            "steal_largest_ns": None if steal_ns is None else self._steal_largest_ns,
            "waited_ns": self.waited_ns,
            "kept": self.kept,
            "left_out": self.left_out,
        }

    def _count(self, usage: MachineUsage, before: CpuSnapshot, after: CpuSnapshot) -> None:
        self.kept += 1
        self.usage = usage if self.usage is None else self.usage + usage
        if self._steal_seen_ns is None or before.steal_ns != self._steal_seen_ns:
            self._stretches += 1
        self._steal_largest_ns = max(self._steal_largest_ns, usage.load.steal_ns or 0)
        self._steal_seen_ns = after.steal_ns

    def _leave_out(self, usage: MachineUsage, flags: Sequence[Flag]) -> None:
        reason = flags[0].name
        share = usage.stolen_share if reason == "steal" else usage.foreign_share
        self.left_out.append({"reason": reason, "share": share, "elapsed_ns": usage.load.elapsed_ns})

    def _patient(self, further_ns: int) -> bool:
        spent_ns: int = self.waited_ns + sum(one["elapsed_ns"] for one in self.left_out) + further_ns
        return spent_ns < self._limits.patience_s * 1e9

    async def _wait_for_quiet(self) -> None:
        while self._patient(0):
            before = Reading.take(self._testbed, self._confined_to)
            await self._testbed.stage.machine.wait(_WATCHED_S)
            usage, _ = before.until_now(self._testbed)
            self.waited_ns += usage.load.elapsed_ns
            if not _fatal(machine_flags(usage, self._limits, of_slice=True)):
                return


def _fatal(flags: Sequence[Flag]) -> list[Flag]:
    return [flag for flag in flags if flag.fatal]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a trial ended, ready for the ledger."""

    status: TrialStatus
    error: str | None = None
    guest_lost: bool = False  # the testbed is of no further use; the next trial needs a fresh one
    flags: tuple[Flag, ...] = ()
    elapsed_ns: int = 0
    accounting: dict[str, Any] = dataclasses.field(default_factory=dict)
    result: dict[str, Any] = dataclasses.field(default_factory=dict)
    histograms: dict[str, Histogram] = dataclasses.field(default_factory=dict)
    samples: dict[str, npt.NDArray[np.int64]] = dataclasses.field(default_factory=dict)


async def run_trial(
    cell: Cell, suite: Suite, testbed: Testbed, limits: ValidityLimits, on_progress: Callable[[float], None]
) -> Outcome:
    """Measure one cell; every failure of guest or agent becomes an outcome.

    Only cancellation gets out as an exception.
    """
    takes, began_ns = Takes(testbed, limits, in_peace=cell.in_peace), time.monotonic_ns()
    within_s = cell.timeout_s * testbed.timeout_factor
    in_all_s = _OF_ALL_TAKES * within_s + limits.patience_s

    def failure(error: str, *flags: Flag, guest_lost: bool = True, status: TrialStatus = TrialStatus.FAILED) -> Outcome:
        return Outcome(status, error, guest_lost, flags, time.monotonic_ns() - began_ns, takes.accounting())

    async def bounded(measure: Awaitable[Measurement]) -> Measurement:
        async with asyncio.timeout(within_s):  # of every single take
            return await measure

    async def measured() -> Measurement:
        sliced = None if limits.patience_s == 0 else suite.sliced(cell, testbed, on_progress)
        if sliced is None:
            return await takes.whole(lambda: bounded(suite.measure(cell, testbed, on_progress)))
        flags = await takes.slices(sliced, lambda seconds: bounded(sliced.measure(seconds)))
        joined = sliced.joined()
        return dataclasses.replace(joined, flags=(*joined.flags, *flags))

    of_all = asyncio.timeout(in_all_s)
    try:
        async with of_all:
            measurement = await measured()
    except TimeoutError as error:  # of a single request, where it says so
        flag = Flag("time-out", str(error) or f"no result within {in_all_s if of_all.expired() else within_s:g} s")
        return failure(flag.detail, flag)
    except AgentError as error:
        if error.code == "unsupported":
            return failure(error.message, guest_lost=False, status=TrialStatus.UNSUPPORTED)
        return failure(str(error), guest_lost=False)
    except ProtocolError as error:
        return failure(f"the agent broke the protocol: {error}")
    except ChannelClosedError as error:
        return failure(f"the guest was lost: {error}")
    except (LaunchError, NetworkError) as error:  # a guest that was to be started again; a switch that died
        return failure(str(error))
    return _judge(measurement, takes, limits)


def _judge(measurement: Measurement, takes: Takes, limits: ValidityLimits) -> Outcome:
    usage, outside_ns = takes.usage, measurement.controller_elapsed_ns
    assert usage is not None  # of the takes that count
    clocks = clock_flags(measurement.guest_clocks, outside_ns, limits, requests=takes.kept)
    flags = (*measurement.flags, *clocks)
    return Outcome(
        status=TrialStatus.INVALID if any(flag.fatal for flag in flags) else TrialStatus.VALID,
        flags=flags,
        result=measurement.result,
        accounting={
            "busy_ns": usage.load.busy_ns,
            "steal_ns": usage.load.steal_ns,
            "steal_processors": usage.load.steal_cpus,
            "guest_cpu_ns": usage.guest_ns,
            "guest_steal_ns": measurement.guest_steal_ns,
            "peers_cpu_ns": usage.peers_ns,
            "controller_cpu_ns": usage.controller_ns,
            "foreign_ns": usage.foreign_ns,
            "processors": usage.load.cpus,
            "method": usage.load.method,
            "clocks": {clock.clock: clock.elapsed_ns for clock in measurement.guest_clocks},
            "controller_elapsed_ns": outside_ns,
        }
        | takes.accounting(),
        elapsed_ns=usage.load.elapsed_ns,
        histograms=measurement.histograms,
        samples=measurement.samples,
    )
