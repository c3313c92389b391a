"""Where a machine's agent calls: everybody else gets nothing, and holds nobody up.

Whoever connects is sent nothing before it has spoken TLS, and no application data before it has shown the one
certificate that is let in.  Handshakes run side by side, each for a few seconds at most; when too many are under way,
the oldest makes room, because the right one takes milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator

from virtgauge.platforms.attached.credentials import Credentials
from virtgauge.platforms.attached.settings import Endpoint

HANDSHAKE_S = 5.0
_MOST_HANDSHAKES = 64
_BACKLOG = 256
_READ_LIMIT = 2**20
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
"""A way that fails is noticed by the kernel: after 30 s of silence it asks every 10 s, three times."""
_UNCONFIRMED_MS = 60_000

_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "showed no certificate",
    "CERTIFICATE_VERIFY_FAILED": "showed a certificate that is not of this run",
    "TLSV1_ALERT_UNKNOWN_CA": "did not accept our certificate (it has the identity of another run)",
    "SSLV3_ALERT_BAD_CERTIFICATE": "did not accept our certificate (it has the identity of another run)",
    "TLSV1_ALERT_DECRYPT_ERROR": "did not accept our certificate (it has the identity of another run)",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "finds our certificate expired (is its clock right?)",
    "UNSUPPORTED_PROTOCOL": "spoke an older TLS than 1.3",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "did not accept our certificate",
}
Strangers = Counter[str]
"""Connections that were refused, by what they did."""


class Listener:
    """Waits for the agent of one launch."""

    def __init__(self, endpoint: Endpoint, credentials: Credentials, strangers: Strangers) -> None:
        """Begin to listen.

        Args:
            endpoint: of this machine.
            credentials: of the run.
            strangers: gets whoever is refused.

        Raises:
            OSError: the address is not this machine's, or the port is taken.
        """
        self._context, self._expected = credentials.context(), credentials.agent_certificate()
        self._strangers = strangers
        self._arrived: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        self._handshakes: dict[asyncio.Task[None], None] = {}  # in the order of their beginning
        family = socket.AF_INET6 if ":" in endpoint.address else socket.AF_INET
        self._socket = socket.create_server(
            (endpoint.address, endpoint.port), family=family, backlog=_BACKLOG, reuse_port=False
        )
        self._socket.setblocking(False)
        self._door = asyncio.create_task(self._answer())

    async def arrival(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The streams of the next agent that has proved to be ours; cancel it to wait no longer."""
        return await self._arrived.get()

    async def close(self) -> None:
        """Listen no longer; whoever has not been taken is turned away."""
        unfinished = [self._door, *self._handshakes]
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        self._socket.close()
        while not self._arrived.empty():
            _, writer = self._arrived.get_nowait()
            writer.transport.abort()

    async def _answer(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._socket)
            except OSError:  # gone again before it was accepted, or no descriptor is left
                await asyncio.sleep(0.05)
                continue
            if len(self._handshakes) >= _MOST_HANDSHAKES:
                oldest = next(iter(self._handshakes))
                self._handshakes.pop(oldest)
                oldest.cancel()
                self._strangers["made room for others"] += 1
            task = asyncio.create_task(self._shake_hands(connection))
            self._handshakes[task] = None
            task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    async def _shake_hands(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_READ_LIMIT)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            _prepare(connection)
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=self._context, ssl_handshake_timeout=HANDSHAKE_S
            )
        except (OSError, TimeoutError) as error:  # an SSLError is an OSError
            connection.close()
            self._strangers[_reason(error)] += 1
            return
        shown: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if shown is None or shown.getpeercert(binary_form=True) != self._expected:
            transport.abort()
            self._strangers["showed a certificate that is not of this run"] += 1
            return
        self._arrived.put_nowait((reader, asyncio.StreamWriter(transport, protocol, reader, loop)))


@contextlib.asynccontextmanager
async def listening(endpoint: Endpoint, credentials: Credentials, strangers: Strangers) -> AsyncIterator[Listener]:
    """A listener, closed at the end."""
    listener = Listener(endpoint, credentials, strangers)
    try:
        yield listener
    finally:
        await listener.close()


def _prepare(connection: socket.socket) -> None:
    connection.setblocking(False)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNCONFIRMED_MS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLError):
        return _REASONS.get(error.reason or "", "did not speak TLS")
    if isinstance(error, (TimeoutError, ConnectionAbortedError)):
        return f"said nothing that counts within {HANDSHAKE_S:g} s"
    return "hung up"
