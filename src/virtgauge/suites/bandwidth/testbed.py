"""What the cells of the suite are measured on: who sends, who receives, who else sends, and the path between them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from virtgauge.agent.channel import AgentError, ChannelClosedError
from virtgauge.platforms.base import Guest
from virtgauge.suites.bandwidth.cross_traffic import CrossTraffic, crossing
from virtgauge.suites.bandwidth.loads import Running, running
from virtgauge.suites.bandwidth.path import Conditions, Path
from virtgauge.suites.bandwidth.settings import BandwidthSettings
from virtgauge.suites.testbed import Stage, Testbed

TESTED, RECEIVER, OTHERS, EMULATOR = "tested", "receiver", "others", "emulator"
LISTENER_PORT = 8763

_LOOK_S = 0.2
_Result = TypeVar("_Result")


@dataclasses.dataclass(frozen=True)
class TestbedSpec:
    """What testbeds differ in.

    Attributes:
        receiver: ``host`` or ``guest``.
        link: what delays and loses: ``none``, ``auto``, ``netem``, ``emulator``.
        shim: the estimator is also run as a program under the shim.
        fifo: its sender has a real-time priority.
        memory_mib: of each guest; None leaves the platform's default.
    """

    receiver: str
    link: str
    shim: bool
    fifo: bool
    memory_mib: int | None

    @classmethod
    def of(cls, settings: BandwidthSettings, *, needs_link: bool) -> TestbedSpec:
        """Of a design's cells that are delayed or lose, or of those that do not."""
        return cls(
            receiver=settings.receiver,
            link=settings.link if needs_link else "none",
            shim="shim" in settings.through,
            fifo=settings.fifo is not None,
            memory_mib=settings.memory_mib,
        )

    @property
    def name(self) -> str:
        """Unique among differing testbeds."""
        program = "shim" if self.shim else "inside"
        priority = "fifo" if self.fifo else "other"
        return f"bandwidth-{self.receiver}-{self.link}-{program}-{priority}-{self.memory_mib or 0}"


@dataclasses.dataclass(frozen=True)
class Address:
    """Where the receiver's listener is, and where cross traffic goes: behind the receiver, to nobody."""

    listener: str
    nowhere: str


class BandwidthTestbed(Testbed):
    """See the module.

    Attributes:
        spec: what it was built from.
        tested: in which the estimator runs.
        receiver: where its packets are stamped.
        others: who send cross traffic.
        path: between them.
        address: of the receiver.
        others_cpu: of the host, on which the cross traffic is sent; None leaves it to the scheduler.
    """

    def __init__(
        self,
        stage: Stage,
        spec: TestbedSpec,
        *,
        tested: Guest,
        receiver: Guest,
        others: Guest,
        path: Path,
        address: Address,
        others_cpu: int | None,
    ) -> None:
        super().__init__(stage)
        self.spec = spec
        self.tested, self.receiver, self.others = tested, receiver, others
        self.path, self.address, self.others_cpu = path, address, others_cpu
        self._spoiled = False

    @property
    def guest(self) -> Guest:
        return self.tested

    @property
    def closed(self) -> bool:
        return self._spoiled or super().closed

    def spoil(self) -> None:
        """Something may still be at work on it: the next trial needs a fresh testbed."""
        self._spoiled = True

    @contextlib.asynccontextmanager
    async def listening(self, token: str) -> AsyncIterator[Running]:
        """A listener at the receiver, for whoever knows the token.

        Raises:
            AgentError, ChannelClosedError, ProtocolError: it does not listen.
        """
        params = {"address": self.address.listener, "port": LISTENER_PORT, "token": token}
        async with running(self.receiver.channel, "bandwidth_listener", params, "the listener") as load:
            yield load
        self._heed(load)

    @contextlib.asynccontextmanager
    async def crossing(self, conditions: Conditions, packet_bytes: int, seed: int) -> AsyncIterator[Running | None]:
        """The cross traffic of these conditions; None of none.

        Raises:
            AgentError, ChannelClosedError, ProtocolError: it cannot be sent.
        """
        if not conditions.cross_bps:
            yield None
            return
        traffic = CrossTraffic(
            destination=self.address.nowhere,
            bps=conditions.cross_bps,
            packet_bytes=packet_bytes,
            kind=conditions.traffic,
            cpu=self.others_cpu,
            seed=seed,
        )
        async with crossing(self.others.channel, traffic, "the cross traffic") as load:
            yield load
        self._heed(load)

    def _heed(self, load: Running) -> None:
        if load.silence is not None:
            self.spoil()

    async def unless_lost(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """What work brings, given up as soon as somebody beside the tested guest is gone.

        Raises:
            AgentError: ``lost``, with who it is.
        """
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=_LOOK_S))[0]:
                if (lost := self._lost()) is not None:
                    raise AgentError("lost", f"{lost} was lost during the trial")
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def explained(self) -> AsyncIterator[None]:
        """Tell who was lost during the block, where that is known.

        Raises:
            AgentError: ``lost``: not the tested guest, but somebody beside it.
        """
        try:
            yield
        except (AgentError, ChannelClosedError) as error:
            # Its end is noticed a little after what it has caused.
            await asyncio.sleep(_LOOK_S)
            if self.tested.channel.closed:
                raise ChannelClosedError(str(error)) from error
            told = isinstance(error, AgentError) and error.code == "lost"
            if not told and (lost := self._lost()) is not None:
                raise AgentError("lost", f"{lost} was lost during the trial: {error}") from error
            raise

    def _lost(self) -> str | None:
        """Who is gone beside the tested guest."""
        known = {id(self.receiver): "the receiver", id(self.others): "the sender of the cross traffic"}
        beside = [one for one in (*self.stage.guests, *self.stage.peers) if one is not self.tested]
        return next((known.get(id(one), "the link emulator") for one in beside if one.channel.closed), None)
