"""What stands at both ends of a laboratory of guests: sends into br0, and takes from br1 what has come through."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from virtgauge.agent.channel import AgentError
from virtgauge.suites.forwarding.calibration import TesterCalibration
from virtgauge.suites.forwarding.trial import Manner, TrialResult

# Addresses that no one has: a kernel that owned one would answer every frame that nobody waits for.
SOURCE, DESTINATION = "10.76.255.1", "10.77.255.1"


class Ends(abc.ABC):
    """A tester, connected to a lab.

    Attributes:
        transmit_port, receive_port: the lab's interfaces to which it is connected, for br0 and br1.
        receive_mac: hardware address that the guests send to.
        patience: how many times longer than usual it waits for frames that are still under way.
    """

    transmit_port: str
    receive_port: str
    receive_mac: str
    patience: float = 1.0

    @abc.abstractmethod
    async def measure(
        self, shares: Sequence[float], frame_bytes: int, rate_pps: float, duration_s: float, manner: Manner
    ) -> TrialResult:
        """Offer a load to the guests by this vector.

        Raises:
            AgentError, ChannelClosedError, ProtocolError: the tester failed.
        """

    async def measure_loop(self, frame_bytes: int, rate_pps: float, duration_s: float) -> TrialResult:
        """Offer a load to a bare loop, from the tester to itself.

        Raises:
            AgentError, ChannelClosedError, ProtocolError: the tester failed, or has no such loop (``unsupported``).
        """
        raise AgentError("unsupported", "this tester has no bare loop")

    def known_calibration(self, frame_bytes: int, highest_pps: float) -> TesterCalibration | None:
        """What the tester can do without being measured; None where only its bare loop tells."""
        return None
