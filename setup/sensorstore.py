"""Builds the load generator for databases and puts it where the package looks for it.

With arguments, runs cargo with them in its place (`setup/sensorstore.py test`).  Standard library only, as for the
agent.  The workspace around it links statically; this executable has to load DuckDB, and to let its flushes be counted
by what is preloaded, and needs flags, and so a target folder, of its own.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SENSORSTORE = ROOT / "src" / "virtgauge" / "native" / "sensorstore"

_agent = runpy.run_path(str(Path(__file__).with_name("agent.py")))
AgentBuildError: type[Exception] = _agent["AgentBuildError"]

_HOW = {"workspace": ROOT / "native" / "sensorstore", "within": "store", "flags": _agent["DYNAMIC"]}
"""In the environment, flags replace what native/.cargo/config.toml says; a file further in could only add to that."""


def build_sensorstore() -> Path:
    """Build it in release mode and copy it into the source tree; returns its path there.

    Raises:
        AgentBuildError: cargo is missing or failed.
    """
    built: Path = _agent["build"](["build", "--bin", SENSORSTORE.name], SENSORSTORE, **_HOW)
    return built


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(_agent["run_cargo"](sys.argv[1:], **_HOW).returncode)
    try:
        print(f"{'storage':<10} {build_sensorstore().relative_to(ROOT)}")
    except AgentBuildError as error:
        sys.exit(f"{'storage':<10} failed: {error}")
