"""Disk images: what is made, mounted and taken away again."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from virtgauge.host import mounts
from virtgauge.host.mounts import (
    DETACH,
    MS_SHARED,
    DiskImageError,
    make_disk_image,
    mount_disk_image,
    unmount_disk_image,
)
from virtgauge.host.process import in_daemon

MIB = 1024 * 1024


def mounted_on(folder: Path) -> list[str]:
    return [line for line in Path("/proc/self/mounts").read_text().splitlines() if line.split()[1] == str(folder)]


def test_an_image_is_whole_reserved_and_the_same_each_time(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for image in (one, other):
        make_disk_image(image, 16)
    assert one.stat().st_size == 16 * MIB
    assert one.stat().st_blocks * 512 >= 16 * MIB, "its blocks are reserved, so that the host's disk cannot fill first"
    assert one.stat().st_mode & 0o777 == 0o600
    assert one.read_bytes() == other.read_bytes()


def test_what_is_there_already_is_not_overwritten(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_text("precious")
    with pytest.raises(DiskImageError, match="cannot be made"):
        make_disk_image(image, 16)
    assert image.read_text() == "precious"


def test_a_size_that_cannot_be_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    image = tmp_path / "image"
    with pytest.raises(ValueError, match="16 MiB is the least"):
        make_disk_image(image, 15)
    with pytest.raises(DiskImageError, match=r"no \d+ MiB left") as caught:
        make_disk_image(image, 8 * 1024 * 1024)
    assert caught.value.remedy is not None
    assert not image.exists()


def test_a_machine_without_mkfs_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "_MKFS", ("mkfs.ext4-that-is-not-there",))
    with pytest.raises(DiskImageError, match="not installed") as caught:
        make_disk_image(tmp_path / "image", 16)
    assert caught.value.remedy == "apt install e2fsprogs"
    assert list(tmp_path.iterdir()) == []


def test_what_mkfs_says_is_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "_MKFS", ("sh", "-c", "echo first; echo the reason >&2; exit 1"))
    with pytest.raises(DiskImageError, match="the reason"):
        make_disk_image(tmp_path / "image", 16)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("root")
def test_a_mount_keeps_what_was_written_and_goes_without_a_trace(tmp_path: Path) -> None:
    image, folder = tmp_path / "image", tmp_path / "deep" / "folder"
    make_disk_image(image, 16)
    try:
        assert mount_disk_image(image, folder).startswith("loop device, ")
        options = mounted_on(folder)[0].split()[3].split(",")
        assert {"rw", "nosuid", "nodev"} <= set(options)
        (folder / "file").write_text("kept")
    finally:
        unmount_disk_image(folder)
    assert mounted_on(folder) == []
    unmount_disk_image(folder)  # nothing is mounted: nothing happens
    backing = [path.read_text().strip() for path in Path("/sys/block").glob("loop*/loop/backing_file")]
    assert str(image) not in backing
    try:
        mount_disk_image(image, folder)
        assert (folder / "file").read_text() == "kept"
    finally:
        unmount_disk_image(folder)


@pytest.mark.usefixtures("root")
def test_a_program_that_never_leaves_loses_sight_of_the_mount_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "_UNMOUNT_S", 0.2)
    image, folder = tmp_path / "image", tmp_path / "folder"
    make_disk_image(image, 16)
    mount_disk_image(image, folder)
    with (folder / "file").open("w"):
        unmount_disk_image(folder)
        assert mounted_on(folder) == []


@pytest.mark.usefixtures("root")
def test_what_is_no_image_is_an_error_and_leaves_no_device(tmp_path: Path) -> None:
    junk = tmp_path / "junk"
    junk.write_bytes(os.urandom(MIB))
    for image in (tmp_path / "missing", junk):
        with pytest.raises(DiskImageError):
            mount_disk_image(image, tmp_path / "folder")
        backing = [path.read_text().strip() for path in Path("/sys/block").glob("loop*/loop/backing_file")]
        assert str(image) not in backing


@pytest.mark.parametrize(("user", "remedy"), [(1000, "as root"), (0, "modprobe loop")])
def test_a_machine_that_gives_no_loop_device_is_told_what_would_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, remedy: str
) -> None:
    def refuse(*_: object, **_options: object) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), "/dev/loop-control")

    monkeypatch.setattr(mounts, "open", refuse, raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    image = tmp_path / "image"
    make_disk_image(image, 16)
    with pytest.raises(DiskImageError) as caught:
        mount_disk_image(image, tmp_path / "folder")
    assert remedy in (caught.value.remedy or "")


@pytest.mark.usefixtures("root")
def test_a_threads_own_mounts_are_seen_by_nobody_and_hold_none_that_the_host_unmounts(tmp_path: Path) -> None:
    mounts.mount(Path("none"), tmp_path, "tmpfs")
    try:
        mounts.checked(mounts.LIBC.mount(b"none", os.fsencode(tmp_path), None, MS_SHARED, None))
        for name in ("host", "own"):
            (tmp_path / name).mkdir()
        mounts.mount(Path("none"), tmp_path / "host", "tmpfs")
        unshared, unmounted = threading.Event(), threading.Event()

        def inside() -> list[str]:
            try:
                mounts.unshare_mounts()
                mounts.mount(Path("none"), tmp_path / "own", "tmpfs")
            finally:
                unshared.set()
            unmounted.wait(60)
            every = mounts.mounts(Path("/proc/thread-self/mountinfo"))
            return [one.point.name for one in every if one.point.parent == tmp_path]

        thread = in_daemon(inside, "unshared")
        assert unshared.wait(60)
        assert not mounted_on(tmp_path / "own")
        mounts.unmount(tmp_path / "host")
        unmounted.set()
        assert thread.result(60) == ["own"]
    finally:
        mounts.unmount(tmp_path, DETACH)
