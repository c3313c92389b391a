"""Building an image: from what is in the cache to one file, which appears whole or not at all."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from virtgauge.agent import AgentBinary, find_agent
from virtgauge.errors import UnavailableError, UsageError, VirtgaugeError
from virtgauge.host.scope import Scope
from virtgauge.image import formats
from virtgauge.image.contents import Contents, ImageChannel, SerialChannel, contents_of
from virtgauge.image.disk import make_cd, make_disk
from virtgauge.image.formats import Format
from virtgauge.provision.boot_loader import BootLoader, find_boot_loader
from virtgauge.provision.cache import ProvisionError
from virtgauge.provision.kernel import GuestKernel, find_kernel
from virtgauge.provision.progress import Progress

_ROOM = 100 << 20  # Bytes that the largest format and what comes in between take, on either disk


@dataclasses.dataclass(frozen=True)
class Ingredients:
    """What an image is made of."""

    kernel: GuestKernel
    agent: AgentBinary
    boot_loader: BootLoader
    channel: ImageChannel = dataclasses.field(default_factory=SerialChannel)  # how its agent is reached


@dataclasses.dataclass(frozen=True)
class Built:
    """A finished image."""

    path: Path
    format: Format
    size: int
    contents: Contents


def find_ingredients(channel: ImageChannel, format: Format) -> Ingredients:
    """What this machine has for an image.  Raises UnavailableError: something is missing; its remedy brings it."""
    kernel, boot_loader = find_kernel(), find_boot_loader()
    if kernel is None:
        raise UnavailableError("there is no guest kernel in the cache", "run `virtgauge provision kernel`")
    if boot_loader is None:
        raise UnavailableError("there is no boot loader in the cache", "run `virtgauge provision image`")
    if format not in (Format.RAW, Format.ISO):
        formats.find_qemu_img()
    return Ingredients(kernel, find_agent(), boot_loader, channel)


def build(ingredients: Ingredients, format: Format, out: Path, progress: Progress) -> Built:
    """Write an image; a file of that name is replaced when the new one is whole.
    Raises UsageError: the file cannot be written where it shall be; UnavailableError: the kernel lacks a driver;
    VirtgaugeError: the disk is full, or a tool failed.
    """
    _require_folder(out)
    with Scope() as scope, _full_disks_text(out):
        work = scope.scratch_folder("image")
        for folder in (work, out.absolute().parent):
            if shutil.disk_usage(folder).free < _ROOM:
                raise OSError(errno.ENOSPC, "No space left on device", str(folder))
        progress("compressing kernel modules and agent")
        contents = contents_of(ingredients.kernel, ingredients.agent, ingredients.channel, ingredients.boot_loader)
        made = work / f"image.{format}"
        if format is Format.ISO:
            progress("writing the CD")
            make_cd(made, contents, ingredients.boot_loader, work)
        else:
            progress("writing the disk")
            raw = made if format is Format.RAW else work / "disk.raw"
            make_disk(raw, contents, ingredients.boot_loader, work)
            if format is not Format.RAW:
                progress(f"converting it to {format}")
                _CONVERSIONS[format](raw, made, contents)
        progress(f"copying it to {out}")
        _place(made, out, 0o600 if ingredients.channel.secret else 0o644)
    return Built(out, format, out.stat().st_size, contents)


_CONVERSIONS: dict[Format, Callable[[Path, Path, Contents], None]] = {
    Format.QCOW2: lambda raw, made, _: formats.convert(raw, made, "qcow2", compress=True),
    Format.VMDK: formats.make_vmdk,
    Format.VHD: formats.make_vhd,
    Format.VHDX: formats.make_vhdx,
    Format.VDI: formats.make_vdi,
    Format.OVA: formats.make_ova,
}


def _require_folder(out: Path) -> None:
    folder = out.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"--out: there is no folder {folder}", "make it, or choose another place")
    if out.is_dir():
        raise UsageError(f"--out: {out} is a folder", f"name a file in it: {out / 'virtgauge.iso'}")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"--out: {folder} cannot be written by this user", "choose another place")


def _place(made: Path, out: Path, mode: int) -> None:
    """Copy the finished file into its folder without a name, so that a killed build leaves nothing, then name it."""
    folder = out.absolute().parent
    partial = folder / f".{out.name}.{os.getpid()}"
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_WRONLY, mode)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            raise
        descriptor = os.open(partial, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, mode)
    try:
        with open(descriptor, "wb") as target, made.open("rb") as source:
            shutil.copyfileobj(source, target, 1 << 20)
            target.flush()
            os.fsync(target.fileno())
            if not partial.exists():
                # named by a folder's descriptor, or Python would make a second name of the link instead
                os.link(f"/proc/self/fd/{target.fileno()}", partial, src_dir_fd=target.fileno(), follow_symlinks=True)
        partial.replace(out)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from error
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def _full_disks_text(out: Path) -> Iterator[None]:
    """Tell of a full disk which one it was; any other failure to write by its file."""
    try:
        yield
    except ProvisionError as error:
        if "no space left" in error.message:
            raise _full(out.absolute().parent) from error
        raise
    except OSError as error:
        place = Path(error.filename) if error.filename else out
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _full(place if place.is_dir() else place.absolute().parent) from error
        raise VirtgaugeError(f"{place}: {error.strerror}", "choose another place with --out") from error


def _full(folder: Path) -> VirtgaugeError:
    return VirtgaugeError(
        f"no space left on the disk of {folder}: an image needs up to {_ROOM >> 20} MB while it is built",
        "make room there; choose another place with --out, or for what comes in between with XDG_CACHE_HOME",
    )
