"""An image as a disk or a CD that BIOS and UEFI boot: boot loader, FAT, partition table.

GRUB boots it by BIOS, and shim with GRUB by UEFI, also under Secure Boot.  Both look for a file named after the image's
digest, so that another disk's files are never taken for it.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import struct
import uuid
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from virtgauge.image.contents import FOLDER, RECORD, Contents
from virtgauge.provision.boot_loader import BootLoader

_COMMON = ("search", "search_fs_file", "configfile", "normal", "linux", "echo")
_DISK_MODULES = ("biosdisk", "part_gpt", "fat", *_COMMON)
_CD_MODULES = ("biosdisk", "iso9660", *_COMMON)

EPOCH = {"SOURCE_DATE_EPOCH": "315532800"}  # The time of every file in an image: 1980, the first that FAT can tell


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


def _core(contents: Contents, boot_loader: BootLoader, work: Path, kind: str, modules: tuple[str, ...]) -> bytes:
    """GRUB for BIOS: behind the boot sector of a disk, or as a CD's boot record names it (El Torito, no emulation)."""
    early, core = work / f"{kind}.cfg", work / f"{kind}.img"
    early.write_text(f"search --no-floppy --set=root --file {marker(contents)}\nconfigfile ($root)/{FOLDER}/boot.cfg\n")
    where: tuple[str | Path, ...] = ("-d", boot_loader.bios_modules, "-O", kind, "-p", f"/{FOLDER}")
    boot_loader.run("grub-mkimage", *where, "-c", early, "-o", core, *modules)
    return core.read_bytes()


SECTOR = 512
_CLUSTER = 4  # sectors
_TABLE, _TABLE_BYTES = 446, 64  # of a PC's partition table
_ROOM = 256  # clusters beyond the files: tables, folders


