"""What the agent's ``run`` does on a simulated guest: the load generator, and the end of its server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from virtgauge.platforms.simulated.storage import SimulatedRefusal, StorageDevice

KILL = "kill-the-server"
"""A program that no real guest has: ends the load that goes on until it fails."""
_SPECIFICATION = "SENSORSTORE_SPECIFICATION"
"""As docs/sensorstore.md has it."""


class StorageCommands:
    """Answers requests of type ``run``; a load that goes on until it fails is answered when the server was killed."""

    def __init__(self, device: StorageDevice) -> None:
        self._device = device
        self._waiting: list[Mapping[str, Any]] = []

    def run(self, message: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Requests that are answered now, each with its result."""
        argv = message["argv"]
        if argv[0] == KILL:
            waiting, self._waiting = self._waiting, []
            for one in waiting:
                yield dict(one), self._answer(one)
            yield dict(message), _ended({})
        elif argv[-1] == "measure" and _specification(message)["until_failure"]:
            self._waiting.append(message)
        else:
            yield dict(message), self._answer(message)

    def _answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return _ended(self._device.answer(message["argv"][-1], _specification(message)))
        except SimulatedRefusal as refusal:
            return _ended({"error": {"kind": refusal.kind, "message": refusal.message}}, exit_code=1)


def _specification(message: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(message["env"][_SPECIFICATION])
    return found


def _ended(printed: Mapping[str, Any], exit_code: int = 0) -> dict[str, Any]:
    return {
        "exit_code": exit_code,
        "signal": None,
        "stdout": json.dumps(printed).encode(),
        "stderr": b"",
        "truncated": False,
        "timed_out": False,
    }
