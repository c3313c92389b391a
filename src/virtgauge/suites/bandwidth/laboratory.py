"""The testbeds: a router between sender and receiver whose way to the receiver is shaped, or a simulation of it.

    tested ──┐
             ├── router ══ shaper ══ (link) ══ receiver
    others ──┘

Each end has an address of its own; the router is a namespace.  What the others send is counted where it enters the
router, and goes to an address behind the receiver, which routes nothing.  Neighbours are permanent, and every offload
is off, so that each frame is one.  The link is there only where something is delayed or lost: a namespace that frames
pass on their way, where the kernel's netem does it at both interfaces of a bridge, or the agent's link emulator moves
every frame itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import socket
import statistics
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from pyroute2 import IPRoute

from virtgauge.agent.channel import AgentError, Channel
from virtgauge.errors import UnavailableError
from virtgauge.network import NetworkError, Nic
from virtgauge.network.links import NUD_PERMANENT, LinkCount, LinkCounters, connect, receive_in_threads
from virtgauge.network.namespace import Namespace, network_error
from virtgauge.network.shaper import LONGEST_BYTES, Bucket, Impairment, dropped_frames, has_netem, impair, shape
from virtgauge.network.switch import LinuxBridge, Rule
from virtgauge.platforms.base import Guest, LaunchError, Share
from virtgauge.platforms.base import stage as launching
from virtgauge.platforms.simulated.platform import SimulatedPlatform
from virtgauge.suites.answers import Running, documented
from virtgauge.suites.bandwidth.program import shared_folders
from virtgauge.suites.bandwidth.settings import BandwidthSettings
from virtgauge.suites.bandwidth.testbed import (
    EMULATOR,
    NOWHERE_NETWORK,
    OTHERS,
    OTHERS_END,
    RECEIVER,
    RECEIVER_END,
    SENDER_END,
    TESTED,
    BandwidthTestbed,
    Conditions,
    Count,
    Counted,
    LinkRecord,
    Path,
    Placement,
    SimulatedPath,
    crossing,
)
from virtgauge.suites.testbed import Stage, allowed_cpus, recorded

_READY_S = 120.0
_FIFO = 60  # Above that of the cross traffic
_FLOOD, _FLOOD_BYTES = 2.0, 1500
_SETTLE_S, _WINDOW_S = 0.1, 0.02
_FILLED = 1.02  # A flood of which more than this, beside what passes, comes in is one that the shaper holds back
_NEAR, _FAR = "eth0", "far"
_SHORTEST_BYTES = 64
_LEAST_QUEUE_BYTES = 4 * 2**20
_SLACK = 2.0
"""What is held beside a full path's worth of the delay: trains come faster than the path's capacity for a moment."""
_OVERRUN = ("missed", "dropped_queue", "dropped_offloaded", "refused")
_WORK_NS = 20_000
"""How much time a frame must have on its path where the processor that works on it sends cross traffic.  The kernel's
work is several microseconds and goes before all programs: of a faster train the others would wait for the end, so that
it finds the path free.  Seen here: 977 Mbit/s for 495."""
Emulated = tuple[int | None, int]
"""What a link tells of itself in the end: how late it let frames go, 99 of 100 no later (None where that is not known),
and how many frames it lost itself, because they came faster than it takes them."""


async def set_up_laboratory(stage: Stage, settings: BandwidthSettings, link_kind: str | None) -> BandwidthTestbed:
    """Make the networks, launch everybody, and join them; ``link_kind`` is None where nothing delays or loses.
    Raises LaunchError: something did not come up; RemoteHostLostError: the tester's host cannot be reached.
    """
    if settings.as_is:
        await stage.launch(TESTED, ready_timeout_s=_READY_S)
        receiver = await stage.launch_second(RECEIVER, ready_timeout_s=_READY_S)
        peer = stage.platform.peer
        address = (peer.address if peer else None) or RECEIVER_END.address  # which a simulated one has
        return BandwidthTestbed(stage, receiver, None, Path(), None, address)
    if isinstance(platform := stage.platform, SimulatedPlatform):
        _, receiver, others = [await stage.launch(name) for name in (TESTED, RECEIVER, OTHERS)]
        simulated = SimulatedPath(platform.link_of(stage.scope, stage.name(TESTED)))
        return BandwidthTestbed(stage, receiver, others, simulated, None)
    where = Placement.of(allowed_cpus(), apart=stage.remote is not None)
    with launching("network", NetworkError, UnavailableError), network_error("the router cannot be configured"):
        router = stage.make_lab("router", forwarding=True)
        link = None if link_kind is None else await make_link(stage, link_kind, router, where)
        _, receiver, others = await _launch(stage, settings, router, link, where)
        router.netlink(_configure)
        if where.router is not None and not stage.platform.is_virtual:
            _take_apart(router, where.router)
        counters = LinkCounters(router)
        stage.at_end(counters.close)
    stage.charge_kernel_threads()
    path = ShapedPath(router, counters, link, others.channel, crowded=where.crowded)
    return BandwidthTestbed(stage, receiver, others, path, where.others)


async def _launch(
    stage: Stage, settings: BandwidthSettings, router: Namespace, link: Link | None, where: Placement
) -> list[Guest]:
    """The tested guest, the receiver, and the others."""
    beside = None if where.others is None else (where.others,)
    wanted: dict[str, Any] = {"ready_timeout_s": _READY_S}
    of_guests = wanted | {"memory_mib": settings.memory_mib}
    of_tested = of_guests | {"nics": (SENDER_END.nic(TESTED),), "lab": router}
    # A virtual machine needs one for what it runs, and another for its devices, through which every packet goes.
    if where.sender is not None and len(where.sender) >= (2 if stage.platform.is_virtual else 1):
        of_tested["cpus"] = where.sender
    if "shim" in settings.through:
        of_tested |= {"host_root": True, "shares": tuple(Share(folder) for folder in shared_folders())}
    if settings.fifo is not None:
        of_tested["capabilities"] = ("CAP_SYS_NICE",)
    port, lab = (RECEIVER, router) if link is None else (_FAR, link.namespace)
    at_receiver = {"nics": (RECEIVER_END.nic(port),), "lab": lab, "cpus": beside}
    if settings.receiver == "guest":
        receiver = stage.launch(RECEIVER, **at_receiver, **of_guests)
    else:
        receiver = stage.launch_peer(RECEIVER, **at_receiver, **wanted)
    others = stage.launch_peer(OTHERS, nics=(OTHERS_END.nic(OTHERS),), lab=router, **wanted)
    return await stage.together(stage.launch(TESTED, **of_tested), receiver, others)


def _take_apart(router: Namespace, cpu: int) -> None:
    """Have what the tested guest sends taken by a thread of the kernel, on a processor of its own, before all others.

    Otherwise all of the path's work is done within the sender's own call, which then takes longer than the gaps that it
    is to keep.  A virtual machine has a thread of its own that hands its frames over.
    """
    for thread in receive_in_threads(router, [TESTED]):
        os.sched_setaffinity(thread, (cpu,))
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(_FIFO))


def _configure(route: IPRoute) -> None:
    """The router's interfaces: addresses, and the neighbours behind them."""
    for end in (SENDER_END, OTHERS_END, RECEIVER_END):
        index = socket.if_nametoindex(end.name)
        route.link("set", index=index, address=end.gateway_mac)
        route.addr("add", index=index, address=end.gateway, prefixlen=24)
        route.neigh("replace", ifindex=index, dst=end.address, lladdr=end.mac, state=NUD_PERMANENT)
    route.route("add", dst=NOWHERE_NETWORK, gateway=RECEIVER_END.address)


