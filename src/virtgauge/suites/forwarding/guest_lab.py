"""The laboratory of real guests: br0 carries every flow to its guest, the guest routes it, br1 carries it back.

The tester stands at both ends (Batalla et al. 2016, figure 1).  All flows have the same IP addresses; which guest a
frame goes through is decided by its destination's hardware address alone, by one rule a flow.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import time
from collections.abc import Sequence
from typing import Self

from virtgauge.analysis.packets import DropCounter
from virtgauge.errors import UnavailableError
from virtgauge.host.cgroup import QUOTA_PERIOD_US
from virtgauge.host.load import TICK_NS
from virtgauge.host.process import all_pids, cpu_ticks, process_name
from virtgauge.network import Neighbour, NetworkError, Nic
from virtgauge.network.links import connect, link_counts
from virtgauge.network.namespace import Namespace
from virtgauge.network.switch import LinuxBridge, OpenVSwitch, Rule, Switch
from virtgauge.platforms.base import Guest, LaunchError
from virtgauge.platforms.base import stage as launching
from virtgauge.suites.forwarding.drop_places import come_to_rest, read_drops
from virtgauge.suites.forwarding.laboratory import ForwardingLab
from virtgauge.suites.forwarding.settings import ForwardingSettings
from virtgauge.suites.forwarding.trial import Load, Path, Tester, TrialResult
from virtgauge.suites.testbed import Stage, allowed_cpus, core_of

# Addresses that no one has: a kernel that owned one would answer every frame that nobody waits for.
SOURCE, DESTINATION = "10.76.255.1", "10.77.255.1"
# The tester's ports on br0 and br1, and the hardware address that the guests send to.
TRANSMIT_PORT, RECEIVE_PORT, RECEIVE_MAC = "tx", "rx", "02:76:67:00:00:02"
_PERIOD_NS = QUOTA_PERIOD_US * 1000  # A guest may use up to two of them in a span that begins in the middle of one
_BEYOND = 1.5  # Times what is allowed is beyond what slices and rounding explain
LOOP_END = "loop"
_PAST_PORT, _PAST_NUMBER = "past", 99
"""A link from br0 to br1 past all guests, by which Open vSwitch itself is measured.  A Linux bridge's work is its
sender's: without a guest one processor does all of it, with one another takes half."""
_TRANSMIT_MAC, LOOP_MAC, _PAST_MAC = "02:76:67:00:00:01", "02:76:67:00:00:03", "02:76:67:00:00:04"
LOOP_DRAIN_NS = 50_000_000  # no guest is there that could hold a frame back
_CHECK_PPS, _CHECK_S, _CHECK_TRIES = 200.0, 0.2, 5


@dataclasses.dataclass(frozen=True)
class CpuPlan:
    """Tester and guests apart, as far as there are CPUs."""

    tester: tuple[int, ...]  # for sending and for receiving, one for both, or none: that leaves it to the scheduler
    guests: tuple[int, ...]  # of all guests together, and of the switch

    @classmethod
    def of(cls, cpus: Sequence[int]) -> Self:
        """Two CPUs for the tester; of fewer than four, one; of a single one, none.  Second threads come last."""
        first = {core: cpu for cpu in reversed(cpus) if (core := core_of(cpu))}
        ordered = sorted(cpus, key=lambda cpu: (first[core_of(cpu)] != cpu, cpu))
        apart = 2 if len(cpus) > 3 else 1 if len(cpus) > 1 else 0
        return cls(tuple(ordered[:apart]), tuple(ordered[apart:]))

    def of_guest(self, number: int, settings: ForwardingSettings) -> tuple[tuple[int, ...], float | None]:
        """The processors that a guest may run on, and its limit in whole ones (None without)."""
        if settings.cpu_limit != "fair":
            return self.guests, settings.cpu_limit
        if self.has_one_for_each(settings):
            return (self.guests[number],), None
        return self.guests, len(self.guests) / settings.guests

    def has_one_for_each(self, settings: ForwardingSettings) -> bool:
        """Whether every guest gets a core that no other guest runs on, nor the tester; two threads are one core.

        With less, the guests' shares of the processors bound what J does to the throughput (Batalla et al. 2016 had 12
        cores for 12 guests).
        """
        cores = {core_of(cpu) for cpu in self.guests} - {core_of(cpu) for cpu in self.tester}
        return settings.cpu_limit == "fair" and len(cores) >= settings.guests


@dataclasses.dataclass(frozen=True)
class Router:
    """The way into a guest from br0, and out of it by br1."""

    ingress: Nic
    egress: Nic  # with the one neighbour that a router ever sends to
    rules: tuple[Rule, Rule]  # how its flow's frames reach it, and how what it sends on reaches the tester

    @classmethod
    def of(cls, number: int) -> Self:
        ingress = Nic(f"in{number}", f"02:76:67:01:00:{number:02x}", (f"10.76.0.{number + 1}/16",))
        egress = Nic(
            port=f"out{number}",
            mac=f"02:76:67:02:00:{number:02x}",
            addresses=(f"10.77.0.{number + 1}/16",),
            neighbours=(Neighbour(DESTINATION, RECEIVE_MAC),),
        )
        rules = Rule(TRANSMIT_PORT, ingress.mac, ingress.port), Rule(egress.port, RECEIVE_MAC, RECEIVE_PORT)
        return cls(ingress, egress, rules)


