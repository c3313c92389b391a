"""The path that is estimated, as a trial sees it: it is given its conditions, and counts what is sent on it."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal

from virtgauge.platforms.simulated.bandwidth import SimulatedLink


@dataclasses.dataclass(frozen=True)
class Conditions:
    """What a path is to be like; rates in bit/s as its shaper counts."""

    capacity_bps: float  # of its shaper
    shaper: Literal["tbf", "htb"]  # of which kind that is
    # burst_us, queue_ms: depth of its bucket and of its queue, as times at full capacity
    burst_us: float
    queue_ms: float
    # cross_bps, traffic: what others send on it, and with which gaps (``none``, ``constant``, ``poisson``)
    cross_bps: float
    traffic: str
    delay_ms: float  # added to the round trip
    loss: float  # part of the frames that is lost on the way there


@dataclasses.dataclass(frozen=True)
class Counted:
    """What was counted in a span."""

    # cross_bytes, cross_frames: of the others, where they enter the path; with Ethernet headers
    cross_bytes: int
    cross_frames: int
    dropped: int  # frames of whomever that the shaper's queue did not take, over the whole trial
    span_ns: int  # that the first two are of

    @property
    def cross_bps(self) -> float:
        return self.cross_bytes * 8e9 / self.span_ns if self.span_ns > 0 else 0.0


@dataclasses.dataclass(frozen=True)
class LinkRecord:
    """What made the path, for the record."""

    kind: str  # ``tbf`` or ``htb`` alone, or what delays beside it: ``netem``, ``emulator``
    # burst_bytes, limit_bytes: of the shaper
    burst_bytes: int
    limit_bytes: int
    lateness_p99_ns: int | None = None  # how late the emulator let frames go; None where there is none
    overrun: int = 0  # frames that the emulator lost because they came faster than it takes them

    def result(self, conditions: Conditions) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"delay_ms": conditions.delay_ms, "loss": conditions.loss}


Count = Callable[[int, int], Counted]  # What was counted from one moment of the controller's CLOCK_MONOTONIC to another


class Path(abc.ABC):
    """See the module."""

    @abc.abstractmethod
    async def set(self, conditions: Conditions) -> None:
        """Have it be like this from now on; nobody sends meanwhile.

        Raises:
            AgentError: it cannot be (``unsupported``), or what does it failed.
        """

    @abc.abstractmethod
    async def measured_bps(self, seconds: float) -> float | None:
        """What the shaper lets pass of a flood, as it counts; None where that does not fill it, or is to take no time.

        Raises:
            AgentError, ChannelClosedError, ProtocolError: whoever was to flood it failed.
        """

    @abc.abstractmethod
    def counting(self) -> AbstractAsyncContextManager[Count]:
        """What is counted during a block."""

    @abc.abstractmethod
    async def rest(self) -> LinkRecord:
        """End what :meth:`set` has started; what made the path.

        Raises:
            AgentError, ChannelClosedError, ProtocolError: it had ended before.
        """


class SimulatedPath(Path):
    """A link of the simulation, shaped and counted past its agents, as a real one is."""

    def __init__(self, link: SimulatedLink) -> None:
        self._link = link
        self._conditions: Conditions | None = None

    async def set(self, conditions: Conditions) -> None:
        self._conditions = conditions
        self._link.shape(conditions.capacity_bps)

    async def measured_bps(self, seconds: float) -> float | None:
        return self._link.flooded_bps() if seconds else None

    @contextlib.asynccontextmanager
    async def counting(self) -> AsyncIterator[Count]:
        before = self._link.counters()

        def over(start_ns: int, end_ns: int) -> Counted:
            """In simulated time, which is that of the estimate alone."""
            now = self._link.counters()
            sent, frames = now.cross_bytes - before.cross_bytes, now.cross_frames - before.cross_frames
            return Counted(sent, frames, 0, now.passed_ns - before.passed_ns)

        yield over

    async def rest(self) -> LinkRecord:
        conditions = self._conditions
        assert conditions is not None
        emulated = conditions.delay_ms > 0 or conditions.loss > 0
        lateness_ns = self._link.truth.emulator_late_ns if emulated else None
        return LinkRecord("emulator" if emulated else conditions.shaper, 0, 0, lateness_ns)
