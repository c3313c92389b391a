"""The controller's end of a link over a serial line, without any input or output of its own (docs/protocol.md).

Positions count the bytes of each direction, modulo 2³², from a random start that the agent chooses for both.
"""

from __future__ import annotations

import struct

from virtgauge.agent.frames import ProtocolError
from virtgauge.agent.serial_packets import LONGEST, Kind, Packet

WINDOW = 16384
"""Bytes that the agent may have under way to us; the rings of consoles are smaller, but we read all the time."""

REPEAT_AFTER_S = 0.5
LONGEST_PAUSE_S = 8.0
"""Without any confirmation for so long, all is sent again; then after twice that, and so on up to the longest."""

GIVE_UP_AFTER_S = 60.0
"""Without any confirmation for so long, the agent is gone."""

VERSION = 2
_OFFER = struct.Struct(">BH")
_MODULUS = 1 << 32


class SerialLink:
    """The link from the agent's first packet to its last.

    Whatever is done with it may leave something to be sent, which :meth:`take_output` hands over.  Time is any clock
    that goes forward, in seconds.

    Attributes:
        opened: the agent has been heard.
        closed: the agent has ended the stream.
        deadline: when :meth:`tick` is due; None while nothing is under way.
    """

    def __init__(self) -> None:
        self.opened = False
        self.closed = False
        self.deadline: float | None = None
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
        """What is to be sent over the line now."""
        output = bytes(self._output)
        self._output.clear()
        return output

    def write(self, data: bytes, now: float) -> None:
        """Send bytes of the stream as soon as the agent has room for them, and not before it was heard."""
        self._pending += data
        self._transmit(now)

    def receive(self, packet: Packet, now: float) -> bytes:
        """Take a packet; returns the bytes of the stream that it brings.

        Raises:
            ProtocolError: the agent speaks another version of this, or began anew.
        """
        if packet.kind is Kind.OPEN:
            self._open(packet, now)
        elif not self.opened:
            return b""
        elif packet.kind is Kind.CLOSE:
            self.closed = True
        else:
            self._confirm(packet, now)
            fresh = self._fresh(packet)
            if packet.payload:
                self._send(Kind.DATA, self._next())
            self._transmit(now)
            return fresh
        return b""

    def tick(self, now: float) -> None:
        """Send again what the agent does not confirm, where that is due.

        Raises:
            ProtocolError: it has confirmed nothing for a minute.
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

    def _fresh(self, packet: Packet) -> bytes:
        known = (self._expected - packet.position) % _MODULUS
        fresh = packet.payload[known:]
        self._expected = (self._expected + len(fresh)) % _MODULUS
        return fresh

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
