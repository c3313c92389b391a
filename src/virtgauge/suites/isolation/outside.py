"""What the host's kernel counts of both guests and of itself, before a trial and after it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from virtgauge.host.cgroup_policy import Throttling
from virtgauge.platforms.base import Guest

_IO_WAIT, _COUNTED = 4, 8
"""Of the first line of /proc/stat (proc_stat(5)): user nice system idle iowait irq softirq steal."""


@dataclasses.dataclass(frozen=True)
class GuestCounts:
    """Counted of one guest so far; None where that is not known."""

    throttling: Throttling | None
    kills: int | None

    @classmethod
    def of(cls, guest: Guest) -> GuestCounts:
        """Its counters now."""
        return cls(guest.throttling(), guest.out_of_memory_kills())

    def since(self, earlier: GuestCounts) -> GuestCounts:
        """What was added.  A group that was not there before has counted everything since."""
        throttling, kills = self.throttling, self.kills
        if throttling is not None and earlier.throttling is not None:
            throttling = throttling.since(earlier.throttling)
        if kills is not None:
            kills -= earlier.kills or 0
        return GuestCounts(throttling, kills)


@dataclasses.dataclass(frozen=True)
class Outside:
    """Counters of both guests, and what all of the host's CPUs have done, in clock ticks by kind."""

    tested: GuestCounts
    loading: GuestCounts
    ticks: tuple[int, ...] = ()

    @classmethod
    def now(cls, tested: Guest, loading: Guest, stat: Path = Path("/proc/stat")) -> Outside:
        """Read everything."""
        ticks = tuple(int(field) for field in stat.read_text().splitlines()[0].split()[1 : _COUNTED + 1])
        return cls(GuestCounts.of(tested), GuestCounts.of(loading), ticks)

    def since(self, earlier: Outside) -> Outside:
        """What was added."""
        ticks = tuple(now - then for now, then in zip(self.ticks, earlier.ticks, strict=True))
        return Outside(self.tested.since(earlier.tested), self.loading.since(earlier.loading), ticks)

    @property
    def io_wait_share(self) -> float | None:
        """Of the CPU time counted, what was idle with a disk's answer outstanding; None where no tick was counted."""
        total = sum(self.ticks)
        return self.ticks[_IO_WAIT] / total if total > 0 else None
