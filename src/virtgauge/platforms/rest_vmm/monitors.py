"""The monitors: how each is started, what it is told, and what its machine consists of.

The calls are those of the published descriptions: Firecracker's ``src/firecracker/swagger/firecracker.yaml`` (1.x) and
Cloud Hypervisor's ``vmm/src/api/openapi/cloud-hypervisor.yaml`` (since 31, the first with a disk's serial number).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from virtgauge.network import Nic
from virtgauge.platforms.boot_files import LONGEST_COMMAND_LINE
from virtgauge.platforms.rest_vmm.api import Call

SOCKET, LOG, SERIAL = "api.sock", "monitor.log", "serial.log"
"""In the guest's folder, in which the monitor is started: its interface, its messages, its first serial port."""


@dataclasses.dataclass(frozen=True)
class Machine:
    """What a monitor is told to run."""

    vcpus: int
    memory_mib: int
    kernel: Path
    initramfs: Path
    command_line: str
    disks: Sequence[Path] = ()  # devices of this host, in the order of the guest's disks
    nics: Sequence[Nic] = ()  # whose taps are there


@dataclasses.dataclass(frozen=True)
class Monitor:
    """One of them."""

    kind: str  # in plans, and the name of its program
    title: str
    fix: str  # how it is had
    arguments: tuple[str, ...]  # of its program
    calls: Callable[[Machine], list[Call]]  # until the machine runs
    # the agent's line, and the modules that reach it; a line that is the console as well carries the kernel's messages
    channel: str
    modules: tuple[str, ...]
    words: tuple[str, ...]  # for the kernel, so that its end is the monitor's
    disk: str  # how writes reach the image of a disk
    # of the guest, that are its disks in their order; none where these have serial numbers (``disk0``, ``disk1``)
    disk_devices: tuple[str, ...] = ()
    disk_bypass: str | None = None  # which of its reads and writes do not meet the bounds of its disk, and why
    longest_command_line: int = LONGEST_COMMAND_LINE


def _firecracker(machine: Machine) -> list[Call]:
    def put(path: str, **body: object) -> Call:
        return Call("PUT", path, body)

    drives = (
        put(
            f"/drives/disk{number}",
            drive_id=f"disk{number}",
            path_on_host=str(device),
            is_root_device=False,
            is_read_only=False,
            cache_type="Writeback",  # it hands on every flush, which by default it does not
        )
        for number, device in enumerate(machine.disks)
    )
    interfaces = (
        put(f"/network-interfaces/eth{number}", iface_id=f"eth{number}", host_dev_name=nic.port, guest_mac=nic.mac)
        for number, nic in enumerate(machine.nics)
    )
    return [
        put("/machine-config", vcpu_count=machine.vcpus, mem_size_mib=machine.memory_mib),
        put(
            "/boot-source",
            kernel_image_path=str(machine.kernel),
            initrd_path=str(machine.initramfs),
            boot_args=machine.command_line,
        ),
        *drives,
        *interfaces,
        put("/actions", action_type="InstanceStart"),
    ]


FIRECRACKER = Monitor(
    kind="firecracker",
    title="Firecracker",
    fix="put the program `firecracker` of a release of firecracker-microvm/firecracker on PATH",
    arguments=("--api-sock", SOCKET, "--log-path", LOG),
    calls=_firecracker,
    channel="serial:/dev/ttyS0",  # it has no other line
    modules=("virtio_mmio",),
    words=("reboot=k", "panic=-1", "virtgauge.end=restart"),  # it ends with a restart, and stays after a power-off
    disk="virtio-blk, cache_type=Writeback, through the host's page cache to a loop device",
    disk_devices=("/dev/vda", "/dev/vdb"),
    disk_bypass="Firecracker opens its disk without direct I/O, so that only flushes and what the host's page cache "
    "has not got meet the bounds",
    longest_command_line=LONGEST_COMMAND_LINE - 256,  # it adds its devices
)


def _cloud_hypervisor(machine: Machine) -> list[Call]:
    # A raw image has to be called one, or it is looked for another format, and its first sector is write-protected.
    disks = [
        {"path": str(device), "direct": True, "serial": f"disk{number}", "image_type": "Raw"}
        for number, device in enumerate(machine.disks)
    ]
    plain = {"offload_tso": False, "offload_ufo": False, "offload_csum": False}
    nets = [{"tap": nic.port, "mac": nic.mac, **plain} for nic in machine.nics]
    config: dict[str, object] = {
        "cpus": {"boot_vcpus": machine.vcpus, "max_vcpus": machine.vcpus},
        "memory": {"size": machine.memory_mib << 20},
        "payload": {
            "kernel": str(machine.kernel),
            "initramfs": str(machine.initramfs),
            "cmdline": machine.command_line,
        },
        "serial": {"mode": "File", "file": SERIAL},
        "console": {"mode": "Tty"},  # virtio's, much faster than the serial port
        **({"disks": disks} if disks else {}),
        **({"net": nets} if nets else {}),
    }
    return [Call("PUT", "/api/v1/vm.create", config), Call("PUT", "/api/v1/vm.boot")]


CLOUD_HYPERVISOR = Monitor(
    kind="cloud-hypervisor",
    title="Cloud Hypervisor",
    fix="put the program `cloud-hypervisor` of a release of cloud-hypervisor/cloud-hypervisor on PATH",
    arguments=("--api-socket", f"path={SOCKET}", "--log-file", LOG),
    calls=_cloud_hypervisor,
    channel="serial:/dev/hvc0",
    modules=("virtio_pci", "virtio_console"),
    words=("panic=0",),  # it would start a machine that restarts again and again
    disk="virtio-blk, direct, on a loop device",
)
