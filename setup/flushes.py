"""Builds the flush laboratory: its launcher, and the library that it preloads.

Standard library only, as for the agent.
"""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "src" / "virtgauge" / "native"
LAUNCHER = NATIVE / "virtgauge-flushes"
LIBRARY = NATIVE / "libvirtgauge_flushes.so"
PACKAGE = "flushlab"

_agent = runpy.run_path(str(Path(__file__).with_name("agent.py")))
_shim = runpy.run_path(str(Path(__file__).with_name("shim.py")))


def build_flushes() -> list[Path]:
    """Build both in release mode and copy them into the source tree; returns their paths there.

    Raises:
        Exception: cargo is missing or failed; what `agent.py` raises.
    """
    return [_agent["build_static"](LAUNCHER), _shim["build_shared"](PACKAGE, LIBRARY)]


if __name__ == "__main__":
    _agent["step"]("flushes", build_flushes)
