"""Builds the library that User Mode Linux needs on processors with AMX.  Standard library only, as for the agent."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "src" / "virtgauge" / "native" / "libuml_registers.so"
PACKAGE = "uml-registers"

_agent = runpy.run_path(str(Path(__file__).with_name("agent.py")))
_shim = runpy.run_path(str(Path(__file__).with_name("shim.py")))


def build_uml_registers() -> Path:
    """Build it in release mode and copy it into the source tree; returns its path there.

    Raises:
        AgentBuildError: cargo is missing or failed.
    """
    built: Path = _shim["build_shared"](PACKAGE, LIBRARY)
    return built


if __name__ == "__main__":
    _agent["step"]("uml_registers", lambda: [build_uml_registers()])
