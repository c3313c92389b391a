"""Guests with a disk of their own, on every platform that is made of processes on this host."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from platforms import guest_checks as check
from platforms.conftest import kept_in_loops, loop_files, require, running, traces
from platforms.disk_checks import PLATFORMS as COMMON
from platforms.disk_checks import disk, flushes_of_loop, shell
from sampled import on, sampled

from virtgauge.errors import UnavailableError
from virtgauge.host.scope import Scope
from virtgauge.host.tag import scratch_root
from virtgauge.platforms import create
from virtgauge.platforms.base import Disk, Guest, GuestSpec, LaunchError, Platform, Share
from virtgauge.platforms.qemu.platform import QemuGuest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
Spec = Callable[..., GuestSpec]
PLATFORMS = {**COMMON, "uml": ("uml", {})}


@pytest.fixture
async def platform(request: pytest.FixtureRequest, private_state: Path) -> Platform:
    kind, settings = PLATFORMS[request.param]
    platform = create(kind, settings)
    require(await platform.probe(), request.param)
    return platform


async def flushes(guest: Guest, image: Path) -> int:
    """What reached the file behind the guest's disk, counted outside of the guest."""
    if not isinstance(guest, QemuGuest):
        return flushes_of_loop(image)
    statistics: Any = await guest._monitor.execute("query-blockstats")
    return int(statistics[0]["stats"]["flush_operations"])


@on("host runc runsc uml microvm")
async def test_two_disks_are_each_an_image_of_its_own(platform: Platform, scope: Scope, spec: Spec) -> None:
    """What is written to the second is in the second image, also for a guest to which it is the only one."""
    data, log = disk(scope, 64), disk(scope, 32, "log")
    async with running(platform, spec(disks=(data, log), host_root=True)) as guest:
        script = f"echo of-data >{data.folder}/file; echo of-log >{log.folder}/file; df -m --output=size"
        code, output = await shell(guest, f"{script} {data.folder} {log.folder}")
        assert code == 0, output
        first, second = map(int, output.split()[-2:])
        assert first > 1.5 * second
    assert not kept_in_loops(data.image, log.image)
    async with running(platform, spec(disks=(log,), host_root=True)) as guest:
        assert await shell(guest, f"cat {log.folder}/file") == (0, "of-log\n")


@on("host runc runsc uml", "microvm")
async def test_what_is_written_stays_for_the_next_guest(platform: Platform, scope: Scope, spec: Spec) -> None:
    """Nothing is flushed, and the writer is killed: what the guest's kernel has, an orderly end writes back."""
    data = disk(scope, 64)
    async with running(platform, spec(disks=(data,), host_root=True)) as guest:
        assert guest.disk is not None
        script = "(dd if=/dev/zero bs=1M count=8; echo end; kill -9 $$) > file 2>/dev/null"
        code, output = await shell(guest, f"cd {data.folder} && (sh -c '{script}'; stat -c %s file)")
        assert code == 0, output
        assert str(8 * 1024 * 1024 + 4) in output.splitlines()
    assert not kept_in_loops(data.image)
    async with running(platform, spec(disks=(data,), host_root=True)) as guest:
        code, output = await shell(guest, f"cd {data.folder} && stat -c %s file && tail -c 4 file")
        assert (code, output) == (0, f"{8 * 1024 * 1024 + 4}\nend\n")


@on("host runc runsc microvm", "uml")
async def test_a_flush_in_the_guest_is_a_flush_of_the_image(platform: Platform, scope: Scope, spec: Spec) -> None:
    data = disk(scope, 32)
    async with running(platform, spec(disks=(data,), host_root=True)) as guest:
        before = await flushes(guest, data.image)
        code, output = await shell(guest, f"cd {data.folder}; for i in 1 2 3 4 5; do echo $i > file; sync file; done")
        assert (code, output) == (0, "")
        assert await flushes(guest, data.image) >= before + 5


@on("host runc runsc", "microvm uml")
async def test_a_full_disk_is_full_for_every_user_and_only_there(platform: Platform, scope: Scope, spec: Spec) -> None:
    data = disk(scope, 16)
    async with running(platform, spec(disks=(data,), host_root=True)) as guest:
        code, output = await shell(guest, f"dd if=/dev/zero of={data.folder}/file bs=64k count=1000")
        assert code == 1
        assert "No space left on device" in output
        code, output = await shell(guest, "echo fine > /tmp/file && cat /tmp/file && rm /tmp/file")
        assert (code, output) == (0, "fine\n")


