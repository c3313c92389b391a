"""Asks workers who they are before anything is measured with them, and again after they were lost."""

from __future__ import annotations

import asyncio
import time

from virtgauge.errors import UnavailableError, VirtgaugeError
from virtgauge.execution.progress import Notice, ProgressDisplay
from virtgauge.fleet import work
from virtgauge.fleet.cluster import Cluster, WorkerLostError
from virtgauge.fleet.messages import Enlistment, Enrolment, ForeignMessageError, pack, unpack
from virtgauge.fleet.roster import DistrustError, Roster
from virtgauge.plan.fleet import FleetHost, FleetSection

_LOOK_S = 1.0

FAILURES_OF_A_HOST = (UnavailableError, DistrustError, ForeignMessageError)
"""What keeps one host from taking part, and none of the others."""


class HostLostError(VirtgaugeError):
    """A host is set aside: nothing more is measured on it in this run, until it is resumed."""


class HostEnrolment:
    """Asks workers who they are, until all are there or the time is up."""

    def __init__(self, fleet: FleetSection, roster: Roster, cluster: Cluster, display: ProgressDisplay) -> None:
        self._fleet, self._roster, self._cluster, self._display = fleet, roster, cluster, display

    async def enrol(self, host: FleetHost, plan_text: str) -> Enrolment:
        """Wait for a host's worker, ask it, and take it on.

        Raises:
            UnavailableError: it does not come within the time that the plan gives it, stays busy, or cannot measure
                the plan.
            DistrustError, ForeignMessageError: it is not what it must be.
        """
        until = time.monotonic() + self._fleet.wait_s
        told: set[str] = set()
        while True:
            try:
                if not await self._cluster.present(host.worker):
                    raise WorkerLostError(f"no worker named {host.worker!r} is connected")
                data = pack(Enlistment(plan_text))
                answer = unpack(await self._cluster.call(host.worker, work.enlist, data), Enrolment, worker_of(host))
                if isinstance(answer, Enrolment):
                    self._roster.enrol(host, answer)
                    for words in answer.notices:
                        self._display.show(Notice(f"host {host.name}: {words}"))
                    return answer
                if not answer.busy:
                    raise UnavailableError(f"host {host.name!r}: {answer.message}", answer.remedy)
                reason = answer.message
            except WorkerLostError as error:
                reason = error.message
            if time.monotonic() >= until:
                raise UnavailableError(
                    f"host {host.name!r} is not available within {self._fleet.wait_s:g} s: {reason}",
                    f"on that host: virtgauge fleet worker --scheduler … --name {host.worker}",
                )
            if reason not in told:
                self._display.show(Notice(f"waiting for host {host.name}: {reason}", warning=False))
                told.add(reason)
            await asyncio.sleep(_LOOK_S)


def worker_of(host: FleetHost) -> str:
    """How errors speak of a worker."""
    return f"the worker of host {host.name!r}"
