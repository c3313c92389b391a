"""Links between a lab and its guests: a pair of virtual Ethernet interfaces, or a tap for a virtual machine."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import functools
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping

from pyroute2 import IPRoute, NetlinkError

from virtgauge.network.namespace import Namespace
from virtgauge.network.nic import NetworkError, Nic
from virtgauge.network.offloads import Offload, disable_all, switch

_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_NUD_PERMANENT = 0x80
_RELEASE_S = 3.0


def connect(lab: Namespace, guest: Namespace, nics: Iterable[Nic], *, first: int = 0) -> None:
    """Give a guest its interfaces: ``eth0``, ``eth1`` … in its namespace, their other ends in the lab, all up.

    Addresses, routes and permanent neighbours are set, and the offloads are off at both ends: a checksum that is left
    to hardware which does not exist is wrong in every frame that a tester or a sandbox takes from the link, and a
    segment of 64 KiB is no frame.

    Args:
        lab: gets the ends named after ``Nic.port``; it may be the guest's own namespace.
        guest: gets the ends that are configured.
        nics: what they shall be.
        first: number of the first, where the guest has some already.

    The links go with the guest's namespace.  The kernel removes that in its own time, many at once far faster than one
    after the other; a name that is still taken is waited for.

    Raises:
        NetworkError: a name is taken, or the kernel refuses something; none of the links is left.
    """
    named = [(f"eth{number}", nic) for number, nic in enumerate(nics, first)]
    ports = [nic.port for _, nic in named]
    made: list[str] = []  # another guest may have a port of the same name

    def make(route: IPRoute) -> None:
        with guest.descriptor() as inside:
            for name, nic in named:
                peer = {"ifname": name, "address": nic.mac, "mtu": nic.mtu, "net_ns_fd": inside}
                add = functools.partial(route.link, "add", ifname=nic.port, kind="veth", mtu=nic.mtu, peer=peer)
                with_a_free_name(nic.port, add)
                made.append(nic.port)

    def finish(route: IPRoute) -> None:
        disable_all(ports)
        _set_up(route, ports)

    def configure(route: IPRoute) -> None:
        disable_all(name for name, _ in named)
        indices = _set_up(route, [name for name, _ in named])
        for name, nic in named:
            _configure(route, indices[name], nic)

    try:
        lab.netlink(make)
        guest.netlink(configure)
        lab.netlink(finish)
    except (NetlinkError, OSError, NetworkError) as error:
        _disconnect(lab, made)
        if isinstance(error, NetworkError):
            raise
        raise NetworkError(f"a link of {guest.name} cannot be made: {error}") from error


def take_live_frames(namespace: Namespace, interface: str) -> None:
    """Have an interface of a link take what its other end sends by live XDP.

    Only an interface with NAPI does, and a virtual one has it while it joins frames.

    Raises:
        NetworkError: it is not there, or cannot.
    """
    try:
        namespace.run(lambda: switch(interface, Offload.GENERIC_RECEIVE, True))
    except OSError as error:
        raise NetworkError(f"the interface {interface} of {namespace.name} cannot have NAPI: {error}") from error


def open_tap(lab: Namespace, nic: Nic) -> int:
    """A tap in the lab for a virtual machine; it is gone when the returned descriptor and its copies are closed.

    Its frames have no header of offloads, so that a guest computes its checksums and sends no segment larger than
    a frame.

    Raises:
        NetworkError: it cannot be made.
    """

    def inside() -> int:
        descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            request = struct.pack("16sH22x", nic.port.encode(), _IFF_TAP | _IFF_NO_PI)
            with_a_free_name(nic.port, functools.partial(fcntl.ioctl, descriptor, _TUNSETIFF, request))
            disable_all([nic.port])
            with IPRoute() as route:
                route.link("set", index=socket.if_nametoindex(nic.port), mtu=nic.mtu, state="up")
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    try:
        return lab.run(inside)
    except (NetlinkError, OSError) as error:
        raise NetworkError(f"the tap {nic.port} cannot be made: {error}") from error


def _disconnect(lab: Namespace, ports: Iterable[str]) -> None:
    """Remove links by their ends in the lab; those already gone are no error."""
    wanted = set(ports)

    def remove(route: IPRoute) -> None:
        for link in route.get_links():
            if link.get("ifname") in wanted:
                try:
                    route.link("del", index=link["index"])
                except NetlinkError as error:
                    if error.code != errno.ENODEV:  # its guest's namespace was being removed
                        raise

    lab.netlink(remove)


def with_a_free_name(name: str, make: Callable[[], object]) -> None:
    """Make an interface, waiting for a guest that has ended to give its name back.

    Raises:
        NetworkError: another interface keeps the name.
    """
    deadline = time.monotonic() + _RELEASE_S
    while True:
        try:
            make()
            return
        except (NetlinkError, OSError) as error:
            # a tap's name may be another tap's, or that of something else
            number = error.code if isinstance(error, NetlinkError) else error.errno
            if number not in (errno.EEXIST, errno.EBUSY, errno.EINVAL):
                raise
            if time.monotonic() > deadline:
                raise NetworkError(f"there is a {name} already: {error}", "name the ports otherwise") from error
        time.sleep(0.01)


@dataclasses.dataclass(frozen=True)
class LinkCount:
    """What an interface has taken (``rx``) and sent (``tx``) since it was made, and what it dropped; without FCS."""

    rx_frames: int
    tx_frames: int
    rx_bytes: int
    tx_bytes: int
    rx_dropped: int
    tx_dropped: int


def link_counts(namespace: Namespace) -> dict[str, LinkCount]:
    """The kernel's counters of every interface in a namespace, by name.

    What a link's end in the lab receives is what its guest sent.
    """

    def read(route: IPRoute) -> dict[str, LinkCount]:
        return {link.get("ifname"): _count(link.get("stats64")) for link in route.get_links()}

    return namespace.netlink(read)


def _count(stats: Mapping[str, int]) -> LinkCount:
    return LinkCount(
        rx_frames=stats["rx_packets"],
        tx_frames=stats["tx_packets"],
        rx_bytes=stats["rx_bytes"],
        tx_bytes=stats["tx_bytes"],
        rx_dropped=stats["rx_dropped"],
        tx_dropped=stats["tx_dropped"],
    )


def _set_up(route: IPRoute, names: Iterable[str]) -> dict[str, int]:
    indices = {name: socket.if_nametoindex(name) for name in names}
    for index in indices.values():
        route.link("set", index=index, state="up")
    return indices


def _configure(route: IPRoute, index: int, nic: Nic) -> None:
    for text in nic.addresses:
        address, _, length = text.partition("/")
        route.addr("add", index=index, address=address, prefixlen=int(length))
    for neighbour in nic.neighbours:
        route.neigh("replace", ifindex=index, dst=neighbour.address, lladdr=neighbour.mac, state=_NUD_PERMANENT)
    for wanted in nic.routes:
        gateway = {"gateway": wanted.via} if wanted.via else {"scope": "link"}
        route.route("replace", dst=wanted.to, oif=index, **gateway)
