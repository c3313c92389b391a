"""A plan's section of kind ``libvirt``, and the drivers of libvirt that it may name."""

from __future__ import annotations

import dataclasses
import enum
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from virtgauge.folders import cache_root
from virtgauge.plan import written_as
from virtgauge.platforms.attached.platform import EndpointText
from virtgauge.platforms.disk_image import NO_FOLDERS, OwnDiskImage

LIBVIRTS_OWN = "network:"  # Before the name of a network that libvirt itself keeps, as ``default``
_OF_A_CALL = ("listen", "credentials", "management")


class ChannelKind(enum.StrEnum):
    """How the agent's byte stream leaves a guest."""

    VIRTIO = "virtio"  # a virtio port, on a Unix socket of ours
    SERIAL = "serial"  # the first serial line, on a Unix socket of ours
    CONSOLE = "console"  # the hypervisor's console, a terminal of this machine
    SOCKET = "socket"  # the agent itself connects to a Unix socket of ours, in a container's root
    DIAL_IN = "dial-in"  # the agent of an image connects over TLS; nothing in the domain's description


@dataclasses.dataclass(frozen=True)
class Driver:
    """One driver of libvirt."""

    scheme: str
    title: str
    domain_type: str  # of its domains (QEMU's are ``kvm`` where that works)
    # those that may be asked for, the usual one first; empty where there is nothing to choose
    machines: tuple[str, ...] = ()
    kernel_boot: bool = False  # it boots a kernel and an initramfs directly, in place of an image
    image_format: str | None = None  # of ``virtgauge image`` that it boots; None where it boots none
    image_bus: str = "ide"
    plain: bool = True  # its guests have no data disk and none of this machine's folders
    # by the names of a plan, libvirt's; the usual one first
    nic_models: Mapping[str, str] = dataclasses.field(default_factory=dict)
    own_kernel: bool = True  # its guests have one, and so memory and work of their own; containers have the host's
    in_lab: bool = False  # its interfaces are devices of this machine, which are put into the lab
    # channel, image_channel: of a guest booted directly, and of one booted from an image
    channel: ChannelKind = ChannelKind.DIAL_IN
    image_channel: ChannelKind = ChannelKind.DIAL_IN
    transient: bool = True  # a domain is started without being defined, and gone with its end
    auto_destroy: bool = False  # libvirt itself ends a domain whose connection is closed
    kernel_modules: tuple[str, ...] = ()  # that reach the channel of a guest booted directly


DRIVERS = {
    driver.scheme: driver
    for driver in (
        Driver(
            scheme="qemu",
            title="QEMU",
            domain_type="qemu",
            machines=("q35", "pc"),
            kernel_boot=True,
            image_format="qcow2",
            image_bus="virtio",
            plain=False,
            nic_models={"virtio": "virtio", "e1000": "e1000"},
            in_lab=True,
            channel=ChannelKind.VIRTIO,
            image_channel=ChannelKind.SERIAL,
            auto_destroy=True,
            kernel_modules=("virtio_pci", "virtio_console"),
        ),
        Driver(
            scheme="xen",
            title="Xen",
            domain_type="xen",
            machines=("xenpvh", "xenpv"),
            kernel_boot=True,
            image_format="raw",
            image_bus="xen",
            nic_models={"xen": "netfront"},
            channel=ChannelKind.CONSOLE,
            image_channel=ChannelKind.CONSOLE,
        ),
        Driver(
            scheme="lxc",
            title="LXC",
            domain_type="lxc",
            own_kernel=False,
            nic_models={"veth": ""},
            in_lab=True,
            channel=ChannelKind.SOCKET,
            auto_destroy=True,
        ),
        Driver(
            scheme="vbox",
            title="VirtualBox",
            domain_type="vbox",
            image_format="vdi",
            nic_models={"e1000": "82540EM", "virtio": "virtio"},
            image_channel=ChannelKind.SERIAL,
            transient=False,
        ),
        Driver(
            scheme="esx",
            title="ESXi",
            domain_type="vmware",
            image_format="vmdk",
            image_bus="scsi",
            nic_models={"vmxnet3": "vmxnet3", "e1000": "e1000"},
            transient=False,
        ),
        Driver(
            scheme="hyperv",
            title="Hyper-V",
            domain_type="hyperv",
            image_format="vhdx",
            nic_models={"netvsc": ""},
            transient=False,
        ),
        # In this process, and nothing runs in it: whoever connects to the socket is its guest.
        Driver(
            scheme="test",
            title="test driver",
            domain_type="test",
            image_format="raw",
            nic_models={"e1000": "e1000"},
            image_channel=ChannelKind.SOCKET,
        ),
    )
}
"""By the scheme of their URIs."""


