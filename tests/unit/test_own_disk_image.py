"""Where the root of a disk image is."""

from __future__ import annotations

import struct
from pathlib import Path

from virtgauge.platforms.qemu.disk_image import largest_partition


def test_it_is_the_largest_partition_or_the_whole_image(tmp_path: Path) -> None:
    """As in a cloud image: the boot loader's first, the root behind it."""
    image = tmp_path / "image.raw"
    image.write_bytes(bytes(4096))
    assert largest_partition(image) == 0
    table = bytearray(512 * 34)
    table[512:520] = b"EFI PART"
    struct.pack_into("<QII", table, 512 + 72, 2, 128, 128)
    for number, (first, last) in enumerate([(2048, 8191), (262144, 4194270), (8192, 262143)]):
        at = 1024 + 128 * number
        table[at : at + 16] = b"\1" * 16
        struct.pack_into("<QQ", table, at + 32, first, last)
    image.write_bytes(table)
    assert largest_partition(image) == 262144 * 512
