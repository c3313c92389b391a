"""What libvirt's drivers have in common and where they differ, as far as a guest of ours is concerned."""

from __future__ import annotations

import dataclasses
import enum
import urllib.parse
from collections.abc import Mapping


class ChannelKind(enum.StrEnum):
    """How the agent's byte stream leaves a guest."""

    VIRTIO = "virtio"  # a virtio port, on a Unix socket of ours
    SERIAL = "serial"  # the first serial line, on a Unix socket of ours
    CONSOLE = "console"  # the hypervisor's console, a terminal of this machine
    SOCKET = "socket"  # the agent itself connects to a Unix socket of ours, in a container's root
    DIAL_IN = "dial-in"  # the agent of an image connects over TLS; nothing in the domain's description


@dataclasses.dataclass(frozen=True)
class Driver:
    """One driver of libvirt.

    Attributes:
        scheme: of its connection URIs.
        title: of the hypervisor, for people.
        domain_type: of its domains (QEMU's are ``kvm`` where that works).
        machines: those that may be asked for, the usual one first; empty where there is nothing to choose.
        kernel_boot: it boots a kernel and an initramfs directly, in place of an image.
        image_format: of ``virtgauge image`` that it boots; None where it boots none.
        image_bus: of the image.
        plain: its guests have no data disk and none of this machine's folders.
        nic_models: by the names of a plan, libvirt's; the usual one first.
        own_kernel: its guests have one, and so memory and work of their own; containers have the host's.
        in_lab: its interfaces are devices of this machine, which are put into the lab.
        channel, image_channel: of a guest booted directly, and of one booted from an image.
        transient: a domain is started without being defined, and gone with its end.
        auto_destroy: libvirt itself ends a domain whose connection is closed.
        kernel_modules: that reach the channel of a guest booted directly.
    """

    scheme: str
    title: str
    domain_type: str
    machines: tuple[str, ...] = ()
    kernel_boot: bool = False
    image_format: str | None = None
    image_bus: str = "ide"
    plain: bool = True
    nic_models: Mapping[str, str] = dataclasses.field(default_factory=dict)
    own_kernel: bool = True
    in_lab: bool = False
    channel: ChannelKind = ChannelKind.DIAL_IN
    image_channel: ChannelKind = ChannelKind.DIAL_IN
    transient: bool = True
    auto_destroy: bool = False
    kernel_modules: tuple[str, ...] = ()


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
    """What a connection URI names.

    Attributes:
        uri: as given.
        driver: that serves it.
        remote: the hypervisor's host is another machine.
    """

    uri: str
    driver: Driver
    remote: bool


def target_of(uri: str) -> Target:
    """Read a connection URI (https://libvirt.org/uri.html).

    Raises:
        ValueError: it is none, or its driver is not one of ours; the message names what may be given.
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
            driver,
            kernel_boot=False,
            in_lab=False,
            channel=ChannelKind.DIAL_IN,
            image_channel=ChannelKind.DIAL_IN,
        )
    return Target(uri, driver, remote)
