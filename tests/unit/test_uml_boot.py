"""User Mode Linux: its command line, and what is refused before anything is started."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from virtgauge.agent import AgentBinary
from virtgauge.host.scope import Scope
from virtgauge.platforms.base import GuestSpec, LaunchError
from virtgauge.platforms.boot_files import RootPart
from virtgauge.platforms.local import Tap
from virtgauge.platforms.uml import HostView, UmlBoot, UmlPlatform

BOOT = UmlBoot(binary=Path("/usr/bin/linux.uml"), memory_mib=128, identity="vg012345-g1")


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GuestSpec]:
    monkeypatch.setenv("VIRTGAUGE_STATE", str(tmp_path / "state"))
    with Scope() as scope:
        yield GuestSpec(name="g", scope=scope, agent=AgentBinary(Path("/bin/true"), "0" * 64))


def test_a_guest_sees_one_empty_folder_of_the_host_and_opens_no_terminal() -> None:
    given = BOOT.arguments(agent_descriptor=7)
    assert {"hostfs=view", "uml_dir=state", "umid=vg012345-g1", "mem=128M", "panic=-1", "noreboot"} <= set(given)
    assert [word for word in given if word.startswith(("con", "ssl"))] == [
        *("con=null", "con0=null,fd:1", "ssl=null", "ssl0=fd:7"),
    ]
    assert [word for word in given if word.startswith("virtgauge.")] == ["virtgauge.channel=serial:/dev/ttyS0"]


def test_interfaces_are_taps_that_it_inherits_and_take_whole_packets() -> None:
    given = BOOT.arguments(
        agent_descriptor=7, taps=(Tap((8,), "52:54:00:00:00:01", 1500), Tap((9,), "52:54:00:00:00:02", 9000))
    )
    assert [word for word in given if word.startswith("vec")] == [
        "vec0:transport=fd,fd=8,vec=0,mac=52:54:00:00:00:01,mtu=1500",
        "vec1:transport=fd,fd=9,vec=0,mac=52:54:00:00:00:02,mtu=9000",
    ]


def test_folders_and_a_disk_are_named_without_what_separates() -> None:
    parts = (
        RootPart("lower", Path("/usr"), "/usr"),
        RootPart("link", Path("/bin"), "usr/bin"),
        RootPart("write", Path("/a, b"), "/a, b"),
    )
    boot = dataclasses.replace(
        BOOT, root=parts, modules=("overlay",), disks=[(Path("/dev/loop3"), Path("/run/vg/my data"))]
    )
    given = boot.arguments(agent_descriptor=7)
    assert "ubd0s=/dev/loop3" in given
    assert [word for word in given if word.startswith("virtgauge.")] == [
        "virtgauge.exports=hostfs",
        "virtgauge.channel=serial:/dev/ttyS0",
        "virtgauge.modules=overlay",
        "virtgauge.root=lower:/usr:/0,link:/bin:usr/bin,write:/a%2C%20b:/2",
        "virtgauge.disks=/run/vg/my%20data",
    ]


def test_words_of_the_plan_come_last_and_so_win() -> None:
    given = dataclasses.replace(BOOT, words=("loglevel=7", "quiet")).arguments(agent_descriptor=7)
    assert given[-2:] == ["loglevel=7", "quiet"]


def test_a_kernel_of_ones_own_is_a_program(tmp_path: Path) -> None:
    program = tmp_path / "linux"
    program.write_text("#!/bin/sh\n")
    for kernel, words in (
        (program, "no program that this user may execute"),
        ("rt", "real-time"),
        ("no", "is no file"),
    ):
        with pytest.raises(ValidationError, match=words):
            UmlPlatform.Settings(kernel=kernel)
    program.chmod(0o755)
    own = UmlPlatform(UmlPlatform.Settings(kernel=program))
    assert own.needs() == ("uml_registers",), "the distribution's is not installed for it"
    assert own.describe()["kernel"] == str(program)
    assert "kernel" not in UmlPlatform().describe()


def test_a_view_has_an_entry_for_each_folder_and_mounts_nothing_by_itself(tmp_path: Path) -> None:
    parts = (RootPart("read", Path("/usr"), "/usr"), RootPart("link", Path("/bin"), "usr/bin"))
    HostView(tmp_path / "view", parts)
    assert [path.name for path in (tmp_path / "view").iterdir()] == ["0"]
    assert list((tmp_path / "view" / "0").iterdir()) == []


@pytest.mark.parametrize("vcpus", [0, 2])
def test_another_number_of_processors_is_refused_by_field(vcpus: int) -> None:
    with pytest.raises(ValidationError, match="vcpus") as caught:
        UmlPlatform.Settings(vcpus=vcpus)
    assert [error["loc"] for error in caught.value.errors()] == [("vcpus",)]
    if vcpus == 2:
        assert "one virtual processor: leave vcpus out" in str(caught.value)


async def test_a_guest_with_two_processors_is_a_launch_error_that_says_what_to_ask(spec: GuestSpec) -> None:
    with pytest.raises(LaunchError, match="vcpus is 2: User Mode Linux has one virtual processor; ask for 1") as caught:
        await UmlPlatform().launch(dataclasses.replace(spec, vcpus=2))
    assert caught.value.stage == "start"
    assert not (spec.scope.folder / spec.name).exists()


async def test_it_is_not_offered_without_root_who_alone_can_confine_it(
    spec: GuestSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "linux.uml").write_text("#!/bin/sh\n")
    (tmp_path / "linux.uml").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    found = await UmlPlatform().probe()
    assert (found.usable, found.fix) == (False, "run virtgauge as root (sudo)")
    assert "only root" in found.reason
    with pytest.raises(LaunchError, match="only root"):
        await UmlPlatform().launch(spec)
    assert not (spec.scope.folder / spec.name).exists()


async def test_a_machine_without_it_is_told_how_to_have_it(
    spec: GuestSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = await UmlPlatform().probe()
    assert (found.usable, found.reason) == (False, "User Mode Linux is not installed")
    assert found.fix == "apt install user-mode-linux"
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(LaunchError, match=r"not installed\n  → apt install user-mode-linux"):
        await UmlPlatform().launch(spec)
    assert not (spec.scope.folder / spec.name).exists()
