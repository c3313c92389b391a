"""What a guest of User Mode Linux sees of the host's files: mounts of its process alone, read-only but for what it may
write.

Root inside such a guest may read and write whatever its kernel, a process of root on the host, can see by the file
system ``hostfs``.  That is confined to one folder, in which the kernel's own mount namespace holds what was granted.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

from virtgauge.platforms.guest_root import RootPart

_CLONE_NEWNS = 0x00020000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND = 1, 2, 4, 32, 4096
_MS_REC, _MS_PRIVATE = 16384, 1 << 18
# Loaded before any fork: a child of a threaded process must not load libraries.
_LIBC = ctypes.CDLL(None, use_errno=True)


class HostView:
    """A folder whose entries, numbered as the parts of the guest's root, are the host's folders.

    The folder and its empty entries are made at once; :meth:`mount` fills them for one process and its children, and
    what it mounts is gone with them.
    """

    def __init__(self, folder: Path, parts: Sequence[RootPart]) -> None:
        folder.mkdir()
        self._binds: list[tuple[bytes, bytes, int]] = []
        for number, part in enumerate(parts):
            if part.kind == "link":
                continue
            point = folder / str(number)
            point.mkdir()
            readonly = 0 if part.kind == "write" else _MS_RDONLY
            self._binds.append((os.fsencode(part.source), os.fsencode(point), readonly))

    def mount(self) -> None:
        """Mount everything, in a mount namespace of this process.  For a child between fork and exec.

        Raises:
            OSError: this user may not, or a folder is missing.
        """
        if not self._binds:
            return
        _checked(_LIBC.unshare(_CLONE_NEWNS))
        _checked(_LIBC.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None))
        for source, point, readonly in self._binds:
            _checked(_LIBC.mount(source, point, None, _MS_BIND | _MS_REC, None))
            flags = _MS_REMOUNT | _MS_BIND | _MS_NOSUID | _MS_NODEV | readonly
            _checked(_LIBC.mount(b"none", point, None, flags, None))


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
