"""One trial of the forwarding laboratory: a load offered for some time, and what became of every flow's frames."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from virtgauge.agent.channel import Channel
from virtgauge.analysis.packets import shows_more_loss
from virtgauge.suites.answers import CountedHistogram, decoded, documented, elapsed_by_clock
from virtgauge.suites.base import Elapsed

_SHORTEST_NS = 1_000_000  # Of a trial, to the agent
_RING, _SOCKET = "receive ring", "receive socket"
_ARRIVED = ("received", "duplicates", "foreign", "corrupted", "receiver_ring_full", "receiver_dropped")


@dataclasses.dataclass(frozen=True)
class Load:
    """What is offered."""

    shares: Sequence[float]  # of every flow: the load vector
    frame_bytes: int  # with their check sequence
    # rate_pps, duration_s: all flows together
    rate_pps: float
    duration_s: float
    burst: int = 0  # so many frames at that rate, whatever the duration; 0 for what the duration has
    # only the frame in the middle of the stream is timed (RFC 2544, section 26.2), and not every one
    tagged: bool = False


@dataclasses.dataclass(frozen=True)
class FlowResult:
    """One flow, that is, one guest."""

    sent: int
    lost: int  # frames that never came back
    duplicates: int = 0  # further copies of frames that had come
    reordered: int = 0  # frames that came after a later one
    # of the frames that came back, in picoseconds; None where it was not measured, or none came back
    latency: CountedHistogram = None

    @property
    def loss_ratio(self) -> float:
        return self.lost / self.sent if self.sent else 0.0


@dataclasses.dataclass(frozen=True)
class TrialResult:
    """What one trial brought."""

    # rate_pps, duration_s: as asked, all flows together
    rate_pps: float
    duration_s: float
    elapsed_s: float  # what sending took, with the gap after the last frame
    flows: tuple[FlowResult, ...]
    # sending took longer than asked, so the load was never offered. Where the device runs in the sender's context its
    # losses show in no other way: such a trial has failed.
    stretched: bool = False
    late: int = 0  # frames that left later than their place in the load allows
    port: str = ""  # by which frames were sent and received; empty where there is only one
    # frames by the place on the tester's side that dropped them
    drops: Mapping[str, int] = dataclasses.field(default_factory=dict)
    arrived: int = 0  # frames that came to the tester's interface while it listened, its own or not
    # what the trial took by each of the tester's clocks; none where they were not read
    clocks: tuple[Elapsed, ...] = ()

    @property
    def sent(self) -> int:
        return sum(flow.sent for flow in self.flows)

    @property
    def lost(self) -> int:
        return sum(flow.lost for flow in self.flows)

    @property
    def overrun(self) -> int:
        """Frames that came back, and for which the tester's own receiving end had no room."""
        return sum(self.drops.get(place, 0) for place in (_RING, _SOCKET))

    @property
    def loss_ratio(self) -> float:
        """The loss ratio of all flows together: for loss curves, never for a verdict."""
        return self.lost / self.sent if self.sent else 0.0

    @property
    def worst_loss_ratio(self) -> float:
        """Of the guest that lost most of its frames, however few they were."""
        return max((flow.loss_ratio for flow in self.flows), default=0.0)

    def excess_loss_ratio(self, loss_ratio: float) -> float:
        """Of the guest that lost most, of those whose frames show more loss than this; 0 where none does."""
        sending = sum(flow.sent > 0 for flow in self.flows)
        showing = (f for f in self.flows if shows_more_loss(f.lost, f.sent, loss_ratio, sending))
        return max((flow.loss_ratio for flow in showing), default=0.0)

    @property
    def offered_pps(self) -> float:
        return self.sent / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def received_pps(self) -> float:
        return (self.sent - self.lost) / self.elapsed_s if self.elapsed_s > 0 else 0.0

    def passes(self, loss_ratio: float) -> bool:
        """Whether the load was offered as asked and no guest's frames show more loss than this."""
        return not self.stretched and not self.excess_loss_ratio(loss_ratio)


Offer = Callable[[float, float], Coroutine[Any, Any, TrialResult]]
"""Offers frames per second, of all flows together, for so many seconds; load vector and frame size are fixed."""


@dataclasses.dataclass(frozen=True)
class Path:
    """One flow's addresses, as sent: its destination is the guest's ingress interface, and lies behind the guest."""

    source_mac: str
    destination_mac: str
    source: str
    destination: str


@dataclasses.dataclass(frozen=True)
class Tester:
    """An agent with two interfaces, and how its probe ``packet_trial`` (docs/protocol.md) is to use them."""

    channel: Channel
    port: str  # kind of port; ``auto`` leaves it to the agent
    transmit: str
    receive: str
    paths: Sequence[Path]
    # transmit_cpu, receive_cpu: processors for the two ends; None leaves it to the kernel
    transmit_cpu: int | None = None
    receive_cpu: int | None = None
    drain_ns: int = 200_000_000  # how long is waited for frames after the last was sent

    async def measure(self, load: Load) -> TrialResult:
        return trial_of(await self.ask(load), load)

    async def ask(self, load: Load) -> dict[str, Any]:
        """One trial, as the agent tells it."""
        params = {
            "port": self.port,
            "transmit": self.transmit,
            "receive": self.receive,
            "flows": [
                dataclasses.asdict(path) | {"weight": float(share)}
                for path, share in zip(self.paths, load.shares, strict=True)
            ],
            "frame_bytes": load.frame_bytes,
            "rate_pps": float(load.rate_pps),
            # A burst has no use for it, and the shortest end before that.
            "duration_ns": max(round(load.duration_s * 1e9), _SHORTEST_NS if load.burst else 1),
            "burst": load.burst,
            "drain_ns": self.drain_ns,
            "latency": "one_tagged" if load.tagged else "all",
            "tx_cpu": self.transmit_cpu,
            "rx_cpu": self.receive_cpu,
            "seed": 1,
        }
        return (await self.channel.request("probe", name="packet_trial", params=params)).value


def trial_of(value: dict[str, Any], load: Load) -> TrialResult:
    """A result of ``packet_trial``.

    What the tester itself dropped: frames that its interface refused or counted as dropped on sending (the same frames,
    where the kernel does both), and frames that came and that its receiving end had no room for.
    Raises ProtocolError: it is not one.
    """
    with documented("the result of packet_trial"):
        return TrialResult(
            rate_pps=load.rate_pps,
            duration_s=load.duration_s,
            elapsed_s=int(value["elapsed_ns"]) / 1e9,
            flows=tuple(decoded(FlowResult, flow) for flow in value["flows"]),
            stretched=bool(value["stretched"]),
            late=int(value["late"]),
            port=str(value["port"]),
            drops={
                "transmit queue": max(int(value["refused"]), int(value["transmit_counters"]["send_dropped"])),
                _RING: int(value["receiver_ring_full"]),
                _SOCKET: int(value["receiver_dropped"]),
            },
            # not what the interface counted, which goes on while the receiving end is being closed
            arrived=sum(int(value.get(field, 0)) for field in _ARRIVED),
            clocks=elapsed_by_clock(value["clocks_start"], value["clocks_end"]) if "clocks_start" in value else (),
        )
