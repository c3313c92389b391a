"""The command line of QEMU for a guest that holds nothing but the agent."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

PORT_NAME = "org.virtgauge.agent"
"""The virtio port on which the agent listens."""


@dataclasses.dataclass(frozen=True)
class Machine:
    """A machine type.

    Attributes:
        argument: how QEMU is asked for it.
        serial_device: its virtio serial device.
        modules: those that reach that device.
        nic_devices: what a network interface is on this machine, by model.
    """

    argument: str
    serial_device: str
    modules: tuple[str, ...]
    nic_devices: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Tap:
    """A guest's link: the open tap that QEMU inherits, and the hardware address of the guest's interface on it."""

    descriptor: int
    mac: str


# No boot ROM: nothing boots from a network here, and the files of the ROMs are a package of their own.
_PCI_NICS = {"virtio": "virtio-net-pci,romfile=", "e1000": "e1000,romfile="}

NIC_MODULES = {"virtio": "virtio_net", "e1000": "e1000"}
"""The guest's driver, by model."""

# microvm: the distributions' kernels cannot be told of virtio devices on the command line, so ACPI describes them.
MACHINES = {
    "microvm": Machine(
        "microvm,acpi=on,rtc=on,isa-serial=on",
        "virtio-serial-device",
        ("virtio_mmio", "virtio_console"),
        {"virtio": "virtio-net-device"},
    ),
    "q35": Machine("q35", "virtio-serial-pci", ("virtio_pci", "virtio_console"), _PCI_NICS),
    "pc": Machine("pc", "virtio-serial-pci", ("virtio_pci", "virtio_console"), _PCI_NICS),
}

_ACCELERATORS = {
    # migratable=no lets the guest see an invariant TSC, which it has
    "kvm": ("-accel", "kvm", "-cpu", "host,migratable=no"),
    "tcg": ("-accel", "tcg,thread=multi", "-cpu", "max"),
}


@dataclasses.dataclass(frozen=True)
class Boot:
    """What is started.

    Attributes:
        binary: QEMU.
        machine: a key of :data:`MACHINES`.
        accelerator: ``kvm`` or ``tcg``.
        vcpus, memory_mib: size of the guest.
        kernel, initramfs: files.
        modules: names, in the order in which the agent loads them.
        tsc_khz: frequency of the host's time-stamp counter where it is invariant, else None.
        nic_model: a key of the machine's ``nic_devices`` where the guest has network interfaces, else None.
    """

    binary: Path
    machine: str
    accelerator: str
    vcpus: int
    memory_mib: int
    kernel: Path
    initramfs: Path
    modules: Sequence[str]
    tsc_khz: int | None
    nic_model: str | None = None

    def kernel_command_line(self) -> str:
        """What the kernel and the agent are told."""
        words = ["console=ttyS0", "quiet", "panic=-1", "reboot=t"]
        if self.accelerator == "tcg":
            words += self._emulated_clock()
        if self.nic_model is not None:
            words.append("ipv6.disable=1")  # it would send frames of its own
        words += [f"virtgauge.modules={','.join(self.modules)}", f"virtgauge.channel=virtio:{PORT_NAME}"]
        return " ".join(words)

    def _emulated_clock(self) -> list[str]:
        """Tell an emulated guest what a hypervisor would tell a virtualized one about its clock.

        Left to itself, the kernel counts TSC ticks between two interrupts of an emulated timer.  On a busy host that
        fails or is wrong, and a microvm has no other clock: it stops booting.  QEMU hands the host's own TSC
        through, so its frequency and its reliability are the host's.  The check of the timer's wiring is one
        that Linux leaves out under KVM as well, and for the same reason.
        """
        words = ["no_timer_check"]
        if self.tsc_khz is not None:
            words += ["tsc=reliable", f"tsc_early_khz={self.tsc_khz}"]
        return words

    def arguments(
        self, *, console: Path, agent_descriptor: int, monitor_descriptor: int, taps: Sequence[Tap] = ()
    ) -> list[str]:
        """The whole command line.

        Args:
            console: file for the serial console.
            agent_descriptor: connected socket for the channel, inherited by QEMU.
            monitor_descriptor: the same for QMP.
            taps: the links of the guest, in the order of its interfaces.
        """
        machine = MACHINES[self.machine]
        return [
            str(self.binary),
            *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
            *("-machine", machine.argument),
            *_ACCELERATORS[self.accelerator],
            *("-smp", str(self.vcpus), "-m", f"{self.memory_mib}M"),
            *("-kernel", str(self.kernel), "-initrd", str(self.initramfs)),
            *("-append", self.kernel_command_line()),
            *("-chardev", f"file,id=console,path={_option(console)}", "-serial", "chardev:console"),
            *("-chardev", f"socket,id=monitor,fd={monitor_descriptor}", "-mon", "chardev=monitor,mode=control"),
            *("-device", machine.serial_device),
            *("-chardev", f"socket,id=agent,fd={agent_descriptor}"),
            *("-device", f"virtserialport,chardev=agent,name={PORT_NAME}"),
            *(word for number, tap in enumerate(taps) for word in self._nic(number, tap)),
        ]

    def _nic(self, number: int, tap: Tap) -> list[str]:
        device = MACHINES[self.machine].nic_devices[self.nic_model or "virtio"]
        return [
            *("-netdev", f"tap,id=net{number},fd={tap.descriptor},vhost=off"),
            *("-device", f"{device},netdev=net{number},mac={tap.mac}"),
        ]


def _option(path: Path) -> str:
    """A path inside a comma-separated option of QEMU, which doubles a comma that is meant."""
    return str(path).replace(",", ",,")
