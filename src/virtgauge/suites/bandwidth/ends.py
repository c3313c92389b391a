"""The ends of a path: their addresses, and those of the router towards them; none of them exists outside of a lab."""

from __future__ import annotations

import dataclasses

from virtgauge.network.nic import Neighbour, Nic, Route
from virtgauge.suites.bandwidth.testbed import OTHERS, RECEIVER, TESTED


@dataclasses.dataclass(frozen=True)
class End:
    """One end of the path, and the router's interface towards it.

    Attributes:
        name: of that interface.
        number: of its network.
    """

    name: str
    number: int

    @property
    def address(self) -> str:
        """Of the end."""
        return f"10.81.{self.number}.1"

    @property
    def gateway(self) -> str:
        """Of the router."""
        return f"10.81.{self.number}.254"

    @property
    def mac(self) -> str:
        """Of the end."""
        return f"02:76:67:0b:0{self.number}:01"

    @property
    def gateway_mac(self) -> str:
        """Of the router."""
        return f"02:76:67:0b:0{self.number}:fe"

    def nic(self, port: str) -> Nic:
        """The end's only interface.

        Args:
            port: name of its other end.
        """
        return Nic(
            port=port,
            mac=self.mac,
            addresses=(f"{self.address}/24",),
            routes=(Route("default", self.gateway),),
            neighbours=(Neighbour(self.gateway, self.gateway_mac),),
        )


SENDER_END, OTHERS_END, RECEIVER_END = End(TESTED, 1), End(OTHERS, 2), End(RECEIVER, 3)
NOWHERE, NOWHERE_NETWORK = "10.81.9.1", "10.81.9.0/24"
"""Behind the receiver, which routes nothing: what comes for it is dropped without an answer."""
