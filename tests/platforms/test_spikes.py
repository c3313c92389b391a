"""Cycles of the host that are made late on purpose: the trace of its kernel names what was done to them. As root."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from platforms.conftest import left_behind, require

from virtgauge.agent.binary import find_agent
from virtgauge.execution.trial import run_trial
from virtgauge.host import tracing
from virtgauge.host.reclaim import reclaim_folder
from virtgauge.host.scope import Scope
from virtgauge.ledger.records import TrialStatus
from virtgauge.plan.model import ValidityLimits
from virtgauge.platforms.base import Availability
from virtgauge.platforms.local import HostPlatform
from virtgauge.suites.testbed import Stage, Testbed
from virtgauge.suites.timing import TimingSuite

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.usefixtures("root", "private_state")]

CPU = max(os.sched_getaffinity(0))
ANYTHING = ValidityLimits(foreign_load=1.0, steal=1.0)
RIGHT = 0.9  # Of the cycles that were made late
HOG = """
import os, sys, time
open("/proc/self/comm", "w").write("hog")
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(95))
while True:
    end = time.monotonic() + 0.005
    while time.monotonic() < end:
        pass
    time.sleep(0.045)
"""


@pytest.fixture(autouse=True)
def traceable() -> None:
    why = tracing.refused()
    require(Availability(why is None, why or ""), "tracefs")


class Bench:
    """One cell on the host, with one thread on the last of its CPUs."""

    def __init__(self, testbed: Testbed, design: dict[str, Any]) -> None:
        self.testbed = testbed
        cycles = {"trace": True, "seconds": 3, "cpus": [CPU]} | design.pop("cycles", {})
        plain = {"timers": [], "sleeps": [], "loads": ["idle"], "cycles": cycles}
        self._suite = TimingSuite.create(plain | design)

    async def causes(self, at_least_ms: float) -> list[tuple[str, str]]:
        """Of the worst cycles that were at least so late; there are some."""
        (cell,) = self._suite.cells()
        outcome = await run_trial(cell, self._suite, self.testbed, ANYTHING, lambda _: None)
        assert outcome.status is TrialStatus.VALID, outcome
        worst = outcome.result["spikes"]["worst"]
        found = [(one["cause"], one["by"]) for one in worst if one["late_ns"] >= at_least_ms * 1e6]
        assert len(found) >= 5, worst
        return found


@contextlib.asynccontextmanager
async def bench(cpu_limit: float | None = None, **design: Any) -> AsyncIterator[Bench]:
    with Scope() as scope:
        stage = Stage(HostPlatform(), scope, find_agent(), "testbed")
        try:
            await stage.launch(cpu_limit=cpu_limit)
            yield Bench(Testbed(stage), design)
        finally:
            await stage.close()
        assert tracing.instance_of(scope.tag) is None
        tag = scope.tag
    assert left_behind(tag) == []


def test_a_trace_is_gone_with_its_trial_and_that_of_a_dead_run_is_reclaimed() -> None:
    with Scope() as scope:
        with tracing.traced(scope.folder) as trace:
            time.sleep(0.1)
            trace.stop()
            assert any(": sched_switch: " in line for line in trace.lines())
            assert tracing.instance_of(scope.tag) == trace.folder
        assert not trace.folder.exists()
        left = tracing.traced(scope.folder)
        left.__enter__()
        assert any(line.startswith("removed the trace ") for line in reclaim_folder(scope.folder))
        assert not (tracing._root(scope.folder) / tracing._instance(scope.tag)).exists()
        left.__exit__(None, None, None)


async def test_a_more_urgent_program_on_the_same_processor_is_named() -> None:
    with subprocess.Popen([sys.executable, "-c", HOG, str(CPU)]) as hog:
        try:
            async with bench() as made:
                found = await made.causes(at_least_ms=2)
        finally:
            hog.kill()
    assert found.count(("preempted", "hog")) >= RIGHT * len(found), found


async def test_a_quota_is_told_from_a_busy_processor() -> None:
    """Two threads of the guest spend what it may have in each tenth of a second."""
    async with bench(cpu_limit=0.5, loads=["cpu"], cpu_threads=2, cycles={"classes": ["other"]}) as made:
        found = await made.causes(at_least_ms=20)
    assert found.count(("throttled", "quota")) >= RIGHT * len(found), found


async def test_a_program_that_was_stopped_is_told_from_one_that_had_to_wait() -> None:
    async def stop_again_and_again(pid: int) -> None:
        try:
            while True:
                await asyncio.sleep(0.1)
                os.kill(pid, signal.SIGSTOP)
                await asyncio.sleep(0.01)
                os.kill(pid, signal.SIGCONT)
        finally:
            os.kill(pid, signal.SIGCONT)

    async with bench() as made:
        stopping = asyncio.create_task(stop_again_and_again(made.testbed.guest._pid))
        try:
            found = await made.causes(at_least_ms=5)
        finally:
            stopping.cancel()
            await asyncio.wait([stopping])
    assert found.count(("stopped", "")) >= RIGHT * len(found), found
