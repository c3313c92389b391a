"""Sandboxes by Bubblewrap, which this machine must have."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from platforms import guest_checks as check
from platforms.conftest import burnt_share, require, running
from platforms.disk_checks import disk, shell
from platforms.network_checks import check_a_guest_answers_from_its_lab_only, check_a_guest_routes

from virtgauge.host.scope import Scope
from virtgauge.platforms.base import GuestSpec, Share
from virtgauge.platforms.bubblewrap import BubblewrapPlatform

pytestmark = pytest.mark.slow
Spec = Callable[..., GuestSpec]


@pytest.fixture
async def platform(private_state: Path) -> BubblewrapPlatform:
    platform = BubblewrapPlatform()
    require(await platform.probe(), "bubblewrap")
    return platform


async def test_it_answers_counts_and_is_gone(platform: BubblewrapPlatform, spec: Spec) -> None:
    facts = await check.check_a_guest_answers_and_is_gone(platform, spec())
    assert facts["hostname"] == "virtgauge"
    assert facts["init"] is False


async def test_it_reads_the_hosts_programs_and_sees_nothing_else_of_it(
    platform: BubblewrapPlatform, spec: Spec, tmp_path: Path
) -> None:
    for name in ("written", "read"):
        (tmp_path / name).mkdir()
    shares = (Share(tmp_path / "written", writable=True), Share(tmp_path / "read"))
    async with running(platform, spec(shares=shares)) as guest:
        _, output = await shell(guest, "ls /proc | grep -c '^[0-9]'; ls -A /home /root /run /var; cat /proc/net/dev")
        assert int(output.splitlines()[0]) < 10
        assert re.findall(r"^ *(\w+): ", output, re.MULTILINE) == ["lo"]
        for path, code in (("/usr", 1), ("/etc", 1), ("/tmp", 0), ("/var", 0), (tmp_path / "written", 0)):
            assert (await shell(guest, f"echo mine 2>/dev/null > {path}/virtgauge-test"))[0] == 2 * code, path
        assert (await shell(guest, f"echo mine > {tmp_path}/read/file"))[0] != 0
        lists = f"setpriv --reuid=65534 --clear-groups ls -d {tmp_path}/written"
        assert (await shell(guest, lists))[0] == 0, "another user, as a server is, does not reach a share"
    assert (tmp_path / "written" / "virtgauge-test").read_text() == "mine\n"
    assert not Path("/var/virtgauge-test").exists()


async def test_its_load_is_charged_to_it_and_confined_with_it(platform: BubblewrapPlatform, spec: Spec) -> None:
    async with running(platform, spec(vcpus=1)) as guest:
        outside, inside = await burnt_share(guest, 1.5, 4)
    assert outside == pytest.approx(inside, abs=0.15)
    assert outside < 1.15


async def test_its_interfaces_lead_to_its_lab_only(platform: BubblewrapPlatform, spec: Spec) -> None:
    await check_a_guest_answers_from_its_lab_only(platform, spec())


async def test_it_routes(platform: BubblewrapPlatform, spec: Spec) -> None:
    await check_a_guest_routes(platform, spec())


async def test_what_is_written_to_its_disk_stays(platform: BubblewrapPlatform, scope: Scope, spec: Spec) -> None:
    data = disk(scope, 64)
    for command, answer in (("echo kept > file", ""), ("cat file", "kept\n")):
        async with running(platform, spec(disks=(data,))) as guest:
            assert await shell(guest, f"cd {data.folder} && {command}") == (0, answer)


@pytest.mark.parametrize(
    ("script", "stage", "words"),
    [("exit 3", "boot", "status 3"), ("echo garbage; sleep 60", "handshake", "frame")],
)
async def test_a_broken_agent_is_a_launch_error(
    platform: BubblewrapPlatform, spec: Spec, tmp_path: Path, script: str, stage: str, words: str
) -> None:
    await check.check_a_broken_agent_is_a_launch_error(platform, spec, tmp_path, script, stage, words)


@pytest.mark.parametrize("after_s", [0.0, 0.03])
async def test_cancelling_leaves_nothing(platform: BubblewrapPlatform, spec: Spec, after_s: float) -> None:
    await check.check_cancelling_leaves_nothing(platform, spec, after_s)


async def test_a_killed_guest_ends_the_channel(platform: BubblewrapPlatform, spec: Spec) -> None:
    await check.check_a_killed_guest_ends_the_channel(platform, spec())


def test_a_killed_controller_is_reclaimed(platform: BubblewrapPlatform) -> None:
    check.check_a_killed_controller_is_reclaimed(platform.kind, "{}")


async def test_options_reach_it_and_what_it_says_is_told(private_state: Path) -> None:
    found = await BubblewrapPlatform(BubblewrapPlatform.Settings(options=("--no-such-option",))).probe()
    assert not found.usable
    assert "no-such-option" in found.reason
