"""Flushes: how they are counted and made dearer (docs/flushes.md), and what one costs on the disk itself."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import virtgauge
from virtgauge.analysis.resources import disk_changed
from virtgauge.errors import UnavailableError
from virtgauge.extras import how_to_build
from virtgauge.ledger.records import Flag
from virtgauge.shim import needed_glibc, present_glibc
from virtgauge.suites.storage.client import DiskProbe
from virtgauge.suites.storage.laboratory import Target

ENVIRONMENT_VARIABLE = "VIRTGAUGE_FLUSHLAB"
LAUNCHER, LIBRARY = "virtgauge-flushes", "libvirtgauge_flushes.so"
AS_IS = "as-is"  # The profile with which flushes happen as the disk has them, and are counted only
LABORATORY_FAILED = 125
"""Exit status where the launcher, or a program under it, cannot set the laboratory up; standard error says why."""
_LONGER = (2, 4)
"""A disk that seems to be another one is probed again, so many times as long: it may have been at work still."""


def find_launcher() -> Path:
    """Find the launcher, whose library is beside it: in the folder ``$VIRTGAUGE_FLUSHLAB``, then in the package.
    Raises UnavailableError: one of the two is missing, or the C library is not glibc, or is older than it asks for.
    """
    override = os.environ.get(ENVIRONMENT_VARIABLE)
    folder = Path(override) if override else Path(virtgauge.__file__).parent / "native"
    for name in (LAUNCHER, LIBRARY):
        if not (folder / name).is_file():
            raise UnavailableError(
                f"the flush laboratory is missing: {folder / name}",
                how_to_build("flushes", ENVIRONMENT_VARIABLE, "the folder of a built one"),
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
        profile: ``as-is``, ``rotational:RPM``, ``rotational-seek:RPM:US``, ``latency:US`` or ``at-once``.
        static: count by the kernel, for a static or Go program that a dynamic one starts; one that is named itself, or
            by `setpriv` and its like, is known without.
    Raises UnavailableError: the laboratory is missing.
    """
    how = ["--static"] if static else []
    return [str(find_launcher()), "--counters", str(counters), "--profile", profile, *how, "--"]


@dataclasses.dataclass(frozen=True)
class DiskWatch:
    """Probes of a data disk before and after a trial; None where it is not ours, or nothing flushes to it."""

    before: DiskProbe | None
    after: DiskProbe | None

    def figures(self) -> dict[str, float | None]:
        probes = {"disk_before_per_s": self.before, "disk_after_per_s": self.after}
        return {name: None if probe is None else probe.flushes_per_s for name, probe in probes.items()}

    def flags(self, *, waits: bool) -> Iterator[Flag]:
        """Says that the disk changed; fatal where what was measured waits for it."""
        if _changed(self.before, self.after):
            before, after = (probe.median_per_s for probe in (self.before, self.after) if probe is not None)
            text = f"the idle disk had {before:,.0f} flushes/s before the trial and {after:,.0f} after it"
            yield Flag("disk-changed", text, fatal=waits)


def _changed(before: DiskProbe | None, after: DiskProbe | None) -> bool:
    return before is not None and after is not None and disk_changed(before.bursts_per_s, after.bursts_per_s)


async def probe_disk(target: Target, seconds: float) -> DiskProbe | None:
    """Flush the data disk for a while, with nothing else on it; None where there is none to be probed."""
    if target.inside is None or target.disk is None:
        return None
    return await target.inside.disk(target.disk, seconds)


async def watch_disk(target: Target, seconds: float, before: DiskProbe | None) -> DiskWatch:
    """Probe it after a trial as before it; longer while it seems to be another one."""
    after = await probe_disk(target, seconds)
    for times in _LONGER:
        if not _changed(before, after):
            break
        again = await probe_disk(target, times * seconds)
        after = after.followed_by(again) if after and again else None
    return DiskWatch(before, after)
