"""Who measures on which host, and whether its answers may be believed: asked before anything is measured, and again."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from virtgauge import __version__
from virtgauge.errors import UnavailableError, VirtgaugeError
from virtgauge.execution.progress import ProgressDisplay
from virtgauge.execution.run import changed_facts
from virtgauge.fleet.cluster import Cluster, WorkerLostError
from virtgauge.fleet.messages import (
    Assisting,
    BatchAnswer,
    Enlistment,
    Enrolment,
    MachineIdentity,
    Refusal,
    Request,
    Signature,
    pack,
    unpack,
)
from virtgauge.ledger.records import HostRecord
from virtgauge.plan.fleet import FleetHost, FleetSection


class DistrustError(VirtgaugeError):
    """A worker is not what it must be; nothing of it is used."""


class Roster:
    """The machines of a fleet, by host; some are known of a run that is resumed."""

    def __init__(self, fleet: FleetSection, agent_sha256: str, known: dict[str, MachineIdentity] | None = None) -> None:
        self._one_machine, self._agent_sha256 = fleet.one_machine, agent_sha256
        self._machines = dict(known or {})

    def enrol(self, host: FleetHost, enrolment: Enrolment) -> None:
        """Take a worker on, for the first time or after it was lost.
        Raises DistrustError: another version or agent, another machine than before or than the plan says, or that of
        another host.
        """
        signature, machine = enrolment.signature, enrolment.signature.machine
        self._check_tools(host, signature)
        if host.machine_id is not None and machine.machine_id != host.machine_id:
            raise DistrustError(
                f"host {host.name!r}: its machine ID is {machine.machine_id or 'unreadable'}, the plan expects "
                f"{host.machine_id}",
                "correct machine_id in the plan, or find out which machine answers",
            )
        if machine.boot_id is None and machine.machine_id is None:
            raise DistrustError(
                f"host {host.name!r} has neither a boot ID nor a machine ID, so it cannot be told from other machines",
                "mount /proc there, or run systemd-machine-id-setup",
            )
        if (before := self._machines.get(host.name)) is not None and (said := machine.difference_from(before)):
            raise DistrustError(
                f"host {host.name!r} is not the machine that it was: {said}; its worker lies about its identity, or "
                "another machine has its address"
            )
        for name, other in self._machines.items():
            if name != host.name and not self._one_machine and machine.shares_machine_with(other):
                raise DistrustError(
                    f"hosts {name!r} and {host.name!r} are one machine: trials there would disturb each other, and one "
                    "of the two workers lies about its identity",
                    "leave one of them out; to try a fleet on one machine say one_machine = true",
                )
        self._machines[host.name] = machine

    def check(self, host: FleetHost, signature: Signature) -> None:
        """Believe an answer of a worker that was taken on.
        Raises DistrustError: it is signed by another worker, machine, boot, version or agent.
        """
        self._check_tools(host, signature)
        enrolled = self._machines[host.name]
        said = signature.machine.difference_from(enrolled)
        if said is None and signature.machine.boot_id != enrolled.boot_id:
            said = f"its boot ID was {enrolled.boot_id} and is {signature.machine.boot_id} now"
        if said is not None:
            raise DistrustError(
                f"host {host.name!r}: the worker lies about its identity: it enrolled as another machine than it "
                f"answers from ({said}); what it measured is discarded"
            )

    def boot_of(self, host: FleetHost) -> str | None:
        """Of a worker that was taken on: in this boot it has to be asked for results."""
        return self._machines[host.name].boot_id

    def _check_tools(self, host: FleetHost, signature: Signature) -> None:
        if signature.worker != host.worker:
            raise DistrustError(f"host {host.name!r}: the worker {signature.worker!r} answers for {host.worker!r}")
        if signature.tool_version != __version__:
            raise DistrustError(
                f"host {host.name!r} has virtgauge {signature.tool_version}, this is {__version__}",
                "install the same version on every host of the fleet",
            )
        if signature.agent_sha256 != self._agent_sha256:
            raise DistrustError(
                f"host {host.name!r} measures with another agent: {signature.agent_sha256[:12]} there, "
                f"{self._agent_sha256[:12]} here",
                "install the same build on every host of the fleet",
            )


_LOOK_S = 1.0

_Answer = TypeVar("_Answer", Enrolment, Assisting, BatchAnswer)
_Found = TypeVar("_Found")


class HostEnrolment:
    """Asks workers: who they are, until all are there or the time is up, and from then on for what they can do.

    Hosts that are known, those of a run that is resumed, must still be what they were.
    """

    def __init__(
        self,
        fleet: FleetSection,
        agent_sha256: str,
        cluster: Cluster,
        display: ProgressDisplay,
        plan_text: str,
        known: Sequence[HostRecord] = (),
    ) -> None:
        self.fleet, self.cluster, self.display = fleet, cluster, display
        self.token = ""  # of the run, when it has one: what a host that is asked has under way for it, nobody waits for
        self._roster = Roster(fleet, agent_sha256, {host.name: MachineIdentity(**host.machine) for host in known})
        self._plan_text = plan_text
        self._fingerprints = {host.name: host.fingerprint for host in known}
        self._taken_on: set[str] = set()  # hosts

    async def ask(self, host: FleetHost, request: Request, kind: type[_Answer]) -> _Answer | Refusal:
        """A worker's answer of this kind, which may be believed, or that it cannot.

        A machine that was started anew measures nothing before it is taken on again.
        Raises UnavailableError: it cannot be taken on again; SchedulerLostError: the scheduler went away meanwhile;
        WorkerLostError: it is not connected, or went away meanwhile; DistrustError, ForeignMessageError: it is not what
        it must be.
        """
        for _ in range(2):
            if not isinstance(request, Enlistment):
                if host.name not in self._taken_on:
                    await self.enrol(host)
                request = dataclasses.replace(request, boot_id=self._roster.boot_of(host))
            data = await self.cluster.call(host.worker, pack(request))
            answer: _Answer | Refusal = unpack(data, (kind, Refusal), f"the worker of host {host.name!r}")
            if isinstance(answer, Refusal):
                if answer.stopped:
                    raise WorkerLostError(f"the worker {host.worker!r} was told to stop")
                if not answer.restarted or isinstance(request, Enlistment):
                    return answer
                self._taken_on.discard(host.name)
                continue
            if isinstance(answer, Enrolment):
                self._taken_on.discard(host.name)
                self._check_facts(host, answer)
                self._roster.enrol(host, answer)
                self._taken_on.add(host.name)
            else:
                self._roster.check(host, answer.signature)
            return answer
        raise DistrustError(
            f"host {host.name!r}: the worker lies about its identity: it tells two boots of its machine"
        )

    def _check_facts(self, host: FleetHost, enrolment: Enrolment) -> None:
        """Raise UnavailableError where a host's figures could not be merged with its earlier ones."""
        now = enrolment.fingerprint
        if changed := changed_facts(self._fingerprints.setdefault(host.name, now), now):
            raise UnavailableError(
                f"host {host.name!r} is not as it was when the run began: {'; '.join(changed)}",
                "start a new run for it",
            )

    async def enrol(self, host: FleetHost) -> Enrolment:
        """Wait for a host's worker, ask it, and take it on.
        Raises UnavailableError: it does not come within the time that the plan gives it, stays busy, cannot measure the
        plan, or is no longer what it was; DistrustError, ForeignMessageError: it is not what it must be.
        """

        async def asked() -> Enrolment | str:
            if self.token:  # whoever asked for what is under way is gone, and its slot would be waited for
                await self.cluster.stop(self.token, [host.worker])
            answer = await self.ask(host, Enlistment(self._plan_text), Enrolment)
            if isinstance(answer, Enrolment):
                return answer
            if not answer.busy:
                raise UnavailableError(f"host {host.name!r}: {answer.message}", answer.remedy)
            return answer.message

        enrolment = await self._waited_for(host, asked)
        for words in enrolment.notices:
            self.display.notice(f"host {host.name}: {words}")
        return enrolment

    async def rejoined(self, host: FleetHost) -> None:
        """Wait for a worker that was lost, or whose scheduler was, and that may still be at work.
        Raises UnavailableError: scheduler or worker do not come back within the time that the plan gives them.
        """

        async def connected() -> bool:
            return True

        await self._waited_for(host, connected)

    async def _waited_for(self, host: FleetHost, asked: Callable[[], Awaitable[_Found | str]]) -> _Found:
        """What came of it as soon as the worker is there; words say what to wait for."""
        until = time.monotonic() + self.fleet.wait_s
        told: set[str] = set()
        while True:
            try:
                if not await self.cluster.present(host.worker):
                    raise WorkerLostError(f"no worker named {host.worker!r} is connected")
                if not isinstance(found := await asked(), str):
                    return found
                reason = found
            except WorkerLostError as error:
                reason = error.message
            if time.monotonic() >= until:
                raise UnavailableError(
                    f"host {host.name!r} is not available within {self.fleet.wait_s:g} s: {reason}",
                    f"on that host: virtgauge fleet worker --scheduler … --name {host.worker}",
                )
            if reason not in told:
                self.display.notice(f"waiting for host {host.name}: {reason}", warning=False)
                told.add(reason)
            await asyncio.sleep(_LOOK_S)
