"""The flush laboratory (``native/flushlab``, docs/flushes.md): where it is, the prefix of a command, the counters."""

from __future__ import annotations

import dataclasses
import os
import struct
from pathlib import Path

import virtgauge
from virtgauge.errors import UnavailableError
from virtgauge.shim.library import needed_glibc, present_glibc

ENVIRONMENT_VARIABLE = "VIRTGAUGE_FLUSHLAB"
LAUNCHER, LIBRARY = "virtgauge-flushes", "libvirtgauge_flushes.so"
AS_IS = "as-is"
"""The profile with which flushes happen as the disk has them, and are counted only."""
LABORATORY_FAILED = 125
"""Exit status where the launcher, or a program under it, cannot set the laboratory up; standard error says why."""

_MAGIC, _SIZE, _SPACING = b"VGFLUSH1", 4096, 64


@dataclasses.dataclass(frozen=True)
class FlushCounters:
    """What was counted, in the order of the file (``native/flushlab/src/counters.rs``).

    Attributes:
        fsync: calls that succeeded; so the next two.
        fdatasync: see above.
        msync: with ``MS_SYNC``.
        sync_writes: writes that are flushes of their own.
        other: ``sync_file_range`` that waits, ``syncfs``, ``sync``.
        time_ns: how long all these took together, where that was seen.
        failed: flushes that failed.
        untimed: flushes whose time was not seen: as-is, of a static program.
        dsync_opens: openings of a static program whose writes would be flushes, and are not seen.
    """

    fsync: int
    fdatasync: int
    msync: int
    sync_writes: int
    other: int
    time_ns: int
    failed: int
    untimed: int
    dsync_opens: int

    @property
    def total(self) -> int:
        """All flushes."""
        return self.fsync + self.fdatasync + self.msync + self.sync_writes + self.other

    @classmethod
    def decode(cls, page: bytes) -> FlushCounters:
        """The counters in a file's bytes.

        Raises:
            ValueError: they are those of something else.
        """
        if len(page) != _SIZE or not page.startswith(_MAGIC):
            raise ValueError("no file of flush counters")
        names = [field.name for field in dataclasses.fields(cls)]
        values = (struct.unpack_from("<Q", page, _SPACING * (index + 1))[0] for index in range(len(names)))
        return cls(**dict(zip(names, values, strict=True)))


def find_launcher() -> Path:
    """Find the launcher, whose library is beside it: in the folder ``$VIRTGAUGE_FLUSHLAB``, then in the package.

    Raises:
        UnavailableError: one of the two is missing, or the machine's C library is not glibc or older than it asks for.
    """
    override = os.environ.get(ENVIRONMENT_VARIABLE)
    folder = Path(override) if override else Path(virtgauge.__file__).parent / "native"
    for name in (LAUNCHER, LIBRARY):
        if not (folder / name).is_file():
            raise UnavailableError(
                f"the flush laboratory is missing: {folder / name}",
                f"run `make` in the source tree, or set {ENVIRONMENT_VARIABLE} to the folder of a built one",
            )
    needed, present = needed_glibc((folder / LIBRARY).read_bytes()), present_glibc()
    if present is None or present < needed:
        raise UnavailableError(
            f"the flush laboratory asks for glibc {needed[0]}.{needed[1]} or later, which this machine does not have",
            "build virtgauge from source on this machine",
        )
    return (folder / LAUNCHER).resolve()


def launcher_prefix(counters: Path, profile: str, *, static: bool = False) -> list[str]:
    """What to put before a program's arguments so that its flushes are counted and cost what a profile says.

    Args:
        counters: the file to count in, as the program sees it; its folder must be open to the program's user.  It is
            made if it is not there, and goes on if it is.
        profile: ``as-is``, ``rotational:RPM``, ``latency:US`` or ``at-once``.
        static: count by the kernel, for a static or Go program that a dynamic one starts; one that is named itself, or
            by `setpriv` and its like, is known without.

    Raises:
        UnavailableError: the laboratory is missing.
    """
    how = ["--static"] if static else []
    return [str(find_launcher()), "--counters", str(counters), "--profile", profile, *how, "--"]
