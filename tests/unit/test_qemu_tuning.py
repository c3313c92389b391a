"""Production settings of QEMU: what they become on its command line, and what is refused before anything is started."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from qemu.qmp import ExecuteError, Message
from qemu.qmp.models import ErrorResponse

from virtgauge.errors import UnavailableError
from virtgauge.execution.prepare import check_plan
from virtgauge.host import lending
from virtgauge.host.lending import hold_value, put_back
from virtgauge.host.reclaim import reclaim_folder
from virtgauge.host.scope import Scope
from virtgauge.plan.load import PlanError, load_plan, parse_plan
from virtgauge.platforms.base import LaunchError
from virtgauge.platforms.local import Tap
from virtgauge.platforms.qemu.command import Boot, Drive
from virtgauge.platforms.qemu.monitor import READERS, UNTOLD, InForce, make_ready
from virtgauge.platforms.qemu.refusals import Asked, refusals
from virtgauge.platforms.qemu.tuning import Tuning

BOOT = Boot(
    binary=Path("/usr/bin/qemu-system-x86_64"),
    machine="q35",
    accelerator="tcg",
    vcpus=4,
    memory_mib=512,
    kernel=Path("/c/vmlinux"),
    initramfs=Path("/c/initramfs"),
    modules=("virtio_ring",),
    tsc_khz=None,
    drives=(Drive(Path("/d/a.img"), Path("/s/data"), "none"),),
)
TAPS = (Tap((11, 12), "52:54:00:00:00:01", 1500),)


def words(taps: tuple[Tap, ...] = TAPS, machine: str = "q35", **settings: Any) -> list[str]:
    boot = dataclasses.replace(BOOT, machine=machine, tuning=Tuning(**settings))
    return boot.arguments(console=Path("/s/console"), agent_descriptor=7, monitor_descriptor=9, taps=taps)


def after(given: list[str], option: str) -> list[str]:
    return [given[at + 1] for at, word in enumerate(given) if word == option]


@pytest.mark.parametrize(
    ("settings", "option", "wanted"),
    [
        ({"cpu_model": "Nehalem", "cpu_flags": ["+avx2", "-x2apic"]}, "-cpu", "Nehalem,avx2=on,x2apic=off"),
        ({"cpu_model": "max"}, "-cpu", "max"),
        ({"cores": 2, "threads": 2}, "-smp", "4,sockets=1,cores=2,threads=2"),
        ({"hpet": False, "pit": True, "numa_node": 0}, "-machine", "q35,hpet=off,pit=on,memory-backend=memory"),
        (
            {"hugepages": "2M", "memory_prealloc": True, "numa_node": 1},
            "-object",
            "memory-backend-memfd,id=memory,size=512M,share=off,hugetlb=on,hugetlbsize=2M,prealloc=on,"
            "host-nodes=1,policy=bind",
        ),
        ({"memory_prealloc": True}, "-object", "memory-backend-ram,id=memory,size=512M,share=off,prealloc=on"),
        ({"memory_locked": True}, "-overcommit", "mem-lock=on"),
        ({"cpu_pm": True}, "-overcommit", "cpu-pm=on"),
        ({"rtc_lost_ticks": "slew"}, "-rtc", "driftfix=slew"),
        ({"pit_lost_ticks": "discard"}, "-global", "kvm-pit.lost_tick_policy=discard"),
        ({"pci_devices": ["0000:3b:00.0"]}, "-device", "vfio-pci,id=pci0,host=0000:3b:00.0"),
        ({"vhost_user": ["/run/a,b"]}, "-chardev", "socket,id=switch0,path=/run/a,,b"),
        ({"vhost_user": ["/run/a"]}, "-netdev", "vhost-user,id=net0,chardev=switch0,queues=1"),
        ({"vhost_user": ["/run/a"]}, "-object", "memory-backend-memfd,id=memory,size=512M,share=on"),
        ({"nic_queues": 2, "vhost": True}, "-netdev", "tap,id=net0,fds=11:12,vhost=on"),
        (
            {"nic_queues": 2, "nic_mergeable": False, "nic_tx": "timer"},
            "-device",
            "virtio-net-pci,romfile=,netdev=net0,mac=52:54:00:00:00:01,id=nic0,mq=on,vectors=6,mrg_rxbuf=off,tx=timer",
        ),
        (
            {"disk_aio": "native", "disk_discard": True},
            "-drive",
            "if=none,id=disk0,file=/d/a.img,format=raw,cache=none,aio=native,discard=unmap",
        ),
        (
            {"disk_iothread": True, "disk_queues": 4, "disk_discard": False},
            "-device",
            "virtio-blk-pci,drive=disk0,serial=disk0,id=disk0-device,iothread=disks,num-queues=4,discard=off",
        ),
        ({"disk_iothread": True}, "-object", "iothread,id=disks"),
        ({"qemu_options": ["-device", "virtio-rng-pci"]}, "-device", "virtio-rng-pci"),
    ],
)
def test_a_setting_becomes_words_of_qemu(settings: dict[str, Any], option: str, wanted: str) -> None:
    assert wanted in after(words(**settings), option)


def test_without_settings_the_command_line_says_nothing_of_them() -> None:
    given = words(taps=(Tap((11,), "52:54:00:00:00:01", 1500),))
    assert "tap,id=net0,fd=11,vhost=off" in after(given, "-netdev")
    assert after(given, "-smp") == ["4"]
    assert after(given, "-cpu") == ["max"]
    assert not {"-object", "-overcommit", "-rtc", "-global"} & set(given)


def test_a_microvms_interfaces_have_no_vectors_to_name() -> None:
    devices = after(words(machine="microvm", nic_queues=2), "-device")
    (device,) = [one for one in devices if one.startswith("virtio-net")]
    assert "mq=on" in device
    assert "vectors" not in device


@pytest.mark.parametrize(
    ("settings", "words_of_it"),
    [
        ({"disk_aio": "native", "disk_cache": "writeback"}, "takes disk_cache"),
        ({"iothread_cpus": [0]}, "set disk_iothread = true"),
        ({"isolated_cpus": True}, "name them by vcpu_cpus"),
        ({"vcpu_cpus": [1, 1]}, "two vCPUs on one CPU"),
        ({"vcpu_scheduling": "fifo:1"}, "could take every CPU"),
        ({"vcpu_scheduling": "fifo:1", "vcpu_cpus": [1], "emulator_cpus": [0, 1]}, "CPU 1 is for real-time vCPUs"),
        ({"vhost_user": ["/s"], "vhost": True}, "has neither vhost nor nic_backend"),
        ({"cpu_flags": ["+avx", "-avx"]}, "names 'avx' twice"),
        ({"cpu_flags": ["avx"]}, "cpu_flags"),
        ({"vcpu_scheduling": "fifo:0"}, "vcpu_scheduling"),
        ({"pci_devices": ["3b:00.0"]}, "pci_devices"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_with_the_plan(
    settings: dict[str, Any], words_of_it: str
) -> None:
    with pytest.raises(ValidationError, match=words_of_it):
        Tuning(**settings)


def test_a_plan_names_the_field_of_the_table() -> None:
    text = '[[platform]]\nname = "host"\nkind = "host"\n[[platform]]\nname = "q"\nkind = "qemu"\n{}\n[[suite.timing]]\n'
    for table, said in (
        ('[platform.tuning]\ndisk_chache = "none"', "platform[1].tuning.disk_chache: unknown field; did you mean"),
        ('[platform.tuning]\ndisk_cache = "fast"', "platform[1].tuning.disk_cache = 'fast'"),
        ('machine = "q35"\nnic_model = "e1000"\n[platform.tuning]\nvhost = true', "tuning.vhost is of virtio"),
    ):
        with pytest.raises(PlanError) as caught:
            check_plan(parse_plan(text.format(table), "my.toml"), "my.toml")
        assert said in str(caught.value)


# -- what cannot be here ---------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with one node, four free huge pages of 2 MiB, 300 MiB of memory, and KVM's module."""
    files = {
        "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "4",
        "sys/devices/system/node/node0/cpulist": "0-1",
        "sys/devices/system/cpu/isolated": "",
        "sys/module/kvm/parameters/halt_poll_ns": "200000\n",
        "sys/module/kvm/parameters/lapic_timer_advance": "Y\n",
        "proc/meminfo": "MemTotal: 1 kB\nMemAvailable:     307200 kB\n",
        "sys/bus/pci/devices/0000:01:00.0/class": "0x020000",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def refused(root: Path, accelerator: str = "tcg", machine: str = "q35", vcpus: int = 1, **settings: Any) -> str:
    asked = Asked(Tuning(**settings), accelerator, machine, vcpus, 512, root)
    return "; ".join(f"{one}; {one.remedy}" for one in refusals(asked))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"cpu_pm": True}, "tuning.cpu_pm = true: only KVM has it"),
        ({"halt_poll_ns": 0}, "tuning.halt_poll_ns = 0: only KVM has it"),
        ({"timer_advance": False}, "only KVM has it"),
        ({"cpu_model": "host"}, 'an emulated processor is none of the host\'s; give "max"'),
        ({"cpu_flags": ["+kvm-hint-dedicated"]}, "only KVM has kvm-hint-dedicated"),
        ({"cores": 3}, "tuning.cores = 3: 1 × 3 × 1 processors are 3, and the guest has 1"),
        ({"vcpu_cpus": [0, 4000]}, "tuning.vcpu_cpus = [0, 4000]: this machine lets us use the CPUs"),
        ({"isolated_cpus": True, "vcpu_cpus": [0]}, "boot the host with isolcpus=0"),
        ({"hugepages": "2M"}, "256 pages are needed, and 4 are free; reserve some: echo 256 > /sys/kernel/mm"),
        ({"hugepages": "1G"}, "this kernel has none of that size"),
        ({"numa_node": 3}, "this machine has the nodes 0; name one of these"),
        ({"memory_prealloc": True}, "the guest has 512 MiB, and 300 MiB are available"),
        ({"vhost": True}, "there is no /dev/vhost-net; modprobe vhost_net"),
        ({"vhost_user": ["/no/socket"]}, "/no/socket is no socket; start the switch"),
        ({"pci_devices": ["0000:02:00.0"]}, "there is no 0000:02:00.0"),
        ({"pci_devices": ["0000:01:00.0"]}, "0000:01:00.0 is behind no IOMMU; boot with intel_iommu=on"),
    ],
)
def test_what_cannot_be_here_is_refused_with_field_value_reason_and_remedy(
    root: Path, settings: dict[str, Any], why: str
) -> None:
    assert why in refused(root, **settings)


