"""One trial on one testbed: measure, watch the machine meanwhile, judge validity, and make a record of it."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from virtgauge.agent.channel import AgentError, ChannelClosedError
from virtgauge.agent.frames import ProtocolError
from virtgauge.execution.takes import Takes
from virtgauge.execution.validity import MachineUsage, clock_flags
from virtgauge.ledger.records import Flag, Histogram, TrialStatus
from virtgauge.plan.model import ValidityLimits
from virtgauge.suites.base import Cell, Measurement, Suite
from virtgauge.suites.testbed import Testbed


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a trial ended, ready for the ledger.

    Attributes:
        guest_lost: the testbed is of no further use; the next trial needs a fresh one.
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
    cell: Cell, suite: Suite, testbed: Testbed, limits: ValidityLimits, on_progress: Callable[[float], None]
) -> Outcome:
    """Measure one cell; every failure of guest or agent becomes an outcome.

    Only cancellation gets out as an exception.
    """
    takes, began_ns, within_s = Takes(testbed, limits), time.monotonic_ns(), cell.timeout_s * testbed.timeout_factor

    def failure(status: TrialStatus, error: str, *flags: Flag, guest_lost: bool) -> Outcome:
        return Outcome(status, flags, {}, takes.accounting(), error, time.monotonic_ns() - began_ns, guest_lost)

    try:
        measurement = await _measure(cell, suite, testbed, takes, within_s, on_progress, whole=limits.patience_s == 0)
    except TimeoutError:
        flag = Flag("time-out", f"no result within {within_s:g} s")
        return failure(TrialStatus.FAILED, flag.detail, flag, guest_lost=True)
    except AgentError as error:
        if error.code == "unsupported":
            return failure(TrialStatus.UNSUPPORTED, error.message, guest_lost=False)
        return failure(TrialStatus.FAILED, str(error), guest_lost=False)
    except ProtocolError as error:
        return failure(TrialStatus.FAILED, f"the agent broke the protocol: {error}", guest_lost=True)
    except ChannelClosedError as error:
        return failure(TrialStatus.FAILED, f"the guest was lost: {error}", guest_lost=True)
    return _judge(measurement, takes, limits)


async def _measure(
    cell: Cell,
    suite: Suite,
    testbed: Testbed,
    takes: Takes,
    within_s: float,
    on_progress: Callable[[float], None],
    *,
    whole: bool,
) -> Measurement:
    """The takes that count, as one measurement; every single one has ``within_s``."""

    async def bounded(measure: Awaitable[Measurement]) -> Measurement:
        async with asyncio.timeout(within_s):
            return await measure

    sliced = None if whole else suite.sliced(cell, testbed, on_progress)
    if sliced is None:
        return await takes.whole(lambda: bounded(suite.measure(cell, testbed, on_progress)))
    flags = await takes.slices(sliced, lambda seconds: bounded(sliced.measure(seconds)))
    joined = sliced.joined()
    return dataclasses.replace(joined, flags=(*joined.flags, *flags))


def _judge(measurement: Measurement, takes: Takes, limits: ValidityLimits) -> Outcome:
    assert takes.usage is not None  # of the takes that count
    outside_ns = measurement.controller_elapsed_ns
    clocks = clock_flags(measurement.guest_clocks, outside_ns, limits, requests=takes.kept)
    flags = (*measurement.flags, *clocks)
    return Outcome(
        status=TrialStatus.INVALID if any(flag.fatal for flag in flags) else TrialStatus.VALID,
        flags=flags,
        result=measurement.result,
        accounting=_accounting(takes.usage, measurement) | takes.accounting(),
        error=None,
        elapsed_ns=takes.usage.load.elapsed_ns,
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
