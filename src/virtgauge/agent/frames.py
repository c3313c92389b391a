"""Length-prefixed MessagePack frames: the outermost layer of docs/protocol.md.

Bytes in, maps out.  Nothing here trusts the peer: a length is checked before anything is allocated for it, and every
malformed frame ends in :class:`ProtocolError`.
"""

from __future__ import annotations

import struct
from typing import Any

import msgpack

MAX_FRAME = 4 * 1024 * 1024
_MOST_CONTAINERS = 65_536  # maps and lists of one frame: an empty one of a byte takes 64 of memory
_LENGTH = struct.Struct(">I")


class ProtocolError(Exception):
    """The peer did not keep to docs/protocol.md; the session is over."""


def encode(message: dict[str, Any], sequence: int) -> bytes:
    """One frame. Raises ProtocolError: the message is larger than a frame may be."""
    payload = msgpack.packb({"seq": sequence, **message}, use_bin_type=True)
    assert isinstance(payload, bytes)
    if len(payload) > MAX_FRAME:
        raise ProtocolError(f"a message of {len(payload)} bytes exceeds the frame limit of {MAX_FRAME}")
    return _LENGTH.pack(len(payload)) + payload


class FrameDecoder:
    """Cuts a byte stream into messages, in sequence.

    Feed it whatever arrived; it holds at most one incomplete frame.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._sequence = 0

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The messages completed by ``data``.
        Raises ProtocolError: an empty or oversized frame, no map, no type, or a number out of sequence.
        """
        self._buffer += data
        messages = []
        while (payload := self._next_payload()) is not None:
            messages.append(self._message(payload))
        return messages

    def finish(self) -> None:
        """The stream ended. Raises ProtocolError: in the middle of a frame."""
        if self._buffer:
            raise ProtocolError(f"the stream ended inside a frame ({len(self._buffer)} bytes of it had arrived)")

    def _next_payload(self) -> bytes | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if not 1 <= length <= MAX_FRAME:
            raise ProtocolError(f"a frame claims {length} bytes; between 1 and {MAX_FRAME} are allowed")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        payload = bytes(self._buffer[_LENGTH.size : end])
        del self._buffer[:end]
        return payload

    def _message(self, payload: bytes) -> dict[str, Any]:
        containers = 0

        def counted(container: Any) -> Any:
            nonlocal containers
            containers += 1
            if containers > _MOST_CONTAINERS:
                raise ValueError(f"more than {_MOST_CONTAINERS} maps and lists")
            return container

        try:
            message = msgpack.unpackb(payload, raw=False, strict_map_key=True, object_hook=counted, list_hook=counted)
        except (ValueError, msgpack.UnpackException, TypeError, RecursionError) as error:
            raise ProtocolError(f"a frame is not MessagePack: {error}") from error
        if not isinstance(message, dict) or not isinstance(message.get("type"), str):
            raise ProtocolError("a frame is not a map with a type")
        if message.get("seq") != self._sequence or isinstance(message.get("seq"), bool):
            raise ProtocolError(f"frame {message.get('seq')!r} arrived where {self._sequence} was due")
        self._sequence += 1
        return message
