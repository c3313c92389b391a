"""TRex as the tester, for real NICs: its trials have the same form as those of our own ports.

Never yet run against a real server, which needs NICs under DPDK; tested against its published messages (docs/trex.md).
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from virtgauge.errors import UnavailableError, UsageError
from virtgauge.ledger.records import Histogram
from virtgauge.suites.forwarding.trex_latency import latency_histogram
from virtgauge.suites.forwarding.trex_rpc import SYNC_PORT, TrexError
from virtgauge.suites.forwarding.trex_session import ALL_CORES, GroupCounters, PortFacts, TrexSession
from virtgauge.suites.forwarding.trex_streams import (
    MAX_LATENCY_GROUPS,
    MAX_LATENCY_PPS,
    TrexFlow,
    TrexStream,
    streams_of_load,
)
from virtgauge.suites.forwarding.trial import FlowResult, TrialResult

_POLL_S = 0.2
_PUNCTUAL_S = 0.25  # of its duration, with what requests and polling take
_OVERTIME_S = 5.0  # that TRex may send beyond its duration before it is taken to hang


class TrexSettings(BaseModel):
    """A plan's section for TRex."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str
    """Where ``./t-rex-64 -i`` runs."""
    rpc_port: Annotated[int, Field(ge=1, le=65535)] = SYNC_PORT
    ingress: str
    """This machine's interface that is cabled to its transmit port; it becomes a port of br0."""
    egress: str
    """This machine's interface that is cabled to its receive port; it becomes a port of br1."""
    transmit_port: Annotated[int, Field(ge=0, le=255)] = 0
    """The server's number of the port that is connected to br0."""
    receive_port: Annotated[int, Field(ge=0, le=255)] = 1
    """The server's number of the port that is connected to br1."""
    force: bool = False
    """Take the ports away from whoever has acquired them."""
    core_mask: Annotated[int, Field(ge=1, le=ALL_CORES)] = ALL_CORES
    """The server's cores that send."""
    latency_pps: Annotated[float, Field(ge=0)] = 1000.0
    """Frames per second and flow that are timed, at most a tenth of the flow; 0 for none."""
    drain_s: Annotated[float, Field(ge=0, le=60)] = 2.0
    """How long frames may take to come back after the last was sent; RFC 2544, section 23, waits two seconds."""
    shortfall: Annotated[float, Field(gt=0, lt=1)] = 0.005
    """Part of the load that may be missing before the generator counts as the limit."""
    timeout_s: Annotated[float, Field(gt=0)] = 5.0
    """For each answer of the server."""

    @model_validator(mode="after")
    def _two_ports(self) -> TrexSettings:
        if self.transmit_port == self.receive_port:
            raise ValueError("transmit_port and receive_port must differ: frames go in at br0 and come back from br1")
        if self.ingress == self.egress:
            raise ValueError("ingress and egress must differ: one is cabled to each port of TRex")
        return self


