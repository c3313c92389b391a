"""A disk image of the user's own: where its root is, and what becomes of a qcow2."""

from __future__ import annotations

import asyncio
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path

import pytest
from platforms.disk_checks import partitions
from pydantic import ValidationError

from virtgauge.errors import UnavailableError
from virtgauge.platforms import create
from virtgauge.platforms.disk_image import OwnDiskImage, largest_partition

SIZE = 1 << 20


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/virtgauge/disk-images"


@pytest.fixture
def qcow2(tmp_path: Path) -> Path:
    if shutil.which("qemu-img") is None:
        pytest.skip("qemu-img is not installed: virtgauge provision qemu-img")
    raw = tmp_path / "content.raw"
    raw.write_bytes(b"content".ljust(SIZE, b"\0"))
    subprocess.run(["qemu-img", "convert", "-q", "-f", "raw", "-O", "qcow2", raw, tmp_path / "image"], check=True)
    return tmp_path / "image"


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """In place of qemu-img."""
    (folder / "qemu-img").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "qemu-img").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_it_is_the_largest_partition_or_the_whole_image(tmp_path: Path) -> None:
    """As in a cloud image: the boot loader's first, the root behind it."""
    image = tmp_path / "image.raw"
    image.write_bytes(bytes(4096))
    assert largest_partition(image) == 0
    image.write_bytes(partitions([(2048, 8191), (262144, 4194270), (8192, 262143)]))
    assert largest_partition(image) == 262144 * 512


async def test_a_raw_image_is_taken_as_it_is(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "image").write_bytes(bytes(4096))
    settings = OwnDiskImage(disk_image=tmp_path / "image")
    assert (await settings.raw_image(), settings.image_parts) == (tmp_path / "image", ())
    assert await OwnDiskImage().raw_image() is None
    assert not cache.exists()


async def test_a_qcow2_is_converted_once_for_its_content(
    qcow2: Path, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = OwnDiskImage(disk_image=qcow2)
    assert settings.image_parts == ("qemu-img",)
    first = await settings.raw_image()
    assert first is not None
    assert first.read_bytes() == b"content".ljust(SIZE, b"\0")
    with monkeypatch.context() as without:
        without.setenv("PATH", str(tmp_path / "nowhere"))
        assert await settings.raw_image() == first
    subprocess.run(["qemu-io", "-f", "qcow2", "-c", "write -q -P 7 0 512", qcow2], check=True)
    again = await settings.raw_image()
    assert again is not None
    assert again.read_bytes() == b"\7" * 512 + bytes(SIZE - 512)
    for days, older in enumerate((again, first), start=1):
        os.utime(older, (time.time() - days * 86_400,) * 2)
    for number in range(3):
        await OwnDiskImage(disk_image=shutil.copy(qcow2, tmp_path / f"copy{number}")).raw_image()
    assert len(list(cache.iterdir())) == 4, "the last ones"
    assert not first.exists()
    assert again.exists()


async def test_without_qemu_img_the_command_that_installs_it_is_told(
    qcow2: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(UnavailableError, match="qemu-img is not installed") as caught:
        await OwnDiskImage(disk_image=qcow2).raw_image()
    assert caught.value.remedy == "apt install qemu-utils"
    assert list(cache.iterdir()) == []


async def test_a_copy_that_somebody_removes_is_not_told_as_a_missing_qemu_img(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "image").write_bytes(struct.pack(">4sIQ", b"QFI\xfb", 2, 0))
    stand_in(tmp_path, monkeypatch, 'for last; do :; done; rm "$last"')
    with pytest.raises(UnavailableError, match=r"disk_image: .*/\.partial-.*: No such file"):
        await OwnDiskImage(disk_image=tmp_path / "image").raw_image()
    assert list(cache.iterdir()) == []


async def test_a_broken_qcow2_is_an_error_with_qemu_imgs_words(qcow2: Path, cache: Path) -> None:
    with qcow2.open("r+b") as file:
        file.seek(4)
        file.write(struct.pack(">I", 9))  # of a version that is to come
    with pytest.raises(UnavailableError, match="image cannot be converted: qemu-img: "):
        await OwnDiskImage(disk_image=qcow2).raw_image()
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    "header",
    [
        struct.pack(">4sIQ", b"QFI\xfb", 2, 512),  # with a backing file
        struct.pack(">4sIQ56xQ", b"QFI\xfb", 3, 0, 4),  # with its content in a file of its own
    ],
)
async def test_a_part_of_an_image_is_refused(header: bytes, tmp_path: Path, cache: Path) -> None:
    """The rest may change unnoticed, and any file of this machine can be named as it."""
    (tmp_path / "part").write_bytes(header)
    with pytest.raises(UnavailableError, match="rest is in another file") as caught:
        await OwnDiskImage(disk_image=tmp_path / "part").raw_image()
    assert str(caught.value.remedy).startswith("qemu-img convert -O qcow2 ")
    assert not cache.exists()


async def test_a_conversion_that_is_given_up_leaves_neither_file_nor_process(
    qcow2: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does one whose controller was killed, once there is another."""
    cache.mkdir(parents=True)
    (cache / ".partial-999999999-x").touch()
    stand_in(tmp_path, monkeypatch, f"echo $$ > {tmp_path}/pid; exec sleep 60")
    task = asyncio.create_task(OwnDiskImage(disk_image=qcow2).raw_image())
    while not (tmp_path / "pid").is_file() or not (tmp_path / "pid").read_text():
        await asyncio.sleep(0.01)
    assert [path.name.split("-")[1] != "999999999" for path in cache.iterdir()] == [True]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list(cache.iterdir()) == []
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        ("xen", {}, "a domain of Xen has no folders of this machine"),
        ("libvirt", {"uri": "xen:///"}, "a domain of Xen has no folders of this machine"),
        ("libvirt", {"uri": "qemu+ssh://far/system"}, "disk_image means nothing here"),
        ("libvirt", {"uri": "lxc:///"}, "disk_image means nothing here"),
        ("libvirt", {"image": "a.qcow2"}, "disk_image means nothing here: an image has its own"),
    ],
)
def test_where_guests_have_no_folders_it_is_refused(
    kind: str, settings: dict[str, object], said: str, tmp_path: Path
) -> None:
    (tmp_path / "image").touch()
    with pytest.raises(ValidationError, match=said):
        create(kind, {**settings, "disk_image": str(tmp_path / "image")})


def test_what_converts_it_is_provided_with_the_platform(tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"QFI\xfb")
    for kind in ("qemu", "uml", "libvirt"):
        assert "qemu-img" in create(kind, {"disk_image": str(tmp_path / "image")}).needs()
        assert "qemu-img" not in create(kind, {}).needs()
