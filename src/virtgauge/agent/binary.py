"""The agent's executable: where it is, and its hash.

The same static file runs on the host and in every guest; results name it by its SHA-256, and the
handshake refuses an agent whose own hash differs.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from pathlib import Path

from virtgauge.errors import UnavailableError

ENVIRONMENT_VARIABLE = "VIRTGAUGE_AGENT"


@dataclasses.dataclass(frozen=True)
class AgentBinary:
    """A static agent executable and its SHA-256 (hex)."""

    path: Path
    sha256: str


@functools.cache
def find_agent() -> AgentBinary:
    """Find the agent: ``$VIRTGAUGE_AGENT``, then the one inside the installed package.

    Raises:
        UnavailableError: neither exists.
    """
    override = os.environ.get(ENVIRONMENT_VARIABLE)
    path = Path(override) if override else Path(__file__).parent.parent / "native" / "virtgauge-agent"
    if not path.is_file():
        raise UnavailableError(
            f"the agent binary is missing: {path}",
            f"run `make` in the source tree, reinstall the package, or set {ENVIRONMENT_VARIABLE} to a built agent",
        )
    return AgentBinary(path=path.resolve(), sha256=hashlib.sha256(path.read_bytes()).hexdigest())
