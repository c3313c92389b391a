"""Builds the estimator of available bandwidth and puts it where the package looks for it.

Static, as the agent, so that it can be taken to another machine or into a guest.  Standard library only, as there.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BANDWIDTH = ROOT / "src" / "virtgauge" / "native" / "bandwidth"

_agent = runpy.run_path(str(Path(__file__).with_name("agent.py")))


def build_bandwidth() -> Path:
    """Build it in release mode and copy it into the source tree; returns its path there.

    Raises:
        Exception: cargo is missing or failed, or the executable is not a static one; what `agent.py` raises.
    """
    built: Path = _agent["build_static"](BANDWIDTH)
    return built


if __name__ == "__main__":
    try:
        print(f"{'bandwidth':<10} {build_bandwidth().relative_to(ROOT)}")
    except _agent["AgentBuildError"] as error:
        sys.exit(f"{'bandwidth':<10} failed: {error}")
