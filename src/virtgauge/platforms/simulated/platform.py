"""The simulated platform: real interface, real protocol, invented guests."""

from __future__ import annotations

import asyncio
import os
import socket
import time
import weakref
from collections.abc import Collection
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import BaseModel, Field, model_validator

from virtgauge.agent.channel import Channel
from virtgauge.host.cgroup_policy import Throttling
from virtgauge.host.load import WatchedMachine
from virtgauge.host.policy import Applied, Policy
from virtgauge.host.process import boot_id
from virtgauge.host.scope import Scope
from virtgauge.platforms.base import Accounting, Availability, Guest, GuestSpec, LaunchError, Platform
from virtgauge.platforms.simulated.agent import SimulatedAgent
from virtgauge.platforms.simulated.bandwidth import ENDS, BandwidthEnd, BandwidthTruth, SimulatedLink
from virtgauge.platforms.simulated.forwarding import ForwardingTruth
from virtgauge.platforms.simulated.isolation import IsolationTruth
from virtgauge.platforms.simulated.neighbours import Machine, Tenant
from virtgauge.platforms.simulated.storage import StorageTruth
from virtgauge.platforms.simulated.truth import BurstMachine, Bursts, Distribution, Fault, Positive, Truth

_NEIGHBOURS = ("tested", "loading")  # How the names of two guests end that share a machine


class Change(Truth):
    """From a guest on, other settings hold: what happens to a host in the middle of a run."""

    from_guest: Annotated[int, Field(ge=1)]
    """That guest, counted from 1 as they are launched."""
    settings: dict[str, Any]
    """What holds from there on, instead of the same settings of the platform."""


class SimulatedSettings(Truth):
    """No platform at all: an agent with a known truth, to try plans and to test that reports tell that truth."""

    seed: Annotated[int, Field(ge=0)] = 0
    """Of all that is drawn. Two platforms with the same seed and truth give the same values."""
    truth: dict[str, Distribution] = Field(default_factory=lambda: {"*": Distribution(median_ns=25.0)})
    """Distribution by function; ``*`` stands for every function that is not named."""
    load_factor: Positive = 1.0
    """The CPU-bound load multiplies every value by this."""
    setting_factors: dict[str, Positive] = Field(default_factory=dict)
    """The level of a setting (``fifo``, ``shallow``) multiplies every value of a sleep or a cycle by this."""
    forwarding: ForwardingTruth = ForwardingTruth()
    """A guest as a forwarding device."""
    storage: StorageTruth = StorageTruth()
    """The database in a guest."""
    isolation: IsolationTruth = IsolationTruth()
    """The machine that a guest and its neighbour share."""
    bandwidth: BandwidthTruth = BandwidthTruth()
    """The network path of a guest."""
    bursts: Bursts | None = None
    """What others take of the machine while clocks and sleeps are measured; none: all is done in no time."""
    faults: tuple[Fault, ...] = ()
    """What goes wrong, and how often."""
    changes: tuple[Change, ...] = ()
    """What is different from some guest on."""
    virtual: bool | None = None
    """Whether its guests tell of a kernel of their own (``true``) or of this machine's; none: they do not tell. Where a
    change says other than the platform, other guests than the plan's answer."""
    usable: bool = True
    """``false``: the platform reports itself as unusable."""
    emulated: bool = False
    """``true``: the figures are labelled emulated."""

    @model_validator(mode="after")
    def _changes_hold(self) -> SimulatedSettings:
        for change in self.changes:
            self.at(change.from_guest)
        return self

    def at(self, guest: int) -> SimulatedSettings:
        """The settings of a guest, by its number."""
        changed = {name: one for c in self.changes if guest >= c.from_guest for name, one in c.settings.items()}
        return self.model_validate(self.model_dump(exclude={"changes"}) | changed) if changed else self


