"""Builds the estimator of available bandwidth, twice, and puts it where the package looks for it.

Static, as the agent, so that it can be taken to another machine or into a guest; and linked dynamically, so that a
preloaded shim can stand in for its clock and its sleep.  Standard library only, as for the agent.
"""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "src" / "virtgauge" / "native"
BANDWIDTH = NATIVE / "bandwidth"
DYNAMIC = NATIVE / "bandwidth-dynamic"

_agent = runpy.run_path(str(Path(__file__).with_name("agent.py")))


def build_bandwidth() -> list[Path]:
    """Build both in release mode and copy them into the source tree; returns their paths there.

    Raises:
        Exception: cargo is missing or failed, or the executable is not a static one; what `agent.py` raises.
    """
    name = BANDWIDTH.name
    arguments = ["build", "--package", name, "--bin", name]
    dynamic = _agent["build"](arguments, DYNAMIC, name=name, within="shared", flags=_agent["DYNAMIC"])
    return [_agent["build_static"](BANDWIDTH), dynamic]


if __name__ == "__main__":
    _agent["step"]("bandwidth", build_bandwidth)
