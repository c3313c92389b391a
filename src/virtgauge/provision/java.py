"""The Java that database servers run on: the distribution's, or one on PATH, of the version that they support."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

JAVA_VERSION = 17
"""The newest that Cassandra 5.0 runs on; QuestDB 9 needs it at least."""

VIRTUAL_MACHINES = Path("/usr/lib/jvm")
"""Where distributions install them, side by side."""


def find_java() -> Path | None:
    """The program ``java`` of version 17, its links resolved; None when there is none."""
    on_path = shutil.which("java")
    for java in (*([Path(on_path)] if on_path else []), *sorted(VIRTUAL_MACHINES.glob("*/bin/java"))):
        if _version(java) == JAVA_VERSION:
            return java.resolve()
    return None


def _version(java: Path) -> int | None:
    """What the release file beside it says; the program itself would take a tenth of a second."""
    release = java.resolve().parent.parent / "release"
    try:
        found = re.search(r'^JAVA_VERSION="(\d+)', release.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None
