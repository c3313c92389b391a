"""How an agent in a domain reaches the controller."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from xml.etree import ElementTree

from virtgauge.agent.channel import Channel
from virtgauge.agent.serial import serial_streams
from virtgauge.errors import VirtgaugeError
from virtgauge.platforms.attached.credentials import Credentials
from virtgauge.platforms.attached.dial_in import Listener, RefusedCallers
from virtgauge.platforms.attached.platform import Endpoint
from virtgauge.platforms.attempt import Streams, terminal_streams
from virtgauge.platforms.base import LaunchError, stage
from virtgauge.platforms.libvirt.boot import DomainAttempt
from virtgauge.platforms.libvirt.connection import called

_LONGEST_PATH = 107  # Bytes in the path of a Unix socket (sun_path less its end)
_LOOK_S = 0.5  # How often it is looked whether a guest that has not called yet still runs
_LEAST_S = 0.1  # What is left, as :attr:`LaunchAttempt.remaining_s` has it, of a time that is over


class Entrance(abc.ABC):
    """Where a guest's stream arrives; what it opens is open until ``removal``."""

    socket: Path | None = None  # on which the domain's hypervisor connects; None without one
    silence_stage: str = "handshake"  # of a launch in which nothing came

    def __init__(self, removal: contextlib.ExitStack) -> None:
        self._removal = removal

    def listening(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Around the start of a guest and its :meth:`streams`.  Raises LaunchError: nothing can come here."""
        return contextlib.nullcontext()

    @abc.abstractmethod
    async def streams(self, attempt: DomainAttempt) -> Streams:
        """The agent's stream, once it is there.  Raises LaunchError: it cannot be."""

    def silence(self, waited_s: float) -> str:
        """What to say where nothing has come for so long."""
        return "nothing came over its channel in time"


class Socket(Entrance):
    """A Unix socket of ours, to which the hypervisor or a container's agent connects."""

    def __init__(self, path: Path, removal: contextlib.ExitStack, *, serial: bool) -> None:
        """Listen for a line that is ``serial``, so that what comes over it is packed, or plain.
        Raises LaunchError: the path is too long for a socket, or cannot be made.
        """
        super().__init__(removal)
        self.socket, self._serial = path, serial
        if len(os.fsencode(path)) > _LONGEST_PATH:
            raise LaunchError(
                "channel",
                f"{path} is longer than the path of a socket may be ({_LONGEST_PATH} bytes): "
                "set VIRTGAUGE_STATE to a folder with a shorter path",
            )
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        removal.callback(self._listener.close)
        try:
            self._listener.bind(str(path))
            self._listener.listen(1)
        except OSError as error:
            raise LaunchError("channel", f"{path} cannot be listened on: {error.strerror}") from error

    async def streams(self, attempt: DomainAttempt) -> Streams:
        connected, _ = await asyncio.get_running_loop().sock_accept(self._listener)
        reader, writer = await asyncio.open_connection(sock=connected)
        self._removal.callback(writer.transport.close)
        return serial_streams(reader, writer, attempt.note) if self._serial else (reader, writer)


class Terminal(Entrance):
    """A guest's console, which the hypervisor shows as a terminal of this machine and names in its description."""

    async def streams(self, attempt: DomainAttempt) -> Streams:
        description = await called("the description of the guest", lambda: attempt.handle.libvirt_domain.XMLDesc(0))
        console = ElementTree.fromstring(description).find("devices/console")
        path = None if console is None else console.get("tty")
        if path is None:
            raise LaunchError("channel", "the domain has no console on a terminal of this machine")
        try:
            streams = await terminal_streams(path, self._removal)
        except OSError as error:
            raise LaunchError("channel", f"{path} cannot be opened: {error.strerror}") from error
        return serial_streams(*streams, attempt.note)


class CallIn(Entrance):
    """A port of this machine that the agent of an image calls over TLS."""

    silence_stage = "dial-in"

    def __init__(self, endpoint: Endpoint, credentials: Path, removal: contextlib.ExitStack) -> None:
        """Read the credentials.  Raises LaunchError: they cannot be used."""
        super().__init__(removal)
        self._endpoint = endpoint
        self._refused_callers = RefusedCallers()
        self._listener: Listener  # there while it listens
        with stage("dial-in", VirtgaugeError):
            self._credentials = Credentials.load(credentials.expanduser())

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        try:
            self._listener = Listener(self._endpoint, self._credentials, self._refused_callers)
        except OSError as error:
            raise LaunchError(
                "dial-in",
                f"cannot listen on {self._endpoint}: {error.strerror}; it takes one guest at a time, "
                "and must be an address of this machine",
            ) from error
        async with contextlib.aclosing(self._listener):
            yield

    async def streams(self, attempt: DomainAttempt) -> Streams:
        reader, writer = await self._listener.arrival()
        self._removal.callback(writer.transport.close)
        return reader, writer

    def silence(self, waited_s: float) -> str:
        endpoint = self._endpoint
        refused = self._refused_callers.words()
        return (
            f"the guest runs, and its agent has not called {endpoint} within {waited_s:g} s"
            + (f"; {refused}" if refused else "")
            + f"\n  → the image must have been built with --dial {endpoint} (or what leads there), an --address that "
            "is free on the network of management, and the identity of these credentials; the guest's screen says what "
            f"its agent tries; TCP port {endpoint.port} must be open here; wait_s in the plan is how long to wait"
        )


async def conversation(attempt: DomainAttempt, entrance: Entrance) -> Channel:
    """The agent's channel, past the handshake.  Raises LaunchError: the guest ended, or its agent did not come."""
    arrival = asyncio.create_task(entrance.streams(attempt))
    try:
        while not (await asyncio.wait({arrival}, timeout=min(_LOOK_S, attempt.remaining_s)))[0]:
            if (ended := attempt.end_of_process()) is not None:
                raise attempt.failure("boot", f"{ended} before its agent answered")
            if attempt.remaining_s <= _LEAST_S:
                raise attempt.failure(entrance.silence_stage, entrance.silence(attempt.spec.ready_timeout_s))
        reader, writer = await arrival
    finally:
        arrival.cancel()
    return await attempt.open_channel(reader, writer)
