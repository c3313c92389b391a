"""An acknowledged byte stream over a serial line, for asyncio (docs/protocol.md).

A serial line is a UART, a hypervisor's console, a line of User Mode Linux.  It loses what its other end is not ready
for, may carry the messages of firmware and kernels as well, and does not say when the other end goes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from virtgauge.agent.frames import ProtocolError
from virtgauge.agent.serial_link import SerialLink
from virtgauge.agent.serial_packets import Scanner

_READ_SIZE = 65536
_MOST_UNCONFIRMED = 65536


def serial_streams(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, on_noise: Callable[[bytes], None] | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The stream of the agent at the other end of a serial line, in place of the line's own.

    It is there at once: what is written waits until the agent asks for the link, as it does four times a second, and
    what is read ends with the line, or when the agent says so.  Closing the writer closes the line.

    Args:
        reader, writer: the line's, passing every byte; they belong to the stream from now on.
        on_noise: is given what is on the line beside the stream, as it comes: messages of firmware and kernels.

    Returns:
        reader and writer, as :meth:`Channel.open` takes them.  A line whose other end breaks the rules, or confirms
        nothing for a minute, ends in :class:`ProtocolError` from the reader.
    """
    loop = asyncio.get_running_loop()
    upper = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(upper)
    transport = _SerialTransport(reader, writer, protocol, on_noise)
    return upper, asyncio.StreamWriter(transport, protocol, upper, loop)


class _SerialTransport(asyncio.Transport):
    """Moves packets between a line and the protocol of its stream."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        protocol: asyncio.StreamReaderProtocol,
        on_noise: Callable[[bytes], None] | None,
    ) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._reader, self._writer, self._protocol, self._on_noise = reader, writer, protocol, on_noise
        self._link = SerialLink()
        self._timer: asyncio.TimerHandle | None = None
        self._closing = self._writing_paused = False
        self._reading = asyncio.Event()
        self._reading.set()
        protocol.connection_made(self)
        self._receiver = asyncio.create_task(self._receive())

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._closing:
            return
        self._link.write(bytes(data), self._loop.time())
        self._flush()

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._link.close()
            self._flush()
            self._end(None)

    def abort(self) -> None:
        if not self._closing:
            self._end(None)

    def pause_reading(self) -> None:
        self._reading.clear()

    def resume_reading(self) -> None:
        self._reading.set()

    async def _receive(self) -> None:
        scanner = Scanner()
        try:
            while not self._link.closed:
                await self._reading.wait()
                data = await self._reader.read(_READ_SIZE)
                if not data:
                    break
                packets = scanner.feed(data)
                if scanner.noise and self._on_noise is not None:
                    self._on_noise(scanner.noise)
                for packet in packets:
                    if fresh := self._link.receive(packet, self._loop.time()):
                        self._protocol.data_received(fresh)
                self._flush()
            self._protocol.eof_received()
            self._end(None)
        except (ProtocolError, OSError) as error:
            self._end(error)

    def _flush(self) -> None:
        """Send what the link has to send, and be back when it may have to repeat that."""
        if output := self._link.take_output():
            self._writer.write(output)
        crowded = self._link.unconfirmed > _MOST_UNCONFIRMED
        if crowded is not self._writing_paused:
            self._writing_paused = crowded
            (self._protocol.pause_writing if crowded else self._protocol.resume_writing)()
        if self._link.deadline is None:
            self._stop_timer()
        elif self._timer is None:
            self._timer = self._loop.call_at(self._link.deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        try:
            self._link.tick(self._loop.time())
        except ProtocolError as error:
            self._end(error)
        else:
            self._flush()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self, error: Exception | None) -> None:
        if self._closing:
            return
        self._closing = True
        self._stop_timer()
        if asyncio.current_task() is not self._receiver:
            self._receiver.cancel()
        with contextlib.suppress(OSError):
            self._writer.close()
        self._loop.call_soon(self._protocol.connection_lost, error)
