"""The emulated machine of a nested lab: QEMU's command line, and what dom0 finds in it.

dom0 has the host's programs as a read-only root, with Xen's beside them, so that nothing is installed or copied.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from virtgauge.platforms.boot_files import RootPart, system_parts
from virtgauge.platforms.qemu.command import PORT_NAME
from virtgauge.platforms.xen.dom0 import GuestType
from virtgauge.provision.kernel import canonical

XEN_FOLDER, KERNELS_FOLDER, ARCHIVES_FOLDER = Path("/xen"), Path("/kernels"), Path("/archives")
"""In dom0: Xen's packages, and of the host's cache the guests' kernels and their first root file systems."""

DOM0_MIB = 512
"""It needs half of that; the rest is for the pages of its 9p mounts."""
MEMORY_MIB = 2048
"""Of the whole machine; what is left beside dom0 is for guests."""
CONSOLES = 4
"""Guests at a time."""
CARDS = 4
"""Interfaces of all guests together."""

CONSOLE_PORT = "org.virtgauge.console"
LONGEST_COMMAND_LINE = 1023
"""Of a para-virtual kernel (xen.h, MAX_GUEST_CMDLINE less its end)."""

DOM0_MODULES = (
    *("virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay", "virtio_net"),
    *("xen-privcmd", "xen-evtchn", "xen-gntdev", "xen-gntalloc", "xenfs", "bridge", "xen-netback"),
)

_CPUS: dict[GuestType, str] = {
    # `max` has what dom0 does not survive (SMAP).  Xen refuses an intercepted rdtscp that this QEMU hands to it, so a
    # guest within hardware virtualization has none.
    "pv": "qemu64,+rdtscp",
    "pvh": "qemu64,+svm,+npt",
}


@dataclasses.dataclass(frozen=True)
class LabMachine:
    """What is started.

    Attributes:
        binary: QEMU.
        guests: their type, on which the processor's features depend.
        hypervisor: Xen's image.
        kernel, initramfs: of dom0.
        modules: names, in the order in which dom0's agent loads them.
        xen, kernels, archives: folders of the host that dom0 sees (see above).
    """

    binary: Path
    guests: GuestType
    hypervisor: Path
    kernel: Path
    initramfs: Path
    modules: Sequence[str]
    xen: Path
    kernels: Path
    archives: Path

    def arguments(self, *, console: Path, agent_descriptor: int, taps: Sequence[tuple[int, str]]) -> list[str]:
        """The whole command line; QEMU is to be started in the folder that gets the sockets of the consoles.

        Args:
            console: file for the serial console of Xen and dom0.
            agent_descriptor: connected socket for the channel to dom0's agent, inherited by QEMU.
            taps: open taps, inherited likewise, each with the hardware address of dom0's interface on it.

        Raises:
            ValueError: dom0's kernel would cut its command line.
        """
        dom0 = self.dom0_command_line()
        if len(dom0) > LONGEST_COMMAND_LINE:
            raise ValueError(f"dom0's command line of {len(dom0)} bytes is longer than {LONGEST_COMMAND_LINE}")
        return [
            str(self.binary),
            *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
            *("-machine", "q35", "-accel", "tcg", "-cpu", _CPUS[self.guests], "-smp", "1", "-m", f"{MEMORY_MIB}M"),
            *("-kernel", str(self.hypervisor), "-append", self._xen_command_line()),
            *("-initrd", f"{_option(self.kernel)} {_option(dom0)},{_option(self.initramfs)}"),
            *("-chardev", f"file,id=console,path={_option(console)}", "-serial", "chardev:console"),
            *("-device", "virtio-serial-pci"),
            *("-chardev", f"socket,id=agent,fd={agent_descriptor}"),
            *("-device", f"virtserialport,chardev=agent,name={PORT_NAME}"),
            *(word for number in range(CONSOLES) for word in _console(number)),
            *(word for number, tap in enumerate(taps) for word in _card(number, *tap)),
            *(word for number, part in enumerate(self._root()) for word in _export(number, part)),
        ]

    def dom0_command_line(self) -> str:
        """What dom0's kernel and agent are told."""
        root = ",".join(
            f"{part.kind}:{part.path}:{part.source if part.kind == 'link' else f'root{number}'}"
            for number, part in enumerate(self._root())
        )
        modules = ",".join(canonical(name) for name in self.modules)
        return (
            "console=hvc0 panic=-1 quiet ipv6.disable=1 "
            f"virtgauge.modules={modules} virtgauge.channel=virtio:{PORT_NAME} virtgauge.root={root}"
        )

    def _xen_command_line(self) -> str:
        # Nobody's secrets are in this memory before the first guest is.
        return f"dom0_mem={DOM0_MIB}M,max:{DOM0_MIB}M bootscrub=0 sched=credit2 console=com1 com1=115200 noreboot=0"

    def _root(self) -> Iterator[RootPart]:
        yield from system_parts()
        yield RootPart("read", XEN_FOLDER, str(self.xen))
        yield RootPart("read", KERNELS_FOLDER, str(self.kernels))
        yield RootPart("read", ARCHIVES_FOLDER, str(self.archives))


def console_socket(number: int) -> str:
    """The file of a console's socket in QEMU's folder."""
    return f"console{number}"


def _console(number: int) -> list[str]:
    return [
        *("-chardev", f"socket,id=console{number},path={console_socket(number)},server=on,wait=off"),
        *("-device", f"virtserialport,chardev=console{number},name={CONSOLE_PORT}.{number}"),
    ]


def _card(number: int, descriptor: int, mac: str) -> list[str]:
    return [
        *("-netdev", f"tap,id=net{number},fd={descriptor},vhost=off"),
        *("-device", f"virtio-net-pci,romfile=,netdev=net{number},mac={mac}"),
    ]


def _export(number: int, part: RootPart) -> list[str]:
    if part.kind == "link":
        return []
    access = f"path={_option(part.source)},security_model=none,readonly=on,multidevs=remap"
    return [
        *("-fsdev", f"local,id=root{number},{access}"),
        *("-device", f"virtio-9p-pci,fsdev=root{number},mount_tag=root{number}"),
    ]


def _option(text: str | Path) -> str:
    """A text inside a comma-separated option of QEMU, which doubles a comma that is meant."""
    return str(text).replace(",", ",,")
