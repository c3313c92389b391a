"""The packets of a serial line, and how they are found among whatever else is on it (docs/protocol.md)."""

from __future__ import annotations

import dataclasses
import enum
import struct
import zlib

MARK = b"\xd5\x1b"
"""Begins every packet; no text has it."""

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
        return MARK + content + _CHECKSUM.pack(zlib.crc32(content))


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
            found = self._look()
            if found is None:
                break
            if isinstance(found, Packet):
                packets.append(found)
                del self._buffer[: len(found.encode())]
            else:
                noise += self._buffer[: len(MARK)]
                del self._buffer[: len(MARK)]
        self.noise = bytes(noise)
        return packets

    def _look(self) -> Packet | bool | None:
        """The packet at the beginning, False where there is none after all, None where more is needed to tell."""
        begin = len(MARK) + _HEADER.size
        if len(self._buffer) < begin:
            return None
        kind, length, position, acknowledged = _HEADER.unpack_from(self._buffer, len(MARK))
        if kind not in _KINDS or length > LONGEST:
            return False
        end = begin + length
        if len(self._buffer) < end + _CHECKSUM.size:
            return None
        (checksum,) = _CHECKSUM.unpack_from(self._buffer, end)
        if zlib.crc32(self._buffer[len(MARK) : end]) != checksum:
            return False
        return Packet(Kind(kind), position, acknowledged, bytes(self._buffer[begin:end]))
