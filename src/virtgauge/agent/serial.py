"""An acknowledged byte stream over a serial line: its packets, its rules, and a stream for asyncio (docs/protocol.md).

A serial line is a UART, a hypervisor's console, a line of User Mode Linux.  It loses what its other end is not ready
for, may carry the messages of firmware and kernels as well, and does not say when the other end goes.  Positions count
the bytes of each direction, modulo 2³², from a random start that the agent chooses for both.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import enum
import re
import struct
import zlib
from collections.abc import Callable
from typing import Any

from virtgauge.agent.messages import ProtocolError

MARK = b"\xd5\x1b"  # Begins every packet; its first byte is nowhere else in one, and in no text

_ESCAPE, _FLIP = 0x7D, 0x20
_SPECIAL = re.compile(rb"[\x0f\x11\x13\x1d\x7d\xd5]")
"""Bytes that go as two: what a console may keep for itself (Linux's hypervisor consoles take ^O and what follows it for
a command to the kernel; flow control; the way out of a toolstack's console), and what begins a pair or a packet."""
_PAIR = re.compile(rb"\x7d(.)", re.DOTALL)

LONGEST = 1024  # Bytes of a stream in one packet, at most

_HEADER = struct.Struct(">BHII")
_CHECKSUM = struct.Struct(">I")


class Kind(enum.IntEnum):
    """What a packet is for."""

    OPEN = 1
    DATA = 2
    CLOSE = 3


@dataclasses.dataclass(frozen=True)
class Packet:
    """One packet."""

    kind: Kind  # what it is for
    position: int  # of the first byte of the payload, in the sender's stream
    acknowledged: int  # position of the byte that the sender expects next
    payload: bytes = b""  # bytes of the stream; none in an acknowledgement alone

    def encode(self) -> bytes:
        content = _HEADER.pack(self.kind, len(self.payload), self.position, self.acknowledged) + self.payload
        content += _CHECKSUM.pack(zlib.crc32(content))
        return MARK + _SPECIAL.sub(lambda special: bytes((_ESCAPE, special[0][0] ^ _FLIP)), content)


class Scanner:
    """Finds packets in what a line brings: after lost bytes, amid a kernel's messages, cut anywhere."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.noise = b""

    def feed(self, data: bytes) -> list[Packet]:
        """The packets that these bytes complete; ``noise`` then holds what was between them."""
        self._buffer += data
        packets, noise = [], bytearray()
        while True:
            start = self._buffer.find(MARK)
            if start < 0:  # its last byte may be the first of a mark
                start = len(self._buffer) - self._buffer.endswith(MARK[:1])
            noise += self._buffer[:start]
            del self._buffer[:start]
            packet, length = self._look()
            if packet is not None:
                packets.append(packet)
            else:
                noise += self._buffer[:length]
            del self._buffer[:length]
            if length == 0:
                break
        self.noise = bytes(noise)
        return packets

    def _look(self) -> tuple[Packet | None, int]:
        """The packet at the beginning and its length on the line.

        Without a packet, that much is none after all; of length 0, more is needed to tell.
        """
        begin, next_mark = len(MARK), self._buffer.find(MARK[:1], 1)
        line = bytes(self._buffer[begin : next_mark if next_mark > 0 else None])
        # Where another packet begins already, this one was cut short.
        unfinished = (None, begin if next_mark > 0 else 0)
        head = _first(line, _HEADER.size)
        if head is None:
            return unfinished
        kind, length, position, acknowledged = _HEADER.unpack(head[0])
        if not Kind.OPEN <= kind <= Kind.CLOSE or length > LONGEST:
            return None, begin
        whole = _first(line, _HEADER.size + length + _CHECKSUM.size)
        if whole is None:
            return unfinished
        content, taken = whole
        (checksum,) = _CHECKSUM.unpack(content[-_CHECKSUM.size :])
        if zlib.crc32(content[: -_CHECKSUM.size]) != checksum:
            return None, begin
        return Packet(Kind(kind), position, acknowledged, content[_HEADER.size : -_CHECKSUM.size]), begin + taken


def _first(line: bytes, count: int) -> tuple[bytes, int] | None:
    """So many bytes, pairs put together, and how many they are on the line; None where there are not as many."""
    end = count
    while end < (end := count + line.count(_ESCAPE, 0, end)):
        pass
    if end > len(line):
        return None
    return _PAIR.sub(lambda pair: bytes((pair[1][0] ^ _FLIP,)), line[:end]), end


WINDOW = 16384
"""Bytes that the agent may have under way to us; the rings of consoles are smaller, but we read all the time."""

REPEAT_AFTER_S = 0.5
LONGEST_PAUSE_S = 8.0
"""Without any confirmation for so long, all is sent again; then after twice that, and so on up to the longest."""

GIVE_UP_AFTER_S = 60.0  # Without any confirmation for so long, the agent is gone

VERSION = 2
_OFFER = struct.Struct(">BH")
_MODULUS = 1 << 32


class SerialLink:
    """The link from the agent's first packet to its last.

    Whatever is done with it may leave something to be sent, which :meth:`take_output` hands over.  Time is any clock
    that goes forward, in seconds.
    """

    def __init__(self) -> None:
        self.opened = self.closed = False  # the agent has been heard; it has ended the stream
        self.deadline: float | None = None  # when :meth:`tick` is due; None while nothing is under way
        self._start = self._base = self._expected = 0
        self._window = 0
        self._pending = bytearray()
        self._sent = 0
        self._gone_back = False
        self._pause = REPEAT_AFTER_S
        self._progress = 0.0
        self._output = bytearray()

    @property
    def unconfirmed(self) -> int:
        """Bytes written that the agent has not confirmed."""
        return len(self._pending)

    def take_output(self) -> bytes:
        output = bytes(self._output)
        self._output.clear()
        return output

    def write(self, data: bytes, now: float) -> None:
        """Send bytes of the stream as soon as the agent has room for them, and not before it was heard."""
        self._pending += data
        self._transmit(now)

    def receive(self, packet: Packet, now: float) -> bytes:
        """Take a packet; returns the bytes of the stream that it brings.
        Raises ProtocolError: the agent speaks another version of this, or began anew.
        """
        if packet.kind is Kind.OPEN:
            self._open(packet, now)
        elif not self.opened:
            return b""
        elif packet.kind is Kind.CLOSE:
            self.closed = True
        else:
            self._confirm(packet, now)
            fresh = packet.payload[(self._expected - packet.position) % _MODULUS :]  # without what is known of it
            self._expected = (self._expected + len(fresh)) % _MODULUS
            if packet.payload:
                self._send(Kind.DATA, self._next())
            self._transmit(now)
            return fresh
        return b""

    def tick(self, now: float) -> None:
        """Send again what the agent does not confirm, where that is due.
        Raises ProtocolError: it has confirmed nothing for a minute.
        """
        if self.deadline is None or now < self.deadline:
            return
        if now >= self._progress + GIVE_UP_AFTER_S:
            raise ProtocolError(f"the agent has confirmed nothing on its serial line for {GIVE_UP_AFTER_S:g} s")
        self._sent = 0
        self._pause = min(2 * self._pause, LONGEST_PAUSE_S)
        self.deadline = now + self._pause
        self._transmit(now)

    def close(self) -> None:
        """Say that the stream ends; what was not sent is not."""
        if self.opened and not self.closed:
            self._send(Kind.CLOSE, self._next())

    def _open(self, packet: Packet, now: float) -> None:
        if packet.payload[:1] != bytes([VERSION]) or len(packet.payload) < _OFFER.size:
            raise ProtocolError(f"the agent offers a serial stream as {packet.payload.hex()}, not of version {VERSION}")
        if not self.opened:
            self._start = self._base = self._expected = packet.position
            _, self._window = _OFFER.unpack_from(packet.payload)
            self.opened = True
        elif packet.position != self._start:
            raise ProtocolError("the agent began anew: its guest was started again, or something else answers")
        self._send(Kind.OPEN, self._start, _OFFER.pack(VERSION, WINDOW))  # again, where the first answer was lost
        self._transmit(now)

    def _confirm(self, packet: Packet, now: float) -> None:
        confirmed = (packet.acknowledged - self._base) % _MODULUS
        if confirmed == 0 and not packet.payload and self._sent > 0 and not self._gone_back:
            # It confirms the same again because of a packet that it could not use: one before that was lost.
            self._gone_back, self._sent = True, 0
        if 0 < confirmed <= min(len(self._pending), self._window):
            del self._pending[:confirmed]
            self._base = packet.acknowledged
            self._sent = max(0, self._sent - confirmed)
            self._gone_back = False
            self._progress, self._pause = now, REPEAT_AFTER_S
            self.deadline = now + self._pause if self._sent else None

    def _transmit(self, now: float) -> None:
        if not self.opened:
            return
        if self._sent == 0 and self._pending and self.deadline is None:
            self._progress = now
        room = min(len(self._pending), self._window)
        while self._sent < room:
            payload = bytes(self._pending[self._sent : min(room, self._sent + LONGEST)])
            self._send(Kind.DATA, self._next(), payload)
            self._sent += len(payload)
        if self._sent and self.deadline is None:
            self.deadline = now + self._pause

    def _send(self, kind: Kind, position: int, payload: bytes = b"") -> None:
        self._output += Packet(kind, position, self._expected, payload).encode()

    def _next(self) -> int:
        return (self._base + self._sent) % _MODULUS


_READ_SIZE = 65536
_MOST_UNCONFIRMED = 65536


def serial_streams(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, on_noise: Callable[[bytes], None] | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The stream of the agent at the other end of a serial line, in place of the line's own.

    It is there at once: what is written waits until the agent asks for the link, as it does four times a second, and
    what is read ends with the line, or when the agent says so.  Closing the writer closes the line.  A line whose other
    end breaks the rules, or confirms nothing for a minute, ends in :class:`ProtocolError` from the reader.

    The line's own reader and writer pass every byte, and belong to the stream from now on.  What is on the line beside
    it, messages of firmware and kernels, is given to ``on_noise`` as it comes.
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
