"""VMDK, the disk format of VMware: sparse in one file, or compressed as a stream for an OVA.

Source: VMware, Virtual Disk Format 5.0 (technical note), "The Disk Descriptor File" and "Hosted Sparse Extents".
"""

from __future__ import annotations

import re
from pathlib import Path

from virtgauge.image.contents import NAME, Contents
from virtgauge.image.qemu_img import convert

_DESCRIPTOR = slice(512, 512 + 20 * 512)
"""Where qemu-img has the descriptor: the 20 sectors behind the header."""


def make_sparse(raw: Path, target: Path, contents: Contents) -> None:
    """Write a disk for Workstation, Fusion and VirtualBox (``monolithicSparse``)."""
    _make(raw, target, contents, "subformat=monolithicSparse")


def make_stream(raw: Path, target: Path, contents: Contents) -> None:
    """Write a disk as an OVA holds it, and as ESXi imports it (``streamOptimized``)."""
    _make(raw, target, contents, "subformat=streamOptimized", "adapter_type=lsilogic", "hwversion=7")


def _make(raw: Path, target: Path, contents: Contents, *options: str) -> None:
    written = target.parent / f"{NAME}.vmdk"  # the descriptor holds the name, and the same inputs are the same bytes
    convert(raw, written, "vmdk", *options)
    with written.open("r+b") as file:
        room = file.read(_DESCRIPTOR.stop)[_DESCRIPTOR]
        descriptor, found = re.subn(rb"(?m)^CID=[0-9a-f]+$", _content_id(contents), room.rstrip(b"\0"), count=1)
        assert found == 1
        file.seek(_DESCRIPTOR.start)
        file.write(descriptor.ljust(len(room), b"\0"))  # qemu-img's own number may have fewer digits
    written.rename(target)


def _content_id(contents: Contents) -> bytes:
    """What tells this content from another; the highest number means that there is none."""
    return f"CID={contents.number('VMDK') % 0xFFFFFFFE:08x}".encode()
