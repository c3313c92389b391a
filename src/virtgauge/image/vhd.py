"""VHD, the disk format of Virtual PC, Azure and generation 1 of Hyper-V.

Source: Microsoft, Virtual Hard Disk Image Format Specification 1.0: "Hard Disk Footer Format".
"""

from __future__ import annotations

import struct
from pathlib import Path

from virtgauge.image.contents import Contents
from virtgauge.image.qemu_img import convert

_FOOTER = 512
_TIME, _CHECKSUM, _IDENTIFIER = 24, 64, 68


def make_vhd(raw: Path, target: Path, contents: Contents) -> None:
    """Write a disk that grows, exactly as long as the raw one."""
    convert(raw, target, "vpc", "subformat=dynamic", "force_size=on")
    with target.open("r+b") as file:
        footer = bytearray(file.read(_FOOTER))  # a dynamic disk begins with a copy of it
        struct.pack_into(">I", footer, _TIME, 0)
        footer[_IDENTIFIER : _IDENTIFIER + 16] = contents.identifier("VHD").bytes
        struct.pack_into(">I", footer, _CHECKSUM, checksum(bytes(footer)))
        for place in ((0, 0), (-_FOOTER, 2)):
            file.seek(*place)
            file.write(footer)


def checksum(footer: bytes) -> int:
    """The one's complement of the sum of a footer's bytes, less the checksum's own."""
    return ~(sum(footer) - sum(footer[_CHECKSUM : _CHECKSUM + 4])) & 0xFFFFFFFF
