"""The machine of a laboratory's tester, as the laboratory sees it: where peers with interfaces are launched."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import itertools
import secrets
import ssl
from collections.abc import Callable, Sequence
from typing import ClassVar, Self

from pydantic import BaseModel, model_validator

from virtgauge.agent import AgentBinary
from virtgauge.agent.channel import Channel, ChannelClosedError, HandshakeError
from virtgauge.agent.messages import ProtocolError
from virtgauge.errors import VirtgaugeError
from virtgauge.host.process import wait_for_exit
from virtgauge.host.scope import Scope
from virtgauge.network import NetworkError, Nic
from virtgauge.network.links import connect
from virtgauge.network.namespace import Namespace
from virtgauge.network.wire import join, require_room, wire_ends, wire_in
from virtgauge.platforms.attached.dial_in import KEEPALIVE
from virtgauge.platforms.attempt import LaunchAttempt, LaunchedGuest
from virtgauge.platforms.base import Accounting, Availability, Guest, GuestSpec, LaunchError, Platform, stage
from virtgauge.platforms.local import StartedAgent, start_agent

# What is asked of the machine on which a peer shall run: one line of JSON each way, then the bytes of its channel.

LINE_LIMIT = 64 * 1024  # Bytes of the longest line that is read


class PeerRequest(BaseModel):
    """A peer that shall be launched."""

    secret: str
    name: str  # of the peer, unique among the server's
    nics: tuple[Nic, ...]
    wires: tuple[int | str, ...]  # of each of them: a number, or the name of an interface there
    loop: Nic | None  # as :class:`GuestSpec` has it
    ready_timeout_s: float

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.nics) != len(self.wires):
            raise ValueError(f"{len(self.nics)} interfaces have {len(self.wires)} wires")
        return self


class PeerAnswer(BaseModel):
    """What became of a request; the peer's channel follows where nothing failed."""

    failure: tuple[str, str] | None  # stage and message, as :class:`LaunchError` has them


def _line(said: BaseModel) -> bytes:
    return said.model_dump_json().encode() + b"\n"


class RemoteHostLostError(VirtgaugeError):
    """The tester's machine does not answer any more; nothing here is at fault."""


class RemotePeer(LaunchedGuest):
    """A peer on the other machine; what it costs is not this one's."""

    def accounting(self) -> Accounting:
        return Accounting(cpu_ns=None, method="another machine's", of_this_machine=False)