def make_fat(
    target: Path, files: Mapping[str, bytes], multiple: int, *, serial: int, before: int, boot_loader: BootLoader
) -> int:
    """Write a file system with these files, by path, behind so many sectors; its own, rounded up to a multiple.
    Raises ProvisionError: mtools failed; OSError: the disk is full.
    """
    clusters = sum(-(-len(content) // (_CLUSTER * SECTOR)) for content in files.values()) + _ROOM
    sectors = -(-clusters * _CLUSTER // multiple) * multiple
    size = ("-T", str(sectors), "-h", "255", "-s", "63", "-c", str(_CLUSTER), "-H", str(before))
    name = ("-N", f"{serial:08x}", "-v", "VIRTGAUGE")
    boot_loader.run("mformat", "-C", "-i", target, *size, *name, "::", environment=EPOCH)
    with target.open("r+b") as volume:
        # mformat puts a partition table into the boot sector, and firmware then takes the volume for a whole disk
        volume.seek(_TABLE)
        volume.write(bytes(_TABLE_BYTES))
    made: set[PurePosixPath] = set()
    for path, content in sorted(files.items()):
        for folder in reversed(PurePosixPath(path).parents[:-1]):
            if folder not in made:
                boot_loader.run("mmd", "-i", target, f"::{folder}", environment=EPOCH)
                made.add(folder)
        source = target.with_suffix(".file")
        source.write_bytes(content)
        boot_loader.run("mcopy", "-i", target, source, f"::{path}", environment=EPOCH)
        source.unlink()
    return sectors


# Partition tables by GUID (UEFI specification 2.10, 5.3), behind a boot sector for BIOS.

ENTRIES = 128
_ENTRY_BYTES = 128
_TABLE_SECTORS = ENTRIES * _ENTRY_BYTES // SECTOR
FIRST_USABLE = 2 + _TABLE_SECTORS
BACKUP_SECTORS = 1 + _TABLE_SECTORS

BIOS_BOOT = uuid.UUID("21686148-6449-6e6f-744e-656564454649")  # Where GRUB lies behind its boot sector

EFI_SYSTEM = uuid.UUID("c12a7328-f81f-11d2-ba4b-00a0c93ec93b")

_BOOT_CODE = 440
_CORE_ADDRESS = 0x5C  # where GRUB's boot sector has the address of what it loads: u64 (boot.S, kernel_sector)
_DRIVE_CHECK = 0x66  # a jump over the check of the drive that the BIOS names (boot.S, boot_drive_check)
_NOTHING = b"\x90\x90"
_CORE_REST = 0x1F4  # where the first sector of that has the address of its rest (diskboot.S, blocklist_default_start)


@dataclasses.dataclass(frozen=True)
class Partition:
    """A partition, by its sectors, both included."""

    kind: uuid.UUID
    identifier: uuid.UUID
    first: int
    last: int
    name: str


def boot_sector(code: bytes, core: int, sectors: int) -> bytes:
    """GRUB's boot sector (``boot.img``), which loads its core from an address, with the protective partition."""
    sector = bytearray(code[:_BOOT_CODE].ljust(SECTOR, b"\0"))
    struct.pack_into("<Q", sector, _CORE_ADDRESS, core)
    sector[_DRIVE_CHECK : _DRIVE_CHECK + 2] = _NOTHING
    # the whole disk: not active, the address 0/0/2, type 0xEE, the last address that can be told
    length = min(sectors - 1, 2**32 - 1)
    struct.pack_into("<B3sB3sII", sector, 446, 0, b"\x00\x02\x00", 0xEE, b"\xff\xff\xff", 1, length)
    sector[510:512] = b"\x55\xaa"
    return bytes(sector)


def tables(disk: uuid.UUID, partitions: Sequence[Partition], sectors: int) -> tuple[bytes, bytes]:
    """The partition table at the disk's begin (from its second sector on) and the one at its end."""
    entries = b"".join(map(_entry, partitions)).ljust(ENTRIES * _ENTRY_BYTES, b"\0")
    last = sectors - 1
    first = _header(disk, 1, last, 2, entries) + entries
    return first, entries + _header(disk, last, 1, last - _TABLE_SECTORS, entries)


def _entry(partition: Partition) -> bytes:
    name = partition.name.encode("utf-16-le").ljust(72, b"\0")
    fields = (partition.kind.bytes_le, partition.identifier.bytes_le, partition.first, partition.last, 0, name)
    return struct.pack("<16s16sQQQ72s", *fields)


def _header(disk: uuid.UUID, here: int, other: int, table: int, entries: bytes) -> bytes:
    last = max(here, other)
    fields = (FIRST_USABLE, last - BACKUP_SECTORS, disk.bytes_le, table, ENTRIES, _ENTRY_BYTES, zlib.crc32(entries))

    def header(checksum: int) -> bytes:
        return struct.pack("<8sIIIIQQQQ16sQIII", b"EFI PART", 0x10000, 92, checksum, 0, here, other, *fields)

    return header(zlib.crc32(header(0))).ljust(SECTOR, b"\0")


_MIB = 2048  # sectors; whatever lies on a disk begins at a multiple of it


def make_disk(target: Path, contents: Contents, boot_loader: BootLoader, work: Path) -> None:
    """Write a raw disk: GRUB behind its boot sector, then one FAT file system with all the rest.
    Raises ProvisionError: a tool failed; OSError: the disk is full.
    """
    files = files_of(contents) | efi_files(contents, boot_loader)
    volume = work / "system.fat"
    serial = contents.number("FAT")
    system = make_fat(volume, files, _MIB, serial=serial, before=_MIB, boot_loader=boot_loader)
    sectors = _MIB + system + _MIB
    core = bytearray(_core(contents, boot_loader, work, "i386-pc", _DISK_MODULES))
    struct.pack_into("<Q", core, _CORE_REST, FIRST_USABLE + 1)  # the first sector loads the rest from the one behind
    assert len(core) <= (_MIB - FIRST_USABLE) * SECTOR
    partitions = (
        Partition(BIOS_BOOT, contents.identifier("BIOS boot"), FIRST_USABLE, _MIB - 1, "GRUB"),
        Partition(EFI_SYSTEM, contents.identifier("EFI system"), _MIB, _MIB + system - 1, "virtgauge"),
    )
    begin, end = tables(contents.identifier("disk"), partitions, sectors)
    code = (boot_loader.bios_modules / "boot.img").read_bytes()
    with target.open("wb") as file:
        file.write(boot_sector(code, FIRST_USABLE, sectors) + begin + core)
        file.seek(_MIB * SECTOR)
        file.write(volume.read_bytes())
        file.truncate(sectors * SECTOR)
        file.seek(-len(end), 2)
        file.write(end)
    volume.unlink()


# An image as a CD that BIOS and UEFI boot (ISO 9660 with El Torito boot records), written by xorriso.

_BIOS, _EFI = "boot/bios.img", "boot/efi.img"


def make_cd(target: Path, contents: Contents, boot_loader: BootLoader, work: Path) -> None:
    """Write a CD. Raises ProvisionError: a tool failed; OSError: the disk is full."""
    tree = work / "cd"
    (tree / "boot").mkdir(parents=True)
    firmware = efi_files(contents, boot_loader)
    # GRUB for UEFI may take either file system of the CD for the one that it came from, and reads its script there.
    for path, content in (files_of(contents) | {"EFI/BOOT/grub.cfg": firmware["EFI/BOOT/grub.cfg"]}).items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(content)
    (tree / _BIOS).write_bytes(_core(contents, boot_loader, work, "i386-pc-eltorito", _CD_MODULES))
    serial = contents.number("FAT")
    make_fat(tree / _EFI, firmware, 4, serial=serial, before=0, boot_loader=boot_loader)
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
