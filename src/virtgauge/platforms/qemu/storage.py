"""A data disk of a virtual machine of QEMU, and the modules that its kernel needs for it and for the host's root."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from virtgauge.platforms.base import GuestSpec, LaunchError

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
