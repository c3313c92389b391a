"""The boot loader of an image: GRUB for BIOS, and shim with GRUB for UEFI, also under Secure Boot.

Both look for a file named after the image's digest, so that another disk's files are never taken for it.
"""

from __future__ import annotations

from pathlib import Path

from virtgauge.image.contents import FOLDER, RECORD, Contents
from virtgauge.provision.boot_loader import BootLoader

_COMMON = ("search", "search_fs_file", "configfile", "normal", "linux", "echo")
_DISK_MODULES = ("biosdisk", "part_gpt", "fat", *_COMMON)
_CD_MODULES = ("biosdisk", "iso9660", *_COMMON)

EPOCH = {"SOURCE_DATE_EPOCH": "315532800"}
"""The time of every file in an image: 1980, the first that FAT can tell."""


def marker(contents: Contents) -> str:
    """Path of the file that tells this image from others."""
    return f"/{FOLDER}/{contents.digest[:16]}"


def boot_config(contents: Contents) -> bytes:
    """What GRUB does: no menu, and no waiting."""
    return (
        f"search --no-floppy --set=root --file {marker(contents)}\n"
        f"linux ($root)/{FOLDER}/vmlinuz {contents.command_line}\n"
        f"initrd ($root)/{FOLDER}/initramfs\n"
        "boot\n"
    ).encode()


def files_of(contents: Contents) -> dict[str, bytes]:
    """What lies in the file system of every image, by path."""
    return {
        f"{FOLDER}/boot.cfg": boot_config(contents),
        f"{FOLDER}/vmlinuz": contents.kernel,
        f"{FOLDER}/initramfs": contents.initramfs,
        f"{FOLDER}/{RECORD}": contents.record_text(),
        marker(contents).lstrip("/"): b"",
    }


def efi_files(contents: Contents, boot_loader: BootLoader) -> dict[str, bytes]:
    """What firmware looks for on a removable disk (UEFI specification, 3.5.1.1), and what that looks for."""
    return {
        "EFI/BOOT/BOOTX64.EFI": boot_loader.shim.read_bytes(),
        "EFI/BOOT/grubx64.efi": boot_loader.efi_grub.read_bytes(),
        "EFI/BOOT/grub.cfg": boot_config(contents),
    }


def disk_core(contents: Contents, boot_loader: BootLoader, work: Path) -> bytes:
    """GRUB for BIOS as it lies behind the boot sector of a disk."""
    return _core(contents, boot_loader, work, "i386-pc", _DISK_MODULES)


def cd_core(contents: Contents, boot_loader: BootLoader, work: Path) -> bytes:
    """GRUB for BIOS as a CD's boot record names it (El Torito, without emulation)."""
    return _core(contents, boot_loader, work, "i386-pc-eltorito", _CD_MODULES)


def _core(contents: Contents, boot_loader: BootLoader, work: Path, kind: str, modules: tuple[str, ...]) -> bytes:
    early, core = work / f"{kind}.cfg", work / f"{kind}.img"
    early.write_text(f"search --no-floppy --set=root --file {marker(contents)}\nconfigfile ($root)/{FOLDER}/boot.cfg\n")
    where: tuple[str | Path, ...] = ("-d", boot_loader.bios_modules, "-O", kind, "-p", f"/{FOLDER}")
    boot_loader.run("grub-mkimage", *where, "-c", early, "-o", core, *modules)
    return core.read_bytes()
