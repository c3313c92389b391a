"""What stands at both ends of a laboratory of guests: sends into br0, and takes from br1 what has come through."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from virtgauge.suites.forwarding.calibration import TesterCalibration
from virtgauge.suites.forwarding.trial import Manner, TrialResult

# Addresses that no one has: a kernel that owned one would answer every frame that nobody waits for.
SOURCE, DESTINATION = "10.76.255.1", "10.77.255.1"


class Ends(abc.ABC):
    """A tester, connected to a lab.

    Attributes:
        transmit_port, receive_port: the lab's interfaces to which it is connected, for br0 and br1.
        receive_mac: hardware address that the guests send to.
    """

    transmit_port: str
    receive_port: str
    receive_mac: str

    @abc.abstractmethod
    async def measure(
        self, shares: Sequence[float], frame_bytes: int, rate_pps: float, duration_s: float, manner: Manner
    ) -> TrialResult:
        """Offer a load to the guests by this vector.

        Raises:
            AgentError, ChannelClosedError, ProtocolError: the tester failed.
        """

    @abc.abstractmethod
    async def calibration(self, frame_bytes: int, highest_pps: float, duration_s: float) -> TesterCalibration:
        """What the tester itself can do.

        Raises:
            AgentError, ChannelClosedError, ProtocolError: the tester failed.
        """


def ingress_mac(number: int) -> str:
    """Hardware address by which a guest's frames reach it."""
    return f"02:76:67:01:00:{number:02x}"
