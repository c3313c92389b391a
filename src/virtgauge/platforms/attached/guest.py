"""A machine that exists already, as a guest: nothing of it is of this host."""

from __future__ import annotations

import asyncio
import contextlib

from virtgauge.agent.channel import AgentError, Channel, ChannelClosedError
from virtgauge.agent.frames import ProtocolError
from virtgauge.platforms.base import Accounting, Guest

LEASE_S = 600
"""An agent that has heard nothing for so long ends by itself: its controller's machine, or the way to it, is gone."""
_RENEWAL_S = LEASE_S / 4
_ANSWER_S = 60.0


class AttachedGuest(Guest):
    """An agent on a machine that exists already, in a process of its own.

    Closing asks it to end, and then has the far side removed; what is held here is let go in any case.
    """

    def __init__(self, *, channel: Channel, ready_ns: int, label: str, held: contextlib.AsyncExitStack) -> None:
        """Take over what a launch has made.

        Args:
            channel: past the handshake.
            ready_ns: what the launch took.
            label: for people.
            held: ends the far side, and lets go what this side holds.
        """
        self.channel, self.ready_ns, self.label = channel, ready_ns, label
        self._held = held
        self._renewal = asyncio.create_task(self._renew())

    def accounting(self) -> Accounting:
        """Never known: from outside, only the far machine's own host could count."""
        method = "not known: the machine's CPUs are not this host's"
        return Accounting(cpu_ns=None, method=method, of_this_machine=False)

    async def close(self) -> None:
        """End the agent, and what it left on its machine."""
        held, self._held = self._held, contextlib.AsyncExitStack()
        async with held:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)
            await self.channel.shutdown()

    async def _renew(self) -> None:
        """Let the agent hear something now and then, so that it knows that it is still wanted."""
        with contextlib.suppress(AgentError, ChannelClosedError, ProtocolError, TimeoutError):
            while True:
                await asyncio.sleep(_RENEWAL_S)
                await self.channel.request("read", paths=[], timeout_s=_ANSWER_S)
