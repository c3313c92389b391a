"""What is mounted on this machine, and images of disks: files with an ext4 filesystem, mounted here by a loop device.

Whatever a guest is, its data lie in the same kind of filesystem on the same kind of file: the host and containers
see it through a loop device, a virtual machine as its own disk.

The file's blocks are reserved when it is made.  A sparse one would make the host find a block for each first write,
and a host that has none left would answer a guest with an I/O error where its own filesystem still has room.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import fcntl
import os
import re
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from virtgauge.errors import VirtgaugeError
from virtgauge.host.machine import AS_ROOT, lacking
from virtgauge.host.process import LIBC, checked, closed_after, ran

DETACH = 2  # include/linux/fs.h, MNT_DETACH
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT = 1, 2, 4, 1 << 5  # include/uapi/linux/mount.h
MS_BIND, MS_REC, MS_SLAVE, MS_SHARED = 1 << 12, 1 << 14, 1 << 19, 1 << 20
_CLONE_NEWNS = 0x00020000


@dataclasses.dataclass(frozen=True)
class Mount:
    """One line of mountinfo."""

    point: Path
    fstype: str  # ``ext4``, ``overlay``, ``cgroup2`` …
    super_options: tuple[str, ...]  # options of the file system itself (v1 controllers' names are among them)


def mounts(mountinfo: Path = Path("/proc/self/mountinfo")) -> Iterator[Mount]:
    """All mounts visible to this process, in the order in which they were made; none where the file is missing.

    See proc_pid_mountinfo(5): optional fields end at a lone dash, and blanks in paths are octal escapes.
    """
    try:
        text = os.fsdecode(mountinfo.read_bytes())
    except OSError:
        return
    for line in text.split("\n"):  # nothing else ends a line: a path may hold anything
        before, dash, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if not dash or len(fields) < 5 or len(rest) < 3:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda escape: chr(int(escape[1], 8)), fields[4])
        yield Mount(point=Path(point), fstype=rest[0], super_options=tuple(rest[2].split(",")))


def mount(source: Path, point: Path, fstype: str) -> None:
    """Attach a device's filesystem, without device files and set-user-id programs.
    Raises OSError: the kernel refuses.
    """
    flags = ctypes.c_ulong(MS_NOSUID | MS_NODEV)
    checked(LIBC.mount(os.fsencode(source), os.fsencode(point), fstype.encode(), flags, None), str(point))


def unshare_mounts() -> None:
    """Give the calling thread mounts of its own, whose changes nobody else sees.  Raises OSError: this user may not.

    It sees those of others: what the host unmounts would else be in use here for as long as a guest lives.
    """
    checked(LIBC.unshare(_CLONE_NEWNS))
    checked(LIBC.mount(b"none", b"/", None, MS_REC | MS_SLAVE, None))


def unmount(point: Path, flags: int = 0) -> None:
    """Unmount what nobody uses; all of it is written when this returns.  With ``DETACH`` it is only taken out of sight
    at once, and ends with its last user.
    Raises OSError: EBUSY while a program uses it, EINVAL where nothing is mounted.
    """
    checked(LIBC.umount2(os.fsencode(point), flags), str(point))


def detach_below(folder: Path) -> list[Path]:
    """Lazily unmount everything at or below a folder, the last mounted first; the points where that could be done.

    The folder may be another user's, who puts a link in its place once the mounts are listed: what a point leads to is
    held, and unmounted only where it is still at that path.
    """
    detached = []
    for point in reversed([mount.point for mount in mounts() if mount.point.is_relative_to(folder)]):
        flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(OSError), closed_after(os.open(point, flags)) as descriptor:
            held = Path(f"/proc/self/fd/{descriptor}")
            if held.readlink() == point:
                unmount(held, DETACH)
                detached.append(point)
    return detached


_LEAST_MIB = 16
_MKFS_S = 120.0
_UNMOUNT_S = 5.0
_PAUSE_S = 0.02
_MIB = 1024 * 1024

# Equal images are equal to the byte: no random identity, no time of making.
_UUID = "76697274-6761-7567-6500-000000000001"
_MKFS = (
    *("mkfs.ext4", "-q", "-F", "-b", "4096", "-U", _UUID),
    *("-m", "0"),  # a full disk is full at the same point for root and for a server's own user
    # All tables are written now: a kernel that does it later writes during trials.
    *("-E", f"nodiscard,lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0,hash_seed={_UUID}"),
)

# include/uapi/linux/loop.h
_LOOP_CTL_GET_FREE = 0x4C82
_LOOP_CONFIGURE = 0x4C0A
_AUTOCLEAR, _DIRECT_IO = 4, 16
_CONFIGURATION_BYTES = 304  # struct loop_config: fd, block_size, struct loop_info64 (232), 64 reserved
_FLAGS_AT = 8 + 52  # lo_flags in lo_info64


class DiskImageError(VirtgaugeError):
    """An image could not be made or mounted: why, and what would help."""


def make_disk_image(image: Path, mib: int) -> None:
    """Make a file with an empty ext4 filesystem of that size, owned by root, with no blocks reserved for root.
    Raises DiskImageError: it is there already, no space, no mkfs.ext4, or its folder cannot be written; nothing is left
    of what was begun.  Raises ValueError: it is to have less than 16 MiB.
    """
    if mib < _LEAST_MIB:
        raise ValueError(f"a disk image of {mib} MiB has no room for a filesystem; {_LEAST_MIB} MiB is the least")
    try:
        descriptor = os.open(image, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DiskImageError(f"{image} cannot be made: {error.strerror}") from error
    try:
        _reserve(descriptor, image, mib)
        _make_filesystem(image)
        os.fsync(descriptor)
    except BaseException:
        image.unlink()
        raise
    finally:
        os.close(descriptor)


def mount_disk_image(image: Path, folder: Path) -> str:
    """Mount an image on a folder, which is made where it is absent, by a loop device that goes with the mount.

    The device reads and writes past the host's page cache where the image's filesystem can, and hands on every flush.
    The folder belongs below the scope's, where the reclaim finds the mount after a kill -9. Returns how writes reach
    the image, in words: ``loop device, direct I/O`` or ``loop device, page cache``. Raises DiskImageError: this user
    may not, there is no loop device, or the image is none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    device, path = loop_device(image)
    try:
        mount(path, folder, "ext4")
        direct = Path("/sys/block", path.name, "loop/dio").read_text().strip() == "1"
        return "loop device, direct I/O" if direct else "loop device, page cache"
    except OSError as error:
        remedy = AS_ROOT if error.errno in (errno.EPERM, errno.EACCES) else None
        lacks = lacking("CAP_SYS_ADMIN")
        raise DiskImageError(f"{image} cannot be mounted on {folder}: {error.strerror}{lacks}", remedy) from error
    finally:
        os.close(device)  # the mount holds it from here on; without one, it is free again


