"""How an agent in a domain reaches the controller."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Self
from xml.etree import ElementTree

from virtgauge.agent.channel import Channel
from virtgauge.agent.serial import serial_streams
from virtgauge.errors import VirtgaugeError
from virtgauge.platforms.attached.credentials import Credentials
from virtgauge.platforms.attached.dial_in import Listener, RefusedCallers
from virtgauge.platforms.attached.platform import Endpoint
from virtgauge.platforms.attempt import Streams, terminal_streams
from virtgauge.platforms.base import LaunchError
from virtgauge.platforms.libvirt.boot import DomainAttempt
from virtgauge.platforms.libvirt.connection import called
from virtgauge.platforms.libvirt.settings import ChannelKind

_LONGEST_PATH = 107  # Bytes in the path of a Unix socket (sun_path less its end)


class Entrance:
    """The socket on which a guest's stream arrives, and what has come of it; closed by :meth:`close`."""

    def __init__(self, path: Path) -> None:
        """Listen.  Raises LaunchError: the path is too long for a socket, or cannot be made."""
        self.path = path
        self._transport: asyncio.BaseTransport | None = None
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            if len(os.fsencode(path)) > _LONGEST_PATH:
                raise LaunchError(
                    "channel",
                    f"{path} is longer than the path of a socket may be ({_LONGEST_PATH} bytes): "
                    "set VIRTGAUGE_STATE to a folder with a shorter path",
                )
            self._listener.bind(str(path))
            self._listener.listen(1)
        except OSError as error:
            self._listener.close()
            raise LaunchError("channel", f"{path} cannot be listened on: {error.strerror}") from error
        except LaunchError:
            self._listener.close()
            raise

    async def streams(self, kind: ChannelKind, on_noise: Callable[[bytes], None]) -> Streams:
        """The agent's stream, once its guest has connected.

        Args:
            kind: of the channel; what comes over a serial line is packed.
            on_noise: is given what else is on a serial line.
        """
        connected, _ = await asyncio.get_running_loop().sock_accept(self._listener)
        reader, writer = await asyncio.open_connection(sock=connected)
        self._transport = writer.transport
        return serial_streams(reader, writer, on_noise) if kind is ChannelKind.SERIAL else (reader, writer)

    def close(self) -> None:
        """Close both ends; idempotent."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None
        self._listener.close()


class Terminal:
    """A guest's console, which the hypervisor shows as a terminal of this machine."""

    def __init__(self) -> None:
        self._closing = contextlib.ExitStack()

    async def streams(self, description: str, on_noise: Callable[[bytes], None]) -> Streams:
        """The agent's stream.

        Args:
            description: of the running domain, which names the terminal.
            on_noise: is given what else is on the console.

        Raises:
            LaunchError: there is none, or it cannot be opened.
        """
        console = ElementTree.fromstring(description).find("devices/console")
        path = None if console is None else console.get("tty")
        if path is None:
            raise LaunchError("channel", "the domain has no console on a terminal of this machine")
        try:
            streams = await terminal_streams(path, self._closing)
        except OSError as error:
            raise LaunchError("channel", f"{path} cannot be opened: {error.strerror}") from error
        return serial_streams(*streams, on_noise)

    def close(self) -> None:
        """Close it; idempotent."""
        self._closing.close()


class CallIn:
    """A port of this machine that the agent of an image calls over TLS; listens within its ``async with``."""

    def __init__(self, endpoint: Endpoint, credentials: Path) -> None:
        """Read the credentials.  Raises LaunchError: they cannot be used."""
        self._endpoint = endpoint
        self._refused_callers = RefusedCallers()
        self._listener: Listener | None = None
        self._transport: asyncio.BaseTransport | None = None
        try:
            self._credentials = Credentials.load(credentials.expanduser())
        except VirtgaugeError as error:
            raise LaunchError("dial-in", str(error)) from error

    async def __aenter__(self) -> Self:
        try:
            self._listener = Listener(self._endpoint, self._credentials, self._refused_callers)
        except OSError as error:
            raise LaunchError(
                "dial-in",
                f"cannot listen on {self._endpoint}: {error.strerror}; it takes one guest at a time, "
                "and must be an address of this machine",
            ) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listener is not None:
            await self._listener.aclose()
            self._listener = None

    async def streams(self) -> Streams:
        """The agent's stream, once it has called and proved to be ours."""
        assert self._listener is not None
        reader, writer = await self._listener.arrival()
        self._transport = writer.transport
        return reader, writer

    def silence(self, waited_s: float) -> str:
        """What to say and to do where no agent has called, and who else has."""
        endpoint = self._endpoint
        refused = self._refused_callers.words()
        return (
            f"the guest runs, and its agent has not called {endpoint} within {waited_s:g} s"
            + (f"; {refused}" if refused else "")
            + f"\n  → the image must have been built with --dial {endpoint} (or what leads there), an --address that "
            "is free on the network of management, and the identity of these credentials; the guest's screen says what "
            f"its agent tries; TCP port {endpoint.port} must be open here; wait_s in the plan is how long to wait"
        )

    def close(self) -> None:
        """Close the stream; idempotent."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None


AnyEntrance = Entrance | Terminal | CallIn

_LOOK_S = 0.5  # How often it is looked whether a guest that has not called yet still runs
_LEAST_S = 0.1  # What is left, as :attr:`LaunchAttempt.remaining_s` has it, of a time that is over


async def conversation(attempt: DomainAttempt, entrance: AnyEntrance, kind: ChannelKind) -> Channel:
    """The agent's channel, past the handshake.

    Raises:
        LaunchError: the guest ended, or its agent did not come in time.
    """
    arrival = asyncio.create_task(_streams(attempt, entrance, kind))
    try:
        while not (await asyncio.wait({arrival}, timeout=min(_LOOK_S, attempt.remaining_s)))[0]:
            if (ended := attempt.end_of_process()) is not None:
                raise attempt.failure("boot", f"{ended} before its agent answered")
            if attempt.remaining_s <= _LEAST_S:
                if isinstance(entrance, CallIn):
                    raise attempt.failure("dial-in", entrance.silence(attempt.spec.ready_timeout_s))
                raise attempt.failure("handshake", "nothing came over its channel in time")
        reader, writer = await arrival
    finally:
        arrival.cancel()
    return await attempt.open_channel(reader, writer)


async def _streams(attempt: DomainAttempt, entrance: AnyEntrance, kind: ChannelKind) -> Streams:
    def note(noise: bytes) -> None:
        with attempt.console.open("ab") as log:
            log.write(noise)

    if isinstance(entrance, Entrance):
        return await entrance.streams(kind, note)
    if isinstance(entrance, CallIn):
        return await entrance.streams()
    handle = attempt.handle
    description = await called("the description of the guest", lambda: handle.libvirt_domain.XMLDesc(0))
    return await entrance.streams(description, note)