def test_what_can_be_tried_is_not_refused(root: Path) -> None:
    (root / "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").write_text("256")
    (root / "dev").mkdir()
    (root / "dev/vhost-net").touch()
    with socket.socket(socket.AF_UNIX) as switch:
        switch.bind(str(root / "vu"))
        assert refused(root, vhost_user=[root / "vu"]) == ""
    cpu = min(os.sched_getaffinity(0))
    assert refused(root, hugepages="2M", numa_node=0, vhost=True, vcpu_cpus=[cpu], disk_iothread=True) == ""
    assert refused(root, "kvm", cpu_model="host", cpu_flags=["-kvmclock"], cpu_pm=True, timer_advance=True) == ""


def test_the_modules_word_decides_on_the_timers_advance(root: Path) -> None:
    said = refused(root, "kvm", timer_advance=False)
    assert "says true" in said
    assert "load kvm with lapic_timer_advance=N" in said
    of_older = root / "sys/module/kvm/parameters/lapic_timer_advance_ns"
    (root / "sys/module/kvm/parameters/lapic_timer_advance").rename(of_older)
    assert "; echo 0 > /sys/module/kvm/parameters/lapic_timer_advance_ns" in refused(root, "kvm", timer_advance=False)
    of_older.unlink()
    assert "does not tell" in refused(root, "kvm", timer_advance=False)


