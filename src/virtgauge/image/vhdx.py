"""VHDX, the disk format of Hyper-V.

Source: Microsoft, [MS-VHDX] Virtual Hard Disk v2 File Format: 2.2.2 Headers, 2.3 Log, 2.6.2.4 Virtual Disk ID.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from virtgauge.image.contents import Contents
from virtgauge.image.qemu_img import convert

_HEADERS = (0x10000, 0x20000)
_HEADER_BYTES = 4096
_REGIONS = 0x30000
_METADATA = uuid.UUID("8b7ca206-4790-4b9a-b8fe-575f050f886e")
_DISK_ID = uuid.UUID("beca12ab-b2e6-4523-93ef-c309e000c746")


def make_vhdx(raw: Path, target: Path, contents: Contents) -> None:
    """Write a disk that grows, by blocks of 1 MiB."""
    convert(raw, target, "vhdx", "subformat=dynamic", "block_size=1M")
    with target.open("r+b") as file:
        for sequence, place in enumerate(_HEADERS, start=1):
            header = bytearray(_read(file, place, _HEADER_BYTES))
            assert header[:4] == b"head"
            assert header[48:64] == bytes(16), "qemu-img has left a log to replay"
            struct.pack_into("<Q", header, 8, sequence)
            header[16:32] = contents.identifier("VHDX file").bytes_le
            header[32:48] = contents.identifier("VHDX data").bytes_le
            header[4:8] = bytes(4)
            struct.pack_into("<I", header, 4, crc32c(bytes(header)))
            _write(file, place, bytes(header))
        # No header names a log that counts; but qemu-img leaves in its place what it once held.
        length, offset = struct.unpack("<IQ", _read(file, _HEADERS[0] + 68, 12))
        _write(file, offset, bytes(length))
        _write(file, _disk_id_place(file), contents.identifier("VHDX disk").bytes_le)


def _disk_id_place(file: BinaryIO) -> int:
    """Where the metadata have the disk's own identifier (page 83 of SCSI's inquiry)."""
    region = _entry(_read(file, _REGIONS, 0x10000), 8, 16, _METADATA)
    (metadata,) = struct.unpack_from("<Q", region, 16)
    item = _entry(_read(file, metadata, 0x10000), 10, 32, _DISK_ID)
    return int(metadata + struct.unpack_from("<I", item, 16)[0])


def _entry(table: bytes, count_at: int, first: int, kind: uuid.UUID) -> bytes:
    """The entry of a kind in a table of entries of 32 bytes that begin with their kind."""
    (count,) = struct.unpack_from("<H", table, count_at)
    entries = (table[first + 32 * number :][:32] for number in range(count))
    return next(entry for entry in entries if entry[:16] == kind.bytes_le)


def _read(file: BinaryIO, place: int, length: int) -> bytes:
    file.seek(place)
    return file.read(length)


def _write(file: BinaryIO, place: int, content: bytes) -> None:
    file.seek(place)
    file.write(content)


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli; RFC 3720, appendix B.4), by which the format checks its headers."""
    value = 0xFFFFFFFF
    for byte in data:
        value = (value >> 8) ^ _TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


def _table() -> Sequence[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()
