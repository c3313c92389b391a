"""A simulated path with a known truth, and estimators that are off by what they were told.

The path is one hop of a capacity beside counted cross traffic, as the real one; only estimates let time pass on it.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

ENDS = ("tested", "receiver", "others")
"""How the names of guests end that share a path."""

_HEADER_BYTES = 14

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]


class BandwidthTruth(BaseModel):
    """What path and estimators are.

    What differs by timing is given by its name in a plan, with ``*`` for any that is not named: ``system``, ``hptime``,
    ``gettimeofday+usleep`` …  A program under the shim has the timing ``hptime``, without it ``system``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    error: dict[str, Annotated[float, Field(gt=-1)]] = Field(default_factory=dict)
    """How far estimates are off, as a signed share of what is available, by timing; 0 where it is not named."""
    spread: dict[str, Annotated[float, Field(ge=0, le=2)]] = Field(default_factory=dict)
    """Of single searches: the logarithm's standard deviation, by timing; 0.01 where it is not named."""
    honest_mbps: dict[str, Positive] = Field(default_factory=dict)
    """The highest rate of IP packets that the sender paces, by timing; as much as there is where it is not named."""
    interval_share: Annotated[float, Field(ge=0, lt=1)] = 0.02
    """How far intervals reach to either side of an estimate."""
    bench_sigma: Annotated[float, Field(ge=0, le=2)] = 0.0
    """Every bench has a factor of its own on its estimates, lognormal with median 1."""

    capacity_share: Positive = 1.0
    """What the path lets pass, of what it was shaped to."""
    capacity_drift: Positive = 1.0
    """What that is multiplied with after each estimate."""
    flood_fills: bool = True
    """A flood fills the path, so that its capacity is seen."""
    cross_share: Annotated[float, Field(ge=0)] = 1.0
    """What the others send, of what they were asked for."""
    cross_sigma: Annotated[float, Field(ge=0, le=1)] = 0.0
    """… which varies from trial to trial by a factor of this logarithm's standard deviation."""

    search_ms: Positive = 500.0
    trains: Annotated[int, Field(ge=1)] = 20
    """Of each search."""
    stalled_share: Share = 0.0
    """Of the trains: the sender stood still meanwhile."""
    strangers: Annotated[int, Field(ge=0)] = 0
    """Packets of others that come to the listener in a trial."""
    stamp: Literal["hardware", "kernel", "program"] = "kernel"
    hptime_refusal: str | None = None
    """Why hptime is the system's clock; None where it is not."""
    late_us: dict[str, Positive] = Field(default_factory=dict)
    """Median lateness of bursts, by timing; 1 where it is not named."""
    emulator_late_ns: Annotated[int, Field(ge=0)] = 5000
    """How late the link emulator is, 99 times of 100."""


@dataclasses.dataclass(frozen=True)
class LinkCounters:
    """Of simulated time and of the others, since the link was made."""

    cross_bytes: int
    cross_frames: int
    passed_ns: int


class SimulatedLink:
    """The path of one bench, which its guests hold: it ends with the last of them.

    Args:
        seed: of the bench's factor, and of all that is drawn.

    Attributes:
        truth: of it.
        random: for all that is drawn.
        factor: of this bench, on all estimates.
    """

    def __init__(self, truth: BandwidthTruth, seed: int) -> None:
        self.truth = truth
        self.random = np.random.default_rng(seed)
        self.factor = float(np.exp(truth.bench_sigma * self.random.standard_normal()))
        self._shaped_bps = 0.0
        self._drift = 1.0
        self._cross_bps = 0.0
        self._frame_bytes = 1500 + _HEADER_BYTES
        self._cross_frames = self._cross_bytes = self._passed_ns = 0.0

    def shape(self, bps: float) -> None:
        """Give it a capacity, as its shaper counts."""
        self._shaped_bps, self._drift = bps, 1.0

    def cross(self, ip_bps: float, packet_bytes: int) -> None:
        """Have the others send so much from now on."""
        self._frame_bytes = packet_bytes + _HEADER_BYTES
        varied = float(np.exp(self.truth.cross_sigma * self.random.standard_normal()))
        self._cross_bps = ip_bps * self._frame_bytes / packet_bytes * self.truth.cross_share * varied

    @property
    def capacity_bps(self) -> float:
        """What it lets pass now, as its shaper counts."""
        return self._shaped_bps * self.truth.capacity_share * self._drift

    def flooded_bps(self) -> float | None:
        """What is seen of that by a flood."""
        return self.capacity_bps if self.truth.flood_fills else None

    def available_bps(self, packet_bytes: int) -> float:
        """What is left for IP packets of a length."""
        left = self.capacity_bps - self._cross_bps
        return max(left, 0.0) * packet_bytes / (packet_bytes + _HEADER_BYTES)

    def estimated(self, ns: float) -> None:
        """Let the time of an estimate pass."""
        crossed = self._cross_bps * ns / 8e9
        self._cross_bytes += crossed
        self._cross_frames += crossed / self._frame_bytes
        self._passed_ns += ns
        self._drift *= self.truth.capacity_drift

    def counters(self) -> LinkCounters:
        """What was counted so far."""
        return LinkCounters(round(self._cross_bytes), round(self._cross_frames), round(self._passed_ns))
