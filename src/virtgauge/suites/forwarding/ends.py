"""Who stands in a forwarding laboratory: N virtual routers, the tester at both ends, and the CPUs of all of them."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import Self

from virtgauge.analysis.forwarding import equal_shares
from virtgauge.host.process import all_pids, cpu_ticks, process_name
from virtgauge.network.namespace import Namespace
from virtgauge.network.nic import Neighbour, Nic
from virtgauge.network.switch import Rule
from virtgauge.platforms.base import Guest
from virtgauge.suites.forwarding.settings import ForwardingSettings
from virtgauge.suites.forwarding.trial import Load, Path, Tester, TrialResult
from virtgauge.suites.testbed import Stage, allowed_cpus

# Addresses that no one has: a kernel that owned one would answer every frame that nobody waits for.
SOURCE, DESTINATION = "10.76.255.1", "10.77.255.1"
# The tester's ports on br0 and br1, and the hardware address that the guests send to.
TRANSMIT_PORT, RECEIVE_PORT, RECEIVE_MAC = "tx", "rx", "02:76:67:00:00:02"
_LAUNCHED_AT_A_TIME = 4
_READY_S = 60.0
_LOOP_END = "loop"
_TRANSMIT_MAC, _LOOP_MAC = "02:76:67:00:00:01", "02:76:67:00:00:03"
_LOOP_DRAIN_NS = 50_000_000  # no guest is there that could hold a frame back


@dataclasses.dataclass(frozen=True)
class CpuPlan:
    """Tester and guests apart, as far as there are CPUs."""

    # transmit, receive: of the tester's two threads; None leaves it to the scheduler
    transmit: int | None
    receive: int | None
    guests: tuple[int, ...]  # of all guests together, and of the switch

    @classmethod
    def of(cls, cpus: Sequence[int]) -> Self:
        """Two CPUs for the tester and the rest for the guests; with fewer than four, one for each side.

        On a single CPU nothing can be kept apart.
        """
        match len(cpus):
            case 0 | 1:
                return cls(None, None, tuple(cpus))
            case 2 | 3:
                return cls(cpus[0], cpus[0], tuple(cpus[1:]))
            case _:
                return cls(cpus[0], cpus[1], tuple(cpus[2:]))

    @classmethod
    def beside(cls, tester: Sequence[int]) -> Self:
        """The plan for guests on this machine and a tester on another, whose CPUs are given."""
        return cls(tester[0], tester[min(1, len(tester) - 1)], allowed_cpus())

    @property
    def tester(self) -> tuple[int, ...] | None:
        """CPUs of the tester's agent; None where it shares them."""
        own = {cpu for cpu in (self.transmit, self.receive) if cpu is not None}
        return tuple(sorted(own)) or None

    def interrupt_threads_ns(self) -> int | None:
        """CPU time of the kernel's threads that work off what senders left; no guest is charged with it."""
        ticks = [cpu_ticks(pid) or 0 for pid in all_pids() if (process_name(pid) or "").startswith("ksoftirqd/")]
        return sum(ticks) * (1_000_000_000 // os.sysconf("SC_CLK_TCK"))


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


class Ends:
    """The tester, an agent in a namespace of its own: sends into br0, and takes from br1 what has come through.

    Attributes:
        timeout_factor: how many times longer than usual it waits for frames that are still under way.
    """

    def __init__(self, settings: ForwardingSettings, tester: Guest, cpus: CpuPlan) -> None:
        self.timeout_factor = 1.0
        tested = functools.partial(
            Tester, tester.channel, settings.port, transmit_cpu=cpus.transmit, receive_cpu=cpus.receive
        )
        paths = [Path(_TRANSMIT_MAC, ingress_mac(n), SOURCE, DESTINATION) for n in range(settings.guests)]
        loop = [Path(_LOOP_MAC, RECEIVE_MAC, SOURCE, DESTINATION)]
        self._tester = tested("eth0", "eth1", paths)
        self._loop = tested("eth2", _LOOP_END, loop, drain_ns=_LOOP_DRAIN_NS)

    @classmethod
    async def launch(cls, settings: ForwardingSettings, stage: Stage, lab: Namespace, cpus: CpuPlan) -> Self:
        """Start it, linked to the lab, and to itself for the bare loop."""
        tester = await stage.launch_peer(
            "tester-agent",
            nics=(Nic(port=TRANSMIT_PORT, mac=_TRANSMIT_MAC), Nic(port=RECEIVE_PORT, mac=RECEIVE_MAC)),
            lab=lab,
            loop=Nic(port=_LOOP_END, mac=_LOOP_MAC),
            cpus=cpus.tester,
        )
        return cls(settings, tester, cpus)

    async def measure(self, load: Load) -> TrialResult:
        """Offer a load to the guests."""
        tester = dataclasses.replace(self._tester, drain_ns=round(self._tester.drain_ns * self.timeout_factor))
        return await tester.measure(load)

    async def measure_loop(self, frame_bytes: int, rate_pps: float, duration_s: float) -> TrialResult:
        """Offer a load to a bare loop, from the tester to itself."""
        return await self._loop.measure(Load(equal_shares(1), frame_bytes, rate_pps, duration_s))
