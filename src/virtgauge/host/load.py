"""How busy the machine was between two moments, as the host's kernel counts it.

The foreign load of a trial is busy time less what its own processes used.  Where the v1 ``cpuacct`` root is
mounted, busy time is exact to the nanosecond; elsewhere it comes from /proc/stat, in clock ticks
(10 ms), which blurs a trial of one second by one or two per cent.
"""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path

from virtgauge.host.cgroup import Hierarchies, root_cpu_ns


@dataclasses.dataclass(frozen=True)
class CpuSnapshot:
    """Counters of the whole machine at one moment.

    Attributes:
        busy_ns: CPU time of all tasks since boot, over all CPUs.
        steal_ns: time in which a hypervisor below ran something else; None where the kernel does not count it.
        taken_at: CLOCK_MONOTONIC, ns.
        cpus: CPUs counted.
        method: where ``busy_ns`` comes from.
    """

    busy_ns: int
    steal_ns: int | None
    taken_at: int
    cpus: int
    method: str

    @classmethod
    def take(cls, stat: Path = Path("/proc/stat"), hierarchies: Hierarchies | None = None) -> CpuSnapshot:
        """Read the counters now.  ``hierarchies`` saves looking for the mounts at each call.

        Raises:
            OSError: /proc/stat cannot be read.
        """
        tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        lines = stat.read_text().splitlines()
        taken_at = time.monotonic_ns()
        exact = root_cpu_ns(hierarchies)
        # proc_stat(5): user nice system idle iowait irq softirq steal guest guest_nice; user includes guest
        fields = [int(field) for field in lines[0].split()[1:]]
        fields += [0] * (7 - len(fields))
        ticks = fields[0] + fields[1] + fields[2] + fields[5] + fields[6]
        return cls(
            busy_ns=exact if exact is not None else ticks * tick_ns,
            steal_ns=fields[7] * tick_ns if len(fields) > 7 else None,
            taken_at=taken_at,
            cpus=sum(1 for line in lines if line.startswith("cpu")) - 1,
            method="cgroup root" if exact is not None else "/proc/stat",
        )


@dataclasses.dataclass(frozen=True)
class CpuLoad:
    """What the machine did between two snapshots; times in ns, summed over its CPUs."""

    elapsed_ns: int
    busy_ns: int
    steal_ns: int | None
    cpus: int
    method: str

    @property
    def capacity_ns(self) -> int:
        """CPU time that existed: elapsed × CPUs."""
        return self.elapsed_ns * self.cpus

    def foreign_ns(self, own_ns: int) -> int:
        """Busy time that is not ours; never negative (the two counters are not read at the same instant)."""
        return max(0, self.busy_ns - own_ns)


def load_between(before: CpuSnapshot, after: CpuSnapshot) -> CpuLoad:
    """The difference of two snapshots.

    Raises:
        ValueError: they were taken by different methods or in the wrong order.
    """
    if before.method != after.method:
        raise ValueError(f"snapshots by different methods cannot be compared: {before.method}, {after.method}")
    if after.taken_at < before.taken_at:
        raise ValueError("the second snapshot is older than the first")
    steal = None if before.steal_ns is None or after.steal_ns is None else max(0, after.steal_ns - before.steal_ns)
    return CpuLoad(
        elapsed_ns=after.taken_at - before.taken_at,
        busy_ns=max(0, after.busy_ns - before.busy_ns),
        steal_ns=steal,
        cpus=after.cpus,
        method=after.method,
    )
