"""Builds the load generator for databases and puts it where the package looks for it.

With arguments, runs cargo with them in its place (`setup/sensorstore.py test`).  Standard library only, as for the
agent.  The workspace links statically; this executable has to load DuckDB, and to let its flushes be counted by what is
preloaded, and needs flags, and so a target folder, of its own.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SENSORSTORE = ROOT / "src" / "virtgauge" / "native" / "sensorstore"

_agent = runpy.run_path(str(Path(__file__).with_name("agent.py")))

_HOW = {"within": "store", "flags": _agent["DYNAMIC"]}
_WHAT = ["--config", "sensorstore/build.toml", "--package", SENSORSTORE.name]


def build_sensorstore() -> Path:
    """Build it in release mode and copy it into the source tree; returns its path there.

    Raises:
        AgentBuildError: cargo is missing or failed.
    """
    built: Path = _agent["build"](["build", *_WHAT, "--bin", SENSORSTORE.name], SENSORSTORE, **_HOW)
    return built


if __name__ == "__main__":
    if sys.argv[1:]:
        command, *rest = sys.argv[1:]
        sys.exit(_agent["run_cargo"]([command, *_WHAT, *rest], ROOT / "native", **_HOW).returncode)
    _agent["step"]("storage", lambda: [build_sensorstore()])
