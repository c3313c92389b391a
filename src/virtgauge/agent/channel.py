"""The controller's end of the channel to an agent (docs/protocol.md).

One :class:`Channel` per guest.  Requests may overlap; each is answered once, by ``result`` or ``error`` under its id.
A peer that breaks the protocol, goes away or never answers ends in an exception, never in a hang:
:class:`ProtocolError`, :class:`ChannelClosedError` or the caller's own time-out.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

from virtgauge.agent.messages import AgentError as AgentError
from virtgauge.agent.messages import Awaited, FrameDecoder, ProtocolError, checked_facts, cleaned, encode
from virtgauge.agent.messages import Reply as Reply

PROTOCOL_VERSION = 1
_READ_SIZE = 256 * 1024


class ChannelClosedError(Exception):
    """The agent went away."""


class HandshakeError(Exception):
    """The peer is no agent, one of another version, or not the binary that was sent."""


class Channel:
    """A session with one agent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = FrameDecoder()
        self._sequence = 0
        self._next_id = 1
        self._pending: dict[int, Awaited] = {}
        self._receiver: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self.welcome: dict[str, Any] = {}  # its answer to the handshake (version, hash, pid, whether it is init)
        # How many times longer than on a physical machine its answers may take.  Whoever makes a guest that is slow by
        # its nature (within an emulated machine) says so here; all bounds on requests follow.
        self.timeout_factor = 1.0

    @classmethod
    async def open(
        cls,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        expected_sha256: str,
        timeout_s: float,
        roots: Iterable[Path] = (),
    ) -> Self:
        """Shake hands with the agent on this stream, which makes files only below ``roots``, folders of its guest.

        ``expected_sha256`` is of the binary that was put into the guest; ``timeout_s`` bounds the whole handshake.
        Raises HandshakeError: no answer in time, another version, another binary; ProtocolError: the peer does not
        speak the protocol; ChannelClosedError: the stream ended.
        """
        channel = cls(reader, writer)
        try:
            async with asyncio.timeout(timeout_s):
                await channel._shake_hands(expected_sha256, [str(root) for root in roots])
        except BaseException as error:
            await channel.close()
            if isinstance(error, TimeoutError):
                raise HandshakeError(f"no agent answered within {timeout_s:g} s") from None
            raise
        channel._receiver = asyncio.create_task(channel._receive())
        return channel

    @property
    def closed(self) -> bool:
        """Whether the session has ended, for whatever reason."""
        return self._failure is not None

    async def request(
        self,
        type_: str,
        *,
        on_progress: Callable[[float], None] | None = None,
        timeout_s: float | None = None,
        **fields: Any,
    ) -> Reply:
        """Send a request and wait for its answer.

        Cancelling the waiting task cancels the request in the agent too.
        Raises AgentError: it answered with an error; ChannelClosedError, ProtocolError: the session ended first;
        TimeoutError: no answer within ``timeout_s``, times the channel's factor; the request was cancelled.
        """
        self._require_open()
        within_s = None if timeout_s is None else timeout_s * self.timeout_factor
        request_id, pending = self._await_answer(on_progress)
        try:
            async with asyncio.timeout(within_s):
                await self._send({"type": type_, "id": request_id, **fields})
                reply = await pending.future
                if isinstance(self._failure, ProtocolError):  # it broke the protocol in the same breath
                    raise self._failure
                return reply
        except (asyncio.CancelledError, TimeoutError) as error:
            pending.abandon()
            if not self.closed:
                with contextlib.suppress(Exception):
                    await self._cancel(request_id)
            if isinstance(error, TimeoutError) and within_s is not None:
                raise TimeoutError(f"the agent did not answer the request {type_!r} within {within_s:g} s") from None
            raise
        finally:
            if pending.future.done() and not pending.future.cancelled():
                pending.future.exception()  # retrieved: a late failure is not reported twice

    async def facts(self, timeout_s: float = 20.0) -> dict[str, Any]:
        """What the agent knows of its guest.  Raises ProtocolError: that is not what docs/protocol.md says."""
        return checked_facts((await self.request("facts", timeout_s=timeout_s)).value)

    async def shutdown(self, timeout_s: float = 2.0) -> None:
        """Ask the agent to end (a virtual machine powers off); then close.  Never raises for an agent already gone."""
        if not self.closed:
            with contextlib.suppress(AgentError, ChannelClosedError, ProtocolError, TimeoutError, OSError):
                await self.request("shutdown", timeout_s=timeout_s)
        await self.close()

    def give_up(self, reason: str) -> None:
        """The guest is known to be gone: open requests and all later ones fail with :class:`ChannelClosedError`."""
        self._fail(ChannelClosedError(reason))

    async def close(self) -> None:
        """End the session; open requests fail with :class:`ChannelClosedError`."""
        self._fail(ChannelClosedError("the channel was closed"))
        if self._receiver is not None:
            self._receiver.cancel()
            await asyncio.gather(self._receiver, return_exceptions=True)
            self._receiver = None
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError, ProtocolError):  # a serial line that was given up says so again
            async with asyncio.timeout(1.0):
                await self._writer.wait_closed()

    def _await_answer(self, on_progress: Callable[[float], None] | None = None) -> tuple[int, Awaited]:
        request_id = self._next_id
        self._next_id += 1
        pending = self._pending[request_id] = Awaited(on_progress)
        return request_id, pending

    async def _cancel(self, target: int) -> None:
        request_id, pending = self._await_answer()
        pending.abandon()
        async with asyncio.timeout(1.0):
            await self._send({"type": "cancel", "id": request_id, "target": target})

    async def _send(self, message: dict[str, Any]) -> None:
        self._require_open()
        frame = encode(message, self._sequence)
        self._sequence += 1
        try:
            self._writer.write(frame)
            await self._writer.drain()
        except ConnectionError as error:
            failure = ChannelClosedError(f"the agent went away while it was sent {message['type']!r}: {error}")
            self._fail(failure)
            raise failure from error

    async def _shake_hands(self, expected_sha256: str, roots: list[str]) -> None:
        token = secrets.token_hex(16)
        await self._send({"type": "hello", "protocol": PROTOCOL_VERSION, "token": token, "roots": roots})
        messages: list[dict[str, Any]] = []
        while not messages:
            messages = await self._read()
        welcome, *surplus = messages
        if welcome["type"] == "error":
            raise HandshakeError(f"the agent refused: {welcome.get('code')}: {welcome.get('message')}")
        if welcome["type"] != "welcome" or surplus:
            raise ProtocolError(f"{welcome['type']!r} arrived where 'welcome' was due")
        if welcome.get("token") != token:
            raise HandshakeError("the agent answered another session's greeting")
        if welcome.get("protocol") != PROTOCOL_VERSION:
            raise HandshakeError(f"the agent speaks protocol {welcome.get('protocol')!r}, not {PROTOCOL_VERSION}")
        if welcome.get("agent_sha256") != expected_sha256:
            raise HandshakeError(
                f"the agent's hash is {welcome.get('agent_sha256')!r}, not that of the binary sent ({expected_sha256})"
            )
        self.welcome = welcome

    async def _read(self) -> list[dict[str, Any]]:
        try:
            data = await self._reader.read(_READ_SIZE)
        except OSError as error:
            raise ChannelClosedError(f"the agent went away: {error}") from error
        if not data:
            self._decoder.finish()
            raise ChannelClosedError("the agent went away")
        return [cleaned(message) for message in self._decoder.feed(data)]

    async def _receive(self) -> None:
        try:
            while True:
                for message in await self._read():
                    self._dispatch(message)
                await asyncio.sleep(0)  # whoever babbles without a pause does not keep the controller from its clock
        except (ProtocolError, ChannelClosedError) as error:
            self._fail(error)
            if not self._writer.is_closing():  # a pipe's transport cannot be aborted once it has seen the end itself
                self._writer.transport.abort()  # a peer that goes on sending is not left waiting for a reader

    def _dispatch(self, message: dict[str, Any]) -> None:
        kind, request_id = message["type"], message.get("id")
        if kind == "error" and request_id is None:
            raise ProtocolError(f"the agent ended the session: {message.get('code')}: {message.get('message')}")
        if type(request_id) is not int or not 0 < request_id < self._next_id:
            raise ProtocolError(f"{kind!r} answers a request that was never made: {request_id!r}")
        pending = self._pending.get(request_id)
        if pending is None:
            raise ProtocolError(f"{kind!r} answers the request {request_id}, which was answered before")
        if pending.take(message):
            del self._pending[request_id]

    def _require_open(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
        for pending in self._pending.values():
            if not pending.future.done():
                pending.future.set_exception(error)
