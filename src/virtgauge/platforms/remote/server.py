"""Launches peers on this machine for a laboratory on another: one connection each, and its end is the peer's end."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
import ssl
from collections.abc import Callable
from typing import Self

from virtgauge.agent.binary import AgentBinary
from virtgauge.host.process import wait_for_exit
from virtgauge.host.scope import Scope
from virtgauge.network.namespace import Namespace
from virtgauge.network.nic import NetworkError
from virtgauge.network.wire import join, require_room, wire_ends, wire_in
from virtgauge.platforms.base import GuestSpec, LaunchError
from virtgauge.platforms.host import StartedAgent, start_agent
from virtgauge.platforms.remote.platform import LINE_LIMIT, BadRequestError, PeerAnswer, PeerRequest

_REQUEST_S = 30.0
_EXIT_S = 0.5
_PIECE = 256 * 1024


class PeerServer:
    """See the module.

    Attributes:
        address, port: where it listens.
        secret: that a request must know, beside the certificate of the connection.
    """

    def __init__(self, scope: Scope, agent: AgentBinary, idle_s: float, on_idle: Callable[[], None]) -> None:
        """Begin without listening.

        Args:
            scope: whatever is made for peers belongs to it.
            agent: that runs as peers.
            idle_s, on_idle: called after so long without a connection.
        """
        self._scope, self._agent = scope, agent
        self._idle_s, self._on_idle = idle_s, on_idle
        self._idle: asyncio.TimerHandle | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.secret = secrets.token_hex(16)
        self.address, self.port = "", 0

    @classmethod
    async def start(
        cls,
        address: str,
        context: ssl.SSLContext,
        scope: Scope,
        agent: AgentBinary,
        *,
        idle_s: float,
        on_idle: Callable[[], None],
    ) -> Self:
        """Listen at an address of this machine, for whoever proves himself by the context's authority.

        Raises:
            OSError: it is no address of this machine.
        """
        server = cls(scope, agent, idle_s, on_idle)
        server._server = await asyncio.start_server(server._accept, address, 0, ssl=context, limit=LINE_LIMIT)
        server.address, server.port = server._server.sockets[0].getsockname()[:2]
        server._watch()
        return server

    async def close(self) -> None:
        """End all peers, and listen no more.  Idempotent."""
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._stay()

    def _watch(self) -> None:
        self._stay()
        self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._on_idle)

    def _stay(self) -> None:
        if self._idle is not None:
            self._idle.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self._stay()
        try:
            await self._serve(reader, writer)
        except (OSError, EOFError, TimeoutError, asyncio.CancelledError):
            pass  # whoever asked is gone, or this server is: nobody is left to be told
        finally:
            writer.close()
            self._connections.discard(task)
            if not self._connections:
                self._watch()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.ExitStack() as removal:
            try:
                async with asyncio.timeout(_REQUEST_S):
                    request = PeerRequest.read(await reader.readline())
                if not hmac.compare_digest(request.secret, self.secret):
                    raise BadRequestError("another secret is wanted")
                started = await self._launch(request, writer, removal)
            except (BadRequestError, LaunchError, NetworkError, ValueError) as error:
                stage = error.stage if isinstance(error, LaunchError) else "network"
                writer.write(PeerAnswer(stage, str(error)).line())
                await writer.drain()
                return
            writer.write(PeerAnswer().line())
            await _relay((reader, started.writer), (started.reader, writer))
            await wait_for_exit(started.process, _EXIT_S)

    async def _launch(
        self, request: PeerRequest, writer: asyncio.StreamWriter, removal: contextlib.ExitStack
    ) -> StartedAgent:
        ends = wire_ends(request.wires, *(str(writer.get_extra_info(end)[0]) for end in ("sockname", "peername")))
        for end in ends:
            require_room(end, request.nics)
        lab = Namespace(self._scope, f"{request.name}-lab")
        removal.callback(lab.close)
        spec = GuestSpec(
            name=request.name,
            scope=self._scope,
            agent=self._agent,
            nics=request.nics,
            lab=lab,
            loop=request.loop,
            ready_timeout_s=request.ready_timeout_s,
        )
        started = await start_agent(spec, removal)
        for nic, end in zip(request.nics, ends, strict=True):
            join(lab, nic.port, removal.enter_context(wire_in(lab, end, mtu=nic.mtu)))
        return started


async def _relay(*ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    """Until one of the two ends is gone."""
    copies = [asyncio.ensure_future(_copy(*way)) for way in ways]
    try:
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for copy in copies:
            copy.cancel()
        await asyncio.gather(*copies, return_exceptions=True)
        for _, writer in ways:
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_PIECE):
        writer.write(piece)
        await writer.drain()
