"""Domains that a controller has left on a Xen host: their names begin with the scope's tag."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

CAPABILITIES = Path("/proc/xen/capabilities")
_CONTROLS = "control_d"
_COMMAND_S = 15.0


def is_xen_host(capabilities: Path = CAPABILITIES) -> bool:
    """Whether this machine is the privileged domain of a Xen host."""
    try:
        return _CONTROLS in capabilities.read_text().split()
    except OSError:
        return False


def destroy_tagged_domains(tag: str) -> list[str]:
    """Destroy every domain of a scope; on any other machine than a Xen host nothing is done.

    Returns:
        what was done, a line for people each.
    """
    if not is_xen_host():
        return []
    names = [line.split()[0] for line in (_output_of(["xl", "list"]) or "").splitlines() if line.startswith(f"{tag}-")]
    return [f"destroyed the domain {name}" for name in names if _output_of(["xl", "destroy", name]) is not None]


def _output_of(argv: list[str]) -> str | None:
    """What a program prints; None where it fails."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_COMMAND_S, check=False
        )
        return done.stdout if done.returncode == 0 else None
    return None
