"""Cycles that are made late on purpose: of how many the trace names what was done, by what that was and where.

Examples:
  python benchmarks/injected_spikes.py                   some five minutes
  python benchmarks/injected_spikes.py --turns 20        half an hour
  python benchmarks/injected_spikes.py --busy            beside a busy program on each processor

Needs root and tracefs.  Page faults cannot be made on purpose, for the memory of cycles is locked, nor a hypervisor
above: what is said of them, and of interrupts, is tested by traces that were made up (tests/unit/test_spikes.py).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, cast

from benchmark import BenchmarkError, Outcome, main, progress

from virtgauge.agent.binary import find_agent
from virtgauge.execution.trial import run_trial
from virtgauge.host import tracing
from virtgauge.host.process import tree_pids
from virtgauge.host.scope import Scope
from virtgauge.ledger.records import TrialStatus
from virtgauge.plan.model import ValidityLimits
from virtgauge.platforms import create
from virtgauge.platforms.base import LaunchError, Platform
from virtgauge.platforms.local import LocalGuest
from virtgauge.suites.testbed import Stage, Testbed
from virtgauge.suites.timing import TimingSuite

CPU = max(os.sched_getaffinity(0))
RIGHT = 0.9  # Of the cycles that were made late, those that are explained rightly at least
LEAST = 5  # Of them in a trial: with fewer, the injection has not worked
SECONDS = 3

_ANYTHING = ValidityLimits(foreign_load=1.0, steal=1.0)
_NAMED_AND_PINNED = """
import os, sys, time
open("/proc/self/comm", "w").write(sys.argv[1])
os.sched_setaffinity(0, {int(sys.argv[2])})
"""
_HOG = """
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(95))
while True:
    end = time.monotonic() + 0.005
    while time.monotonic() < end:
        pass
    time.sleep(0.045)
"""
_BUSY = """
while True:
    pass
"""

Disturbance = Callable[[list[int]], AbstractAsyncContextManager[None]]
"""What is done while the block runs to a guest, whose processes are given."""


@contextlib.contextmanager
def _running(code: str, name: str, cpu: int) -> Iterator[None]:
    """A program of that name on that processor while the block runs."""
    with subprocess.Popen([sys.executable, "-c", _NAMED_AND_PINNED + code, name, str(cpu)]) as program:
        try:
            yield
        finally:
            program.kill()


@contextlib.asynccontextmanager
async def _hogged(_: list[int]) -> AsyncIterator[None]:
    """A program of real-time priority takes 5 of every 50 ms of the processor."""
    with _running(_HOG, "hog", CPU):
        yield


@contextlib.asynccontextmanager
async def _stopped(pids: list[int]) -> AsyncIterator[None]:
    """The guest's processes are stopped for 30 of every 130 ms."""

    def told(what: signal.Signals) -> None:
        for one in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, what)

    async def again_and_again() -> None:
        try:
            while True:
                await asyncio.sleep(0.1)
                told(signal.SIGSTOP)
                await asyncio.sleep(0.03)
                told(signal.SIGCONT)
        finally:
            told(signal.SIGCONT)

    stopping = asyncio.create_task(again_and_again())
    try:
        yield
    finally:
        stopping.cancel()
        await asyncio.wait([stopping])


@contextlib.asynccontextmanager
async def _undisturbed(_: list[int]) -> AsyncIterator[None]:
    yield


