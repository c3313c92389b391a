"""PostgreSQL as the distribution installs it: programs in a folder of their own, by major version."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

VERSIONS = Path("/usr/lib/postgresql")
"""Debian keeps one folder below it for each major version."""


def find_postgresql() -> Path | None:
    """The folder of ``postgres`` and ``initdb``, the newest version's first; None when there is none."""
    folders = [path.parent for path in VERSIONS.glob("*/bin/initdb")]
    folders.sort(key=lambda path: [int(part) for part in re.findall(r"\d+", path.parent.name)], reverse=True)
    on_path = shutil.which("initdb")
    if on_path:
        folders.append(Path(on_path).resolve().parent)
    return next((folder for folder in folders if (folder / "postgres").exists()), None)
