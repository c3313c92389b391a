"""The idle data disk before and after a trial: how often a second it flushes, and whether it is still the same disk."""

from __future__ import annotations

import dataclasses

from virtgauge.analysis.storage.disk_change import disk_changed
from virtgauge.ledger.records import Flag
from virtgauge.suites.storage.laboratory import Target
from virtgauge.suites.storage.outcomes import DiskProbe

_LONGER = (2, 4)
"""A disk that seems to be another one is probed again, so many times as long: it may have been at work still."""


@dataclasses.dataclass(frozen=True)
class DiskWatch:
    """Two probes of a data disk; None where it is not ours, or nothing flushes to it.

    Attributes:
        before, after: the trial.
    """

    before: DiskProbe | None
    after: DiskProbe | None

    def changed(self) -> bool:
        """Whether it was another disk afterwards."""
        if self.before is None or self.after is None:
            return False
        return disk_changed(self.before.bursts_per_s, self.after.bursts_per_s)

    def figures(self) -> dict[str, float | None]:
        """For the result."""
        return {
            "disk_before_per_s": None if self.before is None else self.before.flushes_per_s,
            "disk_after_per_s": None if self.after is None else self.after.flushes_per_s,
        }

    def flag(self, *, waits: bool) -> Flag | None:
        """That it changed; fatal where what was measured waits for it."""
        if self.before is None or self.after is None or not self.changed():
            return None
        rates = (
            f"{self.before.median_per_s:,.0f} flushes/s before the trial and {self.after.median_per_s:,.0f} after it"
        )
        return Flag("disk-changed", f"the idle disk had {rates}", fatal=waits)


async def probe_disk(target: Target, seconds: float) -> DiskProbe | None:
    """Flush the data disk for a while, with nothing else on it; None where there is none to be probed."""
    if target.probe is None or target.disk is None:
        return None
    return await target.probe.disk(target.disk, seconds)


async def watch_disk(target: Target, seconds: float, before: DiskProbe | None) -> DiskWatch:
    """Probe it after a trial as before it; longer while it seems to be another one."""
    watch = DiskWatch(before, await probe_disk(target, seconds))
    for times in _LONGER:
        if watch.after is None or not watch.changed():
            break
        again = await probe_disk(target, times * seconds)
        watch = DiskWatch(before, None if again is None else watch.after.followed_by(again))
    return watch
