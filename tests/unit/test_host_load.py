"""How busy the machine was between two snapshots."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from virtgauge.host.cgroup import Hierarchies
from virtgauge.host.load import CpuSnapshot, load_between

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
NO_CGROUPS = Hierarchies(v1={}, v2=None)


def snapshot(tmp_path: Path, line: str, cpus: int = 2) -> CpuSnapshot:
    stat = tmp_path / "stat"
    stat.write_text("\n".join([f"cpu  {line}", *(f"cpu{n} 1 1 1 1" for n in range(cpus)), "intr 7"]))
    return CpuSnapshot.take(stat, NO_CGROUPS)


def test_busy_is_everything_but_idle_waiting_steal_and_guests_counted_twice(tmp_path: Path) -> None:
    taken = snapshot(tmp_path, "1 2 4 1000 2000 8 16 32 500 500")
    assert taken.busy_ns == (1 + 2 + 4 + 8 + 16) * TICK_NS
    assert taken.steal_ns == 32 * TICK_NS
    assert (taken.cpus, taken.method) == (2, "/proc/stat")


def test_a_kernel_without_steal_gives_none_and_not_zero(tmp_path: Path) -> None:
    before, after = snapshot(tmp_path, "1 1 1 1"), snapshot(tmp_path, "3 1 1 1")
    assert before.steal_ns is None
    difference = load_between(before, after)
    assert difference.steal_ns is None
    assert difference.busy_ns == 2 * TICK_NS


def test_the_root_cgroup_is_preferred_because_it_is_exact(tmp_path: Path) -> None:
    (tmp_path / "cpuacct.usage").write_text("1234567891\n")
    (tmp_path / "release_agent").touch()
    stat = tmp_path / "stat"
    stat.write_text("cpu  1 1 1 1 1 1 1 1\ncpu0 1\n")
    taken = CpuSnapshot.take(stat, Hierarchies(v1={"cpuacct": tmp_path}, v2=None))
    assert (taken.busy_ns, taken.method) == (1234567891, "cgroup root")


def test_capacity_and_foreign_load_follow_from_the_difference() -> None:
    before = CpuSnapshot(busy_ns=100, steal_ns=0, taken_at=1000, cpus=4, method="m")
    after = CpuSnapshot(busy_ns=400, steal_ns=10, taken_at=1100, cpus=4, method="m")
    load = load_between(before, after)
    assert (load.elapsed_ns, load.capacity_ns, load.busy_ns, load.steal_ns) == (100, 400, 300, 10)
    assert load.foreign_ns(250) == 50
    assert load.foreign_ns(350) == 0


def test_snapshots_that_cannot_be_compared_are_refused() -> None:
    one = CpuSnapshot(busy_ns=1, steal_ns=None, taken_at=5, cpus=1, method="cgroup root")
    with pytest.raises(ValueError, match="methods"):
        load_between(one, CpuSnapshot(busy_ns=1, steal_ns=None, taken_at=6, cpus=1, method="/proc/stat"))
    with pytest.raises(ValueError, match="older"):
        load_between(one, CpuSnapshot(busy_ns=1, steal_ns=None, taken_at=4, cpus=1, method="cgroup root"))


def test_this_machine_is_seen_to_work() -> None:
    before = CpuSnapshot.take()
    start = time.thread_time_ns()
    while time.thread_time_ns() - start < 60_000_000:
        pass
    load = load_between(before, CpuSnapshot.take())
    assert load.busy_ns >= 60_000_000 - 2 * TICK_NS
    assert load.busy_ns <= load.capacity_ns * 1.2 + 4 * TICK_NS