async def launch_routers(settings: ForwardingSettings, stage: Stage, lab: Namespace, cpus: CpuPlan) -> None:
    """All of them, a few at a time: a guest that boots beside many others may not be ready in time."""
    gate = asyncio.Semaphore(4)

    async def launch(number: int) -> Guest:
        own, limit = cpus.of_guest(number, settings)
        router = Router.of(number)
        async with gate:
            return await stage.launch(
                f"router{number}",
                lab=lab,
                nics=(router.ingress, router.egress),
                forwarding=True,
                memory_mib=settings.memory_mib,
                cpus=own,
                cpu_limit=limit,
                ready_timeout_s=60.0,
            )

    await stage.together(*map(launch, range(settings.guests)))


class GuestLab(ForwardingLab):
    """See the module."""

    def __init__(
        self, stage: Stage, settings: ForwardingSettings, cpus: CpuPlan, switch: Switch, lab: Namespace, tester: Guest
    ) -> None:
        transmit, receive = (cpus.tester[0], cpus.tester[-1]) if cpus.tester else (None, None)
        tested = functools.partial(Tester, tester.channel, settings.port, transmit_cpu=transmit, receive_cpu=receive)
        self._routers = [Router.of(number) for number in range(settings.guests)]
        paths = [Path(_TRANSMIT_MAC, router.ingress.mac, SOURCE, DESTINATION) for router in self._routers]
        loop = [Path(LOOP_MAC, RECEIVE_MAC, SOURCE, DESTINATION)]
        past = [Path(_TRANSMIT_MAC, RECEIVE_MAC, SOURCE, DESTINATION)]
        super().__init__(
            stage,
            tested("eth0", "eth1", paths),
            tested("eth2", LOOP_END, loop, drain_ns=LOOP_DRAIN_NS),
            tested("eth0", "eth1", past, drain_ns=LOOP_DRAIN_NS) if settings.switch == "openvswitch" else None,
        )
        self.cpus, self.switch, self.namespace = cpus, switch, lab
        self._sent = self._arrived = 0
        self.own_processors = cpus.has_one_for_each(settings)
        _, self._cpu_limit = cpus.of_guest(0, settings)
        reasons = [guest.confinement().unbound for guest in stage.guests] if self._cpu_limit is not None else []
        self.unbound = next((reason for reason in reasons if reason is not None), None)

    @classmethod
    async def create(cls, settings: ForwardingSettings, stage: Stage) -> GuestLab:
        """Make the networks, launch guests and tester, and join them by their rules."""
        # A tester on another machine has CPUs of that one.
        remote, own = stage.remote, allowed_cpus()
        cpus = CpuPlan.of(own) if remote is None else CpuPlan(tuple(remote.cpus[:2]), own)
        with launching("network", NetworkError, UnavailableError):
            lab = stage.make_lab()
            tester = await stage.launch_peer(
                "tester-agent",
                nics=(Nic(port=TRANSMIT_PORT, mac=_TRANSMIT_MAC), Nic(port=RECEIVE_PORT, mac=RECEIVE_MAC)),
                lab=lab,
                loop=Nic(port=LOOP_END, mac=LOOP_MAC),
                cpus=cpus.tester or None,
            )
            await launch_routers(settings, stage, lab, cpus)
            switch = _join(settings, stage, lab, cpus)
        stage.charge(switch.cpu_ns)
        stage.charge(_interrupt_threads_ns)
        return cls(stage, settings, cpus, switch, lab, tester)

    async def check(self) -> None:
        """A few frames for all guests: all come back, by their two rules and by no other guest's links.

        Only where something is wrong, the flows are looked at one by one, to name it.
        """
        everyone = range(self.flows)
        if await self._complaint(everyone) is None:
            return
        for flow in everyone:
            if (found := await self._complaint([flow])) is not None:
                raise LaunchError("laboratory check", found)

    async def _complaint(self, flows: Sequence[int]) -> str | None:
        """What a trial of these flows shows to be wrong, in words.

        The first frames after an emulated card's link has come up are lost, so they have a few tries to come through.
        """
        shares = [float(flow in flows) / len(flows) for flow in range(self.flows)]
        tries = 0
        while True:
            tries += 1
            rules, links = self.switch.counters(), link_counts(self.namespace)
            trial = await self.measure(
                Load(shares, frame_bytes=64, rate_pps=_CHECK_PPS * len(flows), duration_s=_CHECK_S)
            )
            if not trial.lost or tries == _CHECK_TRIES:
                break
        rules_now, links_now = self.switch.counters(), link_counts(self.namespace)
        for flow in flows:
            sent, lost = trial.flows[flow].sent, trial.flows[flow].lost
            if lost:
                passed = ", ".join(
                    f"{rule.in_port}→{rule.out_port} {count}" for rule, count in rules_now.items() if count
                )
                return f"{lost} of {sent} frames do not come back through guest {flow}; the rules counted {passed}"
            if trial.flows[flow].duplicates:
                return f"frames through guest {flow} come back more than once"
            for rule in self._routers[flow].rules:
                counted, before = rules_now.get(rule), rules.get(rule)
                if counted is not None and before is not None and counted - before < sent:
                    return f"{sent} frames were sent through guest {flow}, its rule counted {counted}"
        least = min(trial.flows[flow].sent for flow in flows)
        for other, router in enumerate(self._routers):
            for port, due in ((router.ingress.port, trial.flows[other].sent), (router.egress.port, 0)):
                then, now = links[port], links_now[port]
                went = now.tx_frames + now.tx_dropped - then.tx_frames - then.tx_dropped
                if went - due >= least:
                    return f"frames for guest {flows[0]} also reach guest {other}, by the port {port}"
        return None

    async def measure(self, load: Load) -> TrialResult:
        used, began_ns = self._used_ns(), time.monotonic_ns()
        trial = await self._tester.measure(load)
        self._watch_limit(used, time.monotonic_ns() - began_ns)
        self._sent += trial.sent
        self._arrived += trial.arrived
        return trial

    def _used_ns(self) -> list[int | None]:
        """CPU time of every guest; of none where there is no limit, or it is known not to hold."""
        watched = self._cpu_limit is not None and self.unbound is None
        return [guest.accounting().cpu_ns for guest in self.stage.guests] if watched else []

    def _watch_limit(self, before: list[int | None], elapsed_ns: int) -> None:
        """Look whether the CPU limit of the guests held in a trial.

        Where guests share the host's kernel, what routes their frames may not be theirs at all, and a kernel thread
        that is theirs may be exempt from the quota (Linux 6.18 and later).  Then the load vector matters less than the
        plan means.
        """
        limit = self._cpu_limit or 0.0
        for number, (then, now) in enumerate(zip(before, self._used_ns(), strict=True)):
            if then is None or now is None or now - then <= limit * (elapsed_ns + 2 * _PERIOD_NS) * _BEYOND:
                continue
            self.unbound = (
                f"guest {number} used {(now - then) / elapsed_ns:.2f} CPUs of its {limit:g}: "
                "this kernel does not stop the threads that route for it (Linux 6.18 and later does not)"
            )

    async def drop_counters(self) -> list[DropCounter]:
        await come_to_rest(self.namespace, self.timeout_factor)
        counters = await read_drops(self.stage.guests, self.switch, self.namespace)
        links = link_counts(self.namespace)
        # A slow guest may still be sending when the tester has stopped waiting.
        late = links[RECEIVE_PORT].tx_frames - self._arrived
        if self.stage.remote is None:
            return [*counters, DropCounter("tester: came too late", late)]
        entry = links[TRANSMIT_PORT]
        lost = self._sent - entry.rx_frames - entry.rx_dropped
        return [
            *counters,
            DropCounter("wire: lost on the way to the guests", lost),
            DropCounter("wire: lost on the way back, or came too late", late),
        ]