def told_by_emulator(answer: Mapping[str, Any]) -> Emulated:
    """What an emulated link tells of itself, by the result of the load ``link_emulator``."""
    ways = [way for way in (answer, answer["back"]) if way is not None]
    lateness = answer["lateness"]
    overrun = sum(int(way[name]) for way in ways for name in _OVERRUN)
    return None if lateness is None else int(lateness["p99_ns"]), overrun


class Link:
    """What delays and loses frames between the router and the receiver; its interface towards that is ``far``.

    Either the kernel does, at both interfaces of a bridge, or an agent, the emulator: it takes every frame from one
    interface, and hands it to the other when it is due.
    """

    def __init__(self, namespace: Namespace, emulator: Channel | None = None, cpu: int | None = None) -> None:
        self.namespace = namespace
        self.kind = "netem" if emulator is None else "emulator"
        self._bridge, self._emulator, self._cpu = LinuxBridge(namespace), emulator, cpu
        self._running: Running | None = None
        self._told: Emulated = None, 0

    async def begin(self, conditions: Conditions) -> None:
        """Delay and lose as these say, from now on.
        Raises AgentError: that cannot be; ChannelClosedError, ProtocolError: the emulator is gone.
        """
        self._told = None, 0
        if self._emulator is not None:
            params = emulation(conditions) | {"from": _NEAR, "to": _FAR, "cpu": self._cpu}
            self._running = await Running.start(self._emulator, "link_emulator", params, "the link emulator")
            return
        try:
            if not self._bridge.bridges:  # once the receiver has its interface
                self._bridge.add_bridge("br0", [_NEAR, _FAR])
                rules = [Rule(_NEAR, RECEIVER_END.mac, _FAR), Rule(_FAR, RECEIVER_END.gateway_mac, _NEAR)]
                self._bridge.add_rules(rules)
            there, back = impairments(conditions)
            impair(self.namespace, _FAR, there)
            impair(self.namespace, _NEAR, back)
        except NetworkError as error:
            raise AgentError("unsupported", str(error)) from error

    async def end(self) -> Emulated:
        """Let frames pass no more; what it tells of itself since it began. Raises AgentError: it was lost meanwhile."""
        running, self._running = self._running, None
        if running is not None:
            await running.stop()
            if running.silence is not None:
                raise AgentError("lost", f"the link emulator: {running.silence}")
            running.require_whole()
            with documented("the link emulator's end"):
                self._told = told_by_emulator(running.answer)
        return self._told