class TrexDevice:
    """What is connected between two ports of a TRex server: a :class:`~.trial.Device` of one load vector and frame."""

    def __init__(self, session: TrexSession, flows: Sequence[TrexFlow], settings: TrexSettings) -> None:
        if settings.latency_pps and len(flows) > MAX_LATENCY_GROUPS:
            raise UsageError(
                f"TRex times {MAX_LATENCY_GROUPS} flows at most, not {len(flows)}", "use fewer, or latency_pps = 0"
            )
        if settings.latency_pps * len(flows) > MAX_LATENCY_PPS:
            raise UsageError(
                f"latency_pps = {settings.latency_pps:g} for each of {len(flows)} flows are more than the "
                f"{MAX_LATENCY_PPS:,} frames per second that TRex can time",
                f"use latency_pps = {MAX_LATENCY_PPS // len(flows)} or less",
            )
        self._session = session
        self._flows = tuple(flows)
        self._settings = settings

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, flows: Sequence[TrexFlow], settings: TrexSettings) -> AsyncIterator[TrexDevice]:
        """Acquire the two ports; they are given back at the end, whatever happened.

        Raises:
            UnavailableError: no server answers, it speaks another version of its interface, it has no such port, a
                port is somebody else's, cannot count that many flows, or its link is down.
        """
        async with TrexSession.open(settings.host, settings.rpc_port, settings.timeout_s) as session:
            await _check_ports(session, len(flows), settings)
            for port in (settings.transmit_port, settings.receive_port):
                await session.acquire(port, force=settings.force)
                if not (await session.status(port)).link_up:
                    raise UnavailableError(
                        f"the link of port {port} of TRex at {settings.host} is down",
                        "connect it, or set the other end up, and see TRex's console: portattr",
                    )
            yield cls(session, flows, settings)

    async def ports(self) -> tuple[PortFacts, PortFacts]:
        """The transmitting and the receiving port."""
        ports = await self._session.ports()
        return ports[self._settings.transmit_port], ports[self._settings.receive_port]

    def with_flows(self, flows: Sequence[TrexFlow]) -> TrexDevice:
        """The same ports with another load vector or frame size."""
        return TrexDevice(self._session, flows, self._settings)

    async def measure(self, rate_pps: float, duration_s: float) -> TrialResult:
        """Offer a load, of all flows together, and count what comes back.

        Loss is sent less received, of all frames of a flow.  Latency, order and duplicates are known of its timed
        frames alone.  A trial in which TRex sent less than it should, or took longer, is ``stretched``: the load was
        never offered.

        Raises:
            TrexError: a port was taken away, its link went down, or the server did not do as it publishes.
            UnavailableError: the server does not answer any more.
        """
        settings, session = self._settings, self._session
        streams = streams_of_load(self._flows, rate_pps, settings.latency_pps, await session.free_groups())
        if not streams:
            raise UsageError(f"a rate of {rate_pps:g} frames per second offers nothing to any flow")
        await session.clear(settings.transmit_port)
        await session.add(settings.transmit_port, streams)
        before = await self._port_errors()
        await session.start(settings.transmit_port, duration_s, settings.core_mask)
        overtime_s = await self._until_sent(duration_s)
        await asyncio.sleep(settings.drain_s)
        groups = await session.group_counters([stream.group for stream in streams])
        after = await self._port_errors()
        await session.stop_counting(settings.transmit_port)
        await session.clear(settings.transmit_port)

        drops = {place: after[place] - before[place] for place in after if after[place] > before[place]}
        drops.update(self._received_elsewhere(groups.values()))
        flows = self._flow_results(streams, groups)
        asked = rate_pps * duration_s * sum(flow.share for flow in self._flows)
        # A stream's last frame may fall on either side of the end.
        shortfall = asked - sum(flow.sent for flow in flows) - len(streams)
        return TrialResult(
            rate_pps=rate_pps,
            duration_s=duration_s,
            elapsed_s=duration_s + overtime_s,
            flows=flows,
            stretched=shortfall > asked * settings.shortfall or overtime_s > 0,
            port="trex",
            drops=drops,
            arrived=sum(group.received.get(settings.receive_port, 0) for group in groups.values()),
        )

    async def _until_sent(self, duration_s: float) -> float:
        """Wait for the end of sending, while both ports stay ours and connected; seconds beyond the duration.

        Cores that cannot keep up shift what remains to be sent, and with it the end (``handle_time_strech`` of the
        server's ``src/bp_sim.cpp``).

        The server's publisher (port 4500) is of no use: to a stateless session it says only that there is something to
        be asked for.
        """
        session, settings = self._session, self._settings
        due = time.monotonic() + duration_s
        while True:
            sender = await session.status(settings.transmit_port)
            receiver = await session.status(settings.receive_port)
            for port, status in ((settings.transmit_port, sender), (settings.receive_port, receiver)):
                if status.owner != session.user:
                    taker = f"by {status.owner}" if status.owner else "and released"
                    raise TrexError(f"port {port} of TRex at {settings.host} was taken away during the trial {taker}")
                if not status.link_up:
                    raise TrexError(f"the link of port {port} of TRex at {settings.host} went down during the trial")
            if not sender.transmitting:
                overtime_s = time.monotonic() - due
                return overtime_s if overtime_s > _PUNCTUAL_S else 0.0
            left = due - time.monotonic()
            if left < -_OVERTIME_S:
                raise TrexError(
                    f"TRex at {settings.host} still sends {_OVERTIME_S:g} s after a trial of {duration_s:g} s"
                )
            await asyncio.sleep(min(max(left, _POLL_S / 10), _POLL_S))

    async def _port_errors(self) -> dict[str, int]:
        sender, receiver = self._settings.transmit_port, self._settings.receive_port
        return {
            f"TRex port {sender} oerrors": (await self._session.port_counters(sender))["oerrors"],
            f"TRex port {receiver} ierrors": (await self._session.port_counters(receiver))["ierrors"],
        }

    def _received_elsewhere(self, groups: Iterable[GroupCounters]) -> Mapping[str, int]:
        """Our frames that came back to a port that is not the receiving one."""
        places: collections.Counter[str] = collections.Counter()
        for group in groups:
            for port, frames in group.received.items():
                if port != self._settings.receive_port and frames:
                    places[f"received by TRex port {port}"] += frames
        return places

    def _flow_results(
        self, streams: Sequence[TrexStream], groups: Mapping[int, GroupCounters]
    ) -> tuple[FlowResult, ...]:
        results = []
        for number in range(len(self._flows)):
            sent = received = duplicates = reordered = 0
            latency = None
            for stream in streams:
                if stream.flow != number:
                    continue
                group = groups[stream.group]
                sent += group.sent.get(self._settings.transmit_port, 0)
                received += group.received.get(self._settings.receive_port, 0)
                if stream.rule == "latency":
                    duplicates += group.errors.get("dup", 0)
                    reordered += group.errors.get("ooo", 0)
                    latency = _histogram(stream.group, group)
            # Copies of untimed frames show only in that more came back than was sent.
            results.append(
                FlowResult(
                    sent=sent,
                    lost=max(sent - received, 0),
                    duplicates=max(duplicates, received - sent),
                    reordered=reordered,
                    latency=latency,
                )
            )
        return tuple(results)


