"""The laboratory of real guests: br0 carries every flow to its guest, the guest routes it, br1 carries it back.

The tester stands at both ends (Batalla et al. 2016, figure 1).  All flows have the same IP addresses; which guest a
frame goes through is decided by its destination's hardware address alone, by one rule a flow.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from virtgauge.analysis.forwarding.load_vectors import equal_shares
from virtgauge.analysis.forwarding.loss_ledger import DropCounter
from virtgauge.errors import UnavailableError
from virtgauge.network.bridge import LinuxBridge
from virtgauge.network.links import connect, link_counts
from virtgauge.network.namespace import Namespace
from virtgauge.network.nic import Neighbour, NetworkError, Nic
from virtgauge.network.openvswitch import OpenVSwitch
from virtgauge.network.switch import Rule, Switch
from virtgauge.platforms.base import Guest, LaunchError
from virtgauge.suites.bench import Stage
from virtgauge.suites.forwarding.cpu_plan import CpuPlan
from virtgauge.suites.forwarding.drop_places import DropPlaces
from virtgauge.suites.forwarding.laboratory import ForwardingLab
from virtgauge.suites.forwarding.limit_watch import LimitWatch
from virtgauge.suites.forwarding.packet_trial import Path, Tester
from virtgauge.suites.forwarding.settings import ForwardingSettings
from virtgauge.suites.forwarding.trial import PACED, Manner, TrialResult

TRANSMIT, RECEIVE = "tx", "rx"
"""The tester's ports on br0 and br1."""

_LOOP_END = "loop"
_TRANSMIT_MAC, _RECEIVE_MAC, _LOOP_MAC = "02:76:67:00:00:01", "02:76:67:00:00:02", "02:76:67:00:00:03"
# Addresses that no one has: a kernel that owned one would answer every frame that nobody waits for.
_SOURCE, _DESTINATION = "10.76.255.1", "10.77.255.1"
_LAUNCHED_AT_A_TIME = 4
_CHECK_FRAME_BYTES = 64
_CHECK_PPS, _CHECK_S, _CHECK_TRIES = 200.0, 0.2, 5
_READY_S = 60.0
_LOOP_DRAIN_NS = 50_000_000  # no guest is there that could hold a frame back
_REST_S, _REST_LIMIT_S = 0.03, 3.0


class GuestLab(ForwardingLab):
    """See the module.

    Attributes:
        cpus: who runs where.
        switch: both bridges.
    """

    def __init__(
        self,
        stage: Stage,
        settings: ForwardingSettings,
        *,
        cpus: CpuPlan,
        switch: Switch,
        lab: Namespace,
        tester: Guest,
    ) -> None:
        super().__init__(stage, flows=settings.guests)
        self.cpus, self.switch = cpus, switch
        self._tester = Tester(
            channel=tester.channel,
            port=settings.port,
            transmit="eth0",
            receive="eth1",
            paths=[Path(_TRANSMIT_MAC, _ingress_mac(n), _SOURCE, _DESTINATION) for n in range(settings.guests)],
            transmit_cpu=cpus.transmit,
            receive_cpu=cpus.receive,
        )
        self._loop = Tester(
            channel=tester.channel,
            port=settings.port,
            transmit="eth2",
            receive=_LOOP_END,
            paths=[Path(_LOOP_MAC, _RECEIVE_MAC, _SOURCE, _DESTINATION)],
            transmit_cpu=cpus.transmit,
            receive_cpu=cpus.receive,
            drain_ns=_LOOP_DRAIN_NS,
        )
        self._places = DropPlaces(stage, switch, lab)
        self._arrived = 0
        self._limit = LimitWatch(stage.guests, settings.cpu_limit)

    @classmethod
    async def create(cls, settings: ForwardingSettings, stage: Stage) -> GuestLab:
        """Make the networks, launch guests and tester, and join them by their rules.

        Raises:
            LaunchError: something did not come up.
        """
        cpus = CpuPlan.of_this_machine()
        try:
            lab = Namespace(stage.scope, stage.name("lab"))
            stage.at_end(lab.close)
            tester = await _launch_tester(stage, lab, cpus)
            await _launch_guests(stage, settings, lab, cpus)
            switch = _join(settings, stage, lab, cpus)
        except (NetworkError, UnavailableError) as error:
            raise LaunchError("network", str(error)) from error
        stage.charge(switch.cpu_ns)
        stage.charge(cpus.interrupt_threads_ns)
        return cls(stage, settings, cpus=cpus, switch=switch, lab=lab, tester=tester)

    async def check(self) -> None:
        """A few frames for all guests: all come back, by their two rules and by no other guest's links.

        The first frames after an emulated card's link has come up are lost, so they have a few tries to come through.
        Only where something is wrong, the flows are looked at one by one, to name it.
        """
        everyone = range(self.flows)
        for _ in range(_CHECK_TRIES):
            if not (await self._offer(everyone)).lost:
                break
        else:
            await self._name_what_is_lost()
        if await self._strays(everyone) is None:
            return
        found = [stray for flow in everyone if (stray := await self._strays([flow])) is not None]
        if found:
            raise LaunchError("laboratory check", found[0])

    async def _name_what_is_lost(self) -> None:
        for flow in range(self.flows):
            sent = lost = 0
            for _ in range(_CHECK_TRIES):
                trial = await self._offer([flow])
                sent, lost = trial.flows[flow].sent, trial.flows[flow].lost
                if not lost:
                    break
            if lost:
                counters = self.switch.counters().items()
                passed = ", ".join(
                    f"{rule.in_port}→{rule.out_port} {count.frames}" for rule, count in counters if count
                )
                text = f"{lost} of {sent} frames do not come back through guest {flow}; the rules counted {passed}"
                raise LaunchError("laboratory check", text)

    async def _strays(self, flows: Sequence[int]) -> str | None:
        """What a trial of these flows shows to go where it should not, in words."""
        rules, links = self.switch.counters(), link_counts(self._places.lab)
        trial = await self._offer(flows)
        rules_now, links_now = self.switch.counters(), link_counts(self._places.lab)
        least = min(trial.flows[flow].sent for flow in flows)
        for flow in flows:
            sent = trial.flows[flow].sent
            if trial.flows[flow].duplicates:
                return f"frames through guest {flow} come back more than once"
            for rule in (_ingress_rule(flow), _egress_rule(flow)):
                counted, before = rules_now.get(rule), rules.get(rule)
                if counted is not None and before is not None and counted.frames - before.frames < sent:
                    return f"{sent} frames were sent through guest {flow}, its rule counted {counted.frames}"
        for other in range(self.flows):
            for port in (ingress_port(other), egress_port(other)):
                then, now = links[port], links_now[port]
                went = now.tx_frames + now.tx_dropped - then.tx_frames - then.tx_dropped
                due = trial.flows[other].sent if port == ingress_port(other) else 0
                if went - due >= least:
                    return f"frames for guest {flows[0]} also reach guest {other}, by the port {port}"
        return None

    async def _offer(self, flows: Sequence[int]) -> TrialResult:
        shares = [float(flow in flows) / len(flows) for flow in range(self.flows)]
        return await self.measure(shares, _CHECK_FRAME_BYTES, _CHECK_PPS * len(flows), _CHECK_S)

    async def measure(
        self,
        shares: Sequence[float],
        frame_bytes: int,
        rate_pps: float,
        duration_s: float,
        manner: Manner = PACED,
    ) -> TrialResult:
        with self._limit.trial():
            trial = await self._tester.measure(shares, frame_bytes, rate_pps, duration_s, manner)
        self._arrived += trial.arrived
        return trial

    def unbound(self) -> str | None:
        return self._limit.unbound

    async def measure_loop(self, frame_bytes: int, rate_pps: float, duration_s: float) -> TrialResult:
        return await self._loop.measure(equal_shares(1), frame_bytes, rate_pps, duration_s)

    async def drop_counters(self) -> list[DropCounter]:
        await self._come_to_rest()
        counters = await self._places.read()
        # A slow guest may still be sending when the tester has stopped waiting.
        came = link_counts(self._places.lab)[RECEIVE].tx_frames
        return [*counters, DropCounter("tester: came too late", came - self._arrived)]

    async def _come_to_rest(self) -> None:
        """Wait for the frames that are still under way: counters that are read one after the other must stand still."""
        deadline, before = time.monotonic() + _REST_LIMIT_S, None
        while (now := link_counts(self._places.lab)) != before and time.monotonic() < deadline:
            before = now
            await asyncio.sleep(_REST_S)


