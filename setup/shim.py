"""Builds the preloaded shim and puts it where the package looks for it.  Standard library only, as for the agent.

The workspace links statically, for the agent; a shared object needs flags, and so a target folder, of its own.
"""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHIM = ROOT / "src" / "virtgauge" / "native" / "libhptime_preload.so"
PACKAGE = "hptime-preload"

_agent = runpy.run_path(str(Path(__file__).with_name("agent.py")))


def build_shim() -> Path:
    """Build the shim in release mode and copy it into the source tree; returns its path there.

    Raises:
        AgentBuildError: cargo is missing or failed.
    """
    return build_shared(PACKAGE, SHIM)


def build_shared(package: str, destination: Path) -> Path:
    """The same for any package of the workspace whose library is preloaded."""
    arguments = ["rustc", "--package", package, "--lib", "--crate-type", "cdylib"]
    built: Path = _agent["build"](arguments, destination, within="shared", flags=_agent["DYNAMIC"])
    return built


if __name__ == "__main__":
    _agent["step"]("shim", lambda: [build_shim()])
