"""A disk image of the user's own as a guest's root: its system folders, in place of this machine's."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from virtgauge.errors import UnavailableError
from virtgauge.folders import cache_root, forget_unused, is_kept
from virtgauge.host.machine import lacking
from virtgauge.host.mounts import unmount_disk_image
from virtgauge.host.process import child_setup, ran
from virtgauge.platforms.base import GuestSpec, LaunchError
from virtgauge.platforms.boot_files import RootPart, root_of, system_parts
from virtgauge.platforms.guest_kernel import OwnKernel, ReadableFile

NO_FOLDERS = 'a domain of Xen has no folders of this machine; leave it out, or take kind = "qemu" or "uml"'
_SECTOR = 512
_KEPT = 4  # A plan compares few, and each may have gigabytes
_DATA_FILE = 1 << 2  # Of the incompatible features: the content is in a file of its own


class OwnDiskImage(OwnKernel):
    """With a disk image, too; a base of the ``Settings`` of platforms whose guests can have folders of this machine."""

    disk_image: ReadableFile | None = None
    """A disk image of your own, raw or qcow2, whose system folders are a guest's, each below a private layer in memory:
    the root, or the largest partition. The agent runs there in place of its init. A qcow2 is converted once, into the
    cache. Mounted on this machine for reading, which takes root; not for suites that need this machine's programs in a
    guest."""

    @property
    def image_parts(self) -> tuple[str, ...]:
        """The parts (``provision/parts.py``) that the image takes."""
        with contextlib.suppress(OSError):  # a file that has gone since is told where it is used
            return ("qemu-img",) if self.disk_image is not None and _qcow2_header(self.disk_image) else ()
        return ()

    @property
    def image_key(self) -> str:
        """Another one for another image, or other contents; empty without one."""
        if self.disk_image is None:
            return ""
        with contextlib.suppress(OSError):
            found = self.disk_image.stat()
            return f"{self.disk_image} {found.st_ino} {found.st_size} {found.st_mtime_ns}"
        return str(self.disk_image)

    def described(self, *others: str) -> dict[str, Any]:
        return super().described("disk_image", *others)

    async def raw_image(self) -> Path | None:
        """The image, converted where it is a qcow2; None where the plan has none.
        Raises UnavailableError: it cannot be read or converted, or is but a part of an image.
        """
        if (image := self.disk_image) is None:
            return None
        try:
            if not (header := _qcow2_header(image)):
                return image
            version, backing = struct.unpack_from(">IQ", header, 4)
            if backing or (version >= 3 and struct.unpack_from(">Q", header, 72)[0] & _DATA_FILE):
                raise UnavailableError(
                    f"disk_image: {image} is a part of an image, whose rest is in another file",
                    f"qemu-img convert -O qcow2 {image} whole.qcow2",
                )
            name = hashlib.sha256(os.fsencode(self.image_key)).hexdigest()[:32]
            target = cache_root() / "disk-images" / f"{name}.raw"
            if not is_kept(target):
                await _convert(image, target)
                forget_unused(target.parent, "*.raw", _KEPT)
            return target
        except OSError as error:
            told = f"disk_image: {error.filename}: {error.strerror}"
            raise UnavailableError(told, "give a file that can be read, and XDG_CACHE_HOME with room") from error

    async def root(self, spec: GuestSpec, folder: Path, removal: contextlib.ExitStack) -> tuple[RootPart, ...]:
        """A guest's root: the image's, mounted in the guest's folder until ``removal``, or else this machine's.
        Raises LaunchError: it cannot be mounted, or the suite needs this machine's programs.
        """
        try:
            image = await self.raw_image()
        except UnavailableError as error:
            raise LaunchError("disk_image", f"{error.message}: {error.remedy}") from error
        if image is None:
            return root_of(spec)
        if spec.host_root:
            raise LaunchError("start", "disk_image: this suite needs this machine's programs in a guest: leave it out")
        parts = tuple(system_parts(_mounted(image, folder / "image", removal)))
        if not any(part.path == Path("/usr") for part in parts):
            said = f"{self.disk_image} has no /usr in its root or largest partition"
            raise LaunchError("disk_image", f"{said}: its root may be a subvolume or logical volume; copy it to one")
        return parts


def _qcow2_header(image: Path) -> bytes:
    """The first bytes of a qcow2 (QEMU's docs/interop/qcow2.txt); empty for another file.  Raises OSError."""
    with image.open("rb") as file:
        header = file.read(104)
    return header.ljust(104, b"\0") if header.startswith(b"QFI\xfb") else b""


async def _convert(image: Path, target: Path) -> None:
    """Make a raw image that is there whole or not at all.
    Raises UnavailableError: there is no qemu-img, or it fails; OSError: the cache cannot be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in target.parent.glob(".partial-*"):
        if not Path("/proc", left.name.split("-")[1]).exists():  # of a controller that was killed
            left.unlink(missing_ok=True)
    descriptor, partial = tempfile.mkstemp(dir=target.parent, prefix=f".partial-{os.getpid()}-")
    os.close(descriptor)
    process: asyncio.subprocess.Process | None = None
    try:
        try:
            process = await asyncio.create_subprocess_exec(
                *("qemu-img", "convert", "-f", "qcow2", "-O", "raw", image, partial),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                preexec_fn=child_setup(),
            )
        except FileNotFoundError as error:
            what = f"disk_image: {image} is a qcow2, and qemu-img is not installed"
            raise UnavailableError(what, "apt install qemu-utils") from error
        _, said = await process.communicate()
        if process.returncode != 0:
            told = " ".join(said.decode(errors="replace").split())
            raise UnavailableError(f"disk_image: {image} cannot be converted: {told}", f"qemu-img check {image}")
        os.replace(partial, target)
    finally:
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
        Path(partial).unlink(missing_ok=True)


def _mounted(image: Path, folder: Path, removal: contextlib.ExitStack) -> Path:
    """Mount an image for reading on a folder of the guest's, until ``removal``; the image is not changed.
    Raises LaunchError: this user may not, or there is no file system that this machine knows.
    """
    folder.mkdir()
    removal.callback(unmount_disk_image, folder)
    options = f"ro,loop,nosuid,nodev,offset={largest_partition(image)}"
    try:
        done = ran(["mount", "-o", options, str(image), str(folder)], timeout_s=30.0, env={**os.environ, "LC_ALL": "C"})
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError("disk_image", f"{image} cannot be mounted: {error}") from error
    if done.returncode != 0:
        said = " ".join(done.stderr.split()).removesuffix(".")
        raise LaunchError(
            "disk_image",
            f"{image} cannot be mounted for reading{lacking('CAP_SYS_ADMIN')}: {said}; it takes root, and an image "
            "(raw or qcow2) of a file system that this machine's kernel has",
        )
    return folder


def largest_partition(image: Path) -> int:
    """Where it begins in an image with a partition table (GPT), in bytes; 0 in one that is a file system.
    Raises LaunchError: the image cannot be read.
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
