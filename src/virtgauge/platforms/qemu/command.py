"""QEMU's command line: machine, channel, disks and their limits, root, interfaces."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from qemu.qmp import QMPClient, QMPError

from virtgauge.host.policy import DiskLimits, PolicyError
from virtgauge.platforms.base import GuestSpec, LaunchError
from virtgauge.platforms.boot_files import RootPart, agent_words
from virtgauge.platforms.local import Tap
from virtgauge.platforms.qemu.tuning import Tuning

PORT_NAME = "org.virtgauge.agent"  # The virtio port on which the agent listens
DRIVE_NAME = "disk0"  # The first data disk's, for QEMU's monitor
_EXPORT = "root"  # Begins the names of the host's folders that the guest sees


@dataclasses.dataclass(frozen=True)
class Drive:
    """A guest's data disk."""

    image: Path
    folder: Path  # where the guest mounts it
    cache: str  # QEMU's mode: ``none`` (past the host's page cache) or ``writeback``. Both hand on every flush.
    number: int = 0  # among the guest's

    @property
    def serial(self) -> str:
        """By which the guest knows it: virtio's devices are found in an order of their own."""
        return f"disk{self.number}"


def drives_of(spec: GuestSpec, cache: str | None = None) -> tuple[Drive, ...]:
    """The guest's disks, past the host's page cache where the image's filesystem can (memory cannot, as a rule).

    ``cache`` is the mode that a plan asks for instead.
    Raises LaunchError: one cannot be opened.
    """
    return tuple(Drive(one.image, one.folder, cache or _cache(one.image), at) for at, one in enumerate(spec.disks))


