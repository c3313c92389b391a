"""How a domain boots: its kernel or its image, its interfaces, and what is told when it does not."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import itertools
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path

from pyroute2 import IPRoute, NetlinkError

from virtgauge.agent import AgentBinary
from virtgauge.errors import UnavailableError
from virtgauge.host.machine import AS_ROOT, lacking
from virtgauge.host.process import in_thread
from virtgauge.network import NetworkError, Nic
from virtgauge.network.links import disable_all, disconnect, persistent_tap, with_a_free_name
from virtgauge.network.namespace import Namespace, network_error
from virtgauge.platforms.attempt import LaunchAttempt
from virtgauge.platforms.base import GuestSpec, stage
from virtgauge.platforms.boot_files import RootPart, device_modules, initramfs_with, require_short, xen_command_line
from virtgauge.platforms.guest_kernel import OwnKernel, kernel_of
from virtgauge.platforms.libvirt.connection import DomainHandle, LibvirtError, waited
from virtgauge.platforms.libvirt.domain_xml import AGENT_IN_CONTAINER, Interface, KernelBoot
from virtgauge.platforms.libvirt.settings import Driver, LibvirtSettings
from virtgauge.platforms.qemu.command import kernel_command_line
from virtgauge.platforms.qemu.platform import host_tsc_khz

_numbers = itertools.count()


class DomainAttempt(LaunchAttempt):
    """A launch whose guest is a domain."""

    def __init__(self, spec: GuestSpec, handle: DomainHandle, console: Path) -> None:
        super().__init__(spec, console)
        self.handle = handle

    def end_of_process(self) -> str | None:
        try:
            return waited("the state of the guest", self.handle.end, 5.0)
        except LibvirtError as error:
            return error.message

    async def settle(self) -> None:
        await asyncio.sleep(0.1)


def agent_root(folder: Path, agent: AgentBinary) -> Path:
    """The root of a container: the agent, and folders for what libvirt mounts."""
    root = folder / "root"
    for name in ("dev", "proc", "sys", "run", "tmp"):
        (root / name).mkdir(parents=True)
    shutil.copy(agent.path, root / AGENT_IN_CONTAINER.lstrip("/"))
    return root


async def kernel_boot(
    spec: GuestSpec,
    settings: OwnKernel,
    driver: Driver,
    accelerator: str | None,
    nic_model: str,
    root: tuple[RootPart, ...],
) -> KernelBoot:
    """Kernel, initramfs and command line of a guest, with a model of its interfaces by the plan's name.
    Raises LaunchError: there is no kernel, or it lacks a module.
    """
    with stage("start", UnavailableError):
        kernel = kernel_of(settings)
    names = (*driver.kernel_modules, *device_modules(spec, nic_model, root))
    initramfs, loaded = initramfs_with(spec.agent, kernel.modules, names, kernel.initrd)
    if driver.scheme == "qemu":
        tsc_khz = await host_tsc_khz(spec) if accelerator == "tcg" else None
        line = kernel_command_line(
            accelerator or "tcg",
            tsc_khz,
            modules=loaded,
            root=root,
            folders=[disk.folder for disk in spec.disks],
            words=kernel.words,
            networked=bool(spec.nics),
        )
    else:
        line = xen_command_line(loaded, kernel.words)
    require_short(line)
    return KernelBoot(kernel=kernel.image, initramfs=initramfs, command_line=line)


def management_interface(settings: LibvirtSettings, model: str) -> Interface | None:
    """The interface on the hypervisor's network that ``management`` names; None where no agent is to call.

    It is the first of a guest, because the agent of an image gives its address to the first one that it finds unless
    its image was built for another.  All guests of a platform have the same hardware address: they are there one
    after the other, and neither a switch nor this machine has to learn a new one for the same IP address.
    """
    if settings.management is None:
        return None
    # The prefix is QEMU's of guests' interfaces; the fourth byte is 80 or more, which no interface of a suite has.
    digest = hashlib.sha256(f"{settings.uri}\0{settings.listen}\0{settings.management}".encode()).digest()
    own = f"52:54:00:{digest[0] | 0x80:02x}:{digest[1]:02x}:{digest[2]:02x}"
    return Interface(settings.management_mac or own, model, network=settings.management)


class LabDevices:
    """The host's ends of a guest's interfaces: on the host's network for libvirt, then in the lab."""

    def __init__(self, tag: str, lab: Namespace | None, nics: Sequence[Nic]) -> None:
        self._lab, self._nics = lab, nics
        # on the host's network, one for each interface; they begin with the scope's tag, for the reclaim
        self.names = [f"{tag}n{next(_numbers):x}" for _ in nics]
        self._in_lab: list[str] = []  # their names there, as far as they are

    def make_taps(self) -> None:
        """Make taps that stay, down, for libvirt's daemon to open.  Raises NetworkError: this user may make none."""
        try:
            in_thread(lambda: list(map(persistent_tap, self.names)))
        except OSError as error:
            raise NetworkError(f"no tap can be made: {error.strerror}{lacking('CAP_NET_ADMIN')}", AS_ROOT) from error

    def move_into_lab(self) -> None:
        """Move what libvirt's daemon has opened or made into the lab, named after the ports, and up.

        Taps come there without having been up: the host's network sees none of their frames.
        Raises NetworkError: a port's name is taken, or the kernel refuses.
        """
        lab = self._lab
        if lab is None or not self.names:
            return

        def leave() -> None:
            with IPRoute() as route, lab.descriptor() as inside:
                for name in self.names:
                    route.link("set", index=socket.if_nametoindex(name), net_ns_fd=inside)
                    self._in_lab.append(name)

        def arrive(route: IPRoute) -> None:
            for number, (name, nic) in enumerate(zip(self.names, self._nics, strict=True)):
                index = socket.if_nametoindex(name)
                route.link("set", index=index, state="down")  # it cannot be renamed otherwise
                with_a_free_name(nic.port, functools.partial(route.link, "set", index=index, ifname=nic.port))
                self._in_lab[number] = nic.port
                disable_all([nic.port])
                route.link("set", index=index, mtu=nic.mtu, state="up")

        with network_error("an interface cannot be put into the lab"):
            in_thread(leave)
            lab.netlink(arrive)

    def remove(self) -> None:
        """Remove them wherever they are by now; those already gone are no error."""
        if not self.names:
            return

        def from_host() -> None:
            with IPRoute() as route:
                for name in self.names:
                    with contextlib.suppress(NetlinkError, OSError):
                        route.link("del", index=socket.if_nametoindex(name))

        in_thread(from_host)
        if self._lab is not None and self._in_lab:
            for name in self._in_lab:
                with contextlib.suppress(NetlinkError, OSError):  # the lab may be gone, and with it what was there
                    disconnect(self._lab, [name])