class RemoteHost(Platform):
    """The machine of a laboratory's tester, as the laboratory sees it."""

    kind: ClassVar[str] = "remote"

    def __init__(
        self,
        name: str,
        address: str,
        port: int,
        secret: str,
        context: ssl.SSLContext,
        cpus: Sequence[int],
        cables: Sequence[tuple[str, str]] = (),
    ) -> None:
        """``context`` is to prove oneself with.

        ``cables`` are the names of interfaces that are cabled to each other, here and there; without any, wires are
        tunnels.
        """
        self.name, self.cpus = name, tuple(cpus)
        self._address, self._port, self._secret, self._context = address, port, secret, context
        self._cables = None if not cables else list(cables)
        self._numbers = itertools.count(secrets.randbelow(0xFFFFFF // 2) + 1)

    @property
    def label(self) -> str:
        return f"host {self.name}"

    async def probe(self) -> Availability:
        return Availability(usable=True, reason="another machine of the fleet")

    async def launch(self, spec: GuestSpec) -> Guest:
        """Start an agent there, and join its interfaces with the laboratory here.

        Of the specification its interfaces and their lab, its loop and the time that it may take have an effect.
        Raises LaunchError: it did not come up, or the wires cannot be; RemoteHostLostError: nobody is there to do so.
        """
        attempt = LaunchAttempt(spec)
        async with contextlib.AsyncExitStack() as undo:
            reader, writer = await self._connect()
            undo.callback(writer.close)
            removal = undo.enter_context(contextlib.ExitStack())
            with stage("network", NetworkError):
                request, namespace, wires = self._prepare(spec, writer, removal)
                await self._ask(request, reader, writer)
                for number, wire in enumerate(wires):
                    join(namespace, f"eth{number}", wire)
            try:
                channel = await Channel.open(reader, writer, spec.agent.sha256, spec.ready_timeout_s, spec.roots)
            except (ChannelClosedError, HandshakeError, ProtocolError, OSError) as error:
                raise LaunchError("handshake", f"{spec.name} on {self.label}: {error}") from error
            undo.pop_all()
            return RemotePeer(**attempt.given(channel, self.label, removal))

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            async with asyncio.timeout(20.0):
                return await asyncio.open_connection(self._address, self._port, ssl=self._context, limit=LINE_LIMIT)
        except (OSError, TimeoutError) as error:
            raise self._lost(error) from error

    def _prepare(
        self, spec: GuestSpec, writer: asyncio.StreamWriter, removal: contextlib.ExitStack
    ) -> tuple[PeerRequest, Namespace, list[str]]:
        """What is asked of the other machine, and this one's ends: ``eth0`` … of a namespace, and their wires."""
        assert spec.lab is not None
        addresses = (str(writer.get_extra_info(end)[0]) for end in ("sockname", "peername"))
        wires = [self._wire(removal) for _ in spec.nics]
        request = PeerRequest(
            secret=self._secret,
            name=spec.name,
            nics=spec.nics,
            wires=tuple(there for _, there in wires),
            loop=spec.loop,
            ready_timeout_s=spec.ready_timeout_s,
        )
        namespace = Namespace(spec.scope, f"{spec.name}-wires")
        removal.callback(namespace.close)
        entries = [Nic(nic.port, f"02:76:67:0c:00:{number:02x}", mtu=nic.mtu) for number, nic in enumerate(spec.nics)]
        connect(spec.lab, namespace, entries)
        ends = wire_ends([here for here, _ in wires], *addresses)
        for end in ends:
            require_room(end, spec.nics)
        taken = [removal.enter_context(wire_in(namespace, end, mtu=spec.nics[0].mtu)) for end in ends]
        return request, namespace, taken

    def _wire(self, removal: contextlib.ExitStack) -> tuple[int | str, int | str]:
        """What names a wire that no other peer has, here and there.  Raises NetworkError: there is no further cable."""
        if self._cables is None:
            number = next(self._numbers)
            return number, number
        if not self._cables:
            raise NetworkError("all cables of the pair are in use", "name a further one in fleet.pair.cables")
        cable = self._cables.pop(0)
        removal.callback(self._cables.append, cable)
        return cable

    async def _ask(self, request: PeerRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(_line(request))
            async with asyncio.timeout(request.ready_timeout_s):
                line = await reader.readline()
            if not line:
                raise EOFError("it ended the connection")
            failure = PeerAnswer.model_validate_json(line).failure
        except TimeoutError as error:
            raise LaunchError("start", f"{self.label} has not answered in {request.ready_timeout_s:g} s") from error
        except (OSError, EOFError) as error:
            raise self._lost(error) from error
        except ValueError as error:
            raise LaunchError("start", f"{self.label}: no answer about a peer: {error}") from error
        if failure is not None:
            raise LaunchError(failure[0], f"{request.name} on {self.label}: {failure[1]}")

    def _lost(self, error: Exception) -> RemoteHostLostError:
        return RemoteHostLostError(
            f"the tester's {self.label} at {self._address}:{self._port} cannot be reached: {error}"
        )


class PeerServer:
    """Launches peers on this machine for a laboratory on another: one connection each, whose end is the peer's."""

    def __init__(self, scope: Scope, agent: AgentBinary, idle_s: float, on_idle: Callable[[], None]) -> None:
        """Whatever is made for peers belongs to the scope; ``on_idle`` is called after so long without a connection."""
        self._scope, self._agent = scope, agent
        self._idle_s, self._on_idle = idle_s, on_idle
        self._idle: asyncio.TimerHandle | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.secret = secrets.token_hex(16)  # that a request must know, beside the certificate of the connection
        self.address, self.port = "", 0  # where it listens

    async def listen(self, address: str, context: ssl.SSLContext) -> None:
        """Listen at an address of this machine, for whoever proves himself by the context's authority.
        Raises OSError: it is no address of this machine.
        """
        self._server = await asyncio.start_server(
            self._accept, address, 0, ssl=context, ssl_handshake_timeout=5.0, limit=LINE_LIMIT
        )
        self.address, self.port = self._server.sockets[0].getsockname()[:2]
        self._watch()

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
        for option in KEEPALIVE:  # a guests' host that lost its power says nothing
            with contextlib.suppress(OSError):
                writer.get_extra_info("socket").setsockopt(*option)
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
                async with asyncio.timeout(30.0):
                    request = PeerRequest.model_validate_json(await reader.readline())
                if not hmac.compare_digest(request.secret, self.secret):
                    raise ValueError("another secret is wanted")
                started = await self._launch(request, writer, removal)
            except (LaunchError, NetworkError, ValueError) as error:
                failed = error.stage if isinstance(error, LaunchError) else "network"
                writer.write(_line(PeerAnswer(failure=(failed, str(error)))))
                await writer.drain()
                return
            writer.write(_line(PeerAnswer(failure=None)))
            await _relay((reader, started.writer), (started.reader, writer))
            await wait_for_exit(started.process, 0.5)

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
    """Copy both ways until one of the two ends is gone."""
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
    while piece := await reader.read(256 * 1024):
        writer.write(piece)
        await writer.drain()