def _cache(image: Path) -> str:
    try:
        os.close(os.open(image, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        raise LaunchError("disk", f"{image} cannot be opened: {error.strerror}") from error
    try:
        os.close(os.open(image, os.O_RDWR | os.O_CLOEXEC | os.O_DIRECT))
    except OSError:
        return "writeback"
    return "none"


def reached_by(drives: Sequence[Drive]) -> str | None:
    """How writes reach the disks' images, in words; None without any."""
    return "; ".join(dict.fromkeys(f"virtio-blk, cache={drive.cache}" for drive in drives)) or None


@dataclasses.dataclass(frozen=True)
class Machine:
    """A machine type."""

    argument: str  # how QEMU is asked for it
    serial_device: str
    modules: tuple[str, ...]  # those that reach that device
    nic_devices: Mapping[str, str]  # what a network interface is on this machine, by model
    # disk_device, export_device: its virtio disk, and its window to a folder of the host (9p)
    disk_device: str
    export_device: str


# No boot ROM: nothing boots from a network here, and the files of the ROMs are a package of their own.
_PCI_NICS = {"virtio": "virtio-net-pci,romfile=", "e1000": "e1000,romfile="}

# microvm: the distributions' kernels cannot be told of virtio devices on the command line, so ACPI describes them.
# Those that can (CONFIG_VIRTIO_MMIO_CMDLINE_DEVICES), QEMU tells of them where there is no ACPI.
# pic=off: a kernel that boots by this ACPI ("hardware-reduced") never sets up the PC's interrupt controller.  A tick of
# the PC's timer that waits there comes as interrupt 0, a division by zero: with QEMU 10 and 11 in one boot of ten.
_MICROVM = Machine(
    "microvm,acpi=on,rtc=on,isa-serial=on,pic=off",
    "virtio-serial-device",
    ("virtio_mmio", "virtio_console"),
    {"virtio": "virtio-net-device"},
    "virtio-blk-device",
    "virtio-9p-device",
)
MACHINES = {
    "microvm": _MICROVM,
    "microvm-noacpi": dataclasses.replace(_MICROVM, argument="microvm,acpi=off,rtc=on,isa-serial=on,pit=off,pic=off"),
    **{
        name: Machine(
            name, "virtio-serial-pci", ("virtio_pci", "virtio_console"), _PCI_NICS, "virtio-blk-pci", "virtio-9p-pci"
        )
        for name in ("q35", "pc")
    },
}

_ACCELERATORS = {
    # migratable=no lets the guest see an invariant TSC, which it has
    "kvm": ("kvm", "host,migratable=no"),
    "tcg": ("tcg,thread=multi", "max"),
}
"""What QEMU is asked for as accelerator and as processor."""

_OF_REGISTERS = {0x10A: "arch-capabilities", 0x345: "pdcm", 0x38F: "pmu"}
"""The processor's features by the register (MSR) that QEMU sets for them (``kvm_put_msrs``, target/i386/kvm/kvm.c)."""


def refused_feature(log: str) -> str | None:
    """The feature for which QEMU ended, as KVM lets none of its registers be set; None where it ended for no such."""
    found = re.search(r"failed to set MSR (0x[0-9a-f]+)", log)
    return None if found is None else _OF_REGISTERS.get(int(found[1], 16))


def kernel_command_line(
    accelerator: str,
    tsc_khz: int | None,
    *,
    modules: Sequence[str],
    root: Sequence[RootPart],
    folders: Iterable[Path],
    words: Sequence[str],
    networked: bool,
) -> str:
    """What a guest's kernel is told in a machine of QEMU; fields of :class:`Boot`, and the folders of its disks.

    An emulated guest is told what a hypervisor would tell a virtualized one about its clock.  Left to itself, the
    kernel counts TSC ticks between two interrupts of an emulated timer.  On a busy host that fails or is wrong, and a
    microvm has no other clock: it stops booting.  QEMU hands the host's own TSC through, so its frequency and its
    reliability are the host's.  The check of the timer's wiring is one that Linux leaves out under KVM as well, and for
    the same reason.  Its tests of ciphers, which nobody uses here, patch code while the other processor boots: seldom,
    both then wait for each other for ever.
    """
    own = ["console=ttyS0", "quiet", "panic=-1", "reboot=t"]
    if accelerator == "tcg":
        own += ["no_timer_check", "cryptomgr.notests"]
        own += [] if tsc_khz is None else ["tsc=reliable", f"tsc_early_khz={tsc_khz}"]
    if networked:
        own.append("ipv6.disable=1")  # it would send frames of its own
    return " ".join((*own, *agent_words(f"virtio:{PORT_NAME}", modules, root, _EXPORT, folders), *words))


@dataclasses.dataclass(frozen=True)
class Boot:
    """What is started."""

    binary: Path
    machine: str  # a key of :data:`MACHINES`
    accelerator: str  # ``kvm`` or ``tcg``
    vcpus: int
    memory_mib: int
    kernel: Path
    initramfs: Path
    modules: Sequence[str]  # names, in the order in which the agent loads them
    tsc_khz: int | None  # frequency of the host's time-stamp counter where it is invariant, else None
    # a key of the machine's ``nic_devices`` where the guest has network interfaces, else None
    nic_model: str | None = None
    drives: Sequence[Drive] = ()  # its data disks
    root: Sequence[RootPart] = ()  # what its root consists of; empty for one that is the agent's alone
    without: Sequence[str] = ()  # features that the guest's processor has not got, as KVM refuses them
    words: Sequence[str] = ()  # the plan's own, for the kernel
    tuning: Tuning = dataclasses.field(default_factory=Tuning)  # what the plan wants otherwise

    def kernel_command_line(self) -> str:
        return kernel_command_line(
            self.accelerator,
            self.tsc_khz,
            modules=self.modules,
            root=self.root,
            folders=[drive.folder for drive in self.drives],
            words=self.words,
            networked=self.nic_model is not None,
        )

    def arguments(
        self, *, console: Path, agent_descriptor: int, monitor_descriptor: int, taps: Sequence[Tap] = ()
    ) -> list[str]:
        """The whole command line; the descriptors are of connected sockets for the channel and QMP."""
        machine, (accelerator, processor) = MACHINES[self.machine], _ACCELERATORS[self.accelerator]
        return [
            str(self.binary),
            *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
            *("-machine", self.tuning.machine(machine.argument)),
            *("-accel", accelerator, "-cpu", ",-".join((self.tuning.cpu(processor), *self.without))),
            *("-smp", self.tuning.processors(self.vcpus), "-m", f"{self.memory_mib}M"),
            *("-kernel", str(self.kernel), "-initrd", str(self.initramfs)),
            *("-append", self.kernel_command_line()),
            *("-chardev", f"file,id=console,path={_option(console)}", "-serial", "chardev:console"),
            *("-chardev", f"socket,id=monitor,fd={monitor_descriptor}", "-qmp", "chardev:monitor"),
            *("-device", machine.serial_device),
            *("-chardev", f"socket,id=agent,fd={agent_descriptor}"),
            *("-device", f"virtserialport,chardev=agent,name={PORT_NAME}"),
            *(word for number, tap in enumerate(taps) for word in self._nic(number, tap)),
            *(word for drive in self.drives for word in self._drive(drive)),
            *(word for number, part in enumerate(self.root) for word in self._export(number, part)),
            *self.tuning.words(self.memory_mib),
        ]

    def _drive(self, drive: Drive) -> list[str]:
        file, device = f"file={_option(drive.image)},format=raw,cache={drive.cache}", MACHINES[self.machine].disk_device
        return [
            *("-drive", f"if=none,id={drive.serial},{file}{self.tuning.drive()}"),
            *("-device", f"{device},drive={drive.serial},serial={drive.serial}{self.tuning.disk_device(drive.serial)}"),
        ]

    def _export(self, number: int, part: RootPart) -> list[str]:
        if part.kind == "link":
            return []
        name, readonly = f"{_EXPORT}{number}", "off" if part.kind == "write" else "on"
        # Owners and modes are the host's own; where QEMU may not set them, the guest is not told.
        access = f"path={_option(Path(part.source))},security_model=none,readonly={readonly},multidevs=remap"
        device = MACHINES[self.machine].export_device
        return ["-fsdev", f"local,id={name},{access}", "-device", f"{device},fsdev={name},mount_tag={name}"]

    def _nic(self, number: int, tap: Tap) -> list[str]:
        device = MACHINES[self.machine].nic_devices[self.nic_model or "virtio"]
        more = self.tuning.nic_device(number, pci="-pci" in device)
        return [
            *("-netdev", self.tuning.netdev(number, tap.descriptors)),
            *("-device", f"{device},netdev=net{number},mac={tap.mac}{more}"),
        ]


def _option(path: Path) -> str:
    """A path inside a comma-separated option of QEMU, which doubles a comma that is meant."""
    return str(path).replace(",", ",,")


# QEMU's own bounds for a guest's disk: ``block_set_io_throttle`` of its monitor, read back by ``query-block``.

_FIELDS = {"read_bps": "bps_rd", "write_bps": "bps_wr", "read_iops": "iops_rd", "write_iops": "iops_wr"}


async def throttle_disk(monitor: QMPClient, limits: DiskLimits) -> dict[str, str]:
    """Bound the guest's data disk as stated, and lift every bound that is not; what QEMU says is in force, by name.
    Raises PolicyError: QEMU refuses, or something else is in force afterwards.
    """
    given = limits.given()
    wanted = {theirs: given.get(ours, 0) for ours, theirs in _FIELDS.items()}
    try:
        # Of both directions together, nothing is bounded.
        await monitor.execute("block_set_io_throttle", {"device": DRIVE_NAME, "bps": 0, "iops": 0, **wanted})
        answer: Any = await monitor.execute("query-block")
    except QMPError as error:
        raise PolicyError(f"QEMU does not bound the disk to {given}: {error}") from error
    inserted: dict[str, Any] = next((entry["inserted"] for entry in answer if entry["device"] == DRIVE_NAME), {})
    found = {name: int(inserted.get(name, 0)) for name in wanted}
    if found != wanted:
        raise PolicyError(f"QEMU was asked to limit the disk to {wanted}, but reports {found}")
    return {f"block_set_io_throttle {name}": str(value) for name, value in found.items() if value}
