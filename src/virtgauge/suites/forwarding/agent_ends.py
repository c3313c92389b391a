"""Our own tester at both ends of a laboratory: the agent on the host, in a network namespace of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Self

from virtgauge.analysis.forwarding.load_vectors import equal_shares
from virtgauge.network.namespace import Namespace
from virtgauge.network.nic import Nic
from virtgauge.platforms.base import Guest
from virtgauge.suites.bench import Stage
from virtgauge.suites.forwarding.cpu_plan import CpuPlan
from virtgauge.suites.forwarding.ends import DESTINATION, SOURCE, Ends
from virtgauge.suites.forwarding.packet_trial import Path, Tester
from virtgauge.suites.forwarding.routers import ingress_mac
from virtgauge.suites.forwarding.settings import ForwardingSettings
from virtgauge.suites.forwarding.trial import PACED, Manner, TrialResult

_LOOP_END = "loop"
_TRANSMIT_MAC, _RECEIVE_MAC, _LOOP_MAC = "02:76:67:00:00:01", "02:76:67:00:00:02", "02:76:67:00:00:03"
_LOOP_DRAIN_NS = 50_000_000  # no guest is there that could hold a frame back


class AgentEnds(Ends):
    """See the module."""

    transmit_port, receive_port, receive_mac = "tx", "rx", _RECEIVE_MAC

    def __init__(self, settings: ForwardingSettings, tester: Guest, cpus: CpuPlan) -> None:
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
            paths=[Path(_LOOP_MAC, _RECEIVE_MAC, SOURCE, DESTINATION)],
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
            nics=(Nic(port=cls.transmit_port, mac=_TRANSMIT_MAC), Nic(port=cls.receive_port, mac=_RECEIVE_MAC)),
            lab=lab,
            loop=Nic(port=_LOOP_END, mac=_LOOP_MAC),
            cpus=cpus.tester,
        )
        return cls(settings, tester, cpus)

    async def measure(
        self, shares: Sequence[float], frame_bytes: int, rate_pps: float, duration_s: float, manner: Manner = PACED
    ) -> TrialResult:
        tester = dataclasses.replace(self._tester, drain_ns=round(self._tester.drain_ns * self.patience))
        return await tester.measure(shares, frame_bytes, rate_pps, duration_s, manner)

    async def measure_loop(self, frame_bytes: int, rate_pps: float, duration_s: float) -> TrialResult:
        return await self._loop.measure(equal_shares(1), frame_bytes, rate_pps, duration_s)