def test_a_cpu_that_is_isolated_from_every_process_can_be_a_vcpus(root: Path) -> None:
    """With isolcpus neither virtgauge nor anything else of the machine runs there by itself."""
    first, isolated, *_ = every = sorted(os.sched_getaffinity(0))
    (root / "sys/devices/system/cpu/isolated").write_text(str(isolated))
    try:
        os.sched_setaffinity(0, [first])
        said = refused(root, vcpu_cpus=[isolated], isolated_cpus=True, vcpu_scheduling="fifo:1")
        assert "lets us use" not in said
        assert "isolcpus" not in said
        assert "would stop this machine" not in said
        assert "would stop this machine" in refused(root, vcpu_cpus=[first], vcpu_scheduling="fifo:1")
        assert os.sched_getaffinity(0) == {first}
    finally:
        os.sched_setaffinity(0, every)


def test_huge_pages_that_are_promised_to_others_are_not_free(root: Path) -> None:
    folder = root / "sys/kernel/mm/hugepages/hugepages-2048kB"
    (folder / "free_hugepages").write_text("256")
    (folder / "resv_hugepages").write_text("1")
    assert "256 pages are needed, and 255 are free" in refused(root, hugepages="2M")


def test_of_a_guest_on_one_node_the_huge_pages_of_others_do_not_count(root: Path) -> None:
    pages = {"sys/kernel/mm": 512, "sys/devices/system/node/node0": 256, "sys/devices/system/node/node1": 100}
    for place, free in pages.items():
        folder = root / place / "hugepages/hugepages-2048kB"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "free_hugepages").write_text(str(free))
    assert refused(root, hugepages="2M") == refused(root, hugepages="2M", numa_node=0) == ""
    said = refused(root, hugepages="2M", numa_node=1)
    assert "256 pages are needed, and 100 are free; reserve some" in said
    assert "echo 256 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages" in said
    (root / "sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages").write_text("300")
    assert "and 212 are free" in refused(root, hugepages="2M", numa_node=0), "what others were promised may be there"


