"""The tester at both ends of a laboratory: the agent on the host, in a network namespace of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Self

from virtgauge.analysis.forwarding import equal_shares
from virtgauge.network.namespace import Namespace
from virtgauge.network.nic import Nic
from virtgauge.platforms.base import Guest
from virtgauge.suites.forwarding.cpu_plan import CpuPlan
from virtgauge.suites.forwarding.packet_trial import Path, Tester
from virtgauge.suites.forwarding.routers import (
    DESTINATION,
    RECEIVE_MAC,
    RECEIVE_PORT,
    SOURCE,
    TRANSMIT_PORT,
    ingress_mac,
)
from virtgauge.suites.forwarding.settings import ForwardingSettings
from virtgauge.suites.forwarding.trial import Sending, TrialResult
from virtgauge.suites.testbed import Stage

_LOOP_END = "loop"
_TRANSMIT_MAC, _LOOP_MAC = "02:76:67:00:00:01", "02:76:67:00:00:03"
_LOOP_DRAIN_NS = 50_000_000  # no guest is there that could hold a frame back


class Ends:
    """Sends into br0, and takes from br1 what has come through.

    Attributes:
        timeout_factor: how many times longer than usual it waits for frames that are still under way.
    """

    def __init__(self, settings: ForwardingSettings, tester: Guest, cpus: CpuPlan) -> None:
        self.timeout_factor = 1.0
        self._tester = Tester(
            channel=tester.channel,
            port=settings.port,
            transmit="eth0",
            receive="eth1",
            paths=[Path(_TRANSMIT_MAC, ingress_mac(n), SOURCE, DESTINATION) for n in range(settings.guests)],
            transmit_cpu=cpus.transmit,
            receive_cpu=cpus.receive,
        )
        self._loop = Tester(
            channel=tester.channel,
            port=settings.port,
            transmit="eth2",
            receive=_LOOP_END,
            paths=[Path(_LOOP_MAC, RECEIVE_MAC, SOURCE, DESTINATION)],
            transmit_cpu=cpus.transmit,
            receive_cpu=cpus.receive,
            drain_ns=_LOOP_DRAIN_NS,
        )

    @classmethod
    async def launch(cls, settings: ForwardingSettings, stage: Stage, lab: Namespace, cpus: CpuPlan) -> Self:
        """Start it, linked to the lab, and to itself for the bare loop.

        Raises:
            LaunchError: it did not come up.
        """
        tester = await stage.launch_peer(
            "tester-agent",
            nics=(Nic(port=TRANSMIT_PORT, mac=_TRANSMIT_MAC), Nic(port=RECEIVE_PORT, mac=RECEIVE_MAC)),
            lab=lab,
            loop=Nic(port=_LOOP_END, mac=_LOOP_MAC),
            cpus=cpus.tester,
        )
        return cls(settings, tester, cpus)

    async def measure(
        self, shares: Sequence[float], frame_bytes: int, rate_pps: float, duration_s: float, sending: Sending
    ) -> TrialResult:
        """Offer a load to the guests by this vector.

        Raises:
            AgentError, ChannelClosedError, ProtocolError: the tester failed.
        """
        tester = dataclasses.replace(self._tester, drain_ns=round(self._tester.drain_ns * self.timeout_factor))
        return await tester.measure(shares, frame_bytes, rate_pps, duration_s, sending)

    async def measure_loop(self, frame_bytes: int, rate_pps: float, duration_s: float) -> TrialResult:
        """Offer a load to a bare loop, from the tester to itself.

        Raises:
            AgentError, ChannelClosedError, ProtocolError: the tester failed.
        """
        return await self._loop.measure(equal_shares(1), frame_bytes, rate_pps, duration_s)
