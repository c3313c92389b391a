"""What is asked of the machine on which a peer shall run: one line of JSON each way, then the bytes of its channel."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from pydantic import TypeAdapter, ValidationError

from virtgauge.network.nic import NetworkError, Nic

LINE_LIMIT = 64 * 1024
"""Bytes of the longest line that is read."""


class BadRequestError(ValueError):
    """What came is no request or answer."""


@dataclasses.dataclass(frozen=True)
class PeerRequest:
    """A peer that shall be launched.

    Attributes:
        secret: of the server.
        name: of the peer, unique among the server's.
        nics: its interfaces.
        wires: of each of them: a number, or the name of an interface there.
        loop: as :class:`GuestSpec` has it.
        ready_timeout_s: how long it may take.
    """

    secret: str
    name: str
    nics: tuple[Nic, ...]
    wires: tuple[int | str, ...]
    loop: Nic | None
    ready_timeout_s: float

    def line(self) -> bytes:
        """As it is sent."""
        return json.dumps(dataclasses.asdict(self)).encode() + b"\n"

    @classmethod
    def read(cls, line: bytes) -> PeerRequest:
        """The inverse.

        Raises:
            BadRequestError: it is none.
        """
        try:
            request = _READER.validate_json(line)
        except (ValidationError, NetworkError) as error:
            raise BadRequestError(f"no request for a peer: {error}") from error
        if len(request.nics) != len(request.wires):
            raise BadRequestError(f"{len(request.nics)} interfaces have {len(request.wires)} wires")
        return request


_READER = TypeAdapter(PeerRequest)


@dataclasses.dataclass(frozen=True)
class PeerAnswer:
    """What became of a request; the peer's channel follows where nothing failed.

    Attributes:
        stage, message: what failed, as :class:`LaunchError` has them; None where nothing did.
    """

    stage: str | None = None
    message: str | None = None

    def line(self) -> bytes:
        """As it is sent."""
        return json.dumps(dataclasses.asdict(self)).encode() + b"\n"

    @classmethod
    def read(cls, line: bytes) -> PeerAnswer:
        """The inverse.

        Raises:
            BadRequestError: it is none.
        """
        try:
            found: Any = json.loads(line)
            stage, message = found["stage"], found["message"]
        except (ValueError, KeyError, TypeError) as error:
            raise BadRequestError(f"no answer about a peer: {error!r}") from error
        if {type(stage), type(message)} not in ({str}, {type(None)}):
            raise BadRequestError("no answer about a peer: stage and message are words, or both absent")
        return cls(stage, message)