async def _check_ports(session: TrexSession, flows: int, settings: TrexSettings) -> None:
    ports = await session.ports()
    for port in (settings.transmit_port, settings.receive_port):
        if port not in ports:
            raise UnavailableError(
                f"TRex at {settings.host} has no port {port}; it has {', '.join(map(str, sorted(ports))) or 'none'}",
                "choose transmit_port and receive_port among them, or name more interfaces in its /etc/trex_cfg.yaml",
            )
    receiver = ports[settings.receive_port]
    missing = {"flow_stats"} | ({"latency"} if settings.latency_pps else set())
    if missing := missing.difference(receiver.capabilities):
        raise UnavailableError(
            f"port {settings.receive_port} of TRex at {settings.host} ({receiver.description}) cannot do "
            f"{' and '.join(sorted(missing))}",
            "start TRex with --software, which counts on any NIC, at a lower rate",
        )
    if flows > receiver.groups:
        raise UnavailableError(
            f"port {settings.receive_port} of TRex at {settings.host} ({receiver.description}) counts "
            f"{receiver.groups} flows at a time, not {flows}",
            "use fewer flows, or start TRex with --software, which counts 1023",
        )


def _histogram(number: int, group: GroupCounters) -> Histogram | None:
    if group.latency is None:
        return None
    try:
        return latency_histogram(group.latency)
    except (KeyError, TypeError, ValueError) as odd:
        raise TrexError(f"the latency of packet group {number} is not as TRex publishes it: {odd!r}") from odd
