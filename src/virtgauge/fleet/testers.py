"""Asks hosts to be the tester's for the guests on another, as often as a batch needs it."""

from __future__ import annotations

from virtgauge.errors import UnavailableError
from virtgauge.fleet import work
from virtgauge.fleet.cluster import Cluster, WorkerLostError
from virtgauge.fleet.enrolment import HostEnrolment, HostLostError, worker_of
from virtgauge.fleet.messages import Assistance, Assisting, Tester, pack, unpack
from virtgauge.fleet.roster import Roster
from virtgauge.plan.fleet import FleetPair, FleetSection


class Testers:
    """The hosts that are a tester's in this run."""

    def __init__(
        self,
        fleet: FleetSection,
        roster: Roster,
        cluster: Cluster,
        enrolment: HostEnrolment,
        plan_text: str,
        token: str,
    ) -> None:
        self._hosts = {host.name: host for host in fleet.hosts}
        self._losses = fleet.losses
        self._roster, self._cluster, self._enrolment = roster, cluster, enrolment
        self._plan_text, self._token = plan_text, token

    async def ready(self, pair: FleetPair) -> Tester:
        """Have the pair's tester be launched whenever the guests' host asks for it; the slots of both are claimed.

        Raises:
            HostLostError: its worker was lost more often than the plan allows.
            UnavailableError, DistrustError, ForeignMessageError: it cannot, or must not be believed.
        """
        host = self._hosts[pair.tester]
        for _ in range(self._losses + 1):
            try:
                data = await self._cluster.call(host.worker, work.assist, pack(Assistance(self._token)))
            except WorkerLostError:
                await self._enrolment.enrol(host, self._plan_text)
                continue
            answer = unpack(data, Assisting, worker_of(host))
            if isinstance(answer, Assisting):
                self._roster.check(host, answer.signature)
                cables = tuple((cable.guests, cable.tester) for cable in pair.cables)
                return Tester(host.name, answer.address, answer.port, answer.secret, answer.cpus, cables)
            if not answer.busy:
                raise UnavailableError(f"the tester's host {host.name!r}: {answer.message}", answer.remedy)
            await self._enrolment.enrol(host, self._plan_text)
        raise HostLostError(
            f"the worker of the tester's host {host.name!r} was lost {self._losses + 1} times in one batch"
        )
