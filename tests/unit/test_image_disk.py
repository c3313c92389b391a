"""Disks and CDs, read back by the words of their formats' specifications."""

from __future__ import annotations

import struct
import uuid
import zlib

import image_parts as parts
import pytest

from virtgauge.image.contents import Contents
from virtgauge.image.disk import BIOS_BOOT, EFI_SYSTEM, boot_config, make_cd, make_disk

SECTOR = 512
NEW_YEAR_1980 = 0x0021  # as FAT has a date


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    return parts.contents(tmp_path_factory.mktemp("parts"))


@pytest.fixture(scope="module")
def disks(small: Contents, tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The same disk, made twice in two folders."""
    made = []
    for folder in (tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("another")):
        make_disk(folder / "disk", small, parts.boot_loader(), folder)
        made.append((folder / "disk").read_bytes())
        assert [path.name for path in folder.iterdir() if path.suffix == ".fat"] == []
    return made


@pytest.fixture(scope="module")
def cds(small: Contents, tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    made = []
    for folder in (tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("another")):
        make_cd(folder / "cd.iso", small, parts.boot_loader(), folder)
        made.append((folder / "cd.iso").read_bytes())
    return made


def test_the_same_contents_are_the_same_disk(disks: list[bytes]) -> None:
    assert disks[0] == disks[1]
    assert len(disks[0]) % (1 << 20) == 0


@pytest.mark.slow
def test_the_same_contents_are_the_same_cd(cds: list[bytes]) -> None:
    assert cds[0] == cds[1]


def header(disk: bytes, at: int) -> dict[str, int | bytes]:
    names = ("signature", "revision", "size", "crc", "_", "here", "other", "first", "last", "disk", "table", "count")
    fields = struct.unpack_from("<8sIIIIQQQQ16sQI", disk, at * SECTOR)
    entry_bytes, entries_crc = struct.unpack_from("<II", disk, at * SECTOR + 84)
    return dict(zip(names, fields, strict=True)) | {"entry_bytes": entry_bytes, "entries_crc": entries_crc}


@pytest.mark.parametrize("which", ["first", "last"])
def test_both_partition_tables_are_whole_and_name_each_other(disks: list[bytes], which: str) -> None:
    disk = disks[0]
    last = len(disk) // SECTOR - 1
    at, other = (1, last) if which == "first" else (last, 1)
    found = header(disk, at)
    raw = bytearray(disk[at * SECTOR :][:92])
    raw[16:20] = bytes(4)
    assert (found["signature"], found["revision"], found["size"]) == (b"EFI PART", 0x10000, 92)
    assert found["crc"] == zlib.crc32(raw)
    assert (found["here"], found["other"]) == (at, other)
    table = disk[int(found["table"]) * SECTOR :][: 128 * 128]
    assert found["entries_crc"] == zlib.crc32(table)
    assert int(found["last"]) < (last - 32 if which == "first" else int(found["table"]))


def test_the_partitions_are_grubs_and_the_firmwares(disks: list[bytes], small: Contents) -> None:
    table = disks[0][2 * SECTOR :]
    kinds, names = [], []
    for number in range(2):
        kind, own, first, last, _, name = struct.unpack_from("<16s16sQQQ72s", table, 128 * number)
        kinds.append(uuid.UUID(bytes_le=kind))
        names.append(name.decode("utf-16-le").rstrip("\0"))
        assert 34 <= first <= last <= len(disks[0]) // SECTOR - 34
        assert uuid.UUID(bytes_le=own).version == 4
    assert kinds == [BIOS_BOOT, EFI_SYSTEM]
    assert names == ["GRUB", "virtgauge"]
    assert table[256:384] == bytes(128)


def test_the_boot_sector_protects_the_disk_and_leads_to_grub(disks: list[bytes]) -> None:
    sector = disks[0][:SECTOR]
    assert sector[510:] == b"\x55\xaa"
    active, kind, first, length = sector[446], sector[450], *struct.unpack_from("<II", sector, 454)
    assert (active, kind, first, length) == (0, 0xEE, 1, len(disks[0]) // SECTOR - 1)
    (core,) = struct.unpack_from("<Q", sector, 0x5C)
    assert core == 34
    (rest,) = struct.unpack_from("<Q", disks[0], core * SECTOR + 0x1F4)
    assert rest == core + 1
    assert b"loading" in disks[0][core * SECTOR :][:SECTOR]


def test_the_file_system_has_no_partition_table_and_no_other_time_than_1980(disks: list[bytes]) -> None:
    volume = disks[0][2048 * SECTOR :]
    assert volume[54:58] == b"FAT1"
    assert volume[446:510] == bytes(64), "firmware would take it for a whole disk"
    reserved, tables, entries, sectors = struct.unpack_from("<HBH", volume, 14) + struct.unpack_from("<H", volume, 22)
    root = volume[(reserved + tables * sectors) * SECTOR :][: entries * 32]
    dates = set()
    for at in range(0, len(root), 32):
        entry = root[at : at + 32]
        if entry[0] and entry[11] != 0x0F:  # not a part of a long name
            dates.add(struct.unpack_from("<H", entry, 24)[0])
    assert dates == {NEW_YEAR_1980}


def test_a_disk_holds_what_boots_and_what_it_was_made_of(disks: list[bytes], small: Contents) -> None:
    for part in (
        small.kernel,
        small.initramfs,
        small.record_text(),
        boot_config(small),
        parts.boot_loader().shim.read_bytes(),
    ):
        assert part in disks[0]


def test_a_cd_has_a_boot_record_for_bios_and_one_for_uefi(cds: list[bytes]) -> None:
    cd = cds[0]
    volume = cd[16 * 2048 :][:2048]
    assert (volume[1:6], volume[40:49]) == (b"CD001", b"VIRTGAUGE")
    assert volume[813:829] == b"1980010100000000"
    record = cd[17 * 2048 :][:2048]
    assert record[7:30] == b"EL TORITO SPECIFICATION"
    (catalogue,) = struct.unpack_from("<I", record, 71)
    entries = cd[catalogue * 2048 :][:2048]
    assert entries[1] == 0  # x86
    assert sum(struct.unpack_from("<16H", entries)) & 0xFFFF == 0
    assert entries[32] == 0x88  # the initial entry boots
    assert entries[64 + 1] == 0xEF  # of the section that follows: UEFI
    assert entries[96] == 0x88


def test_grub_starts_the_kernel_of_this_image_and_of_no_other_disk(small: Contents) -> None:
    script = boot_config(small).decode()
    assert f"--file /virtgauge/{small.digest[:16]}\n" in script
    assert small.command_line in script