def test_a_microvm_has_no_timer_bus_or_notifiers(root: Path) -> None:
    assert "a microvm has none" in refused(root, machine="microvm", hpet=False)
    assert "no PCI bus" in refused(root, machine="microvm", pci_devices=["0000:02:00.0"])
    assert "no notifiers" in refused(root, machine="microvm", disk_iothread=True)
    assert refused(root, "kvm", machine="microvm", disk_iothread=True) == ""


def test_real_time_vcpus_leave_a_cpu_to_the_host(root: Path) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    said = refused(root, vcpus=len(cpus), vcpu_cpus=cpus, vcpu_scheduling="fifo:1")
    assert "would stop this machine" in said
    assert "would stop" not in refused(root, vcpus=len(cpus), vcpu_cpus=cpus, vcpu_scheduling="other")


NIC, BESIDE, BRIDGE = "0000:01:00.0", "0000:01:00.1", "0000:00:01.0"


@pytest.fixture
def bus(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """PCI of that machine, with a group of two functions and a bridge, and a kernel that binds as Linux does."""
    bus, group = root / "sys/bus/pci", root / "sys/kernel/iommu_groups/7/devices"
    group.mkdir(parents=True)
    (root / "dev/vfio").mkdir(parents=True)
    (root / "dev/vfio/vfio").touch()
    usual = {NIC: "igb", BESIDE: "igb", BRIDGE: "pcieport"}
    for driver in (*usual.values(), "vfio-pci"):
        (bus / "drivers" / driver).mkdir(parents=True, exist_ok=True)
    for address, driver in usual.items():
        device = bus / "devices" / address
        device.mkdir(exist_ok=True)
        (device / "class").write_text("0x060400" if address == BRIDGE else "0x020000")
        (device / "driver_override").write_text("(null)\n")
        (device / "driver").symlink_to(bus / "drivers" / driver)
        (device / "iommu_group").symlink_to(group.parent)
        (group / address).symlink_to(device)

    def write(file: Path, text: str) -> None:
        if file.name == "driver_override":
            file.write_text(text if text.strip() else "(null)\n")
            return
        device = bus / "devices" / text
        if file.name == "unbind":
            (device / "driver").unlink()
        else:
            assert file.name == "drivers_probe"
            override = (device / "driver_override").read_text().strip()
            driver = bus / "drivers" / (usual[text] if override == "(null)" else override)
            if driver.is_dir():
                (device / "driver").symlink_to(driver)

    monkeypatch.setattr(lending, "_write", write)
    return bus


def bind(device: Path, driver: str | None) -> None:
    (device / "driver").unlink(missing_ok=True)
    if driver is not None:
        (device / "driver").symlink_to(device.parent.parent / "drivers" / driver)


def test_a_device_is_passed_through_only_where_its_group_is_no_other_drivers(root: Path, bus: Path) -> None:
    said = refused(root, pci_devices=[NIC])
    assert f"{BESIDE} is bound to igb and in the group of {NIC}; name it, too" in said
    assert "pcieport" not in said
    assert refused(root, pci_devices=[NIC, BESIDE]) == ""
    for driver in (None, "vfio-pci"):
        bind(bus / "devices" / BESIDE, driver)
        assert refused(root, pci_devices=[NIC]) == ""
    (bus / "drivers/vfio-pci").rmdir()
    assert "no driver vfio-pci; modprobe vfio-pci" in refused(root, pci_devices=[NIC])


def test_a_device_that_this_machine_uses_is_not_taken_from_it(root: Path, bus: Path) -> None:
    bind(bus / "devices" / BESIDE, None)
    flags = bus / "devices" / NIC / "net/eth0/flags"
    flags.parent.mkdir(parents=True)
    flags.write_text("0x1003\n")
    assert f"this machine has the interface eth0, which is up, on {NIC}; take it out" in refused(
        root, pci_devices=[NIC]
    )
    flags.write_text("0x1002\n")
    assert refused(root, pci_devices=[NIC]) == ""
    (bus / "devices" / NIC / "ata1/host0/block/sda").mkdir(parents=True)
    assert "this machine has a disk" in refused(root, pci_devices=[NIC])
    bind(bus / "devices" / NIC, "vfio-pci")
    assert refused(root, pci_devices=[NIC]) == "", "whoever bound it knows"


def test_a_device_is_bound_for_the_guest_and_given_back_to_its_driver(root: Path, bus: Path, tmp_path: Path) -> None:
    scope = tmp_path / "scope"
    scope.mkdir()
    bind(bus / "devices" / BESIDE, None)
    asked = Asked(Tuning(pci_devices=(NIC, BESIDE)), "kvm", "q35", 1, 128, root)
    with contextlib.ExitStack() as removal:
        make_ready(asked, scope, removal)
        assert [lending.driver_of(bus / "devices" / one) for one in (NIC, BESIDE)] == ["vfio-pci"] * 2
        assert len(list(scope.iterdir())) == 2
    assert [lending.driver_of(bus / "devices" / one) for one in (NIC, BESIDE)] == ["igb", None]
    assert (bus / "devices" / NIC / "driver_override").read_text() == "(null)\n"
    assert list(scope.iterdir()) == []


def test_a_killed_runs_device_is_given_back_unless_somebody_has_bound_it_since(
    root: Path, bus: Path, private_state: Path
) -> None:
    with Scope() as scope:
        for since, lines, driver in (
            ("vfio-pci", [f"gave the PCI device {NIC} back to igb"], "igb"),
            ("pcieport", [], "pcieport"),
        ):
            bind(bus / "devices" / NIC, "igb")
            lending.hold_device(NIC, scope.folder, root)
            bind(bus / "devices" / NIC, since)
            assert reclaim_folder(scope.folder) == lines
            assert lending.driver_of(bus / "devices" / NIC) == driver


def test_a_device_that_vfio_does_not_take_is_as_it_was_and_refused(root: Path, bus: Path, tmp_path: Path) -> None:
    (bus / "drivers/vfio-pci").rmdir()
    with pytest.raises(UnavailableError, match=f"{NIC} cannot be bound to vfio-pci"):
        lending.hold_device(NIC, tmp_path, root)
    assert lending.driver_of(bus / "devices" / NIC) == "igb"
    assert not list(tmp_path.glob("vfio-*"))


def test_a_guest_that_is_launched_otherwise_than_the_plan_says_is_refused_too(root: Path, tmp_path: Path) -> None:
    asked = Asked(Tuning(vcpu_cpus=(min(os.sched_getaffinity(0)),)), "tcg", "q35", 2, 512, root)
    with contextlib.ExitStack() as removal, pytest.raises(LaunchError, match="the guest has 2 vCPUs"):
        make_ready(asked, tmp_path, removal)


# -- one value of the kernel for all guests --------------------------------------------------------------


def test_halt_polling_is_set_for_the_guest_and_put_back(root: Path, tmp_path: Path) -> None:
    file, scope = root / "sys/module/kvm/parameters/halt_poll_ns", tmp_path / "scope"
    scope.mkdir()
    asked = Asked(Tuning(halt_poll_ns=0), "kvm", "q35", 1, 512, root)
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        make_ready(asked, scope, first)
        make_ready(asked, scope, second)
        assert file.read_text() == "0"
        with contextlib.ExitStack() as third, pytest.raises(LaunchError, match="another guest of this run needs 0"):
            make_ready(dataclasses.replace(asked, tuning=Tuning(halt_poll_ns=5)), scope, third)
        first.close()
        assert file.read_text() == "0", "the second guest still needs it"
    assert file.read_text() == "200000"
    assert list(scope.iterdir()) == []


def test_what_a_killed_run_had_set_is_put_back_unless_somebody_changed_it_since(
    root: Path, private_state: Path
) -> None:
    file = root / "sys/module/kvm/parameters/halt_poll_ns"
    with Scope() as scope:
        hold_value(file, "0", scope.folder)
        assert reclaim_folder(scope.folder) == [f"put back {file} = 200000"]
        assert file.read_text() == "200000"
        assert put_back(scope.folder) == []


def test_a_value_that_another_run_holds_is_refused_and_free_again_at_its_end(root: Path, tmp_path: Path) -> None:
    file, one, other = root / "sys/module/kvm/parameters/halt_poll_ns", tmp_path / "one", tmp_path / "other"
    for scope in (one, other):
        scope.mkdir()
    end = hold_value(file, "0", one)
    for _ in range(2):
        with pytest.raises(UnavailableError, match="another run needs its value"):
            hold_value(file, "5", other)
    assert file.read_text() == "0"
    end()
    hold_value(file, "5", other)()
    assert file.read_text() == "200000"
    assert not [*one.iterdir(), *other.iterdir()]


def test_a_value_that_somebody_else_has_set_since_stays(root: Path, tmp_path: Path) -> None:
    file, scope = root / "sys/module/kvm/parameters/halt_poll_ns", tmp_path / "scope"
    scope.mkdir()
    end = hold_value(file, "0", scope)
    file.write_text("777")
    end()
    assert file.read_text() == "777"


def test_a_parameter_that_cannot_be_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="cannot be set"):
        hold_value(tmp_path / "no-such-module", "0", tmp_path)


