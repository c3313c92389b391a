"""One trial on one bench: measure, watch the machine meanwhile, judge validity, and make a record of it."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from virtgauge.agent.channel import AgentError, ChannelClosedError
from virtgauge.agent.frames import ProtocolError
from virtgauge.execution.validity import MachineUsage, clock_flags, machine_flags
from virtgauge.host.load import CpuSnapshot, load_between
from virtgauge.ledger.records import Flag, Histogram, TrialStatus
from virtgauge.plan.model import ValidityLimits
from virtgauge.suites.base import Cell, Measurement, Suite
from virtgauge.suites.bench import Bench


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a trial ended, ready for the ledger.

    Attributes:
        guest_lost: the bench is of no further use; the next trial needs a fresh one.
    """

    status: TrialStatus
    flags: tuple[Flag, ...]
    result: dict[str, Any]
    accounting: dict[str, Any]
    error: str | None
    elapsed_ns: int
    guest_lost: bool
    histograms: dict[str, Histogram] = dataclasses.field(default_factory=dict)
    samples: dict[str, npt.NDArray[np.int64]] = dataclasses.field(default_factory=dict)


async def run_trial(
    cell: Cell, suite: Suite, bench: Bench, limits: ValidityLimits, on_progress: Callable[[float], None]
) -> Outcome:
    """Measure one cell; every failure of guest or agent becomes an outcome.

    Only cancellation gets out as an exception.
    """
    before, within_s = _Before.take(bench), cell.timeout_s * bench.patience
    try:
        async with asyncio.timeout(within_s):
            measurement = await suite.measure(cell, bench, on_progress)
    except TimeoutError:
        flag = Flag("time-out", f"no result within {within_s:g} s")
        return _failure(TrialStatus.FAILED, flag.detail, before, guest_lost=True, flags=(flag,))
    except AgentError as error:
        if error.code == "unsupported":
            return _failure(TrialStatus.UNSUPPORTED, error.message, before, guest_lost=False)
        return _failure(TrialStatus.FAILED, str(error), before, guest_lost=False)
    except ProtocolError as error:
        return _failure(TrialStatus.FAILED, f"the agent broke the protocol: {error}", before, guest_lost=True)
    except ChannelClosedError as error:
        return _failure(TrialStatus.FAILED, f"the guest was lost: {error}", before, guest_lost=True)
    usage = before.usage_until_now(bench)
    return _judge(measurement, usage, limits)


@dataclasses.dataclass(frozen=True)
class _Before:
    machine: CpuSnapshot
    guest_ns: int | None
    peers_ns: int
    controller_ns: int

    @classmethod
    def take(cls, bench: Bench) -> _Before:
        guest_ns, peers_ns = bench.stage.accounting().cpu_ns, bench.stage.peers_cpu_ns()
        return cls(CpuSnapshot.take(), guest_ns, peers_ns, time.process_time_ns())

    def usage_until_now(self, bench: Bench) -> MachineUsage:
        controller_ns = time.process_time_ns() - self.controller_ns
        load = load_between(self.machine, CpuSnapshot.take())
        accounting = bench.stage.accounting()
        now = accounting.cpu_ns
        guest_ns = None if now is None or self.guest_ns is None else now - self.guest_ns
        peers_ns = bench.stage.peers_cpu_ns() - self.peers_ns
        return MachineUsage(load, guest_ns, peers_ns, controller_ns, elsewhere=not accounting.of_this_machine)


def _judge(measurement: Measurement, usage: MachineUsage, limits: ValidityLimits) -> Outcome:
    flags = (
        *measurement.flags,
        *machine_flags(usage, limits),
        *clock_flags(measurement.guest_clocks, measurement.controller_elapsed_ns, limits),
    )
    return Outcome(
        status=TrialStatus.INVALID if any(flag.fatal for flag in flags) else TrialStatus.VALID,
        flags=flags,
        result=measurement.result,
        accounting=_accounting(usage, measurement),
        error=None,
        elapsed_ns=usage.load.elapsed_ns,
        guest_lost=False,
        histograms=measurement.histograms,
        samples=measurement.samples,
    )


def _accounting(usage: MachineUsage, measurement: Measurement) -> dict[str, Any]:
    return {
        "busy_ns": usage.load.busy_ns,
        "steal_ns": usage.load.steal_ns,
        "guest_cpu_ns": usage.guest_ns,
        "guest_steal_ns": measurement.guest_steal_ns,
        "peers_cpu_ns": usage.peers_ns,
        "controller_cpu_ns": usage.controller_ns,
        "foreign_ns": usage.foreign_ns,
        "processors": usage.load.cpus,
        "method": usage.load.method,
        "clocks": {clock.clock: clock.elapsed_ns for clock in measurement.guest_clocks},
        "controller_elapsed_ns": measurement.controller_elapsed_ns,
    }


def _failure(
    status: TrialStatus, error: str, before: _Before, *, guest_lost: bool, flags: tuple[Flag, ...] = ()
) -> Outcome:
    elapsed_ns = time.monotonic_ns() - before.machine.taken_at
    return Outcome(status, flags, {}, {}, error, elapsed_ns, guest_lost)
