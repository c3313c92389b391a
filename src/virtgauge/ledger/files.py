"""Files of a run's folder: which of them may be opened, and when they are durable."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def is_regular(path: Path) -> bool | None:
    """Whether it is a file: opening a pipe would wait for ever, and a link leads elsewhere; None where nothing is."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return None


def is_other(path: Path) -> bool:
    """Whether something else than a file has that name; asked at once, for a log goes with the last who has it open."""
    return is_regular(path) is False


def sync(path: Path) -> None:
    """Return when what was written to a file, or to a folder's list of names, survives a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
