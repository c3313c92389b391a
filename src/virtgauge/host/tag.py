"""How what virtgauge makes on the host is told from everything else: names, variables, and the folder of all scopes."""

from __future__ import annotations

import os
import re
from pathlib import Path

TAG_VARIABLE = "VIRTGAUGE_SCOPE"
"""Every process that virtgauge starts on the host carries its scope's tag in this variable."""

OWNER_VARIABLE = "VIRTGAUGE_OWNER"
"""And the identity of the scope's owner in this one, so that an orphan is known without the scope's folder."""

STATE_VARIABLE = "VIRTGAUGE_STATE"
"""Overrides the folder of all scopes."""

OWNER_FILE = "owner.json"
CGROUP_PARENT = "virtgauge"
TAG_PATTERN = re.compile(r"vg[0-9a-f]{6}")


def state_root() -> Path:
    """The folder of all scopes: ``/run/virtgauge`` for root, else below the user's runtime folder."""
    override = os.environ.get(STATE_VARIABLE)
    if override:
        return Path(override)
    if os.geteuid() == 0:
        return Path("/run/virtgauge")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "virtgauge" if runtime else Path(f"/tmp/virtgauge-{os.getuid()}")


def cache_root() -> Path:
    """``$XDG_CACHE_HOME/virtgauge``; ``~/.cache/virtgauge`` where the variable is unset or not absolute."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(chosen) if chosen.startswith("/") else Path.home() / ".cache") / "virtgauge"


def scratch_root() -> Path:
    """The folder of all scopes' scratch folders, in the user's cache: that is on a disk, the state is in memory."""
    return cache_root() / "scratch"
