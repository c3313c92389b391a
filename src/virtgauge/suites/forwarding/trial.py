"""One trial of the forwarding laboratory: a load offered for some time, and what became of every flow's frames."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol

from virtgauge.ledger.records import Histogram
from virtgauge.suites.base import Elapsed


@dataclasses.dataclass(frozen=True)
class Sending:
    """How a load is offered.

    Attributes:
        burst: so many frames as fast as the tester can, whatever rate and duration; 0 keeps to the rate.
        tagged: only the frame in the middle of the stream is timed (RFC 2544, section 26.2), and not every one.
    """

    burst: int = 0
    tagged: bool = False


PACED = Sending()


@dataclasses.dataclass(frozen=True)
class FlowResult:
    """One flow, that is, one guest.

    Attributes:
        sent: frames.
        lost: frames that never came back.
        duplicates: further copies of frames that had come.
        reordered: frames that came after a later one.
        latency: of the frames that came back, in picoseconds; None where it was not measured, or none came back.
    """

    sent: int
    lost: int
    duplicates: int = 0
    reordered: int = 0
    latency: Histogram | None = None

    @property
    def loss_ratio(self) -> float:
        """Lost of sent; 0 when nothing was sent."""
        return self.lost / self.sent if self.sent else 0.0


@dataclasses.dataclass(frozen=True)
class TrialResult:
    """What one trial brought.

    Attributes:
        rate_pps, duration_s: as asked, all flows together.
        elapsed_s: what sending took.
        flows: by guest.
        stretched: sending took longer than asked, so the load was never offered.  Where the device runs in the
            sender's context its losses show in no other way: such a trial has failed.
        late: frames that left later than their place in the load allows.
        port: by which frames were sent and received; empty where there is only one.
        drops: frames by the place on the tester's side that dropped them.
        arrived: frames that came to the tester's interface while it listened, its own or not.
        clocks: what the trial took by each of the tester's clocks; none where they were not read.
    """

    rate_pps: float
    duration_s: float
    elapsed_s: float
    flows: tuple[FlowResult, ...]
    stretched: bool = False
    late: int = 0
    port: str = ""
    drops: Mapping[str, int] = dataclasses.field(default_factory=dict)
    arrived: int = 0
    clocks: tuple[Elapsed, ...] = ()

    @property
    def sent(self) -> int:
        """Frames of all flows."""
        return sum(flow.sent for flow in self.flows)

    @property
    def lost(self) -> int:
        """Frames of all flows."""
        return sum(flow.lost for flow in self.flows)

    @property
    def loss_ratio(self) -> float:
        """Of all flows together: for loss curves, never for a verdict."""
        return self.lost / self.sent if self.sent else 0.0

    @property
    def worst_loss_ratio(self) -> float:
        """Of the guest that lost most of its frames: loss is judged per guest."""
        return max((flow.loss_ratio for flow in self.flows), default=0.0)

    @property
    def offered_pps(self) -> float:
        """Rate at which frames really left."""
        return self.sent / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def received_pps(self) -> float:
        """Rate at which frames came back."""
        return (self.sent - self.lost) / self.elapsed_s if self.elapsed_s > 0 else 0.0

    def passes(self, loss_ratio: float) -> bool:
        """Whether the load was offered as asked and no guest lost more than this ratio."""
        return not self.stretched and self.worst_loss_ratio <= loss_ratio


class Device(Protocol):
    """Something that a load can be offered to; load vector and frame size are fixed, rate and duration asked for."""

    async def measure(self, rate_pps: float, duration_s: float) -> TrialResult:
        """Offer this many frames per second, of all flows together, for so long."""
        ...
