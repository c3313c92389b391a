"""VDI, the disk format of VirtualBox.

Source: VirtualBox, src/VBox/Storage/VDICore.h (VDIHEADER1).
"""

from __future__ import annotations

from pathlib import Path

from virtgauge.image.contents import Contents
from virtgauge.image.qemu_img import convert

_IMAGE, _SNAPSHOT = 392, 408
"""Where the header has the UUIDs of the image and of its latest change."""


def make_vdi(raw: Path, target: Path, contents: Contents) -> None:
    """Write a disk that grows."""
    convert(raw, target, "vdi")
    with target.open("r+b") as file:
        for place, purpose in ((_IMAGE, "VDI"), (_SNAPSHOT, "VDI snapshot")):
            file.seek(place)
            file.write(contents.identifier(purpose).bytes_le)
