"""What a virtual machine of QEMU sees of the host's files: a data disk, and the host's programs as its root."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from virtgauge.platforms.base import GuestSpec, LaunchError
from virtgauge.platforms.system_folders import system_folders

DISK_MODULES = ("virtio_blk", "crc32c_generic", "ext4")
ROOT_MODULES = ("9pnet_virtio", "9p", "overlay")
"""What is needed beside the machine's own for a data disk, and for the host's root.

ext4 asks for crc32c at run time only, so that no file names it as a dependency.
"""


@dataclasses.dataclass(frozen=True)
class Drive:
    """A guest's data disk.

    Attributes:
        image: the file.
        folder: where the guest mounts it.
        cache: QEMU's mode: ``none`` (past the host's page cache) or ``writeback``.  Both hand on every flush.
    """

    image: Path
    folder: Path
    cache: str


@dataclasses.dataclass(frozen=True)
class RootPart:
    """Something of the host in the guest's root (docs/protocol.md, ``virtgauge.root``).

    Attributes:
        kind: ``link``, or how a folder is exported: ``lower`` (below a private layer), ``read``, ``write``.
        path: in the guest.
        source: where the link leads, or the folder on the host.
    """

    kind: Literal["link", "lower", "read", "write"]
    path: Path
    source: str


def drive_of(spec: GuestSpec) -> Drive | None:
    """The guest's disk, past the host's page cache where the image's filesystem can (memory cannot, as a rule).

    Raises:
        LaunchError: it cannot be opened.
    """
    if spec.disk is None:
        return None
    image = spec.disk.image
    try:
        os.close(os.open(image, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        raise LaunchError("disk", f"{image} cannot be opened: {error.strerror}") from error
    try:
        os.close(os.open(image, os.O_RDWR | os.O_CLOEXEC | os.O_DIRECT))
    except OSError:
        return Drive(image, spec.disk.folder, "writeback")
    return Drive(image, spec.disk.folder, "none")


def root_of(spec: GuestSpec) -> tuple[RootPart, ...]:
    """The guest's root: the host's system folders and its shares; empty where it was not asked for."""
    return tuple(_parts(spec)) if spec.host_root else ()


def _parts(spec: GuestSpec) -> Iterator[RootPart]:
    for system in system_folders():
        path = Path("/", system.name)
        if system.target is not None:
            yield RootPart("link", path, system.target)
        else:
            yield RootPart("lower" if system.layered else "read", path, str(system.source))
    for share in spec.shares:
        yield RootPart("write" if share.writable else "read", share.path, str(share.path))
