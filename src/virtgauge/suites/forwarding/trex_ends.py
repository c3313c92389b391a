"""TRex at both ends of a laboratory: two of its ports, cabled to two interfaces of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from virtgauge.agent.channel import AgentError
from virtgauge.analysis.forwarding.line_rate import wire_frames_per_s
from virtgauge.analysis.forwarding.load_vectors import equal_shares
from virtgauge.errors import UnavailableError
from virtgauge.network.loan import lend
from virtgauge.network.namespace import Namespace
from virtgauge.suites.bench import Stage
from virtgauge.suites.forwarding.calibration import TesterCalibration
from virtgauge.suites.forwarding.ends import DESTINATION, SOURCE, Ends
from virtgauge.suites.forwarding.routers import ingress_mac
from virtgauge.suites.forwarding.trex import TrexDevice, TrexSettings
from virtgauge.suites.forwarding.trex_rpc import TrexError
from virtgauge.suites.forwarding.trex_session import PortFacts
from virtgauge.suites.forwarding.trex_streams import TrexFlow, udp_frame
from virtgauge.suites.forwarding.trial import PACED, Manner, TrialResult

_SMALLEST_FRAME_BYTES = 64


class TrexEnds(Ends):
    """See the module."""

    def __init__(self, settings: TrexSettings, device: TrexDevice, transmit: PortFacts, receive: PortFacts) -> None:
        self.transmit_port, self.receive_port = settings.ingress, settings.egress
        self.receive_mac = receive.mac
        self._transmit_mac = transmit.mac
        self._mbps = min(transmit.mbps, receive.mbps)
        self._device = device

    @classmethod
    async def connect(cls, stage: Stage, settings: TrexSettings, guests: int, lab: Namespace) -> Self:
        """Lend the lab the two interfaces, and acquire TRex's ports until the bench ends.

        Raises:
            NetworkError: an interface is not there, or in use.
            UnavailableError: TRex cannot be used; the message says why.
        """
        for interface in (settings.ingress, settings.egress):
            stage.at_end(lend(lab, interface))
        try:
            placeholders = _flows("02:00:00:00:00:01", equal_shares(guests), _SMALLEST_FRAME_BYTES)
            device = await stage.connect(TrexDevice.open(placeholders, settings))
            return cls(settings, device, *await device.ports())
        except TrexError as error:
            raise UnavailableError(f"TRex at {settings.host}: {error}", "see its own console") from error

    async def measure(
        self, shares: Sequence[float], frame_bytes: int, rate_pps: float, duration_s: float, manner: Manner = PACED
    ) -> TrialResult:
        if manner != PACED:
            raise AgentError("unsupported", "TRex is asked for steady loads only: no bursts, no single timed frame")
        device = self._device.with_flows(_flows(self._transmit_mac, shares, frame_bytes))
        try:
            return await device.measure(rate_pps, duration_s)
        except (TrexError, UnavailableError) as error:
            raise AgentError("tester", str(error)) from error

    def known_calibration(self, frame_bytes: int, highest_pps: float) -> TesterCalibration:
        """The line rate of its ports: a cabled tester has no bare loop."""
        line_pps = wire_frames_per_s(frame_bytes, self._mbps * 1e6)
        return TesterCalibration(min(line_pps, highest_pps), "trex", None, None, None)


def _flows(source_mac: str, shares: Sequence[float], frame_bytes: int) -> list[TrexFlow]:
    return [
        TrexFlow(
            udp_frame(
                source_mac=source_mac,
                destination_mac=ingress_mac(number),
                source=SOURCE,
                destination=DESTINATION,
                size=frame_bytes,
            ),
            share,
        )
        for number, share in enumerate(shares)
    ]
