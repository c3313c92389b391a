"""The laboratory of real guests: br0 carries every flow to its guest, the guest routes it, br1 carries it back.

The tester stands at both ends (Batalla et al. 2016, figure 1).  All flows have the same IP addresses; which guest a
frame goes through is decided by its destination's hardware address alone, by one rule a flow.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence

from virtgauge.analysis.forwarding import DropCounter
from virtgauge.errors import UnavailableError
from virtgauge.host.cgroup import QUOTA_PERIOD_US
from virtgauge.network.links import link_counts
from virtgauge.network.namespace import Namespace
from virtgauge.network.nic import NetworkError
from virtgauge.network.openvswitch import OpenVSwitch
from virtgauge.network.switch import LinuxBridge, Switch
from virtgauge.platforms.base import Guest, LaunchError
from virtgauge.suites.forwarding.drop_places import DropPlaces
from virtgauge.suites.forwarding.ends import (
    RECEIVE_PORT,
    TRANSMIT_PORT,
    CpuPlan,
    Ends,
    egress_port,
    egress_rule,
    ingress_port,
    ingress_rule,
    launch_routers,
)
from virtgauge.suites.forwarding.laboratory import ForwardingLab
from virtgauge.suites.forwarding.settings import ForwardingSettings
from virtgauge.suites.forwarding.trial import Load, TrialResult
from virtgauge.suites.testbed import Stage, allowed_cpus

_PERIOD_NS = QUOTA_PERIOD_US * 1000  # A guest may use up to two of them in a span that begins in the middle of one
_BEYOND = 1.5  # Times what is allowed is beyond what slices and rounding explain
_CHECK_FRAME_BYTES = 64
_CHECK_PPS, _CHECK_S, _CHECK_TRIES = 200.0, 0.2, 5
_REST_S, _REST_LIMIT_S = 0.03, 3.0


class LimitWatch:
    """Whether the CPU limit that the guests of a laboratory were given holds while they forward.

    Where guests share the host's kernel, what routes their frames may not be theirs at all, and a kernel thread that is
    theirs may be exempt from the quota (Linux 6.18 and later).  Then the load vector matters less than the plan means.

    Attributes:
        unbound: why the limit is not in force, in words; None while nothing shows that.
    """

    def __init__(self, guests: Sequence[Guest], limit: float | None) -> None:
        """Watch guests with a limit in whole CPUs each; without one there is nothing to watch."""
        self._guests, self._limit = guests, limit
        reasons = [guest.confinement().unbound for guest in guests] if limit is not None else []
        self.unbound: str | None = next((reason for reason in reasons if reason is not None), None)

    @contextlib.contextmanager
    def trial(self) -> Iterator[None]:
        """A trial, after which :attr:`unbound` may be known."""
        if self._limit is None or self.unbound is not None:
            yield
            return
        before, started_ns = self._used_ns(), time.monotonic_ns()
        yield
        elapsed_ns, after = time.monotonic_ns() - started_ns, self._used_ns()
        allowed_ns = self._limit * (elapsed_ns + 2 * _PERIOD_NS) * _BEYOND
        for number, (then, now) in enumerate(zip(before, after, strict=True)):
            if then is not None and now is not None and now - then > allowed_ns:
                self.unbound = (
                    f"guest {number} used {(now - then) / elapsed_ns:.2f} CPUs of its {self._limit:g}: "
                    "this kernel does not stop the threads that route for it (Linux 6.18 and later does not)"
                )

    def _used_ns(self) -> list[int | None]:
        return [guest.accounting().cpu_ns for guest in self._guests]


class GuestLab(ForwardingLab):
    """See the module."""

    def __init__(
        self, stage: Stage, settings: ForwardingSettings, cpus: CpuPlan, switch: Switch, lab: Namespace, ends: Ends
    ) -> None:
        super().__init__(stage, flows=settings.guests)
        self.cpus, self.switch = cpus, switch
        self._ends = ends
        ends.timeout_factor = self.timeout_factor
        self._places = DropPlaces(stage, switch, lab)
        self._sent = self._arrived = 0
        self._limit = LimitWatch(stage.guests, settings.cpu_limit)

    @classmethod
    async def create(cls, settings: ForwardingSettings, stage: Stage) -> GuestLab:
        """Make the networks, launch guests and tester, and join them by their rules."""
        cpus = CpuPlan.of(allowed_cpus()) if stage.remote is None else CpuPlan.beside(stage.remote.cpus)
        try:
            lab = Namespace(stage.scope, stage.name("lab"))
            stage.at_end(lab.close)
            ends = await Ends.launch(settings, stage, lab, cpus)
            await launch_routers(settings, stage, lab, cpus)
            switch = _join(settings, stage, lab, cpus)
        except (NetworkError, UnavailableError) as error:
            raise LaunchError("network", str(error)) from error
        stage.charge(switch.cpu_ns)
        stage.charge(cpus.interrupt_threads_ns)
        return cls(stage, settings, cpus, switch, lab, ends)

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
                passed = ", ".join(f"{rule.in_port}→{rule.out_port} {count}" for rule, count in counters if count)
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
            for rule in (ingress_rule(flow), egress_rule(flow)):
                counted, before = rules_now.get(rule), rules.get(rule)
                if counted is not None and before is not None and counted - before < sent:
                    return f"{sent} frames were sent through guest {flow}, its rule counted {counted}"
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
        return await self.measure(Load(shares, _CHECK_FRAME_BYTES, _CHECK_PPS * len(flows), _CHECK_S))

    async def measure(self, load: Load) -> TrialResult:
        with self._limit.trial():
            trial = await self._ends.measure(load)
        self._sent += sum(flow.sent for flow in trial.flows)
        self._arrived += trial.arrived
        return trial

    def unbound(self) -> str | None:
        return self._limit.unbound

    async def measure_loop(self, frame_bytes: int, rate_pps: float, duration_s: float) -> TrialResult:
        return await self._ends.measure_loop(frame_bytes, rate_pps, duration_s)

    async def drop_counters(self) -> list[DropCounter]:
        await self._come_to_rest()
        counters, links = await self._places.read(), link_counts(self._places.lab)
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

    async def _come_to_rest(self) -> None:
        """Wait for the frames that are still under way: counters that are read one after the other must stand still."""
        deadline, before = time.monotonic() + _REST_LIMIT_S * self.timeout_factor, None
        while (now := link_counts(self._places.lab)) != before and time.monotonic() < deadline:
            before = now
            await asyncio.sleep(_REST_S * self.timeout_factor)


def _join(settings: ForwardingSettings, stage: Stage, lab: Namespace, cpus: CpuPlan) -> Switch:
    switch: Switch = (
        OpenVSwitch(stage.scope, lab, name=stage.name("switch"), cpus=cpus.guests)
        if settings.switch == "openvswitch"
        else LinuxBridge(lab)
    )
    stage.at_end(switch.close)
    guests = range(settings.guests)
    switch.add_bridge("br0", [TRANSMIT_PORT, *(ingress_port(number) for number in guests)])
    switch.add_bridge("br1", [RECEIVE_PORT, *(egress_port(number) for number in guests)])
    switch.add_rules([ingress_rule(number) for number in guests])
    switch.add_rules([egress_rule(number) for number in guests])
    return switch
