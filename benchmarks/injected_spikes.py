"""Cycles that are made late on purpose: of how many the trace names what was done, by what that was and where.

Examples:
  python benchmarks/injected_spikes.py                   some five minutes
  python benchmarks/injected_spikes.py --turns 20        half an hour
  python benchmarks/injected_spikes.py --busy            beside a busy program on each processor

That a cycle was made late on purpose is known without the trace: what disturbs notes when it did so, by the host's
clock, and that covers at least half of the time from the cycle's deadline to its wake-up.  Other cycles, of a stall by
a neighbour for example, do not count.  Of the quota and of the guest's own hog no times are known: every cycle that is
late enough counts.

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
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import IO, Any, cast

from benchmark import BenchmarkError, Outcome, main, progress

from virtgauge.agent import find_agent
from virtgauge.execution.trial import run_trial
from virtgauge.host import tracing
from virtgauge.host.process import tree_pids
from virtgauge.host.scope import Scope
from virtgauge.ledger.records import TrialStatus
from virtgauge.plan.model import ValidityLimits
from virtgauge.platforms import create
from virtgauge.platforms.base import LaunchError, Platform
from virtgauge.platforms.local import LocalGuest
from virtgauge.suites.spikes import Offset, by_host
from virtgauge.suites.testbed import Stage, Testbed
from virtgauge.suites.timing import TimingSuite

CPU = max(os.sched_getaffinity(0))
RIGHT = 0.9  # Of the cycles that were made late, those that are explained rightly at least
COVERED = 0.5  # Of a cycle's lateness, by what was done at least: else that did not make it late
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
    begin = now = time.monotonic_ns()
    while now < begin + 5_000_000:
        now = time.monotonic_ns()
    print(begin, now, flush=True)
    time.sleep(0.045)
"""
_BUSY = """
while True:
    pass
"""

Span = tuple[int, int]  # Begin and end in ns of the host's CLOCK_MONOTONIC
Disturbance = Callable[[list[int]], AbstractAsyncContextManager[list[Span] | None]]
"""What is done while the block runs to a guest, whose processes are given.

When that was is complete after the block; None: it is not known.
"""


@contextlib.contextmanager
def _running(code: str, name: str, cpu: int, output: IO[bytes] | None = None) -> Iterator[None]:
    """A program of that name on that processor while the block runs."""
    command = [sys.executable, "-c", _NAMED_AND_PINNED + code, name, str(cpu)]
    with subprocess.Popen(command, stdout=output) as program:
        try:
            yield
        finally:
            program.kill()


@contextlib.asynccontextmanager
async def _hogged(_: list[int]) -> AsyncIterator[list[Span]]:
    """A program of real-time priority takes 5 of every 50 ms of the processor."""
    bursts = list[Span]()
    with open(os.memfd_create("bursts"), "w+b") as log:  # of memory: to write to a disk, the hog might have to wait
        with _running(_HOG, "hog", CPU, log):
            yield bursts
        log.seek(0)
        for line in log:
            begin_ns, end_ns = map(int, line.split())
            bursts.append((begin_ns, end_ns))


@contextlib.asynccontextmanager
async def _stopped(pids: list[int]) -> AsyncIterator[list[Span]]:
    """The guest's processes are stopped for 30 of every 130 ms."""
    stops = list[Span]()

    def told(what: signal.Signals) -> None:
        for one in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, what)

    async def again_and_again() -> None:
        while True:
            await asyncio.sleep(0.1)
            begin_ns = time.monotonic_ns()
            try:
                told(signal.SIGSTOP)
                await asyncio.sleep(0.03)
            finally:
                told(signal.SIGCONT)
                stops.append((begin_ns, time.monotonic_ns()))

    stopping = asyncio.create_task(again_and_again())
    try:
        yield stops
    finally:
        stopping.cancel()
        await asyncio.wait([stopping])


@contextlib.asynccontextmanager
async def _undisturbed(_: list[int]) -> AsyncIterator[None]:
    yield None


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
    least_ms: float  # cycles that are less late do not count
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
        *("a FIFO thread of the guest's for 20 of 50 ms", "guest", "preempted: cycle-", 10),
        params={"cpus": [0, 0], "period_ns": 50_000_000, "work_permille": 400},
        only=("qemu",),
    ),
}
CASES = [(place, name) for name, one in INJECTIONS.items() for place in one.only or PLACES]


def made_late(
    result: Mapping[str, Any], least_ms: float, done: Sequence[Span] | None, offsets: Sequence[Offset]
) -> list[tuple[str, str]]:
    """Of a trial's worst cycles that were made late by what was done at those times: cause, and by whom.

    ``offsets`` are of the guest's clock, before and after the trial.
    """
    found = []
    for cycle, told in zip(result["worst"], result["spikes"]["worst"], strict=False):  # told of are the latest only
        late_ns, woken_ns = cycle["late_ns"], by_host(cycle["monotonic_ns"], offsets)
        if late_ns < least_ms * 1e6:
            continue
        if done is None or _covered_ns((woken_ns - late_ns, woken_ns), done) >= COVERED * late_ns:
            found.append((told["cause"], told["by"]))
    return found


def _covered_ns(span: Span, others: Sequence[Span]) -> int:
    """How much of it the others cover together; they do not overlap."""
    return sum(max(0, min(span[1], end_ns) - max(span[0], begin_ns)) for begin_ns, end_ns in others)


async def causes(scope: Scope, place: Place, injection: Injection) -> list[tuple[str, str]]:
    """Of one trial's worst cycles that were made late: cause, and by whom.

    Raises:
        LaunchError: the guest does not come up.
        BenchmarkError: the trial is not valid, or too few cycles were made late.
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
        before = await Offset.read(testbed.guest.channel)
        async with injection.disturbance(place.stoppable(cast(LocalGuest, testbed.guest)._pid or 0)) as done:
            outcome = await run_trial(cell, suite, testbed, _ANYTHING, lambda _: None)
        if outcome.status is not TrialStatus.VALID:
            raise BenchmarkError(f"{injection.title}: {outcome.status}: {outcome}")
        offsets = before, await Offset.read(testbed.guest.channel)
    finally:
        await stage.close()
    late = made_late(outcome.result, injection.least_ms, done, offsets)
    if len(late) < LEAST:
        raise BenchmarkError(
            f"{injection.title}: {len(late)} of the worst cycles were made {injection.least_ms} ms late"
        )
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
        meaning=(
            "Of the cycles that were made late on purpose, those whose cause the traces of the kernels name. A cycle "
            "was made so if, by the host's clock, the hog ran or the guest was stopped for at least half of its "
            "lateness; under a quota, and beside the guest's own hog, all that are late enough count."
        ),
        notes=missing,
        values=values,
    )


if __name__ == "__main__":
    main(measure, __doc__ or "", options)
