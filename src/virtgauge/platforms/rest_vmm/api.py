"""The calls of a monitor's REST interface, on a Unix socket.

Both monitors serve it with the same library (micro_http): HTTP/1.1, one JSON value in each body.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_MOST_BYTES = 1 << 20  # Of an answer's head or body


class RefusalError(Exception):
    """The monitor answered a call with an error; in its own words, and which call it was."""


@dataclasses.dataclass(frozen=True)
class Call:
    """One call."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None  # as JSON; None sends none

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Api:
    """The interface of one monitor, whose socket is in its own folder.

    A path to a socket has at most 107 bytes, so the socket is named from the open folder.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        closing: contextlib.ExitStack,
        ended: Callable[[], object] = lambda: None,  # whether the monitor is gone, so that it will never listen
    ) -> None:
        self._ended = ended
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        closing.callback(os.close, descriptor)
        self._address = f"/proc/self/fd/{descriptor}/{name}"

    async def request(self, call: Call, within_s: float) -> Any:
        """Make a call, as soon as the monitor listens; the JSON value of the answer, None without a body.

        Raises:
            RefusalError: the answer is an error.
            OSError, EOFError: the monitor went away.
            TimeoutError: it does not listen or answer in time.
            ValueError: what it answers is no HTTP, or no JSON.
        """
        async with asyncio.timeout(within_s):
            reader, writer = await self._connected()
            try:
                body = b"" if call.body is None else json.dumps(call.body).encode()
                head = f"{call.method} {call.path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n"
                if call.body is not None:
                    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
                writer.write(head.encode() + b"\r\n" + body)
                await writer.drain()
                status, answer = await _answer(reader)
            finally:
                writer.close()
        if not 200 <= status < 300:
            raise RefusalError(f"{call} was answered {status}: {_words(answer)}")
        return json.loads(answer) if answer else None

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while True:
            try:
                return await asyncio.open_unix_connection(self._address, limit=_MOST_BYTES)
            except (FileNotFoundError, ConnectionRefusedError):
                if self._ended():
                    raise
                await asyncio.sleep(0.01)


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode(errors="replace")
    except asyncio.LimitOverrunError as error:
        raise ValueError("its answer does not end") from error
    status = re.match(r"HTTP/1\.[01] (\d{3})\b", head)
    if status is None:
        raise ValueError(f"it answers {head[:80]!r}, which is no HTTP")
    length = re.search(r"^content-length: *(\d{1,7})\r$", head, re.IGNORECASE | re.MULTILINE)
    return int(status[1]), await reader.readexactly(min(int(length[1]), _MOST_BYTES)) if length else b""


def _words(answer: bytes) -> str:
    """What an error's body says: Firecracker's ``fault_message``, Cloud Hypervisor's list of causes, or plain text."""
    text = answer.decode(errors="replace").strip()
    try:
        told = json.loads(text)
    except ValueError:
        return text or "no reason"
    if isinstance(told, dict):
        return str(told.get("fault_message", text))
    return ": ".join(map(str, told)) if isinstance(told, list) else text
