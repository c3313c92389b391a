"""How busy the machine was between two snapshots."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from virtgauge.host.cgroup import Hierarchies, group_times_ns, root_cpu_ns, times_below_ns
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


def test_the_steal_of_some_cpus_is_told_by_itself(tmp_path: Path) -> None:
    def taken(ticks: int) -> CpuSnapshot:
        (tmp_path / "stat").write_text(
            f"cpu  9 0 0 0 0 0 0 {9 + ticks} 0 0\ncpu0 1 0 0 0 0 0 0 9 0 0\ncpu1 1 0 0 0 0 0 0 {ticks} 0 0\nintr 7\n"
        )
        return CpuSnapshot.take(tmp_path / "stat", NO_CGROUPS)

    before, after = taken(3), taken(10)
    own = load_between(before.of_cpus((1,)), after.of_cpus((1,)))
    assert (own.steal_ns, own.steal_cpus, own.stolen_from, own.cpus) == (7 * TICK_NS, 1, (1,), 2)
    assert load_between(before.of_cpus((0,)), after.of_cpus((0,))).steal_ns == 0
    assert before.of_cpus((0, 1)) is before.of_cpus((1, 2)) is before.of_cpus(()) is before
    assert load_between(before, after.of_cpus((1,))).steal_ns is None


def test_snapshots_that_cannot_be_compared_are_refused() -> None:
    one = CpuSnapshot(busy_ns=1, steal_ns=None, taken_at=5, cpus=1, method="cgroup root")
    with pytest.raises(ValueError, match="methods"):
        load_between(one, CpuSnapshot(busy_ns=1, steal_ns=None, taken_at=6, cpus=1, method="/proc/stat"))
    with pytest.raises(ValueError, match="older"):
        load_between(one, CpuSnapshot(busy_ns=1, steal_ns=None, taken_at=4, cpus=1, method="cgroup root"))


def in_parts(taken_at: int, **parts_ns: int) -> CpuSnapshot:
    return CpuSnapshot(sum(parts_ns.values()), 0, taken_at, 2, "cgroup groups", parts_ns)


def test_groups_that_vanish_or_appear_between_snapshots_neither_take_busy_time_away_nor_add_what_is_older() -> None:
    before = in_parts(0, stays=1000, vanishes=50_000, made_anew=300)
    assert load_between(before, in_parts(100, stays=1040, made_anew=20)).busy_ns == 60
    assert load_between(before, in_parts(100, stays=1040, appears=150)).busy_ns == 190
    moved_here = in_parts(100, stays=1040, moved=201)  # more than two CPUs can have done meanwhile
    assert load_between(before, moved_here).busy_ns == 40


def test_groups_of_the_v2_tree_are_counted_where_all_processes_are_in_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, used_us in (("init.scope", 5), ("system.slice", 700)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cpu.stat").write_text(f"usage_usec {used_us}\nuser_usec 1\n")
    (tmp_path / "cgroup.procs").write_text("2\n17\n18\n")
    clocks = {1: 5, 2: 100, 17: 30}  # 18 has ended
    monkeypatch.setattr("virtgauge.host.cgroup.cpu_clock_ns", clocks.get)
    monkeypatch.setattr("virtgauge.host.cgroup.kernel_threads_visible", lambda: True)
    stat = tmp_path / "stat"
    stat.write_text("cpu  1 1 1 1 1 1 1 1\ncpu0 1\n")
    tree = Hierarchies(v1={}, v2=tmp_path)
    taken = CpuSnapshot.take(stat, tree)
    assert (taken.busy_ns, taken.method) == (705_130, "cgroup groups")
    (tmp_path / "cgroup.procs").write_text("1\n2\n17\n")
    assert CpuSnapshot.take(stat, tree).method == "/proc/stat", "short-lived processes would be missed"
    (tmp_path / "cgroup.procs").write_text("17\n")
    assert CpuSnapshot.take(stat, tree).method == "/proc/stat", "the kernel's threads are not counted"
    (tmp_path / "cgroup.procs").write_text("2\n17\n")
    (tmp_path / "cgroup.events").touch()
    assert CpuSnapshot.take(stat, tree).method == "/proc/stat", "a container's own group has events"
    (tmp_path / "cgroup.events").unlink()
    monkeypatch.setattr("virtgauge.host.cgroup.kernel_threads_visible", lambda: False)
    assert CpuSnapshot.take(stat, tree).method == "/proc/stat", "a PID namespace hides processes"


@pytest.mark.slow
def test_the_v2_tree_tells_what_a_group_and_a_process_in_none_have_used_and_no_more_than_the_v1_root() -> None:
    found = Hierarchies.detect()
    if found.v2 is None or not os.access(found.v2 / "cgroup.procs", os.W_OK):  # no such tree here, or not ours
        assert os.geteuid() != 0 or group_times_ns(found) is None
        return
    group = found.v2 / f"vgtest-{os.getpid()}"
    group.mkdir()
    burn = "import time\nwhile time.process_time() < 0.4: pass\nprint(time.process_time_ns(), flush=True)\ninput()"
    command = [sys.executable, "-c", burn]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        (group / "cgroup.procs").write_text(str(processes[0].pid))
        exact, before = root_cpu_ns(found), times_below_ns(found.v2)
        used = [int(process.stdout.readline()) for process in processes if process.stdout]
        after, exact_then = times_below_ns(found.v2), root_cpu_ns(found)
        inside = after[group.name] - before.get(group.name, 0)
        outside = after[str(processes[1].pid)] - before.get(str(processes[1].pid), 0)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
        deadline = time.monotonic() + 10
        while group.is_dir() and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                group.rmdir()
    # Each has used a little before the first look, and after its own.
    assert 0.2e9 < inside < used[0] + 0.1e9
    assert 0.2e9 < outside < used[1] + 0.1e9
    whole = load_between(in_parts(0, **before), in_parts(10**12, **after)).busy_ns
    assert inside + outside <= whole
    if exact is not None and exact_then is not None:
        assert whole <= exact_then - exact + TICK_NS * (os.cpu_count() or 1)  # v1 counts what runs at its next tick


def test_this_machine_is_seen_to_work() -> None:
    before = CpuSnapshot.take()
    start = time.thread_time_ns()
    while time.thread_time_ns() - start < 60_000_000:
        pass
    load = load_between(before, CpuSnapshot.take())
    assert load.busy_ns >= 60_000_000 - 2 * TICK_NS
    assert load.busy_ns <= load.capacity_ns * 1.2 + 4 * TICK_NS