class SimulatedGuest(Guest):
    """An agent task in this process, at the other end of a socket pair."""

    def __init__(
        self, channel: Channel, task: asyncio.Task[None], tenant: Tenant, ready_ns: int, machine: BurstMachine | None
    ) -> None:
        self.channel, self.ready_ns, self.label = channel, ready_ns, "simulated"
        self._task, self._tenant, self._machine = task, tenant, machine

    def accounting(self) -> Accounting:
        """CPU time of the simulation's own time, and known only where its kernels work.

        On a machine with bursts, it is the machine's that tells.
        """
        if self._machine is not None:
            return Accounting(cpu_ns=self._machine.guest_ns, method="simulated")
        cpu_ns = self._tenant.cpu_ns
        known = None if cpu_ns is None else round(cpu_ns)
        return Accounting(cpu_ns=known, method="simulated", of_this_machine=False)

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
    simulated = True
    timeout_factor = 1.0
    Settings: ClassVar[type[BaseModel]] = SimulatedSettings

    def __init__(self, settings: SimulatedSettings) -> None:
        self._settings = settings
        if "*" not in settings.truth:
            settings.truth["*"] = Distribution(median_ns=25.0)
        self.is_virtual = settings.virtual is True
        self._seeds = np.random.default_rng(settings.seed)
        self._burst_machine = BurstMachine(settings.bursts, settings.seed) if settings.bursts else None
        self._launched = 0
        self._machines: weakref.WeakValueDictionary[tuple[str, str], Machine] = weakref.WeakValueDictionary()
        """By scope and testbed; gone with the last of their guests."""
        self._links: weakref.WeakValueDictionary[tuple[str, str], SimulatedLink] = weakref.WeakValueDictionary()
        """Likewise."""

    @property
    def label(self) -> str:
        return "simulated"

    def machine(self) -> WatchedMachine:
        return self._burst_machine or super().machine()

    @property
    def emulated(self) -> bool:
        return self._settings.emulated

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind} | self._settings.model_dump(mode="json")

    async def probe(self) -> Availability:
        if not self._settings.usable:
            return Availability(False, "the plan says that it is not", "set usable = true")
        return Availability(True, "always there")

    async def launch(self, spec: GuestSpec) -> Guest:
        began = time.monotonic_ns()
        self._launched += 1
        settings = self._settings.at(self._launched)
        seed = int(self._seeds.integers(2**63))
        faults = [f for f in settings.faults if not f.first_guests or self._launched <= f.first_guests]
        random = np.random.default_rng(seed)
        if any(f.kind == "no-launch" and random.random() < f.probability for f in faults):
            raise LaunchError("boot", "the simulation was told not to come up")
        tenant = self._machine(spec, settings, seed).tenant(spec.cpus or os.sched_getaffinity(0))
        link = self._link(spec.scope, spec.name, settings, seed)
        here, there = socket.socketpair()
        agent = SimulatedAgent(
            truth=settings.truth,
            load_factor=settings.load_factor,
            setting_factors=settings.setting_factors,
            forwarding=settings.forwarding,
            storage=settings.storage,
            tenant=tenant,
            bandwidth=BandwidthEnd(link),
            machine=self._burst_machine,
            faults=faults,
            sha256=spec.agent.sha256,
            boot_id=None if settings.virtual is None else "simulated" if settings.virtual else boot_id(),
            seed=seed,
        )
        task = asyncio.create_task(agent.serve(*await asyncio.open_connection(sock=there)))
        reader, writer = await asyncio.open_connection(sock=here)
        channel = await Channel.open(reader, writer, spec.agent.sha256, spec.ready_timeout_s, spec.roots)
        return SimulatedGuest(channel, task, tenant, time.monotonic_ns() - began, self._burst_machine)

    def _machine(self, spec: GuestSpec, settings: SimulatedSettings, seed: int) -> Machine:
        """The machine of a guest: one for each testbed's ``tested`` and ``loading`` guest, else one of its own."""
        own = Machine(settings.isolation, seed)
        return self._machines.setdefault(_at(spec.scope, spec.name, _NEIGHBOURS), own)

    def link_of(self, scope: Scope, name: str) -> SimulatedLink:
        """The path that a running guest of this name is at."""
        return self._links[_at(scope, name, ENDS)]

    def _link(self, scope: Scope, name: str, settings: SimulatedSettings, seed: int) -> SimulatedLink:
        """The path of a guest: one for each testbed, of guests that are named as its ends, else one of its own."""
        return self._links.setdefault(_at(scope, name, ENDS), SimulatedLink(settings.bandwidth, seed))


def _at(scope: Scope, name: str, parts: Collection[str]) -> tuple[str, str]:
    """What guests share whose names end in these parts: their scope, and their testbed."""
    testbed, _, part = name.rpartition("-")
    return scope.tag, testbed if part in parts else name
