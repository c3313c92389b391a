"""What an agent sends, before anything believes it: docs/protocol.md's frames and messages, and docs/security.md.

Bytes in, maps out.  Nothing here trusts the peer: a length is checked before anything is allocated for it, and every
malformed frame ends in :class:`ProtocolError`.  Every message passes :func:`cleaned`, and every answer the
:class:`Awaited` of its request: here a guest's types, sizes and repetitions are checked, and its text loses what could
steer whoever reads it.  What a result must hold is its suite's to say (``suites/answers.py``).
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import struct
import time
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt

from virtgauge.errors import printable

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


_LONGEST_TEXT = 8192  # characters kept of each text; the longest honest one is a kernel's command line
_DEEPEST = 32
_KEPT_SAMPLES = 64 * 1024 * 1024  # bytes of samples accepted for one request
_MOST_MESSAGES = 200_000  # for one request: a day of progress, once a second, and its samples
_LONGEST_FACTS = 1024 * 1024  # characters of the facts, as the ledger keeps them


class AgentError(Exception):
    """The agent refused or failed a request."""

    def __init__(self, code: str, message: str, errno: int | None = None) -> None:
        self.code = code  # one of those of docs/protocol.md
        self.errno = errno  # of the code ``os``
        self.message = printable(" ".join(message.split()), _LONGEST_TEXT)  # one line, whatever a guest's program said
        super().__init__(f"{self.code}: {self.message}")


@dataclasses.dataclass(frozen=True)
class Reply:
    """What a request brought back."""

    value: dict[str, Any]  # the result map
    samples: dict[str, npt.NDArray[np.int64]]  # raw values by series (int64)
    sent_ns: int  # controller's CLOCK_MONOTONIC before the request was sent
    finished_ns: int  # the same at the receipt of ``result``


def cleaned(value: Any, depth: int = 0) -> Any:
    """A message whose texts are one short line each, and whose numbers are numbers.
    Raises ProtocolError: it is nested too deep, or holds a number that is none, or what docs/protocol.md does not know.
    """
    if depth > _DEEPEST:
        raise ProtocolError(f"a message is nested deeper than {_DEEPEST}")
    match value:
        case str():
            return printable(value, _LONGEST_TEXT)
        case dict():
            if not all(isinstance(key, str) for key in value):
                raise ProtocolError("a map has a key that is no text")
            return {printable(key, _LONGEST_TEXT): cleaned(inner, depth + 1) for key, inner in value.items()}
        case list():
            return [cleaned(inner, depth + 1) for inner in value]
        case float() if not math.isfinite(value):
            raise ProtocolError(f"a message holds {value}, which is no number")
        case None | bool() | int() | float() | bytes():
            return value
    raise ProtocolError(f"a message holds a {type(value).__name__}")


class Awaited:
    """A request whose answer is still to come, and what has come of it."""

    def __init__(self, on_progress: Callable[[float], None] | None = None) -> None:
        self.future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.sent_ns = time.monotonic_ns()
        self._on_progress = on_progress
        self._samples: dict[str, list[bytes]] = {}
        self._sample_bytes = self._messages = 0
        self._abandoned = False

    def abandon(self) -> None:
        """Nobody waits any more: what still comes is checked and counted, and kept by nobody."""
        self._abandoned = True
        self._samples.clear()
        self.future.cancel()

    def take(self, message: dict[str, Any]) -> bool:
        """Take a message in; whether it was the last one of the answer.
        Raises ProtocolError: it is not what docs/protocol.md says, or there were too many.
        """
        self._messages += 1
        if self._messages > _MOST_MESSAGES:
            raise ProtocolError(f"more than {_MOST_MESSAGES} messages answer one request")
        match message["type"]:
            case "started":
                _field(message, "clocks", dict)  # its receipt may be late by any time, so it dates nothing
            case "progress":
                done = float(_field(message, "done", (float, int)))
                if self._on_progress is not None and not self._abandoned:
                    self._on_progress(min(max(done, 0.0), 1.0))
            case "samples":
                self._take_samples(_field(message, "series", str), _field(message, "values", bytes))
            case "result":
                value = _field(message, "value", dict)
                samples = {
                    series: np.frombuffer(b"".join(parts), dtype="<i8").astype(np.int64)
                    for series, parts in self._samples.items()
                }
                if not self.future.done():
                    self.future.set_result(Reply(value, samples, self.sent_ns, time.monotonic_ns()))
                return True
            case "error":
                code, text = _field(message, "code", str), _field(message, "message", str)
                errno = _field(message, "errno", (int, type(None)))
                if not self.future.done():
                    self.future.set_exception(AgentError(code, text, errno))
                return True
            case unknown:
                raise ProtocolError(f"unknown message type {unknown!r:.80}")
        return False

    def _take_samples(self, series: str, values: bytes) -> None:
        self._sample_bytes += len(values)
        if len(values) % 8 or self._sample_bytes > _KEPT_SAMPLES:
            raise ProtocolError(f"samples of {len(values)} bytes ({self._sample_bytes} in all) are not acceptable")
        if not self._abandoned:
            self._samples.setdefault(series[:100], []).append(values)


def _field(message: dict[str, Any], name: str, kind: type | tuple[type, ...]) -> Any:
    value = message.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ProtocolError(f"{message['type']!r} has no proper {name!r}: {value!r:.80}")
    return value


_FACTS: dict[str, Any] = {
    "agent_version": str,
    "agent_sha256": str,
    "kernel": {"*": str},
    "hostname": str,
    "boot_id": str,
    "init": bool,
    "cpu": {"model": str, "vendor": str, "count": int, "microcode": str, "flags": [str]},
    "memory_bytes": int,
    "clocksource": {"current": str, "available": [str]},
    "hypervisor": {"present": bool, "signature": str, "product": str, "type": str, "controls": bool},
    "tsc": {
        "invariant": bool,
        "nonstop": bool,
        "frequency_hz": float,
        "frequency_source": str,
        "error_ppm": float,
        "read_p50_ns": float,
    },
    "vdso": bool,
    "timer_slack_ns": int,
    "idle": {"driver": str, "governor": str, "states": [{"name": str, "latency_us": int, "disabled": bool}]},
    "uid": int,
    "capabilities": str,
    "cgroup": str,
    "mitigations": {"*": str},
    "cmdline": str,
}
"""The facts of docs/protocol.md by their types; each may be nil, and ``*`` is any name."""


def checked_facts(value: dict[str, Any]) -> dict[str, Any]:
    """The facts of a guest.  Raises ProtocolError: one is not of its type, or they are too many."""
    try:
        length = len(json.dumps(value))
    except TypeError as error:
        raise ProtocolError(f"the facts hold what is neither text nor number: {error}") from error
    if length > _LONGEST_FACTS:
        raise ProtocolError(f"the facts are longer than {_LONGEST_FACTS} characters")
    for name, fact in value.items():
        if name in _FACTS and not _fits(fact, _FACTS[name]):
            raise ProtocolError(f"the fact {name!r} is not what docs/protocol.md says: {fact!r:.80}")
    return value


def _fits(value: Any, shape: Any) -> bool:
    match shape, value:
        case _, None:
            return True
        case dict(), dict():
            known = {name: shape.get(name, shape.get("*")) for name in value}
            return all(kind is None or _fits(value[name], kind) for name, kind in known.items())
        case [element], list():
            return all(_fits(inner, element) for inner in value)
        case type(), _:
            kinds = (int, float) if shape is float else shape
            return isinstance(value, kinds) and (shape is bool or not isinstance(value, bool))
    return False
