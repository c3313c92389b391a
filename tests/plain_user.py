"""The command as a user for whom file permissions hold: root passes them over, unless it has given up that right."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_GIVE_UP = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


@contextmanager
def write_protected(folder: Path) -> Iterator[None]:
    """A folder and all within are read-only for a while."""
    paths = [folder, *folder.rglob("*")]
    modes = [path.stat().st_mode for path in paths]
    for path, mode in zip(paths, modes, strict=True):
        path.chmod(mode & ~0o222)
    try:
        yield
    finally:
        for path, mode in zip(paths, modes, strict=True):
            path.chmod(mode)


def virtgauge(*words: str | Path, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command and what it said."""
    prefix = _GIVE_UP if os.geteuid() == 0 else []
    command = [*prefix, sys.executable, "-m", "virtgauge.cli", *map(str, words)]
    known = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=known | environment, timeout=120, check=False
    )
