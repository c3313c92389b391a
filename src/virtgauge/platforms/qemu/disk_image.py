"""A disk image of the user's own as a guest's root: its system folders, in place of this machine's."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
from pathlib import Path

from virtgauge.host.mounts import unmount_disk_image
from virtgauge.host.rights import lacking
from virtgauge.platforms.base import LaunchError

_MOUNT_S = 30.0
_SECTOR = 512


def mounted_image(image: Path, folder: Path, removal: contextlib.ExitStack) -> Path:
    """Mount an image for reading on a folder of the guest's, until ``removal``; the image is not changed.

    Raises:
        LaunchError: this user may not, or there is no file system that this machine knows.
    """
    folder.mkdir()
    removal.callback(unmount_disk_image, folder)
    options = f"ro,loop,nosuid,nodev,offset={largest_partition(image)}"
    try:
        done = subprocess.run(
            ["mount", "-o", options, str(image), str(folder)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**os.environ, "LC_ALL": "C"},
            timeout=_MOUNT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError("disk_image", f"{image} cannot be mounted: {error}") from error
    if done.returncode != 0:
        said = " ".join(done.stderr.split()).removesuffix(".")
        raise LaunchError(
            "disk_image",
            f"{image} cannot be mounted for reading{lacking('CAP_SYS_ADMIN')}: {said}; it takes root, and a raw image "
            "(`qemu-img convert -O raw`) of a file system that this machine's kernel has",
        )
    return folder


def largest_partition(image: Path) -> int:
    """Where it begins in an image with a partition table (GPT), in bytes; 0 in one that is a file system.

    Raises:
        LaunchError: the image cannot be read.
    """
    try:
        with image.open("rb") as file:
            head = file.read(2 * _SECTOR)
            if head[_SECTOR : _SECTOR + 8] != b"EFI PART":
                return 0
            first, count, size = struct.unpack_from("<QII", head, _SECTOR + 72)
            file.seek(first * _SECTOR)
            table = file.read(min(count, 128) * min(size, 4096))
    except OSError as error:
        raise LaunchError("disk_image", f"{image} cannot be read: {error.strerror}") from error
    used = (at for at in range(0, len(table) - 127, max(size, 128)) if any(table[at : at + 16]))
    extents = [struct.unpack_from("<QQ", table, at + 32) for at in used]
    return int(max(extents, key=lambda extent: extent[1] - extent[0])[0]) * _SECTOR if extents else 0
