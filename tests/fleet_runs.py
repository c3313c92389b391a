"""Fleets for tests: a plan in a few lines, and a cluster in this process whose workers fail as they are told."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any
from unittest import mock

import msgpack
from suites.bandwidth_runs import QUICK
from suites.simulated_runs import Recorder, plan_of, simulated

from virtgauge import __version__
from virtgauge.agent import find_agent
from virtgauge.fleet import run as fleet_run
from virtgauge.fleet import work
from virtgauge.fleet.cluster import TlsFiles, WorkerLostError
from virtgauge.fleet.messages import Assignment, Assistance, Enlistment, MachineIdentity, Signature, unpack
from virtgauge.plan.model import Plan

Fault = Callable[[bytes], bytes]


def fleet_plan(*names: str, fleet: dict[str, Any] | None = None, **fields: Any) -> Plan:
    """A plan of two simulated platforms on these hosts."""
    section = {"hosts": [{"name": name} for name in names], "workers": "here", "one_machine": True, "wait_s": 1}
    known: dict[str, Any] = {"repetitions": 2, "fleet": section | (fleet or {})}
    return plan_of(simulated("a"), simulated("b", seed=2), **(known | fields))


PAIR = {"suite": "bandwidth", "tester": "north", "guests": "south"}


def across(**fleet: Any) -> Plan:
    """A plan with simulated guests, which need no tester: who is asked, and where batches take place."""
    elsewhere = {"workers": None, "scheduler": "tls://192.0.2.1:1", "ca": "c", "certificate": "c", "key": "c"}
    plan = fleet_plan("north", "south", fleet={"pair": [PAIR], **elsewhere, **fleet}, repetitions=1)
    return plan.model_copy(update={"suite": {**plan.suite, "bandwidth": (QUICK,)}})


class FakeCluster:
    """Workers that do their work in this process, one after the other, each with a machine of its own.

    Attributes:
        faults: by worker, what happens to its next answers to assignments; None lets one pass.
        gone: workers that are not connected.
        measured: assignments by worker that were really executed.
        assisted: workers that were to be a tester's, as often as they were asked.
        left, stopped: whether the workers were told so.
    """

    def __init__(self) -> None:
        self.faults: dict[str, list[Fault | None]] = {}
        self.gone: set[str] = set()
        self.measured: list[str] = []
        self.assisted: list[str] = []
        self.left = self.stopped = False
        self.machines: dict[str, MachineIdentity] = {}
        self._one_at_a_time = asyncio.Lock()
        self._now = ""

    def signature(self) -> Signature:
        machine = self.machines.setdefault(
            self._now, MachineIdentity(f"{len(self.machines):032x}", f"boot of {self._now}", None)
        )
        return Signature(self._now, machine, __version__, find_agent().sha256)

    async def present(self, worker: str) -> bool:
        return worker not in self.gone

    async def call(self, worker: str, request: bytes) -> object:
        if worker in self.gone:
            raise WorkerLostError(f"the worker {worker!r} is not connected")
        async with self._one_at_a_time:
            self._now = worker
            fault = None
            if kind_of(request) is Assignment:
                fault = next(iter(self.faults.get(worker, [])), None)
                self.faults[worker] = self.faults.get(worker, [])[1:]
                self.measured.append(worker)
            if kind_of(request) is Assistance:
                self.assisted.append(worker)
            answer = await work.answer(request)
            return answer if fault is None else fault(answer)

    async def stop(self, token: str, workers: Collection[str]) -> None:
        self.stopped = True
        async with self._one_at_a_time:  # for all are one worker here
            await work.stop(token)

    async def leave(self, token: str, workers: Collection[str]) -> list[str]:
        self.left = True
        return await work.leave(token)


def kind_of(request: bytes) -> type:
    """What a packed request asks for."""
    return type(unpack(request, (Enlistment, Assistance, Assignment), "the test"))


def lost(answer: bytes) -> bytes:
    """The worker measured, and died before its answer came."""
    raise WorkerLostError("the worker was lost")


def as_another(**signs: str) -> Fault:
    """The same answer from a machine with other signs."""

    def answered(answer: bytes) -> bytes:
        message = msgpack.unpackb(answer, strict_map_key=False)
        message["content"]["signature"]["machine"] |= signs
        packed: bytes = msgpack.packb(message)
        return packed

    return answered


@contextlib.contextmanager
def in_process(cluster: FakeCluster) -> Any:
    """Fleets of this process are executed on that cluster."""

    @contextlib.asynccontextmanager
    async def opened(*_: object) -> Any:
        yield cluster

    security = TlsFiles.temporary().security()
    ends = [security.get_listen_args("worker"), security.get_connection_args("worker")]
    own_end = ("127.0.0.1", *(end["ssl_context"] for end in ends))
    with (
        mock.patch.object(fleet_run, "_cluster", opened),
        mock.patch.object(work, "_signature", cluster.signature),
        mock.patch.object(work, "_own_end", lambda: own_end),
    ):
        yield


@dataclasses.dataclass
class Fleet:
    """What became of a fleet's run."""

    complete: bool
    recorder: Recorder

    @property
    def notices(self) -> str:
        return "\n".join(getattr(event, "text", "") for event in self.recorder.events)


def execute(plan: Plan, folder: Path, cluster: FakeCluster) -> Fleet:
    """Run a fleet to its end."""
    recorder = Recorder()
    with in_process(cluster):
        return Fleet(fleet_run.start_fleet(plan, "test", folder, recorder), recorder)


def go_on(folder: Path, cluster: FakeCluster) -> Fleet:
    """Resume a fleet's run."""
    recorder = Recorder()
    with in_process(cluster):
        return Fleet(fleet_run.resume_fleet(folder, recorder), recorder)
