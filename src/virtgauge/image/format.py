"""The formats of an image."""

from __future__ import annotations

import enum
from pathlib import Path

from virtgauge.errors import UsageError


class Format(enum.StrEnum):
    """What an image may be."""

    RAW = "raw"
    ISO = "iso"
    QCOW2 = "qcow2"
    VMDK = "vmdk"
    VHD = "vhd"
    VHDX = "vhdx"
    VDI = "vdi"
    OVA = "ova"


def format_of(path: Path) -> Format:
    """The format that a file's name asks for.

    Raises:
        UsageError: none.
    """
    suffix = path.suffix.lower().removeprefix(".")
    named = {"img": Format.RAW} | {entry.value: entry for entry in Format}
    if suffix not in named:
        raise UsageError(f"the name {path.name!r} tells no format", f"give --format: {', '.join(Format)}")
    return named[suffix]
