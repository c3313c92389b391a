"""Archives that the kernel unpacks into its first root file system.

Format: cpio "newc", see the kernel's Documentation/driver-api/early-userspace/buffer-format.rst.
"""

from __future__ import annotations


class Archive:
    """A newc archive in memory; the same entries are the same bytes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._inode = 0

    def add(self, name: str, mode: int, content: bytes = b"", device: tuple[int, int] = (0, 0)) -> None:
        """Append an entry.

        Args:
            name: path without a leading slash; its folder comes before it.
            mode: type and permissions, as of ``stat``.
            content: of a file.
            device: major and minor number of a device.
        """
        self._inode += 1
        encoded = name.encode() + b"\0"
        # inode mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check;
        # no times: the same content is the same archive
        fields = (self._inode, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(encoded), 0)
        header = b"070701" + b"".join(b"%08X" % field for field in fields)
        self._parts += [_padded(header + encoded), _padded(content)]

    def finish(self) -> bytes:
        """The whole archive."""
        self.add("TRAILER!!!", 0)
        return b"".join(self._parts)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
