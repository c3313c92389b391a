"""Links between a lab and its guests: virtual Ethernet pairs, taps, macvtaps, and who takes their frames."""

from __future__ import annotations

import array
import contextlib
import dataclasses
import errno
import fcntl
import functools
import os
import socket
import stat
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from pyroute2 import IPRoute, NetlinkError

from virtgauge.host.lending import ask_ethtool
from virtgauge.host.process import LIBC, all_pids, checked, closed_after, process_name
from virtgauge.network import NetworkError, Nic
from virtgauge.network.namespace import Namespace, folder_locked, network_error

# Commands that set a feature (``linux/ethtool.h``); segmentation first, as it needs the checksums.
_SEGMENTATION, _GENERIC_SEGMENTATION, _GENERIC_RECEIVE, _CHECKSUMS = 0x1F, 0x24, 0x2C, 0x17


def _switch(interface: str, offload: int, on: bool) -> None:
    """Of the calling thread's namespace.  Raises OSError: there is no such interface, or it cannot."""
    ask_ethtool(interface, array.array("I", [offload, on]))


def disable_all(interfaces: Iterable[str]) -> None:
    """Make every frame of these interfaces a frame, complete with its checksum.
    Raises OSError: there is no such interface.
    """
    for interface in interfaces:
        for offload in (_SEGMENTATION, _GENERIC_SEGMENTATION, _GENERIC_RECEIVE, _CHECKSUMS):
            _switch(interface, offload, False)


def bring_up(route: IPRoute, interfaces: Sequence[str]) -> list[int]:
    """Have these interfaces up, without offloads; their indices.
    Raises OSError: there is no such interface; NetlinkError: the kernel refuses.
    """
    disable_all(interfaces)
    indices = [socket.if_nametoindex(name) for name in interfaces]
    for index in indices:
        route.link("set", index=index, state="up")
    return indices


_TUN = Path("/dev/net/tun")
_TUNSETIFF = 0x400454CA
_TUNSETPERSIST = 0x400454CB
_IFF_TAP, _IFF_NO_PI, _IFF_MULTI_QUEUE, _IFF_VNET_HDR = 0x0002, 0x1000, 0x0100, 0x4000
NUD_PERMANENT = 0x80
_RELEASE_S = 3.0
MACVTAP_FILE = "/macvtap-"  # Begins the name that the kernel shows of its open file


def connect(lab: Namespace, guest: Namespace, nics: Iterable[Nic], *, first: int = 0) -> None:
    """Give a guest its interfaces: ``eth0``, ``eth1`` … in its namespace, their other ends in the lab, all up.

    Addresses, routes and permanent neighbours are set, and the offloads are off at both ends: a checksum that is left
    to hardware which does not exist is wrong in every frame that a tester or a sandbox takes from the link, and a
    segment of 64 KiB is no frame.

    The lab may be the guest's own namespace; ``first`` is the number of the first, where the guest has some already.

    The links go with the guest's namespace.  The kernel removes that in its own time, many at once far faster than one
    after the other; a name that is still taken is waited for.
    Raises NetworkError: a name is taken, or the kernel refuses something; none of the links is left.
    """
    named = {f"eth{number}": nic for number, nic in enumerate(nics, first)}
    ports = [nic.port for nic in named.values()]
    made: list[str] = []  # another guest may have a port of the same name

    def make(route: IPRoute) -> None:
        with guest.descriptor() as inside:
            for name, nic in named.items():
                peer = {"ifname": name, "address": nic.mac, "mtu": nic.mtu, "net_ns_fd": inside}
                add = functools.partial(route.link, "add", ifname=nic.port, kind="veth", mtu=nic.mtu, peer=peer)
                with_a_free_name(nic.port, add)
                made.append(nic.port)

    def configure(route: IPRoute) -> None:
        indices = bring_up(route, [*named])
        for index, nic in zip(indices, named.values(), strict=True):
            for text in nic.addresses:
                address, _, length = text.partition("/")
                route.addr("add", index=index, address=address, prefixlen=int(length))
            for known in nic.neighbours:
                route.neigh("replace", ifindex=index, dst=known.address, lladdr=known.mac, state=NUD_PERMANENT)
            for wanted in nic.routes:
                gateway = {"gateway": wanted.via} if wanted.via else {"scope": "link"}
                route.route("replace", dst=wanted.to, oif=index, **gateway)

    try:
        with network_error(f"a link of {guest.name} cannot be made"):
            lab.netlink(make)
            guest.netlink(configure)
            lab.netlink(lambda route: bring_up(route, ports))
    except NetworkError:
        disconnect(lab, made)
        raise


