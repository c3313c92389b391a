"""What the cells of the suite are measured on: who sends, who receives, who else sends, and the path between them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Literal, Self, TypeVar

from virtgauge.agent.channel import AgentError, Channel, ChannelClosedError
from virtgauge.analysis.packets import ip_bps
from virtgauge.network import Neighbour, Nic, Route
from virtgauge.platforms.base import Guest
from virtgauge.platforms.simulated.bandwidth import SimulatedLink
from virtgauge.specs.bandwidth_formatting import AS_IS
from virtgauge.suites.answers import Running, running
from virtgauge.suites.testbed import Stage, Testbed

TESTED, RECEIVER, OTHERS, EMULATOR = "tested", "receiver", "others", "emulator"
LISTENER_PORT = 8763

_LOOK_S = 0.2
_DISCARD_PORT = 9  # Of the service that discards (RFC 863); here nobody is at the address
_FIFO, _SLEEPS_NS = 40, 1_000_000
"""A sender with at least so long between packets may go before all others.  With less it hardly sleeps where wakes are
late, keeps the receiver from their common processor, and is held back by the kernel for a twentieth of the time."""
_Result = TypeVar("_Result")
NOWHERE, NOWHERE_NETWORK = "10.81.9.1", "10.81.9.0/24"
"""Behind the receiver, which routes nothing: what comes for it is dropped without an answer."""


@dataclasses.dataclass(frozen=True)
class End:
    """One end of the path, and the router's interface towards it; none of the addresses exists outside of a lab."""

    name: str
    address: str
    gateway: str
    mac: str
    gateway_mac: str

    def nic(self, port: str) -> Nic:
        """The end's only interface; ``port`` is the name of its other end."""
        return Nic(
            port=port,
            mac=self.mac,
            addresses=(f"{self.address}/24",),
            routes=(Route("default", self.gateway),),
            neighbours=(Neighbour(self.gateway, self.gateway_mac),),
        )


SENDER_END, OTHERS_END, RECEIVER_END = (
    End(name, f"10.81.{n}.1", f"10.81.{n}.254", f"02:76:67:0b:0{n}:01", f"02:76:67:0b:0{n}:fe")
    for n, name in enumerate((TESTED, OTHERS, RECEIVER), start=1)
)


@dataclasses.dataclass(frozen=True)
class Placement:
    """The host's processors: the sender apart from the path, as far as there are any."""

    sender: tuple[int, ...] | None  # of the tested guest; None leaves it to the scheduler
    router: int | None  # on which the path's frames are worked on; None: wherever they are sent
    others: int | None  # of the cross traffic, the receiver and the link emulator
    apart: bool = False  # the others are on a machine of their own

    @property
    def crowded(self) -> bool:
        """The others have no processor apart from the path's own."""
        return not self.apart and (self.others is None or self.others == self.router)

    @classmethod
    def of(cls, cpus: Sequence[int], *, apart: bool = False) -> Self:
        """The last processors for the path and for the others, who share one where there are fewer than three.

        On a single one nothing can be kept apart.
        """
        if len(cpus) < 2:
            return cls(None, None, None, apart)
        if apart:
            return cls(tuple(cpus[:-1]), cpus[-1], None, apart)
        others = max(len(cpus) - 2, 1)
        return cls(tuple(cpus[:others]), cpus[-1], cpus[others])


@contextlib.asynccontextmanager
async def crossing(
    channel: Channel,
    what: str,
    bps: float,
    packet_bytes: int,
    kind: str = "constant",
    cpu: int | None = None,
    seed: int = 1,
) -> AsyncIterator[Running]:
    """Cross traffic during the block, sent before all other threads where that does good and this machine lets it.

    It is the agent's load ``cross_traffic`` (docs/protocol.md), at a rate as the shaper counts.
    """
    rate_bps = ip_bps(bps, packet_bytes)
    fifo = _FIFO if packet_bytes * 8e9 / rate_bps >= _SLEEPS_NS else None
    params = {"destination": f"{NOWHERE}:{_DISCARD_PORT}", "rate_bps": rate_bps, "packet_bytes": packet_bytes}
    params |= {"kind": kind, "cpu": cpu, "seed": seed}
    async with contextlib.AsyncExitStack() as stack:
        try:
            started = await stack.enter_async_context(running(channel, "cross_traffic", params | {"fifo": fifo}, what))
        except AgentError as error:
            if error.code != "unsupported" or fifo is None:
                raise
            started = await stack.enter_async_context(running(channel, "cross_traffic", params | {"fifo": None}, what))
        yield started


@dataclasses.dataclass(frozen=True)
class Conditions:
    """What a path is to be like; rates in bit/s as its shaper counts."""

    capacity_bps: float | None  # of its shaper; None of a path that is as it is
    shaper: Literal["tbf", "htb"]  # of which kind that is
    # burst_us, queue_ms: depth of its bucket and of its queue, as times at full capacity
    burst_us: float
    queue_ms: float
    # cross_bps, traffic: what others send on it, and with which gaps (``none``, ``constant``, ``poisson``)
    cross_bps: float
    traffic: str
    delay_ms: float  # added to the round trip
    loss: float  # part of the frames that is lost on the way there

    @property
    def shaped_bps(self) -> float:
        """The capacity of a path that is shaped."""
        assert self.capacity_bps is not None
        return self.capacity_bps


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

    kind: str  # ``tbf`` or ``htb`` alone, or what delays beside it: ``netem``, ``emulator``; ``as-is``: nothing of ours
    burst_bytes: int | None  # of the shaper
    limit_bytes: int | None  # of the shaper's queue
    lateness_p99_ns: int | None = None  # how late the emulator let frames go; None where there is none
    overrun: int = 0  # frames that the emulator lost during the estimate because they came faster than it takes them

    def result(self, conditions: Conditions) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"delay_ms": conditions.delay_ms, "loss": conditions.loss}


