"""The user's folder of what can be made again, parts of it that are nobody else's, and files that are there whole."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import time
from pathlib import Path

_LEFT_ALONE_S = 3600.0  # Long enough that a guest has opened what it boots from


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
        if above[0].st_uid != os.geteuid() or not all(map(is_firm, above)):
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


def root() -> int:
    """The machine's root: in a user namespace that maps neither it nor nobody, as by ``unshare -r``, it is nobody, as
    are all other users without a number there.
    """
    owner = Path("/").stat().st_uid
    if owner == 0:
        return 0
    try:
        mapped = Path("/proc/self/uid_map").read_text().splitlines()
    except OSError:  # a kernel without such namespaces
        return 0
    ranges = [tuple(map(int, line.split())) for line in mapped]
    return 0 if any(inside <= owner < inside + number for inside, _, number in ranges) else owner


def is_firm(folder: os.stat_result) -> bool:
    """Whether what is in a folder can be renamed by root and this user alone."""
    own = folder.st_uid in (0, root(), os.geteuid())
    return own and (not folder.st_mode & 0o022 or bool(folder.st_mode & stat.S_ISVTX))


def is_kept(target: Path) -> bool:
    """Whether a file is in the cache; if so it counts as used just now (:func:`forget_unused`)."""
    try:
        os.utime(target)
    except FileNotFoundError:
        return False
    except OSError:  # a cache that can only be read: nobody removes anything there either
        return target.is_file()
    return True


def forget_unused(folder: Path, pattern: str, most: int) -> None:
    """Remove files of the cache but the ``most`` that were used last, and those that may be in use just now.

    Another run may have found a file, and not yet opened it: what was used within an hour stays.
    """
    used: dict[Path, float] = {}
    for path in folder.glob(pattern):
        with contextlib.suppress(FileNotFoundError):  # another run has removed it
            used[path] = path.stat().st_mtime
    for path in sorted(used, key=used.__getitem__)[:-most]:
        if time.time() - used[path] > _LEFT_ALONE_S:
            path.unlink(missing_ok=True)