def impairments(conditions: Conditions) -> tuple[Impairment, Impairment]:
    """Of the way there and of the way back: half of the delay each, and the loss on the way there."""
    each_us = round(conditions.delay_ms * 1000 / 2)
    frames = queue_bytes(conditions) // _SHORTEST_BYTES
    return Impairment(each_us, conditions.loss, frames), Impairment(each_us, 0.0, frames)


def emulation(conditions: Conditions) -> dict[str, Any]:
    """The same as the agent's load ``link_emulator`` takes it; the rate is the shaper's, in front of it."""
    return {
        "rate_bps": None,
        "delay_ns": round(conditions.delay_ms * 1e6 / 2),
        "loss": conditions.loss,
        "queue_bytes": queue_bytes(conditions),
        "both": True,
        "fifo": None,
        "seed": 1,
    }


def queue_bytes(conditions: Conditions) -> int:
    """What is under way at most: a full path's worth of the delay, and more."""
    held = conditions.shaped_bps / 8 * conditions.delay_ms / 2e3
    return _LEAST_QUEUE_BYTES + round(_SLACK * held)


async def make_link(stage: Stage, kind: str, router: Namespace, where: Placement) -> Link:
    """A link that is joined to the router.
    Raises LaunchError: netem was asked for, and this kernel has none; or the emulator did not come up.  NetworkError:
    something of it cannot be made.
    """
    namespace = stage.make_lab("link")
    connect(router, namespace, [Nic(port=RECEIVER, mac="02:76:67:0b:04:01")])
    if kind != "emulator" and has_netem(namespace):
        return Link(namespace)
    if kind == "netem":
        raise LaunchError("network", "this kernel has no netem; leave link out to use the agent's own emulator")
    cpus = None if where.others is None else (where.others,)
    agent = await stage.launch_peer(EMULATOR, lab=namespace, cpus=cpus)
    return Link(namespace, agent.channel, where.others)