def take_live_frames(namespace: Namespace, interface: str) -> None:
    """Have an interface of a link take what its other end sends by live XDP.

    Only an interface with NAPI does, and a virtual one has it while it joins frames.
    """
    with network_error(f"the interface {interface} of {namespace.name} cannot have NAPI"):
        namespace.run(lambda: _switch(interface, _GENERIC_RECEIVE, True))


def open_tap(lab: Namespace, nic: Nic, queues: int = 1, *, header: bool = False) -> tuple[int, ...]:
    """A tap in the lab for a virtual machine, by a descriptor for each pair of queues.

    It is gone when these and their copies are closed.  Without a header of offloads on its frames, a guest computes its
    checksums and sends no segment larger than a frame.
    """
    flags = (_IFF_MULTI_QUEUE if queues > 1 else 0) | (_IFF_VNET_HDR if header else 0)

    def inside() -> tuple[int, ...]:
        with _attached(_TUN, nic.port, flags, queues) as opened, IPRoute() as route:
            disable_all([nic.port])
            route.link("set", index=socket.if_nametoindex(nic.port), mtu=nic.mtu, state="up")
            return opened

    with network_error(f"the tap {nic.port} cannot be made"):
        return lab.run(inside)


def keep_tap(lab: Namespace, nic: Nic) -> None:
    """The same for a program that opens it by its name, and wants that header; it stays until it is disconnected.

    Who opens it decides about the offloads of what it takes; :func:`disable_all` afterwards decides anew.
    """
    with closed_after(*open_tap(lab, nic, header=True)) as descriptor:
        fcntl.ioctl(descriptor, _TUNSETPERSIST, 1)


def persistent_tap(name: str) -> None:
    """A tap of the calling thread's namespace, down, that stays.  Raises OSError, NetworkError: it cannot be made."""
    with _attached(_TUN, name) as (descriptor,):
        fcntl.ioctl(descriptor, _TUNSETPERSIST, 1)
    os.close(descriptor)


