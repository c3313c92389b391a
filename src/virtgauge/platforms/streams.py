"""Byte streams for asyncio over descriptors that the controller already holds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket


class PipePair:
    """Two pipes: the guest's standard input and output, and the controller's ends of them.

    The guest's ends (``guest_stdin``, ``guest_stdout``) are handed to the child and closed by :meth:`close_guest_ends`
    as soon as it has them, so that the end of the guest is the end of the stream.
    """

    def __init__(self) -> None:
        self.guest_stdin, self._write = os.pipe()
        self._read, self.guest_stdout = os.pipe()
        self._open = {self.guest_stdin, self._write, self._read, self.guest_stdout}
        self._transports: list[asyncio.BaseTransport] = []

    async def streams(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Reader of what the guest writes, writer of what it reads."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        read_file = os.fdopen(self._read, "rb", buffering=0)
        self._open.discard(self._read)
        read_transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), read_file)
        self._transports.append(read_transport)
        write_file = os.fdopen(self._write, "wb", buffering=0)
        self._open.discard(self._write)
        # a reader's protocol also for writing: it is the one that knows when the transport is closed
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), write_file
        )
        self._transports.append(transport)
        return reader, asyncio.StreamWriter(transport, protocol, None, loop)

    def close_guest_ends(self) -> None:
        """Close the ends that the guest has inherited."""
        for descriptor in (self.guest_stdin, self.guest_stdout):
            if descriptor in self._open:
                self._open.discard(descriptor)
                os.close(descriptor)

    def close(self) -> None:
        """Close everything still open; idempotent."""
        for transport in self._transports:
            transport.close()
        self._transports.clear()
        for descriptor in self._open:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._open.clear()


class SocketPair:
    """A connected pair of Unix sockets: one end inherited by a child, one for the controller."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._transport: asyncio.BaseTransport | None = None

    async def streams(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Streams over the controller's end."""
        reader, writer = await asyncio.open_connection(sock=self.ours)
        self._transport = writer.transport
        return reader, writer

    def close(self) -> None:
        """Close both ends; idempotent."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None
        else:
            self.ours.close()
        self.theirs.close()
