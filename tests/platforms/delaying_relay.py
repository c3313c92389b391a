"""A network that takes its time: what goes through it arrives later."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def delaying_relay(address: str, port: int, delay_s: float) -> AsyncIterator[int]:
    """A port of loopback that leads to another one, a delay away in each direction."""
    loop = asyncio.get_running_loop()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                loop.call_later(delay_s, writer.write, data)
        loop.call_later(delay_s, writer.close)

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(address, port)
        await asyncio.gather(carry(reader, far_writer), carry(far_reader, writer))

    server = await asyncio.start_server(join, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
    await asyncio.sleep(delay_s + 0.1)  # what was on its way still arrives, and the connections end
