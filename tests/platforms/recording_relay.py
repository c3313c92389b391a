"""Somebody on the way who keeps what a client sends."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self


class RecordingRelay:
    """A port of loopback that leads to another one.

    Attributes:
        port: to connect to.
        sent: what the client of each connection has sent.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self.sent: list[bytearray] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        kept = bytearray()
        self.sent.append(kept)
        await asyncio.gather(_carry(reader, far_writer, kept), _carry(far_reader, writer, bytearray()))


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            kept += data
            writer.write(data)
            await writer.drain()
    writer.close()
