"""Looking into an image: its format, whether it is whole, and what it was made of."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from virtgauge.agent import find_agent
from virtgauge.errors import UnavailableError, UsageError, VirtgaugeError
from virtgauge.host.scope import Scope
from virtgauge.image import formats
from virtgauge.image.contents import FOLDER, RECORD, digest_of
from virtgauge.image.disk import SECTOR
from virtgauge.image.formats import Format
from virtgauge.provision.boot_loader import BootLoader, find_boot_loader

_SYSTEM_AT = 2048 * SECTOR  # of a disk: where its file system begins
_VOLUME = b"CD001"  # of a CD: at its 16th sector of 2 KiB
_VOLUME_AT = 16 * 2048 + 1
_ARCHIVE, _ARCHIVE_AT = b"ustar", 257
_DRIVERS = {"vpc": Format.VHD, **{name.value: name for name in Format if name is not Format.VHD}}
_PARTS = ("vmlinuz", "initramfs")


@dataclasses.dataclass(frozen=True)
class Inspection:
    """What an image was found to be."""

    path: Path
    format: Format
    record: Mapping[str, Any]  # what it was made of, as it says itself
    problems: tuple[str, ...]  # what is wrong with it, a sentence each; empty when nothing is

    def as_dict(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "format": self.format,
            "contents": dict(self.record),
            "problems": list(self.problems),
        }

    def lines(self) -> list[str]:
        record, channel = self.record, " ".join(self.record["channel"].values())
        return [
            f"{self.path}: {self.format}, {self.path.stat().st_size / 1e6:.1f} MB, image {record['digest'][:16]}",
            f"kernel {record['kernel']}, agent {record['agent_sha256'][:16]}, channel {channel}",
            *(f"problem: {problem}" for problem in self.problems),
            *([] if self.problems else ["whole, and its agent is this installation's"]),
        ]


def inspect(image: Path) -> Inspection:
    """Look into an image.
    Raises UsageError: it is none that virtgauge made; UnavailableError: the tools for that are not on this machine;
    VirtgaugeError: it cannot be read, or is damaged as its own format counts.
    """
    boot_loader = find_boot_loader()
    if boot_loader is None:
        raise UnavailableError("there is no boot loader in the cache", "run `virtgauge provision image`")
    with Scope() as scope:
        work = scope.scratch_folder("image")
        format = _format(image)
        parts = (
            _cd_parts(image, work, boot_loader)
            if format is Format.ISO
            else _disk_parts(image, format, work, boot_loader)
        )
    try:
        record = json.loads(parts[RECORD])
        digest = str(record["digest"])
    except (KeyError, ValueError, TypeError):
        raise UsageError(
            f"{image} is a {format}, but none of virtgauge's", "name a file that `virtgauge image build` made"
        ) from None
    return Inspection(image, format, record, tuple(_problems(record, digest, parts)))


def _problems(record: dict[str, Any], digest: str, parts: Mapping[str, bytes]) -> list[str]:
    problems = []
    if digest_of(record, parts.get("vmlinuz", b""), parts.get("initramfs", b"")) != digest:
        problems.append("kernel, initramfs or record are not those that it was made of; build it again")
    if record["agent_sha256"] != find_agent().sha256:
        problems.append("its agent is another build than this installation's, which would refuse it; build it again")
    return problems


def _format(image: Path) -> Format:
    with image.open("rb") as file:
        file.seek(_VOLUME_AT)
        if file.read(len(_VOLUME)) == _VOLUME:
            return Format.ISO
        file.seek(_ARCHIVE_AT)
        if file.read(len(_ARCHIVE)) == _ARCHIVE:
            return Format.OVA
    driver = formats.driver_of(image)
    if driver not in _DRIVERS:
        raise UsageError(f"{image} is a {driver}, which is no format of an image", f"accepted: {', '.join(Format)}")
    return _DRIVERS[driver]


def _disk_parts(image: Path, format: Format, work: Path, boot_loader: BootLoader) -> dict[str, bytes]:
    if format is Format.OVA:
        image, format = _disk_of_ova(image, work), Format.VMDK
    driver = "vpc" if format is Format.VHD else format.value
    raw = work / "disk.raw"
    if format is Format.RAW:
        raw = image.absolute()
    else:
        formats.check(image, driver)
        formats.to_raw(image, driver, raw)
    parts = {}
    for name in (RECORD, *_PARTS):
        target = work / name
        try:
            boot_loader.run("mcopy", "-n", "-i", f"{raw}@@{_SYSTEM_AT}", f"::{FOLDER}/{name}", target)
        except VirtgaugeError:
            continue
        parts[name] = target.read_bytes()
    return parts


def _disk_of_ova(image: Path, work: Path) -> Path:
    """The disk in an OVA, once every hash of its manifest fits."""
    with tarfile.open(image) as archive:
        members = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
        contents = {name: file.read() for name, file in members.items() if file is not None}
    manifest = next((content.decode() for name, content in contents.items() if name.endswith(".mf")), "")
    for line in manifest.splitlines():
        name, _, digest = line.removeprefix("SHA256(").partition(")= ")
        if hashlib.sha256(contents.get(name, b"")).hexdigest() != digest:
            raise VirtgaugeError(f"{image}: {name} is not what its manifest says", "build it again")
    disk = next((content for name, content in contents.items() if name.endswith(".vmdk")), None)
    if disk is None:
        raise UsageError(f"{image} is an archive without a disk", "name a file that `virtgauge image build` made")
    target = work / "disk.vmdk"
    target.write_bytes(disk)
    return target


def _cd_parts(image: Path, work: Path, boot_loader: BootLoader) -> dict[str, bytes]:
    target = work / "cd"
    try:
        boot_loader.run("xorriso", "-osirrox", "on", "-indev", image.absolute(), "-extract", f"/{FOLDER}", target)
    except VirtgaugeError:
        return {}
    parts = {name: (target / name).read_bytes() for name in (RECORD, *_PARTS) if (target / name).is_file()}
    shutil.rmtree(target)
    return parts
