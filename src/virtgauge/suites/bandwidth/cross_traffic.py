"""What others send on the path, by the agent's load ``cross_traffic`` (docs/protocol.md)."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

from virtgauge.agent.channel import AgentError, Channel
from virtgauge.suites.bandwidth.loads import Running, running
from virtgauge.suites.bandwidth.truth import ip_bps

_PORT = 9
"""Of the service that discards (RFC 863); here nobody is at the address."""
_FIFO, _SLEEPS_NS = 40, 1_000_000
"""A sender with at least so long between packets may go before all others.  With less it hardly sleeps where wakes are
late, keeps the receiver from their common processor, and is held back by the kernel for a twentieth of the time."""


@dataclasses.dataclass(frozen=True)
class CrossTraffic:
    """What is sent.

    Attributes:
        destination: address, behind the receiver.
        bps: as the shaper counts, in bit/s.
        packet_bytes: of the IP packets.
        kind: of the gaps: ``constant`` or ``poisson``.
        cpu: of the host; None leaves it to the scheduler.
        seed: of exponential gaps.
    """

    destination: str
    bps: float
    packet_bytes: int
    kind: str
    cpu: int | None
    seed: int

    @property
    def fifo(self) -> int | None:
        """The real-time priority that its sender should have."""
        gap_ns = self.packet_bytes * 8e9 / ip_bps(self.bps, self.packet_bytes)
        return _FIFO if gap_ns >= _SLEEPS_NS else None

    def params(self, fifo: int | None) -> dict[str, Any]:
        """As the load takes it, with a real-time priority of its sender."""
        return {
            "destination": f"{self.destination}:{_PORT}",
            "rate_bps": ip_bps(self.bps, self.packet_bytes),
            "packet_bytes": self.packet_bytes,
            "kind": self.kind,
            "cpu": self.cpu,
            "fifo": fifo,
            "seed": self.seed,
        }


@contextlib.asynccontextmanager
async def crossing(channel: Channel, traffic: CrossTraffic, what: str) -> AsyncIterator[Running]:
    """Cross traffic during the block, sent before all other threads where that does good and this machine lets it.

    Args:
        channel: of the agent that sends.
        traffic: to be sent.
        what: to call it in an error.

    Raises:
        AgentError, ChannelClosedError, ProtocolError: it cannot be sent.
    """
    async with contextlib.AsyncExitStack() as stack:
        try:
            load = await stack.enter_async_context(
                running(channel, "cross_traffic", traffic.params(traffic.fifo), what)
            )
        except AgentError as error:
            if error.code != "unsupported" or traffic.fifo is None:
                raise
            load = await stack.enter_async_context(running(channel, "cross_traffic", traffic.params(None), what))
        yield load