def _interrupt_threads_ns() -> int:
    """CPU time of the kernel's threads that work off what senders left; no guest is charged with it."""
    ticks = [cpu_ticks(pid) or 0 for pid in all_pids() if (process_name(pid) or "").startswith("ksoftirqd/")]
    return sum(ticks) * TICK_NS


def _join(settings: ForwardingSettings, stage: Stage, lab: Namespace, cpus: CpuPlan) -> Switch:
    switch: Switch = (
        OpenVSwitch(stage.scope, lab, name=stage.name("switch"), cpus=cpus.guests)
        if settings.switch == "openvswitch"
        else LinuxBridge(lab)
    )
    stage.at_end(switch.close)
    routers = [Router.of(number) for number in range(settings.guests)]
    way_in, way_out = [TRANSMIT_PORT], [RECEIVE_PORT]
    if settings.switch == "openvswitch":
        connect(lab, lab, [Nic(port=_PAST_PORT, mac=_PAST_MAC)], first=_PAST_NUMBER)
        way_in, way_out = [*way_in, _PAST_PORT], [*way_out, f"eth{_PAST_NUMBER}"]
    switch.add_bridge("br0", [*way_in, *(router.ingress.port for router in routers)])
    switch.add_bridge("br1", [*way_out, *(router.egress.port for router in routers)])
    for rules in zip(*(router.rules for router in routers), strict=True):
        switch.add_rules(rules)
    if settings.switch == "openvswitch":
        switch.add_rules([Rule(way_in[0], RECEIVE_MAC, way_in[1]), Rule(way_out[1], RECEIVE_MAC, way_out[0])])
    return switch
