"""Mounts: the table of mountinfo, and the calls that change it."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import re
from collections.abc import Iterator
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_MNT_DETACH = 2
_MS_NOSUID, _MS_NODEV = 2, 4


@dataclasses.dataclass(frozen=True)
class Mount:
    """One line of mountinfo.

    Attributes:
        point: where it is mounted.
        fstype: ``ext4``, ``overlay``, ``cgroup2`` …
        super_options: options of the file system itself (v1 controllers' names are among them).
    """

    point: Path
    fstype: str
    super_options: tuple[str, ...]


def mounts(mountinfo: Path = Path("/proc/self/mountinfo")) -> Iterator[Mount]:
    """All mounts visible to this process, in the order in which they were made; none where the file is missing.

    See proc_pid_mountinfo(5): optional fields end at a lone dash, and blanks in paths are octal escapes.
    """
    try:
        text = mountinfo.read_text()
    except OSError:
        return
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        fields, rest = before.split(), after.split(" ")
        if not dash or len(fields) < 5 or len(rest) < 3:
            continue
        yield Mount(point=Path(_unescape(fields[4])), fstype=rest[0], super_options=tuple(rest[2].split(",")))


def mount(source: Path, point: Path, fstype: str) -> None:
    """Attach a device's filesystem, without device files and set-user-id programs.

    Raises:
        OSError: the kernel refuses.
    """
    flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV)
    if _LIBC.mount(os.fsencode(source), os.fsencode(point), fstype.encode(), flags, None) != 0:
        raise _error(point)


def unmount(point: Path) -> None:
    """Unmount what nobody uses; all of it is written when this returns.

    Raises:
        OSError: EBUSY while a program uses it, EINVAL where nothing is mounted.
    """
    if _LIBC.umount2(os.fsencode(point), 0) != 0:
        raise _error(point)


def detach(point: Path) -> None:
    """Take a mount out of sight at once; it ends with its last user.

    Raises:
        OSError: nothing is mounted there, or this user may not.
    """
    if _LIBC.umount2(os.fsencode(point), _MNT_DETACH) != 0:
        raise _error(point)


def detach_below(folder: Path) -> list[Path]:
    """Lazily unmount everything mounted at or below ``folder``, the last mounted first.

    Returns:
        the mount points that were detached.  One that cannot be (not root) stays and is not listed.
    """
    points = [mount.point for mount in mounts() if mount.point.is_relative_to(folder)]
    detached = []
    for point in reversed(points):
        with contextlib.suppress(OSError):
            detach(point)
            detached.append(point)
    return detached


def _error(point: Path) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), str(point))


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)