async def _launch_tester(stage: Stage, lab: Namespace, cpus: CpuPlan) -> Guest:
    """The tester's agent in a namespace of its own, linked to the lab, and to itself for the bare loop."""
    namespace = Namespace(stage.scope, stage.name("tester"))
    stage.at_end(namespace.close)
    ends = [Nic(port=TRANSMIT, mac=_TRANSMIT_MAC), Nic(port=RECEIVE, mac=_RECEIVE_MAC)]
    connect(lab, namespace, ends)
    connect(namespace, namespace, [Nic(port=_LOOP_END, mac=_LOOP_MAC)], first=len(ends))
    return await stage.launch_peer("tester-agent", lab=namespace, cpus=cpus.tester)


async def _launch_guests(stage: Stage, settings: ForwardingSettings, lab: Namespace, cpus: CpuPlan) -> None:
    """All routers, a few at a time: a guest that boots beside many others may not be ready in time."""
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


def _join(settings: ForwardingSettings, stage: Stage, lab: Namespace, cpus: CpuPlan) -> Switch:
    switch: Switch = (
        OpenVSwitch(stage.scope, lab, name=stage.name("switch"), cpus=cpus.guests)
        if settings.switch == "openvswitch"
        else LinuxBridge(lab)
    )
    stage.at_end(switch.close)
    switch.add_bridge("br0", [TRANSMIT, *(ingress_port(n) for n in range(settings.guests))])
    switch.add_bridge("br1", [RECEIVE, *(egress_port(n) for n in range(settings.guests))])
    switch.add_rules([_ingress_rule(n) for n in range(settings.guests)])
    switch.add_rules([_egress_rule(n) for n in range(settings.guests)])
    return switch


def ingress_port(number: int) -> str:
    """A guest's port on br0."""
    return f"in{number}"


def egress_port(number: int) -> str:
    """A guest's port on br1."""
    return f"out{number}"


def _ingress_rule(number: int) -> Rule:
    return Rule(TRANSMIT, _ingress_mac(number), ingress_port(number))


def _egress_rule(number: int) -> Rule:
    return Rule(egress_port(number), _RECEIVE_MAC, RECEIVE)


def _ingress_mac(number: int) -> str:
    return f"02:76:67:01:00:{number:02x}"


def _interfaces(number: int) -> tuple[Nic, Nic]:
    """A router's: the way in, and the way out with the one neighbour that it ever sends to."""
    return (
        Nic(port=ingress_port(number), mac=_ingress_mac(number), addresses=(f"10.76.0.{number + 1}/16",)),
        Nic(
            port=egress_port(number),
            mac=f"02:76:67:02:00:{number:02x}",
            addresses=(f"10.77.0.{number + 1}/16",),
            neighbours=(Neighbour(_DESTINATION, _RECEIVE_MAC),),
        ),
    )