@dataclasses.dataclass(frozen=True)
class Target:
    """What a connection URI names."""

    uri: str
    driver: Driver
    remote: bool


def target_of(uri: str) -> Target:
    """Read a connection URI (https://libvirt.org/uri.html).
    Raises ValueError: it is none, or its driver is not one of ours; the message names what may be given.
    """
    parts = urllib.parse.urlsplit(uri)
    scheme, _, _ = parts.scheme.partition("+")
    if scheme not in DRIVERS:
        known = ", ".join(sorted(DRIVERS))
        raise ValueError(f"uri = {uri!r} names no driver that is known here ({known}); write it as in qemu:///system")
    if scheme in ("esx", "hyperv") and not parts.hostname:
        raise ValueError(f"uri = {uri!r} names no host; write it as in {scheme}://user@host/")
    driver = DRIVERS[scheme]
    remote = bool(parts.hostname) or parts.scheme.endswith("+ext")
    if remote:  # no socket, terminal, kernel or interface of this machine can be theirs
        driver = dataclasses.replace(
            driver, kernel_boot=False, in_lab=False, channel=ChannelKind.DIAL_IN, image_channel=ChannelKind.DIAL_IN
        )
    return Target(uri, driver, remote)


def _named(value: str) -> str:
    if not value.removeprefix(LIBVIRTS_OWN).strip() or not value.isprintable():
        raise ValueError(f"{value!r} names no network of the hypervisor: br0, VM Network, {LIBVIRTS_OWN}default …")
    return value


NetworkName = Annotated[str, AfterValidator(_named)]  # A network of the hypervisor, or of libvirt
HardwareAddress = Annotated[  # Of one device: the lowest bit of the first byte would make it a group's
    str,
    StringConstraints(to_lower=True),
    written_as(r"[0-9a-f][02468ace](:[0-9a-f]{2}){5}", "give the hardware address of one device, as 52:54:00:00:00:01"),
]


