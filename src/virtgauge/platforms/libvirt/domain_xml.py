"""A domain's description in libvirt's XML (https://libvirt.org/formatdomain.html), for each driver."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from virtgauge.platforms.boot_files import RootPart
from virtgauge.platforms.libvirt.settings import LIBVIRTS_OWN, ChannelKind, Driver
from virtgauge.platforms.qemu.command import PORT_NAME, Drive

_QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
ElementTree.register_namespace("qemu", _QEMU)

QUOTA_PERIOD_US = 100_000  # In which a limit of CPU time is kept, as everywhere else here

AGENT_IN_CONTAINER, SOCKET_IN_CONTAINER = "/agent", "/channel.sock"


@dataclasses.dataclass(frozen=True)
class KernelBoot:
    """Kernel, initramfs and what the kernel is told."""

    kernel: Path
    initramfs: Path
    command_line: str


@dataclasses.dataclass(frozen=True)
class Interface:
    """A network interface."""

    mac: str  # of the guest's end
    model: str  # as the driver calls it; empty where it knows one only
    # a tap of this machine that is there, or the name for the host's end of a pair that libvirt makes
    device: str | None = None
    # in place of a device, the hypervisor's network (bridge, port group, virtual switch), or with ``network:`` before
    # its name one of libvirt's own
    network: str | None = None

    def place(self) -> tuple[str, str | None]:
        """What libvirt calls this type of interface, and the network it is on; None where it is on a device."""
        if self.network is None:
            return "ethernet", None
        if self.network.startswith(LIBVIRTS_OWN):
            return "network", self.network.removeprefix(LIBVIRTS_OWN)
        return "bridge", self.network


@dataclasses.dataclass(frozen=True)
class Domain:
    """What a domain shall be."""

    driver: Driver
    domain_type: str  # of the driver, or ``kvm``
    # name, uuid: unique at the hypervisor
    name: str
    uuid: str
    description: str  # whose it is, for people and for the reclaim
    vcpus: int
    memory_mib: int
    channel: ChannelKind  # how the stream leaves it, through ``socket`` where that is one
    machine: str | None = None  # of ``driver.machines``; None where there are none
    boot: KernelBoot | None = None  # a kernel that is booted directly; None for an image or a container
    image: str | None = None  # the image, as the hypervisor finds it; its format is ``image_format``
    image_format: str | None = None
    root: Path | None = None  # folder that is a container's root, with the agent in it
    socket: Path | None = None  # of this machine, on which the controller listens
    console: Path | None = None  # file for the kernel's messages
    # nics, drives, exports: its devices; exports only in QEMU
    nics: Sequence[Interface] = ()
    drives: Sequence[Drive] = ()
    exports: Sequence[RootPart] = ()
    cpus: tuple[int, ...] | None = None  # the host's CPUs that it may run on
    cpu_limit: float | None = None  # in whole CPUs
    security: Sequence[str] = ()  # libvirt's models of it, in which the domain is not confined: its files are ours
    environment: tuple[tuple[str, str], ...] = ()  # of QEMU's process

    def xml(self) -> str:
        """The whole description."""
        domain = ElementTree.Element("domain", type=self.domain_type)
        _text(domain, "name", self.name)
        _text(domain, "uuid", self.uuid)
        _text(domain, "description", self.description)
        _text(domain, "memory", str(self.memory_mib), unit="MiB")
        _text(domain, "vcpu", str(self.vcpus), **({"cpuset": _list(self.cpus)} if self.cpus else {}))
        self._tuning(domain)
        self._operating_system(domain)
        self._processor(domain)
        for event in ("on_poweroff", "on_reboot", "on_crash"):
            _text(domain, event, "destroy")
        devices = ElementTree.SubElement(domain, "devices")
        self._storage(devices)
        self._network(devices)
        self._lines(devices)
        self._nothing_else(devices)
        self._security(domain)
        ElementTree.indent(domain)
        return ElementTree.tostring(domain, encoding="unicode")

    @property
    def _qemu(self) -> bool:
        return self.domain_type in ("qemu", "kvm")

    def _tuning(self, domain: ElementTree.Element) -> None:
        if self.cpus is None and self.cpu_limit is None:
            return
        tune = ElementTree.Element("cputune")
        if self.cpus is not None and self._qemu:
            for vcpu in range(self.vcpus):
                ElementTree.SubElement(tune, "vcpupin", vcpu=str(vcpu), cpuset=_list(self.cpus))
            ElementTree.SubElement(tune, "emulatorpin", cpuset=_list(self.cpus))
        if self.cpu_limit is not None:
            # LXC's quota of "each" vCPU is the container's.
            scope = "global_" if self._qemu else ""
            _text(tune, f"{scope}period", str(QUOTA_PERIOD_US))
            _text(tune, f"{scope}quota", str(round(self.cpu_limit * QUOTA_PERIOD_US)))
        if len(tune):
            domain.append(tune)

    def _operating_system(self, domain: ElementTree.Element) -> None:
        system = ElementTree.SubElement(domain, "os")
        if self.root is not None:
            _text(system, "type", "exe")
            _text(system, "init", AGENT_IN_CONTAINER)
            for argument in ("--channel", SOCKET_IN_CONTAINER):
                _text(system, "initarg", argument)
            return
        kind = {"xenpvh": "xenpvh", "xenpv": "linux"}.get(self.machine or "", "hvm")
        machine = {"machine": self.machine} if self.machine and (self._qemu or self.boot is not None) else {}
        _text(system, "type", kind if self.boot is not None else "hvm", arch="x86_64", **machine)
        if self.boot is not None:
            _text(system, "kernel", str(self.boot.kernel))
            _text(system, "initrd", str(self.boot.initramfs))
            _text(system, "cmdline", self.boot.command_line)
        else:
            ElementTree.SubElement(system, "boot", dev="hd")

    def _processor(self, domain: ElementTree.Element) -> None:
        if self.root is not None:
            # without, a container that has no interface would have this machine's
            ElementTree.SubElement(ElementTree.SubElement(domain, "features"), "privnet")
        elif self._qemu or self.boot is None:
            features = ElementTree.SubElement(domain, "features")
            ElementTree.SubElement(features, "acpi")
            ElementTree.SubElement(features, "apic")
        if self.domain_type == "kvm":
            # not to be moved to another host, so that it sees the invariant time-stamp counter that it has
            ElementTree.SubElement(domain, "cpu", mode="host-passthrough", migratable="off")
        elif self.domain_type == "qemu":
            ElementTree.SubElement(domain, "cpu", mode="maximum")
        ElementTree.SubElement(domain, "clock", offset="utc")

    def _storage(self, devices: ElementTree.Element) -> None:
        if self.image is not None:
            bus = self.driver.image_bus
            target = {"virtio": "vda", "xen": "xvda", "scsi": "sda"}.get(bus, "hda")
            if bus == "scsi":
                ElementTree.SubElement(devices, "controller", type="scsi", index="0", model="vmpvscsi")
            disk = ElementTree.SubElement(devices, "disk", type="file", device="disk")
            if self._qemu or self.domain_type == "xen":
                ElementTree.SubElement(disk, "driver", name="qemu", type=self.image_format or "raw")
            ElementTree.SubElement(disk, "source", file=self.image)
            ElementTree.SubElement(disk, "target", dev=target, bus=bus)
            if self.domain_type != "vmware":
                ElementTree.SubElement(disk, "readonly")  # several guests may run from it
        for drive in self.drives:
            disk = ElementTree.SubElement(devices, "disk", type="file", device="disk")
            ElementTree.SubElement(disk, "driver", name="qemu", type="raw", cache=drive.cache)
            ElementTree.SubElement(disk, "source", file=str(drive.image))
            ElementTree.SubElement(disk, "target", dev=disk_target(drive.number), bus="virtio")
            ElementTree.SubElement(disk, "serial").text = drive.serial
        if self.root is not None:
            system = ElementTree.SubElement(devices, "filesystem", type="mount", accessmode="passthrough")
            ElementTree.SubElement(system, "source", dir=str(self.root))
            ElementTree.SubElement(system, "target", dir="/")
        for number, part in enumerate(self.exports):
            if part.kind != "link":
                export = ElementTree.SubElement(
                    devices, "filesystem", type="mount", accessmode="passthrough", multidevs="remap"
                )
                ElementTree.SubElement(export, "source", dir=part.source)
                ElementTree.SubElement(export, "target", dir=f"root{number}")
                if part.kind != "write":
                    ElementTree.SubElement(export, "readonly")

    def _network(self, devices: ElementTree.Element) -> None:
        for nic in self.nics:
            kind, name = nic.place()
            interface = ElementTree.SubElement(devices, "interface", type=kind)
            ElementTree.SubElement(interface, "mac", address=nic.mac)
            if name is not None:
                ElementTree.SubElement(interface, "source", {kind: name})
            else:
                target = ElementTree.SubElement(interface, "target", dev=nic.device or "")
                if self._qemu:
                    target.set("managed", "no")
            if nic.model:
                ElementTree.SubElement(interface, "model", type=nic.model)
            if self._qemu:
                if nic.model == "virtio":
                    _without_offloads(interface)
                # Nothing boots from a network here, and the files of the ROMs are a package of their own.
                ElementTree.SubElement(interface, "rom", enabled="no")

    def _lines(self, devices: ElementTree.Element) -> None:
        path = str(self.socket)
        if self.channel is ChannelKind.SERIAL:
            # VirtualBox connects to the pipe of that name, which is a Unix socket on a host that has such.
            pipe = self.domain_type == "vbox"
            serial = ElementTree.SubElement(devices, "serial", type="pipe" if pipe else "unix")
            ElementTree.SubElement(serial, "source", {"path": path} if pipe else {"mode": "connect", "path": path})
            ElementTree.SubElement(serial, "target", port="0")
        elif self.console is not None and self._qemu:
            serial = ElementTree.SubElement(devices, "serial", type="file")
            ElementTree.SubElement(serial, "source", path=str(self.console))
            ElementTree.SubElement(serial, "target", port="0")
        if self.channel is ChannelKind.CONSOLE:
            console = ElementTree.SubElement(devices, "console", type="pty")
            ElementTree.SubElement(console, "target", type="xen", port="0")
        if self.root is not None:
            ElementTree.SubElement(devices, "console", type="pty")  # libvirt starts no container without
        if self.channel is ChannelKind.VIRTIO:
            channel = ElementTree.SubElement(devices, "channel", type="unix")
            ElementTree.SubElement(channel, "source", mode="connect", path=path)
            ElementTree.SubElement(channel, "target", type="virtio", name=PORT_NAME)

    def _nothing_else(self, devices: ElementTree.Element) -> None:
        """What libvirt would add to a machine of QEMU unless told not to."""
        if self._qemu:
            ElementTree.SubElement(devices, "controller", type="usb", model="none")
            ElementTree.SubElement(devices, "memballoon", model="none")

    def _security(self, domain: ElementTree.Element) -> None:
        for model in self.security:
            if model == "dac":
                label = ElementTree.SubElement(domain, "seclabel", type="static", model=model, relabel="no")
                _text(label, "label", "+0:+0")
            else:
                ElementTree.SubElement(domain, "seclabel", type="none", model=model)
        if self._qemu and self.environment:
            extra = ElementTree.SubElement(domain, f"{{{_QEMU}}}commandline")
            for name, value in self.environment:
                ElementTree.SubElement(extra, f"{{{_QEMU}}}env", name=name, value=value)


def _without_offloads(interface: ElementTree.Element) -> None:
    """Have the guest compute its checksums and send no segment larger than a frame."""
    driver = ElementTree.SubElement(interface, "driver")
    common = {"csum": "off", "tso4": "off", "tso6": "off", "ecn": "off", "ufo": "off"}
    ElementTree.SubElement(driver, "host", {**common, "gso": "off", "mrg_rxbuf": "off"})
    ElementTree.SubElement(driver, "guest", common)


def _text(parent: ElementTree.Element, name: str, text: str, **attributes: str) -> ElementTree.Element:
    element = ElementTree.SubElement(parent, name, attributes)
    element.text = text
    return element


def _list(cpus: tuple[int, ...] | None) -> str:
    return ",".join(map(str, sorted(cpus or ())))


def disk_target(number: int) -> str:
    """A data disk's name for libvirt."""
    return f"vd{'ab'[number]}"
