"""A domain's description in libvirt's XML (https://libvirt.org/formatdomain.html), for each driver."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from virtgauge.host.cgroup import QUOTA_PERIOD_US
from virtgauge.platforms.boot_files import RootPart
from virtgauge.platforms.libvirt.settings import LIBVIRTS_OWN, ChannelKind, Driver
from virtgauge.platforms.qemu.command import PORT_NAME, Drive

_QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
ElementTree.register_namespace("qemu", _QEMU)

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
        domain = _element(
            "domain",
            _element("name", self.name),
            _element("uuid", self.uuid),
            _element("description", self.description),
            _element("memory", str(self.memory_mib), unit="MiB"),
            _element("vcpu", str(self.vcpus), **({"cpuset": _list(self.cpus)} if self.cpus else {})),
            self._tuning(),
            self._operating_system(),
            *self._processor(),
            *(_element(event, "destroy") for event in ("on_poweroff", "on_reboot", "on_crash")),
            _element("devices", *self._storage(), *map(self._interface, self.nics), *self._lines()),
            *self._security(),
            type=self.domain_type,
        )
        ElementTree.indent(domain)
        return ElementTree.tostring(domain, encoding="unicode")

    @property
    def _qemu(self) -> bool:
        return self.domain_type in ("qemu", "kvm")

    def _tuning(self) -> Element | None:
        tunes: list[Element] = []
        if self.cpus is not None and self._qemu:
            cpuset = _list(self.cpus)
            tunes += [_element("vcpupin", vcpu=str(vcpu), cpuset=cpuset) for vcpu in range(self.vcpus)]
            tunes.append(_element("emulatorpin", cpuset=cpuset))
        if self.cpu_limit is not None:
            scope = "global_" if self._qemu else ""  # LXC's quota of "each" vCPU is the container's
            tunes.append(_element(f"{scope}period", str(QUOTA_PERIOD_US)))
            tunes.append(_element(f"{scope}quota", str(round(self.cpu_limit * QUOTA_PERIOD_US))))
        return _element("cputune", *tunes) if tunes else None

    def _operating_system(self) -> Element:
        if self.root is not None:
            arguments = [_element("initarg", word) for word in ("--channel", SOCKET_IN_CONTAINER)]
            return _element("os", _element("type", "exe"), _element("init", AGENT_IN_CONTAINER), *arguments)
        machine = {"machine": self.machine} if self.machine and (self._qemu or self.boot is not None) else {}
        if self.boot is None:
            return _element("os", _element("type", "hvm", arch="x86_64", **machine), _element("boot", dev="hd"))
        kind = {"xenpvh": "xenpvh", "xenpv": "linux"}.get(self.machine or "", "hvm")
        return _element(
            "os",
            _element("type", kind, arch="x86_64", **machine),
            _element("kernel", str(self.boot.kernel)),
            _element("initrd", str(self.boot.initramfs)),
            _element("cmdline", self.boot.command_line),
        )

    def _processor(self) -> Iterator[Element]:
        if self.root is not None:
            # without, a container that has no interface would have this machine's
            yield _element("features", _element("privnet"))
        elif self._qemu or self.boot is None:
            yield _element("features", _element("acpi"), _element("apic"))
        if self.domain_type == "kvm":
            # not to be moved to another host, so that it sees the invariant time-stamp counter that it has
            yield _element("cpu", mode="host-passthrough", migratable="off")
        elif self.domain_type == "qemu":
            yield _element("cpu", mode="maximum")
        yield _element("clock", offset="utc")

    def _storage(self) -> Iterator[Element]:
        if self.image is not None:
            bus, with_driver = self.driver.image_bus, self._qemu or self.domain_type == "xen"
            if bus == "scsi":
                yield _element("controller", type="scsi", index="0", model="vmpvscsi")
            yield _disk(
                _element("driver", name="qemu", type=self.image_format or "raw") if with_driver else None,
                _element("source", file=self.image),
                _element("target", dev={"virtio": "vda", "xen": "xvda", "scsi": "sda"}.get(bus, "hda"), bus=bus),
                # several guests may run from it
                _element("readonly") if self.domain_type != "vmware" else None,
            )
        for drive in self.drives:
            yield _disk(
                _element("driver", name="qemu", type="raw", cache=drive.cache),
                _element("source", file=str(drive.image)),
                _element("target", dev=disk_target(drive.number), bus="virtio"),
                _element("serial", drive.serial),
            )
        if self.root is not None:
            yield _folder(str(self.root), "/")
        for number, part in enumerate(self.exports):
            if part.kind != "link":
                readonly = None if part.kind == "write" else _element("readonly")
                yield _folder(part.source, f"root{number}", readonly, multidevs="remap")

    def _interface(self, nic: Interface) -> Element:
        if nic.network is None:
            kind = "ethernet"
            end = _element("target", dev=nic.device or "", **({"managed": "no"} if self._qemu else {}))
        else:
            kind = "network" if nic.network.startswith(LIBVIRTS_OWN) else "bridge"
            end = _element("source", **{kind: nic.network.removeprefix(LIBVIRTS_OWN)})
        return _element(
            "interface",
            _element("mac", address=nic.mac),
            end,
            _element("model", type=nic.model) if nic.model else None,
            _without_offloads() if self._qemu and nic.model == "virtio" else None,
            # Nothing boots from a network here, and the files of the ROMs are a package of their own.
            _element("rom", enabled="no") if self._qemu else None,
            type=kind,
        )

    def _lines(self) -> Iterator[Element]:
        path = str(self.socket)
        if self.channel is ChannelKind.SERIAL:
            # VirtualBox connects to the pipe of that name, which is a Unix socket on a host that has such.
            kind, source = ("pipe", {}) if self.domain_type == "vbox" else ("unix", {"mode": "connect"})
            yield _element("serial", _element("source", **source, path=path), _element("target", port="0"), type=kind)
        elif self.console is not None and self._qemu:
            source = {"path": str(self.console)}
            yield _element("serial", _element("source", **source), _element("target", port="0"), type="file")
        if self.channel is ChannelKind.CONSOLE:
            yield _element("console", _element("target", type="xen", port="0"), type="pty")
        if self.root is not None:
            yield _element("console", type="pty")  # libvirt starts no container without
        if self.channel is ChannelKind.VIRTIO:
            target = _element("target", type="virtio", name=PORT_NAME)
            yield _element("channel", _element("source", mode="connect", path=path), target, type="unix")
        if self._qemu:  # which libvirt would give them unless told not to
            yield _element("controller", type="usb", model="none")
            yield _element("memballoon", model="none")

    def _security(self) -> Iterator[Element]:
        for model in self.security:
            if model == "dac":
                yield _element("seclabel", _element("label", "+0:+0"), type="static", model=model, relabel="no")
            else:
                yield _element("seclabel", type="none", model=model)
        if self._qemu and self.environment:
            words = (_element(f"{{{_QEMU}}}env", name=name, value=value) for name, value in self.environment)
            yield _element(f"{{{_QEMU}}}commandline", *words)


def _element(tag: str, *content: Element | str | None, **attributes: str) -> Element:
    """An element with its text and what is in it; None is nothing."""
    made = Element(tag, attributes)
    for one in content:
        if isinstance(one, str):
            made.text = one
        elif one is not None:
            made.append(one)
    return made


def _disk(*content: Element | None) -> Element:
    return _element("disk", *content, type="file", device="disk")


def _folder(source: str, target: str, readonly: Element | None = None, **attributes: str) -> Element:
    ends = (_element("source", dir=source), _element("target", dir=target))
    return _element("filesystem", *ends, readonly, type="mount", accessmode="passthrough", **attributes)


def _without_offloads() -> Element:
    """Have the guest compute its checksums and send no segment larger than a frame."""
    common = {"csum": "off", "tso4": "off", "tso6": "off", "ecn": "off", "ufo": "off"}
    return _element("driver", _element("host", **common, gso="off", mrg_rxbuf="off"), _element("guest", **common))


def _list(cpus: tuple[int, ...]) -> str:
    return ",".join(map(str, sorted(cpus)))


def disk_target(number: int) -> str:
    """A data disk's name for libvirt."""
    return f"vd{'ab'[number]}"
