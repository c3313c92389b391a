"""QEMU's command line, and which accelerator is believed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from virtgauge.platforms.base import LaunchError
from virtgauge.platforms.boot_files import RootPart
from virtgauge.platforms.boot_probe import KVM_BOUND_S, forget, judge
from virtgauge.platforms.qemu.command import Boot

BOOT = Boot(
    binary=Path("/usr/bin/qemu-system-x86_64"),
    machine="microvm",
    accelerator="tcg",
    vcpus=2,
    memory_mib=512,
    kernel=Path("/c/vmlinux"),
    initramfs=Path("/c/initramfs"),
    modules=("virtio_ring", "virtio"),
    tsc_khz=2_596_120,
)


def arguments(boot: Boot, console: str = "/s/console.log") -> list[str]:
    return boot.arguments(console=Path(console), agent_descriptor=7, monitor_descriptor=9)


def test_an_emulated_guest_is_told_its_clock_and_a_virtualized_one_asks_its_hypervisor() -> None:
    words = BOOT.kernel_command_line().split()
    assert {"tsc=reliable", "tsc_early_khz=2596120", "no_timer_check"} <= set(words)
    unknown = dataclasses.replace(BOOT, tsc_khz=None).kernel_command_line().split()
    assert not [word for word in unknown if word.startswith("tsc")]
    kvm = dataclasses.replace(BOOT, accelerator="kvm").kernel_command_line().split()
    assert not [word for word in kvm if word.startswith(("tsc", "no_timer"))]


def test_a_comma_in_a_path_does_not_end_an_option() -> None:
    assert "file,id=console,path=/s/a,,b" in arguments(BOOT, "/s/a,b")


def test_the_hosts_folders_are_exported_for_reading_and_shares_as_asked() -> None:
    parts = (
        RootPart("lower", Path("/usr"), "/usr"),
        RootPart("link", Path("/bin"), "usr/bin"),
        RootPart("write", Path("/a, b"), "/a, b"),
    )
    boot = dataclasses.replace(BOOT, root=parts)
    given = arguments(boot)
    exports = [given[at + 1] for at, word in enumerate(given) if word == "-fsdev"]
    assert exports == [
        "local,id=root0,path=/usr,security_model=none,readonly=on,multidevs=remap",
        "local,id=root2,path=/a,, b,security_model=none,readonly=off,multidevs=remap",
    ]
    told = "virtgauge.root=lower:/usr:root0,link:/bin:usr/bin,write:/a%2C%20b:root2"
    assert told in boot.kernel_command_line().split()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def kvm(tmp_path: Path) -> Path:
    device = tmp_path / "kvm"
    device.touch()
    return device


class Machine:
    """A machine whose guests boot, or do not, and that counts how often it was asked."""

    def __init__(self, error: LaunchError | None = None) -> None:
        self.error = error
        self.bounds: list[float] = []

    async def boot(self, bound_s: float) -> int:
        self.bounds.append(bound_s)
        if self.error:
            raise self.error
        return 1_500_000_000


async def test_without_the_device_nothing_is_booted(tmp_path: Path) -> None:
    machine = Machine()
    found = await judge("kvm", ("k",), machine.boot, kvm=tmp_path / "none")
    assert not found.usable
    assert found.fix is not None
    assert machine.bounds == []


async def test_a_boot_decides_within_its_bound_and_is_remembered(kvm: Path) -> None:
    machine = Machine()
    first = await judge("kvm", ("k",), machine.boot, kvm=kvm)
    assert first.usable
    assert "1.5 s" in first.reason
    assert await judge("kvm", ("k",), machine.boot, kvm=kvm) == first
    assert machine.bounds == [KVM_BOUND_S]


async def test_a_hanging_kvm_is_remembered_with_its_reason_and_asked_again_when_told_to_forget(kvm: Path) -> None:
    log = "booting\nqemu: error: failed to set MSR\nlast line"
    machine = Machine(LaunchError("boot", "QEMU was killed by signal 6", log))
    first = await judge("kvm", ("k",), machine.boot, kvm=kvm)
    assert not first.usable
    assert first.reason == "no guest boots: boot: QEMU was killed by signal 6; qemu: error: failed to set MSR"
    await judge("kvm", ("k",), machine.boot, kvm=kvm)
    assert len(machine.bounds) == 1
    forget()
    machine.error = None
    assert (await judge("kvm", ("k",), machine.boot, kvm=kvm)).usable


async def test_a_failure_of_emulation_is_not_remembered() -> None:
    machine = Machine(LaunchError("handshake", "no agent answered within 45 s"))
    assert not (await judge("tcg", ("k",), machine.boot)).usable
    machine.error = None
    assert (await judge("tcg", ("k",), machine.boot)).usable


async def test_another_kernel_agent_or_boot_of_the_host_asks_again(kvm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    await judge("kvm", ("one",), machine.boot, kvm=kvm)
    await judge("kvm", ("two",), machine.boot, kvm=kvm)
    monkeypatch.setattr("virtgauge.platforms.boot_probe.boot_id", lambda: "another boot")
    await judge("kvm", ("two",), machine.boot, kvm=kvm)
    assert len(machine.bounds) == 3


async def test_a_damaged_or_unwritable_memory_costs_a_boot_and_no_more(cache: Path, kvm: Path) -> None:
    machine = Machine()
    await judge("kvm", ("k",), machine.boot, kvm=kvm)
    for record in (cache / "virtgauge/qemu-boots").iterdir():
        record.write_text("{}")
    assert (await judge("kvm", ("k",), machine.boot, kvm=kvm)).usable
    forget()
    (cache / "virtgauge/qemu-boots").write_text("a file where a folder should be")
    assert (await judge("kvm", ("k",), machine.boot, kvm=kvm)).usable
    assert len(machine.bounds) == 3