def _untraced(root: int) -> list[int]:
    """Of a tree of processes those that none traces: to whom traces them, a signal to the others is the guest's."""
    return [pid for pid in tree_pids(root) if "\nTracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text()]


@dataclasses.dataclass(frozen=True)
class Place:
    """Where cycles run, on the last processor of this machine."""

    platform: Platform
    cpu: int | None = CPU  # by the place's own numbers; None: on whichever it has
    policy: str = "fifo"  # scheduling class of the cycles
    threads: int = 2  # that spend a quota
    cpus: tuple[int, ...] | None = None  # of this machine that all of it may run on
    stoppable: Callable[[int], list[int]] = _untraced  # of its process and that one's descendants


@dataclasses.dataclass(frozen=True)
class Injection:
    """What is done, and what the trace has to say of it."""

    title: str
    cause: str
    by: str
    least_ms: float  # cycles that are as late as this were made so
    disturbance: Disturbance = _undisturbed
    cpu_limit: float | None = None
    loaded: bool = False  # by threads of the guest's own, and the cycles are of the ordinary class
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of the probe, besides
    only: tuple[str, ...] = ()  # places; none: everywhere

    def is_named(self, cause: str, by: str) -> bool:
        return cause == self.cause and by.startswith(self.by)


PLACES = {
    "host": Place(create("host", {})),
    "runc": Place(create("oci", {"runtime": "runc"}), policy="other"),
    "gvisor": Place(
        create("oci", {"runtime": "runsc"}),
        cpu=0,
        policy="other",
        threads=1,
        cpus=(CPU,),
        stoppable=lambda kernel: [kernel],
    ),
    "uml": Place(create("uml", {}), cpu=0, threads=1, cpus=(CPU,)),
    "qemu": Place(create("qemu", {"accelerator": "tcg", "vcpus": 1, "tuning": {"vcpu_cpus": [CPU]}}), cpu=0, threads=1),
    # Its own kernel says on which of its processors a cycle was.
    "qemu, any": Place(
        create(
            "qemu", {"accelerator": "tcg", "vcpus": 2, "tuning": {"vcpu_cpus": [min(os.sched_getaffinity(0)), CPU]}}
        ),
        cpu=None,
        policy="other",
    ),
}
INJECTIONS = {
    "hog": Injection(
        *("a FIFO thread on its CPU for 5 ms", "preempted", "hog", 2.5, _hogged),
        only=tuple(place for place, one in PLACES.items() if one.cpu is not None),  # others go elsewhere meanwhile
    ),
    "quota": Injection("a quota of half a CPU, spent", "throttled", "quota", 20, cpu_limit=0.5, loaded=True),
    "stop": Injection("SIGSTOP for 30 ms", "stopped", "", 15, _stopped),
    "own-hog": Injection(
        *("a FIFO thread of the guest's for 4 of 10 ms", "guest", "preempted: cycle-", 2.5),
        params={"cpus": [0, 0], "period_ns": 10_000_000, "work_permille": 400},
        only=("qemu",),
    ),
}
CASES = [(place, name) for name, one in INJECTIONS.items() for place in one.only or PLACES]


async def causes(scope: Scope, place: Place, injection: Injection) -> list[tuple[str, str]]:
    """Of one trial's worst cycles that were made late: cause, and by whom.

    Raises:
        LaunchError: the guest does not come up.
        BenchmarkError: the trial is not valid, or too few cycles were late.
    """
    policy = "other" if injection.loaded else place.policy
    cycles: dict[str, Any] = {"trace": True, "seconds": SECONDS, "classes": [policy]}
    cycles |= {} if place.cpu is None else {"cpus": [place.cpu]}
    load = {"loads": ["cpu" if injection.loaded else "idle"], "cpu_threads": place.threads}
    suite = TimingSuite.create({"timers": [], "sleeps": [], "cycles": cycles} | load)
    stage = Stage(place.platform, scope, find_agent(), "testbed")
    try:
        await stage.launch(cpu_limit=injection.cpu_limit, cpus=place.cpus)
        testbed = Testbed(stage)
        (cell,) = suite.cells()
        cell = dataclasses.replace(cell, params={**cell.params, **injection.params})
        async with injection.disturbance(place.stoppable(cast(LocalGuest, testbed.guest)._pid or 0)):
            outcome = await run_trial(cell, suite, testbed, _ANYTHING, lambda _: None)
    finally:
        await stage.close()
    if outcome.status is not TrialStatus.VALID:
        raise BenchmarkError(f"{injection.title}: {outcome.status}: {outcome}")
    worst = outcome.result["spikes"]["worst"]
    late = [(one["cause"], one["by"]) for one in worst if one["late_ns"] >= injection.least_ms * 1e6]
    if len(late) < LEAST:
        raise BenchmarkError(f"{injection.title}: {len(late)} of the worst cycles were {injection.least_ms} ms late")
    return late


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--turns", type=int, default=3, help="trials of each (default %(default)s)")
    parser.add_argument("--busy", action="store_true", help="beside a busy program on each processor")


def measure(arguments: argparse.Namespace) -> Outcome:
    if why := tracing.refused():
        raise BenchmarkError(why)
    with contextlib.ExitStack() as ended:
        for cpu in os.sched_getaffinity(0) if arguments.busy else ():
            ended.enter_context(_running(_BUSY, "busy", cpu))
        return _measured(arguments)


def _measured(arguments: argparse.Namespace) -> Outcome:
    rows, missing, values = [], list[str](), {}
    for where, name in CASES:
        place, injection, found = PLACES[where], INJECTIONS[name], Counter[tuple[str, str]]()
        try:
            for turn in range(1 if arguments.quick else arguments.turns):
                progress(f"{where}, {injection.title}, turn {turn + 1}")
                with Scope() as scope:
                    found.update(asyncio.run(causes(scope, place, injection)))
        except (BenchmarkError, LaunchError) as error:
            missing.append(f"{where}: {str(error).splitlines()[0]}")
            continue
        values[f"{where}, {name}"] = [[*cause, times] for cause, times in found.most_common()]
        wrong = Counter({one: times for one, times in found.items() if not injection.is_named(*one)})
        right = found.total() - wrong.total()
        share = right / found.total()
        told = f"{injection.cause} {injection.by}".strip()
        others = ", ".join(f"{' '.join(cause).strip()} ({times})" for cause, times in wrong.most_common(2)) or "none"
        rows.append([where, injection.title, told, f"{right} of {found.total()}", f"{share:.0%}", others])
    return Outcome(
        columns=("where", "what is done", "the cause is", "cycles", "rightly", "else"),
        rows=rows,
        meaning="Of the cycles that were made late on purpose, those whose cause the traces of the kernels name.",
        notes=missing,
        values=values,
    )


if __name__ == "__main__":
    main(measure, __doc__ or "", options)
