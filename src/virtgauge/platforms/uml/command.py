"""The command line of User Mode Linux, and what its guest sees of the host.

What a guest of User Mode Linux sees of the host's files: mounts of its process alone, read-only but for what it may
write.

Root inside such a guest may read and write whatever its kernel, a process of root on the host, can see by the file
system ``hostfs``.  That is confined to one folder, in which the kernel's own mount namespace holds what was granted.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path

from virtgauge.platforms.guest_root import RootPart
from virtgauge.platforms.local import Tap

# The command line of User Mode Linux: a kernel that is a program of the host, and what it is told.

LONGEST_COMMAND_LINE = 4095
"""Of this kernel, in bytes; what is beyond it is lost without a word (COMMAND_LINE_SIZE)."""

INITRAMFS, VIEW, STATE = "initramfs", "view", "state"
"""In the guest's folder, in which the kernel is started: so no path that it is told can hold a blank or a comma.

The initramfs; what the guest sees of the host's files; the kernel's own, its pid and the socket of its console.
"""


@dataclasses.dataclass(frozen=True)
class UmlBoot:
    """What is started.

    Attributes:
        binary: the kernel.
        memory_mib: memory of the guest.
        identity: names it among all on this host; its processes have it in their titles.
        modules: names, in the order in which the agent loads them.
        disk: device of the host that is its data disk, and where it is mounted; None without one.
        root: what its root consists of; empty for one that is the agent's alone.
    """

    binary: Path
    memory_mib: int
    identity: str
    modules: Sequence[str] = ()
    disk: tuple[Path, Path] | None = None
    root: Sequence[RootPart] = ()

    def arguments(self, *, agent_descriptor: int, taps: Sequence[Tap] = ()) -> list[str]:
        """The whole command line.

        Args:
            agent_descriptor: connected socket for the channel, inherited by the kernel.
            taps: of the guest, in the order of its interfaces.
        """
        return [
            str(self.binary),
            *(f"mem={self.memory_mib}M", f"initrd={INITRAMFS}"),
            *(f"umid={self.identity}", f"uml_dir={STATE}", f"hostfs={VIEW}"),
            # The console is written to standard output, and nothing is read; no terminal is opened for the others.
            *("con=null", "con0=null,fd:1", "ssl=null", f"ssl0=fd:{agent_descriptor}"),
            *("quiet", "panic=-1", "noreboot"),
            *(_vector(number, tap) for number, tap in enumerate(taps)),
            # Each write synchronous: this kernel answers a flush of its disk and does nothing for it.
            *(() if self.disk is None else (f"ubd0s={self.disk[0]}",)),
            *self._agent_settings(),
        ]

    def _agent_settings(self) -> Iterator[str]:
        yield "virtgauge.channel=serial:/dev/ttyS0"
        if self.modules:
            yield f"virtgauge.modules={','.join(self.modules)}"
        if self.root:
            yield "virtgauge.exports=hostfs"
            yield f"virtgauge.root={','.join(self._root_words())}"
        if self.disk is not None:
            yield f"virtgauge.disk={_escaped(self.disk[1])}"

    def _root_words(self) -> Iterator[str]:
        for number, part in enumerate(self.root):
            source = _escaped(part.source) if part.kind == "link" else f"/{number}"
            yield f"{part.kind}:{_escaped(part.path)}:{source}"


def _vector(number: int, tap: Tap) -> str:
    """A network interface of the vector driver on a tap; the older driver hangs above some 100,000 packets a second.

    Frames are read and written one by one (``vec=0``): what sends and receives many at once is for sockets only.
    """
    return f"vec{number}:transport=fd,fd={tap.descriptor},vec=0,mac={tap.mac},mtu={tap.mtu}"


def _escaped(text: str | Path) -> str:
    """A text inside a setting of the agent, where blanks, commas and colons separate."""
    return urllib.parse.quote(os.fsencode(text), safe="/")


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