class LibvirtSettings(OwnDiskImage):
    """Guests that libvirt starts. QEMU and Xen on this machine boot a ``kernel``, others an ``image`` or nothing."""

    uri: str = "qemu:///system"
    """The connection: qemu:///system, qemu:///session, xen:///, lxc:///, vbox:///session, esx://, hyperv://."""
    image: Annotated[str, Field(min_length=1)] | None = None
    """An image of `virtgauge image`, by the path that the hypervisor knows (for ESXi: ``[datastore]
    folder/file.vmdk``). QEMU and Xen on this machine boot a kernel directly and need none; VirtualBox takes
    ``guest.vdi`` of the user's cache, where that is there."""
    machine: Literal["q35", "pc", "xenpvh", "xenpv"] | None = None
    """QEMU: q35 or pc. Xen: xenpvh or xenpv."""
    accelerator: Literal["auto", "kvm", "tcg"] = "auto"
    """QEMU: ``auto`` uses kvm if libvirt offers it, a guest boots with it and its figures count, else tcg."""
    vcpus: Annotated[int, Field(ge=1, le=255)] | None = None
    """2 by default, or 1 where this machine has no more."""
    memory_mib: Annotated[int, Field(ge=128)] = 512
    """Memory of a guest."""
    nic_model: Literal["virtio", "e1000", "vmxnet3", "netvsc", "xen", "veth"] | None = None
    """Model of a guest's network interfaces; the hypervisor's usual one by default."""
    networks: tuple[NetworkName, ...] = ()
    """The hypervisor's networks (bridges, port groups, virtual switches) for a guest's interfaces, in order.
    ``network:NAME`` is a network of libvirt. QEMU and LXC on this machine need none."""

    listen: EndpointText | None = None
    """Address and port of this machine that the agent of an image calls, if there is no serial line to the
    hypervisor."""
    credentials: Path | None = None
    """The file ``credentials.json`` that `virtgauge attach prepare` wrote beside the identity that the image was built
    with."""
    management: NetworkName | None = None
    """The hypervisor's network for that call, written as in ``networks``. The guest gets an interface there in front of
    those that a suite needs."""
    management_mac: HardwareAddress | None = None
    """Hardware address of that interface: if the image was built with ``--nic``, or the network admits no other. By
    default it is derived from ``uri``, ``listen`` and ``management``, and so the same for every guest."""
    wait_s: Annotated[float, Field(ge=1, le=3600)] = 120.0
    """How long the agent of an image may take to call after the guest was started."""

    @property
    def target(self) -> Target:
        return target_of(self.uri)

    @property
    def usual_image(self) -> Path | None:
        """Where an image is looked for that is not set; None where none is needed, or it is on another machine."""
        driver = self.target.driver
        if self.target.remote or driver.kernel_boot or driver.image_format is None:
            return None
        return cache_root() / f"guest.{driver.image_format}"

    @property
    def image_format(self) -> str:
        """By the image's suffix; raw where it has none that is known."""
        suffix = PurePosixPath(self.image or "").suffix.lower()
        return suffix[1:] if suffix in (".qcow2", ".vmdk", ".vhdx", ".vdi") else "raw"

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        driver = self.target.driver
        if self.machine is not None and self.machine not in driver.machines:
            there = f"choose one of: {', '.join(driver.machines)}" if driver.machines else "leave it out"
            yield f"machine = {self.machine!r} is none of {driver.title}: {there}"
        if self.nic_model is not None and self.nic_model not in driver.nic_models:
            yield (
                f"nic_model = {self.nic_model!r} is none of {driver.title}: "
                f"choose one of: {', '.join(driver.nic_models)}"
            )
        if self.accelerator != "auto" and driver.scheme != "qemu":
            yield f"accelerator is QEMU's, and {driver.title} has none: leave it out"
        if self.image is not None and driver.image_format is None:
            yield f"{driver.title} boots no image: leave image out"
        if (self.image is not None or not driver.kernel_boot) and (
            own := [field for field in OwnDiskImage.model_fields if field != "boot_timeout_s" and getattr(self, field)]
        ):
            why = "an image has its own" if self.image is not None else "it is for QEMU and Xen on this machine"
            yield f"{own[0]} means nothing here: {why}; leave it out"
        if self.disk_image is not None and driver.plain:
            yield f"disk_image: {NO_FOLDERS}"
        given = [field for field in _OF_A_CALL if getattr(self, field) is not None]
        if given and (missing := [field for field in _OF_A_CALL if field not in given]):
            yield (
                f"{', '.join(given)} without {', '.join(missing)}: listen (where the agent of an image calls), "
                "credentials (that the image was built with) and management (the hypervisor's network by which it "
                "calls: a bridge, a port group, a virtual switch, or network:default) go together"
            )
        if given and self.image is None:
            yield f"{given[0]} means nothing without image: only the agent of an image calls"
        if not given and self.management_mac is not None:
            yield "management_mac means nothing without management: it is that interface's"
        if self.networks and driver.in_lab:
            yield f"the interfaces of {driver.title} on this machine are put into the lab: leave networks out"
