"""The agent from the controller's side: its executable, and the channel to it (docs/protocol.md).

The same static file runs on the host and in every guest; results name it by its SHA-256, and the
handshake refuses an agent whose own hash differs.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from pathlib import Path

from virtgauge.extras import find_native

ENVIRONMENT_VARIABLE = "VIRTGAUGE_AGENT"


@dataclasses.dataclass(frozen=True)
class AgentBinary:
    """A static agent executable and its SHA-256 (hex)."""

    path: Path
    sha256: str


@functools.cache
def find_agent() -> AgentBinary:
    """Find the agent: ``$VIRTGAUGE_AGENT``, then the one inside the installed package.
    Raises UnavailableError: neither exists.
    """
    path = find_native("virtgauge-agent", ENVIRONMENT_VARIABLE, "the agent binary", "a built agent", "agent")
    return AgentBinary(path=path, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