class ShapedPath(Path):
    """The path of real guests: shaped by the kernel at the router's way to the receiver, counted at its interfaces."""

    def __init__(
        self, router: Namespace, counters: LinkCounters, link: Link | None, others: Channel, *, crowded: bool
    ) -> None:
        self._router, self._counters = router, counters
        self._link = link  # behind the shaper; None where there is none
        self._others = others  # who can flood the path
        self._crowded = crowded  # who sends cross traffic has no processor apart from the path's own
        self._bucket: Bucket | None = None
        self._conditions: Conditions | None = None

    async def set(self, conditions: Conditions) -> None:
        c = conditions
        if self._crowded and c.cross_bps and LONGEST_BYTES * 8e9 / c.shaped_bps < _WORK_NS:
            words = (
                f"a path of {c.shaped_bps / 1e6:g} Mbit/s beside cross traffic needs three processors: with fewer "
                "the cross traffic waits while probes pass"
            )
            raise AgentError("unsupported", words)
        bucket = Bucket.of(c.shaper, c.shaped_bps, c.burst_us, c.queue_ms)
        try:
            shape(self._router, RECEIVER, bucket)
        except NetworkError as error:
            raise AgentError("unsupported", str(error)) from error
        self._bucket, self._conditions = bucket, conditions

    async def rest(self) -> LinkRecord:
        assert self._bucket is not None
        record = LinkRecord(self._bucket.kind, self._bucket.burst_bytes, self._bucket.limit_bytes)
        if self._link is None:
            return record
        lateness_p99_ns, overrun = await self._link.end()
        return dataclasses.replace(record, kind=self._link.kind, lateness_p99_ns=lateness_p99_ns, overrun=overrun)

    async def measured_bps(self, seconds: float) -> float | None:
        if not seconds or self._bucket is None:
            return None
        came, passed = [], []
        flood, bps = "the flood that shows the path's capacity", _FLOOD * self._bucket.rate_bps
        async with crossing(self._others, flood, bps, _FLOOD_BYTES):
            await asyncio.sleep(_SETTLE_S)
            ends_ns = time.monotonic_ns() + round(seconds * 1e9)
            before_ns, before = time.monotonic_ns(), self._read()
            while before_ns < ends_ns:
                await asyncio.sleep(_WINDOW_S)
                now_ns, now = time.monotonic_ns(), self._read()
                came.append((now[0].rx_bytes - before[0].rx_bytes) * 8e9 / (now_ns - before_ns))
                passed.append((now[1].tx_bytes - before[1].tx_bytes) * 8e9 / (now_ns - before_ns))
                before_ns, before = now_ns, now
        if statistics.fmean(came) < _FILLED * statistics.fmean(passed):
            return None
        # A machine that stands still for a moment lets less pass then, and more never.
        return statistics.median(passed)

    def _read(self) -> tuple[LinkCount, LinkCount]:
        return self._counters.read(OTHERS), self._counters.read(RECEIVER)

    @contextlib.asynccontextmanager
    async def counting(self) -> AsyncIterator[Count]:
        assert self._conditions is not None
        if self._link is not None:  # not in the floods, in which it may lose what the estimate never sends
            await self._link.begin(self._conditions)
        dropped_before, began_ns = self._dropped(), time.monotonic_ns()
        ended_ns = dropped = 0

        def over(start_ns: int, end_ns: int) -> Counted:
            start, end = max(start_ns, began_ns), min(end_ns, ended_ns)
            sent, frames = (record.between(start, end) or 0 for record in records)
            return Counted(sent, frames, dropped, max(end - start, 0))

        accounts = (lambda: self._counters.read(OTHERS).rx_bytes, lambda: self._counters.read(OTHERS).rx_frames)
        async with recorded(*accounts, every_s=0.05) as records:
            yield over
            ended_ns = time.monotonic_ns()
        dropped = self._dropped() - dropped_before
        if self._link is not None:
            await self._link.end()

    def _dropped(self) -> int:
        try:
            return dropped_frames(self._router, RECEIVER)
        except NetworkError as error:
            raise AgentError("lost", f"the path's shaper was lost: {error.message}") from error