Count = Callable[[int, int], Counted | None]
"""What was counted from one moment of the controller's CLOCK_MONOTONIC to another; None where nobody can count."""


class Path:
    """The path that is estimated, as a trial sees it: it is given its conditions, and counts what is sent on it.

    This one exists already: nothing is set, and nobody knows what it carries.  Where another's work fails, it raises
    AgentError (``unsupported``: it cannot be like this), ChannelClosedError or ProtocolError.
    """

    async def set(self, conditions: Conditions) -> None:
        """Have it be like this from now on; nobody sends meanwhile."""

    async def measured_bps(self, seconds: float) -> float | None:
        """What the shaper lets pass of a flood, as it counts; None where that does not fill it or takes no time."""
        return None

    @contextlib.asynccontextmanager
    async def counting(self) -> AsyncIterator[Count]:
        """What is counted during a block, in which frames pass the whole path; before and after it they may not."""
        yield lambda start_ns, end_ns: None

    async def rest(self) -> LinkRecord:
        """End what :meth:`set` has started, which may have ended before; what made the path."""
        return LinkRecord(AS_IS, None, None)


class SimulatedPath(Path):
    """A link of the simulation, shaped and counted past its agents, as a real one is."""

    def __init__(self, link: SimulatedLink) -> None:
        self._link = link
        self._conditions: Conditions | None = None

    async def set(self, conditions: Conditions) -> None:
        self._conditions = conditions
        self._link.shape(conditions.shaped_bps)

    async def measured_bps(self, seconds: float) -> float | None:
        return self._link.flooded_bps() if seconds else None

    @contextlib.asynccontextmanager
    async def counting(self) -> AsyncIterator[Count]:
        before = self._link.counters()

        def over(start_ns: int, end_ns: int) -> Counted:
            """What passed in simulated time, which is that of the estimate alone."""
            sent, frames, ns = (now - then for now, then in zip(self._link.counters(), before, strict=True))
            return Counted(sent, frames, 0, ns)

        yield over

    async def rest(self) -> LinkRecord:
        conditions = self._conditions
        assert conditions is not None
        emulated = conditions.delay_ms > 0 or conditions.loss > 0
        lateness_ns = self._link.truth.emulator_late_ns if emulated else None
        return LinkRecord("emulator" if emulated else conditions.shaper, 0, 0, lateness_ns)


class BandwidthTestbed(Testbed):
    """See the module; the guest is the one in which the estimator runs."""

    def __init__(
        self,
        stage: Stage,
        receiver: Guest,
        others: Guest | None,
        path: Path,
        others_cpu: int | None,
        address: str = RECEIVER_END.address,
    ) -> None:
        super().__init__(stage)
        self.address = address  # of the receiver on the path
        self.path = path
        self.receiver = receiver  # where its packets are stamped
        self.others = others  # who send cross traffic; None where there is none
        self.others_cpu = others_cpu  # of the host, on which it is sent; None leaves it to the scheduler

    @contextlib.asynccontextmanager
    async def listening(self, token: str) -> AsyncIterator[Running]:
        """A listener at the receiver, for whoever knows the token."""
        params = {"address": self.address, "port": LISTENER_PORT, "token": token}
        async with self._heeded(running(self.receiver.channel, "bandwidth_listener", params, "the listener")) as load:
            yield load

    @contextlib.asynccontextmanager
    async def crossing(self, conditions: Conditions, packet_bytes: int, seed: int) -> AsyncIterator[None]:
        if not conditions.cross_bps or self.others is None:
            yield
            return
        channel, kind = self.others.channel, conditions.traffic
        args = ("the cross traffic", conditions.cross_bps, packet_bytes, kind, self.others_cpu, seed)
        async with self._heeded(crossing(channel, *args)):
            yield

    @contextlib.asynccontextmanager
    async def _heeded(self, under_way: contextlib.AbstractAsyncContextManager[Running]) -> AsyncIterator[Running]:
        """A load during the block; one that may still be at work after it, however it ended, is of no further use."""
        load: Running | None = None
        try:
            async with under_way as load:
                yield load
        finally:
            if load is not None and load.silence is not None:
                self.spoil()

    async def unless_lost(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """What work brings, given up as soon as somebody beside the tested guest is gone.
        Raises AgentError: ``lost``, with who it is.
        """
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=_LOOK_S))[0]:
                self._raise_if_lost()
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def explained(self) -> AsyncIterator[None]:
        """Tell who was lost during the block, where that is known.
        Raises AgentError: ``lost``: not the tested guest, but somebody beside it.
        """
        try:
            yield
            self._raise_if_lost()  # what the block has asked of everybody has shown it by now
        except (AgentError, ChannelClosedError) as error:
            # Its end is noticed a little after what it has caused.
            await asyncio.sleep(_LOOK_S)
            if self.guest.channel.closed:
                raise ChannelClosedError(str(error)) from error
            told = isinstance(error, AgentError) and error.code == "lost"
            if not told and (lost := self._lost()) is not None:
                raise AgentError("lost", f"{lost} was lost during the trial: {error}") from error
            raise

    def _raise_if_lost(self) -> None:
        if (lost := self._lost()) is not None:
            raise AgentError("lost", f"{lost} was lost during the trial")

    def _lost(self) -> str | None:
        known = {id(self.receiver): "the receiver", id(self.others): "the sender of the cross traffic"}
        beside = [one for one in (*self.stage.guests, *self.stage.peers) if one is not self.guest]
        return next((known.get(id(one), "the link emulator") for one in beside if one.channel.closed), None)