@contextlib.contextmanager
def _attached(path: Path, name: str, flags: int = 0, queues: int = 1) -> Iterator[tuple[int, ...]]:
    """A tap's descriptors, one for each pair of queues; they are closed where the block fails."""
    request = struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI | flags)
    opened: list[int] = []
    try:
        for _ in range(queues):
            opened.append(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
            attach = functools.partial(fcntl.ioctl, opened[-1], _TUNSETIFF, request)
            with_a_free_name(name, attach) if path == _TUN else attach()  # a macvtap of that name is there by then
        yield tuple(opened)
    except BaseException:
        for descriptor in opened:
            os.close(descriptor)
        raise


def open_macvtap(lab: Namespace, nic: Nic, queues: int = 1) -> tuple[tuple[int, ...], Callable[[], object]]:
    """A macvtap for a virtual machine: its open file, once for each pair of queues, and what removes it.

    Frames go past the host's bridge, straight to an interface below.  That is one end of a pair, whose other end is the
    guest's port in the lab.  As with a tap, frames have no header of offloads; nothing of one that fails is left.
    """

    def inside() -> tuple[int, ...]:
        with IPRoute() as route:
            with_a_free_name(nic.port, lambda: route.link("add", ifname=nic.port, kind="veth", mtu=nic.mtu))
            port = socket.if_nametoindex(nic.port)
            [its] = route.get_links(port)
            [other] = route.get_links(its.get("link"))
            below = other["index"]
            name = f"vgm{below}"
            kind = {"kind": "macvtap", "macvtap_mode": "passthru"}
            route.link("set", index=below, mtu=nic.mtu)
            route.link("add", ifname=name, link=below, address=nic.mac, mtu=nic.mtu, **kind)
            index = socket.if_nametoindex(name)
            disable_all([nic.port, other.get("ifname")])
            for each in (below, port, index):
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


def _opened(lab: Namespace, index: int, device: str, name: str, queues: int) -> tuple[int, ...]:
    """By a node of our own, in a folder that this thread alone sees: that of ``/dev`` may be another namespace's."""
    folder = lab.scope.folder
    checked(LIBC.mount(b"none", bytes(folder), b"tmpfs", 0, b"mode=0700"))
    node = folder / f"{MACVTAP_FILE[1:]}{index}"
    os.mknod(node, stat.S_IFCHR | 0o600, os.makedev(*map(int, device.split(":"))))
    with _attached(node, name, queues=queues) as opened:
        return opened


def disconnect(lab: Namespace, ports: Iterable[str]) -> None:
    """Remove links by their ends in the lab, or bridges; those already gone are no error."""
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
    Raises NetworkError: another interface keeps the name.
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


_DEVICES = Path("/proc/thread-self/net/dev")
_MOST_BYTES = 65536


@dataclasses.dataclass(frozen=True)
class LinkCount:
    """What an interface has taken (``rx``) and sent (``tx``) since it was made; bytes with Ethernet headers."""

    rx_bytes: int
    rx_frames: int
    rx_dropped: int
    tx_bytes: int
    tx_frames: int
    tx_dropped: int


def read_counts(text: str) -> dict[str, LinkCount]:
    """Every interface of ``/proc/net/dev`` but the loopback, by name."""
    found = {}
    for line in text.splitlines()[2:]:
        name, _, figures = line.partition(":")
        # bytes packets errs drop fifo frame compressed multicast | bytes packets errs drop fifo …
        fields = [int(figure) for figure in figures.split()]
        if name.strip() != "lo":
            rx_dropped, tx_dropped = sum(fields[2:5]), sum(fields[10:13])
            found[name.strip()] = LinkCount(fields[0], fields[1], rx_dropped, fields[8], fields[9], tx_dropped)
    return found


def link_counts(namespace: Namespace) -> dict[str, LinkCount]:
    """The counters of a namespace now.  What a link's end in the lab receives is what its guest sent."""
    return read_counts(namespace.run(_DEVICES.read_text))


class LinkCounters:
    """The counters of a namespace by one open file, so that a reading is one system call.

    The open file keeps the namespace alive: close it with whatever made the namespace.
    """

    def __init__(self, namespace: Namespace) -> None:
        self._file = namespace.run(functools.partial(_DEVICES.open, "rb", buffering=0))

    def read(self, interface: str) -> LinkCount:
        """An interface's counters now.  Raises NetworkError: there is no such interface (any more)."""
        counts = read_counts(os.pread(self._file.fileno(), _MOST_BYTES, 0).decode())
        if interface not in counts:
            raise NetworkError(f"there is no interface {interface} to be counted")
        return counts[interface]

    def close(self) -> None:
        """Let the namespace go.  Idempotent."""
        self._file.close()


def receive_in_threads(namespace: Namespace, interfaces: Iterable[str]) -> list[int]:
    """Have the frames that come to these interfaces of a namespace taken by threads of the kernel.

    Otherwise the kernel routes in the context of whoever sends: the tester, or the switch.  The sender would be held up
    where the guest is too slow, no frame would ever be lost, and no limit of the guest's CPU time could apply to its
    work.  With threaded NAPI (Linux 5.12 and later) each interface has a thread of its own, which can be put where the
    guest is.  A virtual Ethernet interface has NAPI only while it is to join received frames (GRO), and uses it only
    where the other end's segmentation is off, as it is on the links of a lab; frames that are routed on are not joined.

    From Linux 6.18 a kernel thread in a cgroup is charged to it, but its quota no longer stops it: whoever sets a limit
    has to look whether it holds.

    Returns the threads' pids, which end with the interfaces.
    """
    names = list(interfaces)

    def switch_on() -> None:
        for name in names:
            _switch(name, _GENERIC_RECEIVE, True)
            (Path("/sys/class/net") / name / "threaded").write_text("1")

    with folder_locked():
        before = set(all_pids())
        try:
            namespace.run_with_devices(switch_on)
        except OSError as error:
            raise NetworkError(
                f"the kernel has no threads of their own for the interfaces of {namespace.name}: {error.strerror}",
                "Linux 5.12 or later has them (threaded NAPI)",
            ) from error
        # A thread is known by its name alone, napi/<interface>-<number>, which tells nothing of the namespace.
        marks = tuple(f"napi/{name}-" for name in names)
        threads = [pid for pid in set(all_pids()) - before if (process_name(pid) or "").startswith(marks)]
    if len(threads) < len(names):
        raise NetworkError(f"{len(threads)} threads serve the {len(names)} interfaces of {namespace.name}")
    return sorted(threads)