@on("host runc runsc uml", "microvm")
async def test_shares_are_there_and_written_through(
    platform: Platform, scope: Scope, spec: Spec, tmp_path: Path
) -> None:
    """A share for writing is the host's own folder; one for reading cannot be changed (but on the host)."""
    writable, readable = tmp_path / "a, b", tmp_path / "c"
    for folder in (writable, readable):
        folder.mkdir()
        (folder / "file").write_text("hosts\n")
    shares = (Share(writable, writable=True), Share(readable))
    async with running(platform, spec(host_root=True, shares=shares)) as guest:
        code, output = await shell(guest, f"cat '{readable}/file' && cd '{writable}' && cat file && echo guests > new")
        assert (code, output) == (0, "hosts\nhosts\n")
        assert (writable / "new").read_text() == "guests\n"
        (writable / "file").write_text("changed\n")
        assert (await shell(guest, f"cat '{writable}/file'"))[1] == "changed\n"
        code, output = await shell(guest, f"echo x > '{readable}/file'")
        assert (code == 0) is (guest.label == "host")


@on("host runc runsc microvm uml")
async def test_only_a_kernel_of_its_own_can_crash(platform: Platform, scope: Scope, spec: Spec) -> None:
    """What was flushed is there for the next guest; what was only written is gone with the kernel."""
    data = disk(scope, 32)
    async with running(platform, spec(disks=(data,), host_root=True)) as guest:
        script = f"cd {data.folder} && echo kept > flushed && sync flushed . && echo lost > written && cat written"
        assert (await shell(guest, script)) == (0, "lost\n")
        if not platform.is_virtual:
            with pytest.raises(UnavailableError, match="no kernel of its own"):
                await guest.crash()
            return
        await guest.crash()
    async with running(platform, spec(disks=(data,), host_root=True)) as guest:
        code, output = await shell(guest, f"cd {data.folder} && cat flushed && cat written || true")
        assert code == 0
        assert "kept" in output
        assert "lost" not in output


@pytest.mark.parametrize("name", sampled(["host", "runc", "runsc", "uml"], ["microvm"]))
async def test_an_image_that_is_none_is_a_launch_error_and_nothing_is_left(
    name: str, scope: Scope, spec: Spec, tmp_path: Path
) -> None:
    kind, settings = PLATFORMS[name]
    junk = tmp_path / "junk.img"
    junk.write_bytes(os.urandom(1 << 20))
    for image, stage in ((tmp_path / "missing.img", "disk"), (junk, "boot" if kind in ("qemu", "uml") else "disk")):
        asked = spec(disks=(Disk(image, scope.folder / "data"),))
        with pytest.raises(LaunchError, match=r"(?s)cannot be (opened|mounted)|cannot mount") as caught:
            await create(kind, settings).launch(asked)
        assert caught.value.stage == stage
        assert traces(f"{scope.tag}/{asked.name}") == []
        assert str(image) not in loop_files()  # at once: it was never mounted, so that nobody can have a copy


async def test_more_shares_than_the_kernel_can_be_told_of_are_refused(scope: Scope, spec: Spec, tmp_path: Path) -> None:
    platform = create("qemu", PLATFORMS["microvm"][1])
    require(await platform.probe(), "qemu")
    shares = tuple(Share(tmp_path / f"{number:02}-{'x' * 100}") for number in range(20))
    with pytest.raises(LaunchError, match="share fewer folders"):
        await platform.launch(spec(host_root=True, shares=shares))


def test_a_disk_belongs_where_the_reclaim_finds_its_mount(scope: Scope, spec: Spec, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="belongs below"):
        spec(disks=(Disk(tmp_path / "disk.img", tmp_path / "data"),))


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_killed_controllers_disk_is_reclaimed(name: str, private_state: Path) -> None:
    kind, settings = PLATFORMS[name]
    tag = check.check_a_killed_controller_is_reclaimed(kind, json.dumps(settings), disk_mib=16)
    assert not (scratch_root() / tag).exists()
