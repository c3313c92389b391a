"""FAT file systems, written by mtools."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from virtgauge.image.loader import EPOCH
from virtgauge.provision.boot_loader import BootLoader

SECTOR = 512
_CLUSTER = 4  # sectors
_TABLE, _TABLE_BYTES = 446, 64  # of a PC's partition table
_ROOM = 256  # clusters beyond the files: tables, folders


def fat_sectors(files: Mapping[str, bytes], multiple: int) -> int:
    """Sectors that a file system with these files takes, rounded up to a multiple."""
    size = _CLUSTER * SECTOR
    clusters = sum(-(-len(content) // size) for content in files.values()) + _ROOM
    return -(-clusters * _CLUSTER // multiple) * multiple


def make_fat(
    target: Path,
    sectors: int,
    files: Mapping[str, bytes],
    *,
    serial: int,
    before: int,
    work: Path,
    boot_loader: BootLoader,
) -> None:
    """Write a file system with these files, by path.

    Args:
        target: the file; made.
        sectors: its length.
        serial: of the volume.
        before: sectors of the disk before it.
        work: a folder for what is copied in.

    Raises:
        ProvisionError: mtools failed.
        OSError: the disk is full.
    """
    size = ("-T", str(sectors), "-h", "255", "-s", "63", "-c", str(_CLUSTER), "-H", str(before))
    name = ("-N", f"{serial:08x}", "-v", "VIRTGAUGE")
    boot_loader.run("mformat", "-C", "-i", target, *size, *name, "::", environment=EPOCH)
    with target.open("r+b") as volume:
        # mformat puts a partition table into the boot sector, and firmware then takes the volume for a whole disk
        volume.seek(_TABLE)
        volume.write(bytes(_TABLE_BYTES))
    made: set[str] = set()
    for path, content in sorted(files.items()):
        for folder in _folders_above(path):
            if folder not in made:
                boot_loader.run("mmd", "-i", target, f"::{folder}", environment=EPOCH)
                made.add(folder)
        source = work / "file"
        source.write_bytes(content)
        boot_loader.run("mcopy", "-i", target, source, f"::{path}", environment=EPOCH)
        source.unlink()


def _folders_above(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]
