"""The packets of a serial line, and how they are found among whatever else is on it (docs/protocol.md)."""

from __future__ import annotations

import dataclasses
import enum
import re
import struct
import zlib

MARK = b"\xd5\x1b"
"""Begins every packet; its first byte is nowhere else in one, and in no text."""

_ESCAPE, _FLIP = 0x7D, 0x20
_SPECIAL = re.compile(rb"[\x0f\x11\x13\x1d\x7d\xd5]")
"""Bytes that go as two: what a console may keep for itself (Linux's hypervisor consoles take ^O and what follows it for
a command to the kernel; flow control; the way out of a toolstack's console), and what begins a pair or a packet."""
_PAIR = re.compile(rb"\x7d(.)", re.DOTALL)

LONGEST = 1024
"""Bytes of a stream in one packet, at most."""

_HEADER = struct.Struct(">BHII")
_CHECKSUM = struct.Struct(">I")


class Kind(enum.IntEnum):
    """What a packet is for."""

    OPEN = 1
    DATA = 2
    CLOSE = 3


_KINDS = frozenset(int(kind) for kind in Kind)


@dataclasses.dataclass(frozen=True)
class Packet:
    """One packet.

    Attributes:
        kind: what it is for.
        position: of the first byte of the payload, in the sender's stream.
        acknowledged: position of the byte that the sender expects next.
        payload: bytes of the stream; none in an acknowledgement alone.
    """

    kind: Kind
    position: int
    acknowledged: int
    payload: bytes = b""

    def encode(self) -> bytes:
        """As it goes over the line."""
        content = _HEADER.pack(self.kind, len(self.payload), self.position, self.acknowledged) + self.payload
        return MARK + _SPECIAL.sub(_as_two, content + _CHECKSUM.pack(zlib.crc32(content)))


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
        if kind not in _KINDS or length > LONGEST:
            return None, begin
        whole = _first(line, _HEADER.size + length + _CHECKSUM.size)
        if whole is None:
            return unfinished
        content, taken = whole
        (checksum,) = _CHECKSUM.unpack(content[-_CHECKSUM.size :])
        if zlib.crc32(content[: -_CHECKSUM.size]) != checksum:
            return None, begin
        return Packet(Kind(kind), position, acknowledged, content[_HEADER.size : -_CHECKSUM.size]), begin + taken


def _as_two(special: re.Match[bytes]) -> bytes:
    return bytes((_ESCAPE, special[0][0] ^ _FLIP))


def _first(line: bytes, count: int) -> tuple[bytes, int] | None:
    """So many bytes, pairs put together, and how many they are on the line; None where there are not as many."""
    end = count
    while end < (end := count + line.count(_ESCAPE, 0, end)):
        pass
    if end > len(line):
        return None
    return _PAIR.sub(lambda pair: bytes((pair[1][0] ^ _FLIP,)), line[:end]), end
