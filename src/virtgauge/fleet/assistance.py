"""What a worker has open while its machine is the tester's for guests on another host."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import Callable
from typing import Self

from virtgauge.agent.binary import find_agent
from virtgauge.execution.run import machine_to_ourselves
from virtgauge.fleet.messages import Assisting, Signature, Tester
from virtgauge.host.reclaim import reclaim_dead
from virtgauge.host.scope import Scope
from virtgauge.platforms.remote.platform import RemoteHost
from virtgauge.platforms.remote.server import PeerServer


class Assistant:
    """The machine's lock, a scope, and a server of peers."""

    def __init__(self, token: str, server: PeerServer, opened: contextlib.ExitStack) -> None:
        self.token, self._server, self._opened = token, server, opened

    @classmethod
    async def open(
        cls, token: str, address: str, context: ssl.SSLContext, *, idle_s: float, on_idle: Callable[[], None]
    ) -> Self:
        """Listen for requests.

        Args:
            token: of the fleet's run.
            address: of this machine, to listen at.
            context: that those who ask have to prove themselves by.
            idle_s, on_idle: called after so long without a peer.

        Raises:
            OccupiedError: something else measures on this machine.
            OSError: nobody can listen at that address.
        """
        with contextlib.ExitStack() as stack:
            stack.enter_context(machine_to_ourselves())
            reclaim_dead()
            scope = stack.enter_context(Scope())
            server = await PeerServer.start(address, context, scope, find_agent(), idle_s=idle_s, on_idle=on_idle)
            return cls(token, server, stack.pop_all())

    def answer(self, signature: Signature) -> Assisting:
        """For whoever asked."""
        cpus = tuple(sorted(os.sched_getaffinity(0)))
        return Assisting(signature, self._server.address, self._server.port, self._server.secret, cpus)

    async def close(self) -> None:
        """End all peers, and give the machine back."""
        try:
            await asyncio.shield(self._server.close())
        finally:
            self._opened.close()


def remote_host(tester: Tester, context: ssl.SSLContext) -> RemoteHost:
    """The tester's machine for the runner."""
    return RemoteHost(
        tester.host, tester.address, tester.port, tester.secret, context, tester.cpus, cables=tester.cables
    )
