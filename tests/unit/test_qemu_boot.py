"""QEMU's command line, and which accelerator is believed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from virtgauge.agent import AgentBinary
from virtgauge.host.scope import Scope
from virtgauge.platforms import boot_probe
from virtgauge.platforms.base import Availability, Guest, GuestSpec, LaunchError
from virtgauge.platforms.boot_files import RootPart
from virtgauge.platforms.boot_probe import KVM_BOUND_S, AcceleratedPlatform, Booted, forget, is_functional, judge
from virtgauge.platforms.qemu.command import Boot, refused_feature
from virtgauge.platforms.qemu.platform import QemuPlatform

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
    assert {"tsc=reliable", "tsc_early_khz=2596120", "no_timer_check", "cryptomgr.notests"} <= set(words)
    unknown = dataclasses.replace(BOOT, tsc_khz=None).kernel_command_line().split()
    assert not [word for word in unknown if word.startswith("tsc")]
    kvm = dataclasses.replace(BOOT, accelerator="kvm").kernel_command_line().split()
    assert not [word for word in kvm if word.startswith(("tsc", "no_timer"))]


def test_the_plans_words_come_last_and_a_feature_that_kvm_refuses_is_left_out() -> None:
    boot = dataclasses.replace(BOOT, accelerator="kvm", without=("arch-capabilities",), words=("nohz=off", "quiet"))
    assert boot.kernel_command_line().endswith(" nohz=off quiet")
    given = arguments(boot)
    assert given[given.index("-cpu") + 1] == "host,migratable=no,-arch-capabilities"
    aborted = "qemu-system-x86_64: error: failed to set MSR 0x10a to 0x4c0a0004\nAssertion failed"
    assert refused_feature(aborted) == "arch-capabilities"
    assert refused_feature("error: failed to set MSR 0xffff to 0x0") is None
    assert refused_feature("Kernel panic") is None


def test_a_machine_without_acpi_has_neither_timer_nor_interrupt_controller_of_the_pc() -> None:
    given = arguments(dataclasses.replace(BOOT, machine="microvm-noacpi"))
    assert given[given.index("-machine") + 1] == "microvm,acpi=off,rtc=on,isa-serial=on,pit=off,pic=off"


def test_no_microvm_has_an_interrupt_controller_that_its_kernel_does_not_set_up() -> None:
    """Such a kernel sets up none; a tick that waits in it is a division by zero (one boot in ten)."""
    given = arguments(BOOT)
    assert {"acpi=on", "pic=off"} <= {*given[given.index("-machine") + 1].split(",")}


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

    def __init__(self, error: LaunchError | None = None, system_call_ns: float | None = None) -> None:
        self.error, self.system_call_ns = error, system_call_ns
        self.bounds: list[float] = []

    async def boot(self, bound_s: float) -> Booted:
        self.bounds.append(bound_s)
        if self.error:
            raise self.error
        return Booted(1_500_000_000, self.system_call_ns, {"cpu_without": "arch-capabilities"})


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


async def test_the_plans_bound_takes_the_place_of_the_usual_one_and_is_asked_about_anew(kvm: Path) -> None:
    machine = Machine()
    await judge("kvm", ("k",), machine.boot, kvm=kvm)
    await judge("kvm", ("k",), machine.boot, kvm=kvm, bound_s=300)
    assert machine.bounds == [KVM_BOUND_S, 300]


async def test_a_kvm_that_steps_through_the_kernel_is_functional_and_remembered_so(kvm: Path) -> None:
    slow, fast = Machine(system_call_ns=800_000.0), Machine(system_call_ns=120.0)
    for _ in range(2):
        found = await judge("kvm", ("slow",), slow.boot, kvm=kvm)
        assert found.usable
        assert is_functional(found)
        assert "its system calls take 0.8 ms" in found.reason
        assert "figures mean nothing" in found.reason
        assert found.details["cpu_without"] == "arch-capabilities"
        assert not is_functional(await judge("kvm", ("fast",), fast.boot, kvm=kvm))
    assert len(slow.bounds) == len(fast.bounds) == 1


@pytest.mark.parametrize("flags", ["fpu vmx sse2", "fpu svm sse2", "fpu sse2"])
async def test_a_kvm_that_boots_nothing_is_told_from_one_without_hardware_virtualization(
    kvm: Path, monkeypatch: pytest.MonkeyPatch, flags: str
) -> None:
    monkeypatch.setattr(boot_probe, "_flags", lambda: set(flags.split()))
    found = await judge("kvm", ("k",), Machine(LaunchError("handshake", "no agent answered")).boot, kvm=kvm)
    assert not found.usable
    assert ("page tables" in found.reason) is (flags == "fpu sse2")
    assert ("boot_timeout_s" in (found.fix or "")) is (flags == "fpu sse2")


class Accelerated(AcceleratedPlatform):
    """A platform whose probe is told what to find."""

    label = "accelerated"

    def __init__(self, accelerator: str, **verdicts: Availability) -> None:
        super().__init__(accelerator)
        self.verdicts = verdicts

    async def _examine(self, details: dict[str, str]) -> Availability:
        async def judged(accelerator: str) -> Availability:
            return self.verdicts[accelerator]

        return await self._choose(judged, details)

    async def launch(self, spec: GuestSpec) -> Guest:
        raise NotImplementedError


FUNCTIONAL = Availability(
    True, "a guest boots in 70.0 s; its system calls take 0.8 ms", details={"figures": "functional"}
)
VIRTUALIZED, EMULATED = Availability(True, "a guest boots in 0.4 s"), Availability(True, "a guest boots in 2.0 s")


@pytest.mark.parametrize(
    ("asked", "kvm_found", "marks", "suffix"),
    [
        ("kvm", FUNCTIONAL, (True, True), " (kvm, functional)"),
        ("kvm", VIRTUALIZED, (False, False), " (kvm)"),
        ("auto", VIRTUALIZED, (False, False), " (kvm)"),
        ("auto", FUNCTIONAL, (True, False), " (tcg, emulated)"),
    ],
)
async def test_a_functional_kvm_is_marked_so_and_taken_only_where_it_was_asked_for(
    asked: str, kvm_found: Availability, marks: tuple[bool, bool], suffix: str
) -> None:
    platform = Accelerated(asked, kvm=kvm_found, tcg=EMULATED)
    found = await platform.probe()
    assert found.usable
    assert (platform.emulated, platform.functional) == marks
    assert platform._suffix == suffix
    assert ("0.8 ms" in found.reason) is (kvm_found is FUNCTIONAL), "why it was not taken, or what it is"


async def test_a_hanging_kvm_is_remembered_with_its_reason_and_asked_again_when_told_to_forget(
    kvm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boot_probe, "_flags", lambda: {"vmx"})
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


async def test_an_image_that_cannot_be_mounted_says_nothing_of_kvm(kvm: Path) -> None:
    machine = Machine(LaunchError("disk_image", "it takes root"))
    found = await judge("kvm", ("k",), machine.boot, kvm=kvm)
    assert (found.usable, found.reason) == (False, "no guest boots: disk_image: it takes root")
    machine.error = None
    assert (await judge("kvm", ("k",), machine.boot, kvm=kvm)).usable


async def test_a_failure_of_emulation_is_not_remembered() -> None:
    machine = Machine(LaunchError("handshake", "no agent answered within 45 s"))
    assert not (await judge("tcg", ("k",), machine.boot)).usable
    machine.error = None
    assert (await judge("tcg", ("k",), machine.boot)).usable


@pytest.mark.parametrize(
    ("accelerator", "stage", "bound_s", "boots"),
    [
        ("tcg", "handshake", 30.0, 2),
        ("tcg", "boot", 30.0, 1),
        ("tcg", "handshake", 3.0, 1),
        ("kvm", "handshake", 60, 1),
    ],
)
async def test_an_emulated_boot_that_stands_still_is_begun_once_more(
    accelerator: str, stage: str, bound_s: float, boots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[float] = []

    async def launch(self: QemuPlatform, asked: GuestSpec, accelerator: str, without: Sequence[str] = ()) -> Guest:
        tried.append(asked.ready_timeout_s)
        raise LaunchError(stage, "no agent answered")

    monkeypatch.setattr(QemuPlatform, "_launch", launch)
    platform = QemuPlatform()
    asked = GuestSpec(name="g", scope=cast(Scope, None), agent=cast(AgentBinary, None), ready_timeout_s=bound_s)
    with pytest.raises(LaunchError, match="no agent answered"):
        await platform._begin(asked, accelerator)
    assert tried == [bound_s] * boots
    assert len(platform.remarks()) == boots - 1


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
