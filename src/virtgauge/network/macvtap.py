"""A macvtap for a virtual machine: frames go past the host's bridge, straight to an interface below."""

from __future__ import annotations

import fcntl
import functools
import os
import socket
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute, NetlinkError

from virtgauge.host.process import LIBC, checked
from virtgauge.network.links import IFF_NO_PI, IFF_TAP, TUNSETIFF, disable_all, disconnect, with_a_free_name
from virtgauge.network.namespace import Namespace
from virtgauge.network.nic import NetworkError, Nic

MACVTAP_FILE = "/macvtap-"  # Begins the name that the kernel shows of its open file


def open_macvtap(lab: Namespace, nic: Nic, queues: int = 1) -> tuple[tuple[int, ...], Callable[[], object]]:
    """Its open file, once for each pair of queues, and what removes it.

    Below it is one end of a pair, whose other end is the guest's port in the lab.  As with a tap, frames have no header
    of offloads.
    Raises NetworkError: it cannot be made; nothing of it is left.
    """

    def inside() -> tuple[int, ...]:
        with IPRoute() as route:
            with_a_free_name(nic.port, lambda: route.link("add", ifname=nic.port, kind="veth", mtu=nic.mtu))
            below = _one(route, lambda link: link["index"] == socket.if_nametoindex(nic.port)).get("link")
            name = f"vgm{below}"
            kind = {"kind": "macvtap", "macvtap_mode": "passthru"}
            route.link("set", index=below, mtu=nic.mtu)
            route.link("add", ifname=name, link=below, address=nic.mac, mtu=nic.mtu, **kind)
            index = socket.if_nametoindex(name)
            disable_all([nic.port, _one(route, lambda link: link["index"] == below).get("ifname")])
            for each in (below, socket.if_nametoindex(nic.port), index):
                route.link("set", index=each, state="up")
        folder = Path(f"/sys/class/net/{name}")
        device = next(iter([*folder.glob("tap*/dev"), *folder.glob("macvtap/tap*/dev")]))  # the first in older kernels
        return _opened(lab, index, device.read_text().strip(), name, queues)

    remove = functools.partial(disconnect, lab, [nic.port])
    try:
        return lab.run_with_devices(inside), remove
    except (NetlinkError, OSError, ValueError, StopIteration) as error:
        remove()
        raise NetworkError(f"the macvtap {nic.port} cannot be made: {error}", "modprobe macvtap") from error


def _one(route: IPRoute, is_it: Callable[[Any], bool]) -> Any:
    return next(link for link in route.get_links() if is_it(link))


def _opened(lab: Namespace, index: int, device: str, name: str, queues: int) -> tuple[int, ...]:
    """By a node of our own, in a folder that this thread alone sees: that of ``/dev`` may be another namespace's."""
    folder = lab.scope.folder
    checked(LIBC.mount(b"none", bytes(folder), b"tmpfs", 0, b"mode=0700"))
    node = folder / f"{MACVTAP_FILE[1:]}{index}"
    os.mknod(node, stat.S_IFCHR | 0o600, os.makedev(*map(int, device.split(":"))))
    opened: list[int] = []
    try:
        for _ in range(queues):
            opened.append(os.open(node, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
            fcntl.ioctl(opened[-1], TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    except OSError:
        for descriptor in opened:
            os.close(descriptor)
        raise
    return tuple(opened)
