"""An image as a disk that BIOS and UEFI boot."""

from __future__ import annotations

from pathlib import Path

from virtgauge.image import gpt
from virtgauge.image.contents import Contents
from virtgauge.image.fat import SECTOR, fat_sectors, make_fat
from virtgauge.image.loader import disk_core, efi_files, files_of
from virtgauge.provision.boot_loader import BootLoader

_MIB = 2048  # sectors; whatever lies on a disk begins at a multiple of it


def make_disk(target: Path, contents: Contents, boot_loader: BootLoader, work: Path) -> None:
    """Write a raw disk: GRUB behind its boot sector, then one FAT file system with all the rest.

    Args:
        target: the file; made.
        work: a folder for what comes in between.

    Raises:
        ProvisionError: a tool failed.
        OSError: the disk is full.
    """
    files = files_of(contents) | efi_files(contents, boot_loader)
    system = fat_sectors(files, _MIB)
    sectors = _MIB + system + _MIB
    core = gpt.placed_core(disk_core(contents, boot_loader, work), gpt.FIRST_USABLE)
    assert len(core) <= (_MIB - gpt.FIRST_USABLE) * SECTOR
    partitions = (
        gpt.Partition(gpt.BIOS_BOOT, contents.identifier("BIOS boot"), gpt.FIRST_USABLE, _MIB - 1, "GRUB"),
        gpt.Partition(gpt.EFI_SYSTEM, contents.identifier("EFI system"), _MIB, _MIB + system - 1, "virtgauge"),
    )
    begin, end = gpt.tables(contents.identifier("disk"), partitions, sectors)
    code = (boot_loader.bios_modules / "boot.img").read_bytes()
    volume = work / "system.fat"
    serial = contents.number("FAT")
    make_fat(volume, system, files, serial=serial, before=_MIB, work=work, boot_loader=boot_loader)
    with target.open("wb") as file:
        file.write(gpt.boot_sector(code, gpt.FIRST_USABLE, sectors) + begin + core)
        file.seek(_MIB * SECTOR)
        file.write(volume.read_bytes())
        file.truncate(sectors * SECTOR)
        file.seek(-len(end), 2)
        file.write(end)
    volume.unlink()
