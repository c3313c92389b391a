"""The N virtual routers of a laboratory: their addresses, ports and rules, and whose CPUs are whose."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Self

from virtgauge.network.namespace import Namespace
from virtgauge.network.nic import Neighbour, Nic
from virtgauge.network.switch import Rule
from virtgauge.platforms.base import Guest
from virtgauge.suites.forwarding.settings import ForwardingSettings
from virtgauge.suites.testbed import Stage, allowed_cpus

# Addresses that no one has: a kernel that owned one would answer every frame that nobody waits for.
SOURCE, DESTINATION = "10.76.255.1", "10.77.255.1"
# The tester's ports on br0 and br1, and the hardware address that the guests send to.
TRANSMIT_PORT, RECEIVE_PORT, RECEIVE_MAC = "tx", "rx", "02:76:67:00:00:02"
_LAUNCHED_AT_A_TIME = 4
_READY_S = 60.0


@dataclasses.dataclass(frozen=True)
class CpuPlan:
    """Tester and guests apart, as far as there are CPUs."""

    tester: tuple[int, ...]  # for sending and for receiving, one for both, or none: that leaves it to the scheduler
    guests: tuple[int, ...]  # of all guests together, and of the switch

    @classmethod
    def of(cls, cpus: Sequence[int]) -> Self:
        """Two CPUs for the tester; of fewer than four, one; of a single one, none."""
        apart = 2 if len(cpus) > 3 else 1 if len(cpus) > 1 else 0
        return cls(tuple(cpus[:apart]), tuple(cpus[apart:]))

    @classmethod
    def beside(cls, tester: Sequence[int]) -> Self:
        """The plan for guests on this machine and a tester on another, whose CPUs are given."""
        return cls(tuple(tester[:2]), allowed_cpus())


async def launch_routers(settings: ForwardingSettings, stage: Stage, lab: Namespace, cpus: CpuPlan) -> None:
    """All of them, a few at a time: a guest that boots beside many others may not be ready in time."""
    gate = asyncio.Semaphore(_LAUNCHED_AT_A_TIME)

    async def launch(number: int) -> Guest:
        async with gate:
            return await stage.launch(
                f"router{number}",
                lab=lab,
                nics=_interfaces(number),
                forwarding=True,
                memory_mib=settings.memory_mib,
                cpus=cpus.guests,
                cpu_limit=settings.cpu_limit,
                ready_timeout_s=_READY_S,
            )

    launches = [asyncio.ensure_future(launch(number)) for number in range(settings.guests)]
    try:
        guests = await asyncio.gather(*launches)
    finally:
        for one in launches:
            one.cancel()
        await asyncio.gather(*launches, return_exceptions=True)  # whatever still comes up is the stage's by then
    stage.guests[:] = guests  # in the order of the flows, not in that of their readiness


def ingress_port(number: int) -> str:
    """A guest's port on br0."""
    return f"in{number}"


def egress_port(number: int) -> str:
    """A guest's port on br1."""
    return f"out{number}"


def ingress_rule(number: int) -> Rule:
    """How a flow's frames reach its guest."""
    return Rule(TRANSMIT_PORT, ingress_mac(number), ingress_port(number))


def egress_rule(number: int) -> Rule:
    """How what a guest sends on reaches the tester."""
    return Rule(egress_port(number), RECEIVE_MAC, RECEIVE_PORT)


def ingress_mac(number: int) -> str:
    """Hardware address by which a flow's frames reach its guest."""
    return f"02:76:67:01:00:{number:02x}"


def _interfaces(number: int) -> tuple[Nic, Nic]:
    """The way in, and the way out with the one neighbour that a router ever sends to."""
    return (
        Nic(port=ingress_port(number), mac=ingress_mac(number), addresses=(f"10.76.0.{number + 1}/16",)),
        Nic(
            port=egress_port(number),
            mac=f"02:76:67:02:00:{number:02x}",
            addresses=(f"10.77.0.{number + 1}/16",),
            neighbours=(Neighbour(DESTINATION, RECEIVE_MAC),),
        ),
    )
