"""How busy this machine is with what is not ours: foreign load, and steal, as its kernel counts them.

The foreign load of a trial is busy time less what its own processes used.  Where the v1 ``cpuacct`` root is
mounted, or all processes are in groups of the v2 tree (systemd), busy time is exact; elsewhere it comes from
/proc/stat, in clock ticks (10 ms), which blurs a trial of one second by several per cent.  Steal is always told in
ticks.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from virtgauge.host.cgroup import Hierarchies, group_times_ns, root_cpu_ns
from virtgauge.host.process import all_pids, cpu_ticks, process_name, text_of

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")  # The step of the counters in /proc/stat, of CPU time
IN_TICKS = "/proc/stat"  # The method by which busy time comes in ticks


@dataclasses.dataclass(frozen=True)
class CpuSnapshot:
    """Counters of the whole machine at one moment."""

    busy_ns: int  # CPU time of all tasks since boot, over all CPUs
    steal_ns: int | None  # time in which a hypervisor below ran something else; None where the kernel does not count it
    taken_at: int  # CLOCK_MONOTONIC, ns
    cpus: int  # CPUs counted
    method: str  # where ``busy_ns`` comes from
    # what it is the sum of, by name, where parts can appear and vanish; empty where it is one counter
    parts_ns: Mapping[str, int] = dataclasses.field(default_factory=dict)
    steal_of_each: Mapping[int, int] = dataclasses.field(default_factory=dict)  # CPU, by its number, where it is told
    stolen_from: tuple[int, ...] = ()  # the CPUs that ``steal_ns`` is of; empty where of all

    def of_cpus(self, cpus: Collection[int]) -> CpuSnapshot:
        """The same with the steal of some CPUs alone; as it is where these are none or all, or not all are told of."""
        if not cpus or not self.steal_of_each.keys() > {*cpus}:
            return self
        steal_ns = sum(self.steal_of_each[cpu] for cpu in cpus)
        return dataclasses.replace(self, steal_ns=steal_ns, stolen_from=tuple(cpus))

    @classmethod
    def take(cls, stat: Path = Path("/proc/stat"), hierarchies: Hierarchies | None = None) -> CpuSnapshot:
        """Read the counters now.  ``hierarchies`` saves looking for the mounts at each call.
        Raises OSError: /proc/stat cannot be read.
        """
        lines = stat.read_text().splitlines()
        taken_at = time.monotonic_ns()
        hierarchies = Hierarchies.detect() if hierarchies is None else hierarchies
        # proc_stat(5): user nice system idle iowait irq softirq steal guest guest_nice; user includes guest
        fields = [int(field) for field in lines[0].split()[1:]]
        each = [line.split() for line in lines[1:] if line.startswith("cpu")]
        fields += [0] * (7 - len(fields))
        parts_ns: dict[str, int] = {}
        if (exact := root_cpu_ns(hierarchies)) is not None:
            busy_ns, method = exact, "cgroup root"
        elif (found := group_times_ns(hierarchies)) is not None:
            busy_ns, method, parts_ns = sum(found.values()), "cgroup groups", found
        else:
            busy_ns, method = (fields[0] + fields[1] + fields[2] + fields[5] + fields[6]) * TICK_NS, IN_TICKS
        return cls(
            busy_ns=busy_ns,
            steal_ns=fields[7] * TICK_NS if len(fields) > 7 else None,
            taken_at=taken_at,
            cpus=len(each),
            method=method,
            parts_ns=parts_ns,
            steal_of_each={
                int(words[0].removeprefix("cpu")): int(words[8]) * TICK_NS for words in each if len(words) > 8
            },
        )


@dataclasses.dataclass(frozen=True)
class CpuLoad:
    """What the machine did between two snapshots; times in ns, summed over its CPUs."""

    elapsed_ns: int
    busy_ns: int
    steal_ns: int | None
    cpus: int
    method: str
    stolen_from: tuple[int, ...] = ()  # the CPUs whose steal alone it is; empty where of all

    @property
    def steal_cpus(self) -> int:
        """How many these are."""
        return len(self.stolen_from) or self.cpus

    @property
    def capacity_ns(self) -> int:
        """CPU time that existed: elapsed × CPUs."""
        return self.elapsed_ns * self.cpus

    def foreign_ns(self, own_ns: int) -> int:
        """Busy time that is not ours; never negative (the two counters are not read at the same instant)."""
        return max(0, self.busy_ns - own_ns)

    def __add__(self, other: CpuLoad) -> CpuLoad:
        return dataclasses.replace(
            self,
            elapsed_ns=self.elapsed_ns + other.elapsed_ns,
            busy_ns=self.busy_ns + other.busy_ns,
            steal_ns=None if self.steal_ns is None or other.steal_ns is None else self.steal_ns + other.steal_ns,
        )


def load_between(before: CpuSnapshot, after: CpuSnapshot) -> CpuLoad:
    """The difference of two snapshots.
    Raises ValueError: they were taken by different methods or in the wrong order.
    """
    if before.method != after.method:
        raise ValueError(f"snapshots by different methods cannot be compared: {before.method}, {after.method}")
    if after.taken_at < before.taken_at:
        raise ValueError("the second snapshot is older than the first")
    told = before.steal_ns is not None and after.steal_ns is not None and before.stolen_from == after.stolen_from
    return CpuLoad(
        elapsed_ns=after.taken_at - before.taken_at,
        busy_ns=_busy_between(before, after),
        steal_ns=max(0, (after.steal_ns or 0) - (before.steal_ns or 0)) if told else None,
        cpus=after.cpus,
        method=after.method,
        stolen_from=after.stolen_from,
    )


def _busy_between(before: CpuSnapshot, after: CpuSnapshot) -> int:
    """The difference of two counters, or the sum of their parts' differences.

    A part that has vanished tells nothing of what it did after the first snapshot.  One that is new, or that stands
    lower than before and so is another one of the same name, did all of it since; unless that is more than there was
    time for: such a process has been moved here.
    """
    if not after.parts_ns:
        return max(0, after.busy_ns - before.busy_ns)
    capacity_ns = (after.taken_at - before.taken_at) * after.cpus
    total_ns = 0
    for name, used_ns in after.parts_ns.items():
        known_ns = before.parts_ns.get(name, 0)
        since_ns = used_ns - known_ns if used_ns >= known_ns else used_ns
        total_ns += since_ns if name in before.parts_ns or since_ns <= capacity_ns else 0
    return total_ns


def available_mib(root: Path = Path("/")) -> int | None:
    """Memory that can be taken; None where the kernel does not tell."""
    lines = (text_of(root / "proc/meminfo") or "").splitlines()
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("MemAvailable:")), None)


class WatchedMachine:
    """The machine whose counters judge trials: this one.  A simulation puts one of its own in its place."""

    def snapshot(self) -> CpuSnapshot:
        return CpuSnapshot.take()

    def controller_ns(self) -> int:
        """CPU time that this process has used of it."""
        return time.process_time_ns()

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def ambient_load() -> tuple[float, list[str]]:
    """Watch the machine for a second: the share of its CPU time that everybody but this process used (0 to 1), and
    names and pids of the processes that used most of it, most first; at most three.
    """
    before, ticks_before = CpuSnapshot.take(), _ticks()
    await asyncio.sleep(1.0)
    load, ticks_after = load_between(before, CpuSnapshot.take()), _ticks()
    used = {pid: ticks - ticks_before.get(pid, ticks) for pid, ticks in ticks_after.items() if pid != os.getpid()}
    busiest = sorted((pid for pid in used if used[pid] > 0), key=lambda pid: -used[pid])[:3]
    share = load.busy_ns / load.capacity_ns if load.capacity_ns else 0.0
    return share, [f"{process_name(pid) or 'ended'} ({pid})" for pid in busiest]


def _ticks() -> dict[int, int]:
    return {pid: ticks for pid in all_pids() if (ticks := cpu_ticks(pid)) is not None}
