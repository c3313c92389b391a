"""The agent's probe ``packet_trial`` (docs/protocol.md) from the controller's side."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from virtgauge.agent.channel import Channel, Reply
from virtgauge.agent.frames import ProtocolError
from virtgauge.suites.answers import decode_histogram, elapsed_by_clock
from virtgauge.suites.forwarding.trial import PACED, FlowResult, Sending, TrialResult

_ARRIVED = ("received", "duplicates", "foreign", "corrupted", "receiver_ring_full", "receiver_dropped")


@dataclasses.dataclass(frozen=True)
class Path:
    """One flow's addresses: through which guest its frames go.

    Attributes:
        source_mac, destination_mac: as sent; the destination is the guest's ingress interface.
        source, destination: IPv4; the destination lies behind the guest.
    """

    source_mac: str
    destination_mac: str
    source: str
    destination: str


@dataclasses.dataclass(frozen=True)
class Tester:
    """An agent with two interfaces, and how it is to use them.

    Attributes:
        channel: of the agent.
        port: kind of port; ``auto`` leaves it to the agent.
        transmit, receive: names of the interfaces.
        paths: one for each flow.
        transmit_cpu, receive_cpu: processors for the two ends; None leaves it to the kernel.
        drain_ns: how long is waited for frames after the last was sent.
        seed: of the flows' order.
    """

    channel: Channel
    port: str
    transmit: str
    receive: str
    paths: Sequence[Path]
    transmit_cpu: int | None = None
    receive_cpu: int | None = None
    drain_ns: int = 200_000_000
    seed: int = 1

    async def measure(
        self,
        shares: Sequence[float],
        frame_bytes: int,
        rate_pps: float,
        duration_s: float,
        sending: Sending = PACED,
    ) -> TrialResult:
        """One trial.

        Raises:
            AgentError, ChannelClosedError, ProtocolError: as any request.
        """
        reply = await self.ask(shares, frame_bytes, rate_pps, duration_s, sending)
        return trial_of(reply.value, rate_pps, duration_s)

    async def ask(
        self,
        shares: Sequence[float],
        frame_bytes: int,
        rate_pps: float,
        duration_s: float,
        sending: Sending = PACED,
    ) -> Reply:
        """One trial, as the agent tells it.

        Raises:
            AgentError, ChannelClosedError, ProtocolError: as any request.
        """
        params = {
            "port": self.port,
            "transmit": self.transmit,
            "receive": self.receive,
            "flows": [
                dataclasses.asdict(path) | {"weight": float(share)}
                for path, share in zip(self.paths, shares, strict=True)
            ],
            "frame_bytes": frame_bytes,
            "rate_pps": float(rate_pps),
            "duration_ns": max(round(duration_s * 1e9), 1),
            "burst": sending.burst,
            "drain_ns": self.drain_ns,
            "latency": "one_tagged" if sending.tagged else "all",
            "tx_cpu": self.transmit_cpu,
            "rx_cpu": self.receive_cpu,
            "seed": self.seed,
        }
        return await self.channel.request("probe", name="packet_trial", params=params)


def trial_of(value: dict[str, Any], rate_pps: float, duration_s: float) -> TrialResult:
    """A result of ``packet_trial``.

    What the tester itself dropped: frames that its interface refused or counted as dropped on sending (the same frames,
    where the kernel does both), and frames that came and that its receiving end had no room for.

    Raises:
        ProtocolError: it is not one.
    """
    try:
        return TrialResult(
            rate_pps=rate_pps,
            duration_s=duration_s,
            elapsed_s=int(value["elapsed_ns"]) / 1e9,
            flows=tuple(_flow(flow) for flow in value["flows"]),
            stretched=bool(value["stretched"]),
            late=int(value["late"]),
            port=str(value["port"]),
            drops={
                "transmit queue": max(int(value["refused"]), int(value["transmit_counters"]["send_dropped"])),
                "receive ring": int(value["receiver_ring_full"]),
                "receive socket": int(value["receiver_dropped"]),
            },
            # not what the interface counted, which goes on while the receiving end is being closed
            arrived=sum(int(value.get(field, 0)) for field in _ARRIVED),
            clocks=elapsed_by_clock(value["clocks_start"], value["clocks_end"]) if "clocks_start" in value else (),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"the result of packet_trial is not what docs/protocol.md says: {error!r}") from error


def _flow(value: dict[str, Any]) -> FlowResult:
    latency = value["latency"]
    return FlowResult(
        sent=int(value["sent"]),
        lost=int(value["lost"]),
        duplicates=int(value["duplicates"]),
        reordered=int(value["reordered"]),
        latency=decode_histogram(latency) if latency is not None and int(latency["n"]) else None,
    )
