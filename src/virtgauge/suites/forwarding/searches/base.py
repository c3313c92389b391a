"""What a search is: trials on a device until the highest load is known at which no guest loses too much."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import ClassVar

from virtgauge.suites.forwarding.trial import Device, TrialResult

NO_DROP = 0.0
"""The loss ratio of the no-drop rate (NDR)."""
PARTIAL_DROP = 0.005
"""The loss ratio of the partial-drop rate (PDR)."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """Loads between which is searched, frames per second of all flows together."""

    min_pps: float
    max_pps: float

    def __post_init__(self) -> None:
        if not 0 < self.min_pps < self.max_pps:
            raise ValueError(f"a search from {self.min_pps:g} to {self.max_pps:g} frames/s has nowhere to go")


@dataclasses.dataclass(frozen=True)
class Throughput:
    """The highest load with at most this loss ratio in every guest.

    Attributes:
        loss_ratio: 0 for NDR.
        rate_pps: what the device forwarded at that load; None when even the lowest load lost more.
        lower_pps: the load itself, which passed; None as above.
        upper_pps: the nearest higher load that did not pass; None when the highest load passed.
        reason: why a figure is missing.
    """

    loss_ratio: float
    rate_pps: float | None
    lower_pps: float | None
    upper_pps: float | None
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class LossPoint:
    """One trial, as a point of the loss curve."""

    rate_pps: float
    duration_s: float
    received_pps: float
    loss_ratio: float
    worst_loss_ratio: float
    stretched: bool


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """What a search found.

    Attributes:
        method: name of the search.
        ndr, pdr: no-drop rate, and with 0.5 % of loss.
        maximum_receive_pps: highest rate at which frames came back in any trial.
        points: every trial in order.
    """

    method: str
    ndr: Throughput
    pdr: Throughput
    maximum_receive_pps: float
    points: tuple[LossPoint, ...]

    @property
    def measuring_s(self) -> float:
        """Seconds of offered load in all, without pauses."""
        return sum(point.duration_s for point in self.points)

    @property
    def stretched(self) -> int:
        """Trials that failed because the load could not be offered."""
        return sum(point.stretched for point in self.points)


class SearchError(Exception):
    """The search could not come to an end."""


class Search(abc.ABC):
    """A method with its parameters."""

    name: ClassVar[str]

    @abc.abstractmethod
    async def find(self, device: Device, limits: Limits, loss_ratios: Sequence[float]) -> list[Throughput]:
        """The throughput for each loss ratio (ascending), in that order.

        Raises:
            SearchError: it did not come to an end.
        """

    @abc.abstractmethod
    def longest_s(self, limits: Limits) -> float:
        """Seconds of offered load that it never needs more than: what time-outs are reckoned from."""

    async def run(self, device: Device, limits: Limits) -> SearchResult:
        """NDR, PDR, the maximum receive rate and the loss curve.

        Raises:
            SearchError: it did not come to an end.
        """
        recorder = Recorder(device)
        ndr, pdr = await self.find(recorder, limits, (NO_DROP, PARTIAL_DROP))
        received = max(point.received_pps for point in recorder.points)
        return SearchResult(self.name, ndr, pdr, received, tuple(recorder.points))


class Recorder:
    """A device that remembers its trials."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.points: list[LossPoint] = []

    async def measure(self, rate_pps: float, duration_s: float) -> TrialResult:
        """As the device itself."""
        trial = await self._device.measure(rate_pps, duration_s)
        self.points.append(loss_point(trial))
        return trial


def loss_point(trial: TrialResult) -> LossPoint:
    """A trial as a point of the loss curve."""
    return LossPoint(
        rate_pps=trial.rate_pps,
        duration_s=trial.duration_s,
        received_pps=trial.received_pps,
        loss_ratio=trial.loss_ratio,
        worst_loss_ratio=trial.worst_loss_ratio,
        stretched=trial.stretched,
    )
