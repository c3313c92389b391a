"""The host's programs for a guest: which of the host's folders it sees, and which it may change for itself alone."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

_NAMES = ("usr", "etc", "opt", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
_LAYERED = ("usr", "etc", "opt")


@dataclasses.dataclass(frozen=True)
class SystemFolder:
    """One entry of the host's root.

    Attributes:
        name: without a slash.
        source: the folder on the host.
        target: where the link leads, for one that is only a link; else None.
        layered: programs may want to write there.
    """

    name: str
    source: Path
    target: str | None
    layered: bool


def system_folders(root: Path = Path("/")) -> list[SystemFolder]:
    """Those of a host's system folders that are there."""
    found = []
    for name in _NAMES:
        source = root / name
        target = os.readlink(source) if source.is_symlink() else None
        if target is not None or source.is_dir():
            found.append(SystemFolder(name, source, target, layered=name in _LAYERED))
    return found