# -- read back -------------------------------------------------------------------------------------------


class Monitor:
    """QEMU's, which answers what it was told to."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers

    async def execute(self, command: str, arguments: dict[str, str] | None = None) -> Any:
        key = f"{command} {arguments['property']}" if arguments and "property" in arguments else command
        return self.answers[key]


def in_force(answers: dict[str, Any], **settings: Any) -> InForce:
    monitor: Any = Monitor(answers)
    return InForce(monitor, os.getpid(), dataclasses.replace(BOOT, tuning=Tuning(**settings)), nics=1)


def test_every_setting_has_a_reader() -> None:
    assert READERS.keys() == Tuning.model_fields.keys()


async def test_what_is_in_force_is_told_by_the_settings_name() -> None:
    cache = {"writeback": True, "direct": True, "no-flush": False}
    answers = {
        "query-block": [{"device": "disk0", "inserted": {"cache": cache}}],
        "qom-get mrg_rxbuf": False,
        "qom-get smp": {"sockets": 2},
    }
    told = await in_force(answers, disk_cache="none", nic_mergeable=False, sockets=2, qemu_options=["-S"]).read()
    assert told == {
        "tuning.disk_cache": "none",
        "tuning.nic_mergeable": "false",
        "tuning.sockets": "2",
        "tuning.qemu_options": UNTOLD,
    }


async def test_anything_else_than_what_was_asked_for_is_an_error_that_names_both() -> None:
    cache = {"writeback": True, "direct": False, "no-flush": False}
    answers = {"query-block": [{"device": "disk0", "inserted": {"cache": cache}}], "qom-get tx": "bh"}
    with pytest.raises(LaunchError) as caught:
        await in_force(answers, disk_cache="none", nic_tx="timer").read()
    assert "asked for disk_cache = none, in force is writeback" in str(caught.value)
    assert "asked for nic_tx = timer, in force is bh" in str(caught.value)
    assert "leave it out" in str(caught.value)


async def test_what_cannot_be_read_back_is_an_error_and_not_taken_as_given() -> None:
    with pytest.raises(LaunchError, match="asked for disk_queues = 2, and it cannot be read back"):
        await in_force({}, disk_queues=2).read()


async def test_a_switch_that_has_gone_serves_no_interface() -> None:
    """QEMU says of both that the front end, its own device, is open."""
    answer = {"label": "switch0", "filename": "unix:/s", "frontend-open": True}
    assert await in_force({"query-chardev": [answer]}, vhost_user=["/s"]).read() == {"tuning.vhost_user": "/s"}
    answer["filename"] = "disconnected:unix:/s"
    with pytest.raises(LaunchError, match="asked for vhost_user = /s, in force is "):
        await in_force({"query-chardev": [answer]}, vhost_user=["/s"]).read()


@pytest.mark.parametrize("nic", ["/machine/peripheral/nic0/virtio-backend", "/machine/peripheral/nic0"])
async def test_vhost_is_in_force_when_it_has_started(nic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """QEMU opens the device before the guest's driver is there, and falls back to its own if the kernel's fails."""
    others = [{"name": "virtio-serial", "path": "/machine/peripheral/port0/virtio-backend"}]
    answers = {"x-query-virtio": [*others, {"name": "virtio-net", "path": nic}]}
    opened = ["/dev/vhost-net"]
    monkeypatch.setattr(InForce, "_files", lambda _: opened)
    answers["x-query-virtio-status"] = {"vhost-started": True}
    assert await in_force(answers, vhost=True).read() == {"tuning.vhost": "true"}
    answers["x-query-virtio-status"] = {"vhost-started": False}
    with pytest.raises(LaunchError, match="asked for vhost = true, in force is false"):
        await in_force(answers, vhost=True).read()
    opened.clear()
    assert await in_force({}, vhost=False).read() == {"tuning.vhost": "false"}


async def test_before_qemu_7_2_the_open_device_is_all_that_tells_of_vhost(monkeypatch: pytest.MonkeyPatch) -> None:
    error = {"error": {"class": "CommandNotFound", "desc": "The command x-query-virtio has not been found"}}
    monkeypatch.setattr(InForce, "_files", lambda _: ["/dev/vhost-net"])
    guest = in_force({}, vhost=True)

    async def refused(*asked: Any, **arguments: Any) -> Any:
        raise ExecuteError(ErrorResponse(Message(error)), Message(), Message(error))

    monkeypatch.setattr(guest, "_ask", refused)
    assert await guest.read() == {"tuning.vhost": "true"}


async def test_a_guest_without_disks_or_interfaces_has_no_settings_of_them() -> None:
    monitor: Any = Monitor({})
    bare = dataclasses.replace(BOOT, drives=(), tuning=Tuning(disk_cache="none", nic_tx="bh"))
    guest = InForce(monitor, os.getpid(), bare)
    assert await guest.read() == {}


def test_the_preset_compares_the_same_guest_with_and_without_tuning() -> None:
    plan, source = load_plan("tuning")
    default, tuned = (dict(section.settings) for section in plan.platform)
    assert plan.reference == "default"
    assert tuned.pop("tuning")
    assert tuned == default
    assert check_plan(plan, source).cells
