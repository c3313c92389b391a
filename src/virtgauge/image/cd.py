"""An image as a CD that BIOS and UEFI boot (ISO 9660 with El Torito boot records), written by xorriso."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from virtgauge.image.contents import FOLDER, Contents
from virtgauge.image.fat import fat_sectors, make_fat
from virtgauge.image.loader import EPOCH, cd_core, efi_files, files_of
from virtgauge.provision.boot_loader import BootLoader

_BIOS, _EFI = "boot/bios.img", "boot/efi.img"


def make_cd(target: Path, contents: Contents, boot_loader: BootLoader, work: Path) -> None:
    """Write a CD.

    Args:
        target: the file; made.
        work: a folder for what comes in between.

    Raises:
        ProvisionError: a tool failed.
        OSError: the disk is full.
    """
    tree = work / "cd"
    (tree / "boot").mkdir(parents=True)
    firmware = efi_files(contents, boot_loader)
    # GRUB for UEFI may take either file system of the CD for the one that it came from, and reads its script there.
    for path, content in (files_of(contents) | {"EFI/BOOT/grub.cfg": firmware["EFI/BOOT/grub.cfg"]}).items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(content)
    (tree / _BIOS).write_bytes(cd_core(contents, boot_loader, work))
    make_fat(
        tree / _EFI,
        fat_sectors(firmware, 4),
        firmware,
        serial=contents.number("FAT"),
        before=0,
        work=work,
        boot_loader=boot_loader,
    )
    for entry in (tree, *tree.rglob("*")):
        os.utime(entry, (int(EPOCH["SOURCE_DATE_EPOCH"]),) * 2)
    boot_loader.run(
        "xorriso",
        *("-as", "mkisofs", "-quiet", "-r", "-V", "VIRTGAUGE", "-A", FOLDER, "-o", target),
        *("-c", "boot/boot.cat", "-b", _BIOS, "-no-emul-boot", "-boot-load-size", "4", "-boot-info-table"),
        *("-eltorito-alt-boot", "-e", _EFI, "-no-emul-boot"),
        tree,
        environment=EPOCH,
    )
    shutil.rmtree(tree)
