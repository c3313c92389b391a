"""Cgroups on every layout that machines have, on fake trees; and the real one where this machine allows it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from virtgauge.host.cgroup import Cgroup, Hierarchies, root_cpu_ns
from virtgauge.host.mounts import mounts

V1 = """\
31 23 0:28 / {root} rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / {root}/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 / {root}/freezer rw,relatime - cgroup cgroup rw,freezer
34 31 0:31 / {root}/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
"""
V2 = "35 31 0:38 / {root}/unified rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def hierarchies(tmp_path: Path, text: str) -> Hierarchies:
    root = tmp_path / "cg"
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(text.format(root=root))
    found = Hierarchies.detect(mountinfo)
    for folder in found.all_roots():
        folder.mkdir(parents=True)
    return found


def test_the_layouts_are_told_apart(tmp_path: Path) -> None:
    for text in (V1, V2, V1 + V2, ""):
        folder = tmp_path / str(len(text))
        folder.mkdir()
        found = hierarchies(folder, text)
        assert (bool(found.v1), found.v2 is not None) == (V1 in text, V2 in text)


def test_controllers_of_one_mount_are_found_under_each_name_and_named_hierarchies_are_no_controllers(
    tmp_path: Path,
) -> None:
    found = hierarchies(tmp_path, V1)
    root = tmp_path / "cg"
    assert found.v1 == {"cpu": root / "cpu,cpuacct", "cpuacct": root / "cpu,cpuacct", "freezer": root / "freezer"}
    assert found.named == (root / "systemd",)
    assert found.all_roots() == [root / "cpu,cpuacct", root / "freezer", root / "systemd"]


def test_a_mount_point_with_blanks_is_read(tmp_path: Path) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text("35 31 0:38 / /a\\040b rw - cgroup2 cgroup2 rw\n")
    assert Hierarchies.detect(mountinfo).v2 == Path("/a b")


def test_a_mount_may_have_any_name(tmp_path: Path) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_bytes(b"35 31 0:38 / /\xff\xc2\x85b rw - fuse x rw\n36 31 0:39 / /c rw - cgroup2 cgroup2 rw\n")
    assert [os.fsencode(mount.point) for mount in mounts(mountinfo)] == [b"/\xff\xc2\x85b", b"/c"]


def test_v1_joins_what_counts_and_what_freezes_only(tmp_path: Path) -> None:
    found = hierarchies(
        tmp_path, V1.replace("cpu,cpuacct", "cpuacct") + "40 31 0:40 / {root}/cpu rw - cgroup c rw,cpu\n"
    )
    group = Cgroup("virtgauge/vg000000/host", found)
    assert group.create()
    assert (found.v1["cpuacct"] / group.name).is_dir()
    assert (found.v1["freezer"] / group.name).is_dir()
    assert not (found.v1["cpu"] / "virtgauge").exists(), "group scheduling would change what is measured"


def test_cpu_time_is_read_in_nanoseconds_from_either_version(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    v1, v2 = Cgroup("g", hierarchies(old, V1)), Cgroup("g", hierarchies(new, V2))
    assert v1.cpu_ns() is None
    assert v1.create()
    assert v2.create()
    (old / "cg/cpu,cpuacct/g/cpuacct.usage").write_text("123456789\n")
    (new / "cg/unified/g/cpu.stat").write_text("usage_usec 77\nuser_usec 70\nsystem_usec 7\n")
    assert (v1.cpu_ns(), v1.method) == (123456789, "cgroup cpuacct")
    assert (v2.cpu_ns(), v2.method) == (77_000, "cgroup cpu.stat")


def test_the_account_of_a_group_that_was_made_anew_is_read_and_not_the_old_one(tmp_path: Path) -> None:
    found = hierarchies(tmp_path, V1)
    group = Cgroup("g", found)
    file = found.v1["cpuacct"] / "g/cpuacct.usage"
    open_before = len(os.listdir("/proc/self/fd"))
    for counted in (5, 17):
        assert group.create()
        file.write_text(f"{counted}\n")
        assert group.cpu_ns() == counted
        assert len(os.listdir("/proc/self/fd")) == open_before
        group.keep_account_open()
        assert len(os.listdir("/proc/self/fd")) == open_before + 1
        assert group.cpu_ns() == counted
        file.write_text(f"{counted + 1000}\n")
        assert group.cpu_ns() == counted + 1000
        file.unlink()  # a real one goes with its group
        group.remove()
        assert group.cpu_ns() is None
        assert len(os.listdir("/proc/self/fd")) == open_before


def test_without_cgroups_there_is_a_reason_and_joining_does_nothing() -> None:
    group = Cgroup("g", Hierarchies(v1={}, v2=None))
    with group.entrance() as join:
        join()
    group.keep_account_open()
    assert group.reason is not None
    assert group.cpu_ns() is None


def test_a_tree_that_cannot_be_written_is_a_reason_and_no_error(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    group = Cgroup("g", Hierarchies(v1={}, v2=in_the_way))
    assert not group.create()
    assert group.reason is not None
    assert str(in_the_way / "g") in group.reason


def test_entering_writes_oneself_into_every_joined_group(tmp_path: Path) -> None:
    found = hierarchies(tmp_path, V1)
    group = Cgroup("g", found)
    group.create()
    files = [root / "g/cgroup.procs" for root in (found.v1["cpuacct"], found.v1["freezer"])]
    for file in files:
        file.touch()
    with group.entrance() as join:
        join()
    assert [file.read_text() for file in files] == ["0", "0"]


def test_pids_are_gathered_over_groups_below_and_over_hierarchies(tmp_path: Path) -> None:
    found = hierarchies(tmp_path, V1 + V2)
    group = Cgroup("g", found)
    for path, text in (
        ("freezer/g", "5000005\n5000003\n"),
        ("freezer/g/below", "5000008\n"),
        ("unified/g", "5000003\n0\n"),
    ):
        folder = tmp_path / "cg" / path
        folder.mkdir(parents=True)
        (folder / "cgroup.procs").write_text(text)
    assert group.pids() == [5_000_003, 5_000_005, 5_000_008]  # above the kernel's own


def test_removal_takes_empty_parents_spares_others_and_can_be_repeated(tmp_path: Path) -> None:
    found = hierarchies(tmp_path, V2)
    assert found.v2 is not None
    one, other = Cgroup("virtgauge/vg000001/a", found), Cgroup("virtgauge/vg000002/b", found)
    one.create()
    other.create()
    (found.v2 / one.name / "nested").mkdir()
    assert one.remove()
    assert one.remove()
    assert not (found.v2 / "virtgauge/vg000001").exists()
    assert (found.v2 / other.name).is_dir()
    assert other.remove()
    assert list(found.v2.iterdir()) == []


def test_a_name_cannot_leave_the_tree() -> None:
    for name in ("/etc", "a/../../b"):
        with pytest.raises(ValueError, match="relative"):
            Cgroup(name)


def test_the_root_is_trusted_only_where_it_is_one(tmp_path: Path) -> None:
    found = hierarchies(tmp_path, V1)
    root = found.v1["cpuacct"]
    (root / "cpuacct.usage").write_text("5\n")
    assert root_cpu_ns(found) is None, "a container's own group has no release_agent"
    (root / "release_agent").touch()
    assert root_cpu_ns(found) == 5


def test_a_real_group_counts_kills_and_vanishes() -> None:
    group = Cgroup(f"virtgauge/vgtest-{os.getpid()}/g")
    if not group.create():
        assert os.geteuid() != 0 or not Hierarchies.detect().all_roots(), group.reason
        return
    try:
        with group.entrance() as join:
            process = subprocess.Popen(["sh", "-c", "sleep 60 & i=0; while :; do i=$((i+1)); done"], preexec_fn=join)
        while (group.cpu_ns() or 0) < 20_000_000 or len(group.pids()) < 2:
            assert process.poll() is None
        assert len(group.pids()) == 2
        assert group.kill_all()
        assert group.pids() == []
        assert process.wait() == -9
    finally:
        group.kill_all()
        assert group.remove()


def test_a_group_that_a_killed_controller_left_frozen_below_is_killed_too() -> None:
    outer, inner = Cgroup(f"virtgauge/vgtest-{os.getpid()}"), Cgroup(f"virtgauge/vgtest-{os.getpid()}/g")
    if not inner.create():
        assert os.geteuid() != 0 or not Hierarchies.detect().all_roots(), inner.reason
        return
    with inner.entrance() as join, subprocess.Popen(["sleep", "60"], preexec_fn=join) as process:
        try:
            for root in Hierarchies.detect().all_roots():
                for knob, frozen in (("freezer.state", "FROZEN"), ("cgroup.freeze", "1")):
                    if (root / inner.name / knob).exists():
                        (root / inner.name / knob).write_text(frozen)
            assert outer.kill_all()
            assert process.wait(5) == -9
        finally:
            inner.kill_all()
            process.wait()
            inner.remove()
