"""The kernel inside a bzImage, made here by the rules of Documentation/arch/x86/boot.rst."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest

from virtgauge.platforms.boot_files import direct_kernel, extract, has_pvh_entry


def elf(note_type: int = 18, name: bytes = b"Xen\0") -> bytes:
    note = (
        struct.pack("<III", 4, 4, 6) + b"Xen\0" + b"\0\0\0\0" + struct.pack("<III", 4, 4, note_type) + name + b"\1" * 4
    )
    header = b"\x7fELF\x02\x01\x01" + b"\0" * 9
    header += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    program = struct.pack("<IIQQQQQQ", 4, 4, 64 + 56, 0, 0, len(note), len(note), 4)
    return header + program + note + b"kernel text " * 100


def bzimage(payload: bytes, setup_sectors: int = 3) -> bytes:
    image = bytearray((setup_sectors + 1) * 512)
    image[0x1F1] = setup_sectors
    image[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", image, 0x206, 0x20F)
    struct.pack_into("<II", image, 0x248, 16, len(payload))
    return bytes(image) + b"\0" * 16 + payload + b"trailer"


def with_size(packed: bytes) -> bytes:
    return packed + struct.pack("<I", len(elf()))


@pytest.mark.parametrize(
    "pack",
    [
        lambda data: with_size(lzma.compress(data)),
        lambda data: with_size(lzma.compress(data, format=lzma.FORMAT_ALONE)),
        lambda data: with_size(bz2.compress(data)),
        lambda data: with_size(gzip.compress(data)),
        lambda data: with_size(bytes(pyarrow.compress(data, codec="zstd", asbytes=True))),
    ],
    ids=["xz", "lzma", "bzip2", "gzip", "zstd"],
)
def test_a_payload_is_unpacked_from_each_packing(pack: Callable[[bytes], bytes]) -> None:
    assert extract(bzimage(pack(elf()))) == elf()


def test_what_is_no_bzimage_or_is_damaged_gives_nothing() -> None:
    good = bzimage(with_size(lzma.compress(elf())))
    assert extract(b"") is None
    assert extract(b"\0" * 4096) is None
    assert extract(good[:-20]) is None
    assert extract(bzimage(b"unknown packing")) is None
    damaged = bytearray(good)
    damaged[-100] ^= 0xFF
    assert extract(bytes(damaged)) is None
    short = lzma.compress(elf()) + struct.pack("<I", len(elf()) + 1)
    assert extract(bzimage(short)) is None


def test_only_a_kernel_with_the_note_can_be_started_directly() -> None:
    assert has_pvh_entry(elf())
    assert not has_pvh_entry(elf(note_type=17))
    assert not has_pvh_entry(elf(name=b"GNU\0"))
    assert not has_pvh_entry(b"")
    assert not has_pvh_entry(elf()[:70])


def test_the_kernel_is_unpacked_once_into_the_cache(tmp_path: Path) -> None:
    image = tmp_path / "vmlinuz"
    image.write_bytes(bzimage(with_size(lzma.compress(elf()))))
    found = direct_kernel(image, tmp_path / "cache")
    assert found.read_bytes() == elf()
    inode = found.stat().st_ino
    assert direct_kernel(image, tmp_path / "cache") == found
    assert found.stat().st_ino == inode


def test_a_kernel_that_cannot_be_started_directly_is_left_to_unpack_itself(tmp_path: Path) -> None:
    image = tmp_path / "vmlinuz"
    image.write_bytes(bzimage(with_size(lzma.compress(elf(note_type=1)))))
    assert direct_kernel(image, tmp_path / "cache") == image
    assert not (tmp_path / "cache").exists()
