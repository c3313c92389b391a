"""The simulated platform: real interface, real protocol, invented guests."""

from __future__ import annotations

import asyncio
import os
import socket
import time
import weakref
from collections.abc import Collection
from typing import ClassVar

import numpy as np
from pydantic import BaseModel

from virtgauge.agent.channel import Channel
from virtgauge.host.cgroup_policy import Throttling
from virtgauge.host.load import WatchedMachine
from virtgauge.host.policy import Applied, Policy
from virtgauge.host.scope import Scope
from virtgauge.platforms.base import Accounting, Availability, Guest, GuestSpec, LaunchError, Platform
from virtgauge.platforms.simulated.agent import SimulatedAgent, SimulatedSettings
from virtgauge.platforms.simulated.bandwidth import ENDS, SimulatedLink
from virtgauge.platforms.simulated.neighbours import Machine, Tenant
from virtgauge.platforms.simulated.truth import BurstMachine, Distribution

_NEIGHBOURS = ("tested", "loading")  # How the names of two guests end that share a machine


class SimulatedGuest(Guest):
    """An agent task in this process, at the other end of a socket pair."""

    def __init__(
        self, channel: Channel, task: asyncio.Task[None], tenant: Tenant, ready_ns: int, machine: BurstMachine | None
    ) -> None:
        self.channel, self.ready_ns, self.label = channel, ready_ns, "simulated"
        self._task, self._tenant, self._machine = task, tenant, machine

    def accounting(self) -> Accounting:
        """On a machine with bursts, as that tells; else of the simulation's own time, where its kernels work."""
        if self._machine is not None:
            return Accounting(cpu_ns=self._machine.guest_ns, method="simulated")
        cpu_ns = self._tenant.cpu_ns
        return Accounting(None if cpu_ns is None else round(cpu_ns), "simulated", of_this_machine=False)

    async def apply(self, policy: Policy) -> Applied:
        return self._tenant.apply(policy)

    def throttling(self) -> Throttling | None:
        return self._tenant.throttling()

    def out_of_memory_kills(self) -> int | None:
        return self._tenant.kills

    async def close(self) -> None:
        await self.channel.close()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class SimulatedPlatform(Platform):
    """An agent with a known truth, in this process, that speaks the real protocol."""

    kind: ClassVar[str] = "simulated"
    label = "simulated"
    simulated = True
    timeout_factor = 1.0
    Settings: ClassVar[type[BaseModel]] = SimulatedSettings

    def __init__(self, settings: SimulatedSettings) -> None:
        self.settings: SimulatedSettings = settings
        if "*" not in settings.truth:
            settings.truth["*"] = Distribution(median_ns=25.0)
        self.is_virtual = settings.virtual is True
        self._seeds = np.random.default_rng(settings.seed)
        self._burst_machine = BurstMachine(settings.bursts, settings.seed) if settings.bursts else None
        self._launched = 0
        # By scope and testbed; gone with the last of their guests.
        self._machines: weakref.WeakValueDictionary[tuple[str, str], Machine] = weakref.WeakValueDictionary()
        self._links: weakref.WeakValueDictionary[tuple[str, str], SimulatedLink] = weakref.WeakValueDictionary()

    def machine(self) -> WatchedMachine:
        return self._burst_machine or super().machine()

    @property
    def emulated(self) -> bool:
        return self.settings.emulated

    async def probe(self) -> Availability:
        if not self.settings.usable:
            return Availability(False, "the plan says that it is not", "set usable = true")
        return Availability(True, "always there")

    async def launch(self, spec: GuestSpec) -> Guest:
        began = time.monotonic_ns()
        self._launched += 1
        settings = self.settings.at(self._launched)
        seed = int(self._seeds.integers(2**63))
        random = np.random.default_rng(seed)
        if any(fault.kind == "no-launch" and random.random() < fault.probability for fault in settings.faults):
            raise LaunchError("boot", "the simulation was told not to come up")
        # One machine for each testbed's ``tested`` and ``loading`` guest, one path for those named as its ends; else
        # one of its own.
        own_machine, own_link = Machine(settings.isolation, seed), SimulatedLink(settings.bandwidth, seed)
        shared = self._machines.setdefault(_at(spec.scope, spec.name, _NEIGHBOURS), own_machine)
        link = self._links.setdefault(_at(spec.scope, spec.name, ENDS), own_link)
        tenant = shared.tenant(spec.cpus or os.sched_getaffinity(0))
        here, there = socket.socketpair()
        agent = SimulatedAgent(settings, tenant, link, self._burst_machine, spec.agent.sha256, seed)
        task = asyncio.create_task(agent.serve(*await asyncio.open_connection(sock=there)))
        reader, writer = await asyncio.open_connection(sock=here)
        channel = await Channel.open(reader, writer, spec.agent.sha256, spec.ready_timeout_s, spec.roots)
        return SimulatedGuest(channel, task, tenant, time.monotonic_ns() - began, self._burst_machine)

    def link_of(self, scope: Scope, name: str) -> SimulatedLink:
        """The path that a running guest of this name is at."""
        return self._links[_at(scope, name, ENDS)]


def _at(scope: Scope, name: str, parts: Collection[str]) -> tuple[str, str]:
    """What guests share whose names end in these parts: their scope, and their testbed."""
    testbed, _, part = name.rpartition("-")
    return scope.tag, testbed if part in parts else name
