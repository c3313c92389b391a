"""What Firecracker and Cloud Hypervisor are told, held against the rules of their published descriptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from stand_in_monitor import Interface, NotAllowedError

from virtgauge.network import Nic
from virtgauge.platforms import create
from virtgauge.platforms.boot_files import agent_words
from virtgauge.platforms.rest_vmm.api import Call
from virtgauge.platforms.rest_vmm.monitors import CLOUD_HYPERVISOR, FIRECRACKER, Machine, Monitor

MONITORS = [FIRECRACKER, CLOUD_HYPERVISOR]
PLAIN = Machine(2, 512, Path("/k/vmlinux"), Path("/k/initramfs"), "console=ttyS0 quiet")
FULL = Machine(
    1,
    256,
    Path("/k/vmlinux"),
    Path("/k/initramfs"),
    "quiet",
    disks=(Path("/dev/loop0"), Path("/dev/loop1")),
    nics=(Nic("west", "52:54:00:00:00:01"), Nic("east", "52:54:00:00:00:02", mtu=9000)),
)


def body(calls: list[Call], path: str) -> dict[str, Any]:
    (found,) = (call.body for call in calls if call.path == path)
    assert found is not None
    return dict(found)


@pytest.mark.parametrize("monitor", MONITORS, ids=lambda monitor: monitor.kind)
@pytest.mark.parametrize("machine", [PLAIN, FULL], ids=["plain", "full"])
def test_every_call_is_one_that_the_description_allows_and_the_last_one_starts_the_machine(
    monitor: Monitor, machine: Machine
) -> None:
    interface = Interface(monitor.kind)
    for call in monitor.calls(machine):
        assert not interface.started
        interface.take(call.method, call.path, call.body)
    assert interface.started


def test_the_rules_refuse_what_the_descriptions_do() -> None:
    for call, words in (
        (Call("PUT", "/machine-config", {"vcpu_count": 33, "mem_size_mib": 128}), "vcpu_count is 33"),
        (Call("PUT", "/machine-config", {"vcpu_count": 1}), "missing field `mem_size_mib`"),
        (Call("PUT", "/boot-source", {"kernel_image_path": "/k", "cmdline": ""}), "unknown field `cmdline`"),
        (Call("PUT", "/drives/a", {"drive_id": "b", "is_root_device": False}), "does not match"),
        (Call("PUT", "/actions", {"action_type": "InstanceStart"}), "without /boot-source"),
        (Call("PUT", "/actions"), "Empty PUT request"),
        (Call("GET", "/boot-source"), "Invalid request"),
    ):
        with pytest.raises(NotAllowedError, match=words):
            Interface("firecracker").take(call.method, call.path, call.body)
    with pytest.raises(NotAllowedError, match=r"without /api/v1/vm.create"):
        Interface("cloud-hypervisor").take("PUT", "/api/v1/vm.boot", None)


def test_firecracker_is_told_of_disks_that_hand_on_flushes_and_of_interfaces_by_their_taps() -> None:
    calls = FIRECRACKER.calls(FULL)
    assert body(calls, "/machine-config") == {"vcpu_count": 1, "mem_size_mib": 256}
    second = body(calls, "/drives/disk1")
    assert (second["path_on_host"], second["cache_type"], second["is_root_device"]) == (
        "/dev/loop1",
        "Writeback",
        False,
    )
    first = body(calls, "/network-interfaces/eth0")
    assert first == {"iface_id": "eth0", "host_dev_name": "west", "guest_mac": "52:54:00:00:00:01"}


def test_cloud_hypervisor_is_told_of_raw_disks_by_serial_number_and_of_interfaces_without_offloads() -> None:
    config = body(CLOUD_HYPERVISOR.calls(FULL), "/api/v1/vm.create")
    assert config["memory"] == {"size": 256 << 20}
    assert [disk["serial"] for disk in config["disks"]] == ["disk0", "disk1"]
    assert all(disk["direct"] and disk["image_type"] == "Raw" for disk in config["disks"])
    for net in config["net"]:
        assert (net["offload_tso"], net["offload_ufo"], net["offload_csum"]) == (False, False, False)
    assert config["console"] == {"mode": "Tty"}, "the agent's line is the monitor's standard input and output"


def test_a_guest_that_cannot_know_its_disks_by_serial_numbers_is_told_their_devices() -> None:
    folders = [Path("/data:1"), Path("/log")]
    for places, devices, word in (
        (folders, (), "virtgauge.disks=/data%3A1,/log"),
        (folders, FIRECRACKER.disk_devices, "virtgauge.disks=/dev/vda:/data%3A1,/dev/vdb:/log"),
        (folders[:1], FIRECRACKER.disk_devices, "virtgauge.disks=/dev/vda:/data%3A1"),
        ((), FIRECRACKER.disk_devices, "virtgauge.channel=serial:/dev/ttyS0"),
    ):
        assert agent_words("serial:/dev/ttyS0", (), folders=places, devices=devices)[-1] == word


@pytest.mark.parametrize("kind", ["firecracker", "cloud-hypervisor"])
@pytest.mark.parametrize(
    ("settings", "field"),
    [({"vcpus": 33}, "vcpus"), ({"memory_mib": 64}, "memory_mib"), ({"accelerator": "tcg"}, "accelerator")],
)
def test_settings_that_cannot_be_are_refused_by_name(kind: str, settings: dict[str, object], field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        create(kind, settings)


@pytest.mark.parametrize("kind", ["firecracker", "cloud-hypervisor"])
def test_none_is_emulated_before_a_probe_has_told(kind: str) -> None:
    platform = create(kind, {})
    assert (platform.emulated, platform.is_virtual) == (False, True)
    assert platform.label.endswith("(kvm)")
    assert platform.needs() == ("kernel",)