def unmount_disk_image(folder: Path) -> None:
    """Write everything back and take the mount and its loop device away; nothing happens where none is mounted.

    A program that still uses it gets a moment to end.  After that the mount is taken out of its sight, and its device
    stays for as long as the program does.
    """
    deadline = time.monotonic() + _UNMOUNT_S
    while time.monotonic() < deadline:
        try:
            unmount(folder)
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                return  # EINVAL: not mounted; ENOENT: no such folder
        time.sleep(_PAUSE_S)
    with contextlib.suppress(OSError):
        unmount(folder, DETACH)


def _reserve(descriptor: int, image: Path, mib: int) -> None:
    try:
        # Asked first: the kernel takes all that is left before it says that it is not enough.
        room = os.fstatvfs(descriptor)
        if mib * _MIB > room.f_bavail * room.f_frsize:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.posix_fallocate(descriptor, 0, mib * _MIB)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            remedy = "make room there, or set XDG_CACHE_HOME to a folder elsewhere"
            raise DiskImageError(f"no {mib} MiB left on the disk of {image.parent}", remedy) from error
        raise DiskImageError(f"{image} cannot be made: {error.strerror}") from error


def _make_filesystem(image: Path) -> None:
    environment = {"PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin", "E2FSPROGS_FAKE_TIME": "1", "LC_ALL": "C"}
    try:
        done = ran([*_MKFS, image], timeout_s=_MKFS_S, env=environment)
    except FileNotFoundError as error:
        raise DiskImageError("mkfs.ext4 is not installed", "apt install e2fsprogs") from error
    except subprocess.TimeoutExpired as error:
        raise DiskImageError(f"mkfs.ext4 did not finish {image} in {_MKFS_S:.0f} s") from error
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise DiskImageError(f"mkfs.ext4 fails on {image}: {'; '.join(said[-2:])}")


def loop_device(image: Path) -> tuple[int, Path]:
    """A loop device with the image behind it: open, and its path.

    It is free again when everybody has closed it and it is not mounted.  It reads and writes past the host's page cache
    where the image's filesystem can, and hands on every flush.
    Raises DiskImageError: this user may not, there is no loop device, or the image cannot be opened.
    """
    try:
        with image.open("r+b", buffering=0) as file, open("/dev/loop-control", "rb", buffering=0) as control:
            configuration = _configuration(file.fileno())
            while True:
                path = Path(f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}")
                device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                try:
                    fcntl.ioctl(device, _LOOP_CONFIGURE, configuration)
                    return device, path
                except OSError as error:
                    os.close(device)
                    if error.errno != errno.EBUSY:  # another took it in between
                        raise
    except OSError as error:
        if error.filename == str(image):
            raise DiskImageError(f"{image} cannot be opened: {error.strerror}") from error
        if os.geteuid() != 0:
            raise DiskImageError("disk images need root here" + lacking("CAP_SYS_ADMIN"), AS_ROOT) from error
        remedy = "`modprobe loop`, on Linux 5.8 or later; a container needs /dev/loop-control and /dev/loop*"
        raise DiskImageError(f"there is no loop device for {image}: {error}", remedy) from error


def _configuration(descriptor: int) -> bytes:
    """``struct loop_config``.  Partitions are not looked for, which would take a flag."""
    configuration = bytearray(_CONFIGURATION_BYTES)
    struct.pack_into("=II", configuration, 0, descriptor, 4096)
    struct.pack_into("=I", configuration, _FLAGS_AT, _AUTOCLEAR | _DIRECT_IO)
    return bytes(configuration)
