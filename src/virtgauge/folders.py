"""The user's folder of what can be made again, parts of it that are nobody else's, and files that are there whole."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


def cache_root() -> Path:
    """``$XDG_CACHE_HOME/virtgauge``; ``~/.cache/virtgauge`` where the variable is unset or not absolute."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(chosen) if chosen.startswith("/") else Path.home() / ".cache") / "virtgauge"


def private_cache(name: str) -> Path | None:
    """A folder of the cache for what will be executed, made where it is missing; None where it cannot be made, belongs
    to another user, gives others any right, or lies where another may put a different one in its place.
    """
    try:
        folder = cache_root().resolve() / name
        above = [one.stat() for one in folder.parents if one.exists()]
        if above[0].st_uid != os.geteuid() or not all(map(_is_firm, above)):
            return None
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except (OSError, RuntimeError):  # the latter: nobody has this number, and so no home
        return None
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return folder if own else None


def write_whole(target: Path, content: bytes) -> None:
    """Write a file of this user alone, which is there whole or not at all.  Raises OSError: it cannot be written."""
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".partial-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def _is_firm(folder: os.stat_result) -> bool:
    """Whether what is in a folder can be renamed by root and this user alone."""
    own = folder.st_uid in (0, os.geteuid())
    return own and (not folder.st_mode & 0o022 or bool(folder.st_mode & stat.S_ISVTX))
