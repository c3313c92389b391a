"""gVisor's ``runsc`` at a pinned version, built by the Go tool chain from the module proxy."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

RUNSC_VERSION = "v0.0.0-20260905035102-160fafc42237"
"""A pseudo-version of gVisor's ``go`` branch, the branch whose modules build with the plain Go tool."""


def find_runsc() -> Path | None:
    """The pinned ``runsc`` from the cache, else one on PATH; None when there is neither."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "virtgauge" / "runsc"
    pinned = root / RUNSC_VERSION / "runsc"
    if os.access(pinned, os.X_OK):
        return pinned
    found = shutil.which("runsc")
    return Path(found) if found else None
