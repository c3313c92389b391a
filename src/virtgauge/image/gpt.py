"""Partition tables by GUID (UEFI specification 2.10, 5.3), behind a boot sector for BIOS."""

from __future__ import annotations

import dataclasses
import struct
import uuid
import zlib
from collections.abc import Sequence

SECTOR = 512
ENTRIES = 128
_ENTRY_BYTES = 128
_TABLE_SECTORS = ENTRIES * _ENTRY_BYTES // SECTOR
FIRST_USABLE = 2 + _TABLE_SECTORS
BACKUP_SECTORS = 1 + _TABLE_SECTORS

BIOS_BOOT = uuid.UUID("21686148-6449-6e6f-744e-656564454649")
"""Where GRUB lies behind its boot sector."""

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
    """GRUB's boot sector, with the protective partition that covers the whole disk.

    Args:
        code: GRUB's ``boot.img``.
        core: address of what it loads.
        sectors: of the disk.
    """
    sector = bytearray(code[:_BOOT_CODE].ljust(SECTOR, b"\0"))
    struct.pack_into("<Q", sector, _CORE_ADDRESS, core)
    sector[_DRIVE_CHECK : _DRIVE_CHECK + 2] = _NOTHING
    # not active, the address 0/0/2, type 0xEE, the last address that can be told
    length = min(sectors - 1, 2**32 - 1)
    struct.pack_into("<B3sB3sII", sector, 446, 0, b"\x00\x02\x00", 0xEE, b"\xff\xff\xff", 1, length)
    sector[510:512] = b"\x55\xaa"
    return bytes(sector)


def placed_core(core: bytes, at: int) -> bytes:
    """GRUB's core, told that it lies at this address: its first sector loads the rest from the one behind."""
    placed = bytearray(core)
    struct.pack_into("<Q", placed, _CORE_REST, at + 1)
    return bytes(placed)


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
