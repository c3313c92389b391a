"""A wire between two machines: an interface in a namespace here, whose frames come out of one in a namespace there.

Either a tunnel over the network that both are in (VXLAN, RFC 7348; 50 bytes around each frame), or interfaces of
theirs that are cabled to each other and lent for the time.  A lab does not see it: its links end as they always do, in
a namespace where a bridge of two ports hands every frame over, so that their offloads and counters are those of any
other link.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any

from pyroute2 import IPRoute, NetlinkError

from virtgauge.host.lending import Loan, features_of, give_back, uses_of
from virtgauge.host.process import in_thread
from virtgauge.network import NetworkError, Nic
from virtgauge.network.links import bring_up, disable_all, with_a_free_name
from virtgauge.network.namespace import Namespace, home_of, network_error
from virtgauge.network.switch import LinuxBridge


@contextlib.contextmanager
def lent(lab: Namespace, name: str) -> Iterator[None]:
    """Have an interface of the machine in a lab during the block, up and under its own name; then as it was.

    Its frames are frames there, without offloads.  After a kill -9 the reclaim gives it back.
    Raises NetworkError: there is none of that name, the machine itself uses it, or the kernel does not let it go.
    """
    require_free(name)
    undo = contextlib.ExitStack()

    def move_in() -> None:
        with lab.descriptor() as inside, IPRoute() as route:
            up = _link(route, name)["state"] == "up"
            loan = Loan(name, str(lab.path), str(home_of(lab.scope)), up, tuple(features_of(name)))
            undo.callback(give_back, loan.record(lab.scope.folder))
            _set(route, name, net_ns_fd=inside)

    def begin(route: IPRoute) -> None:
        with contextlib.suppress(OSError):  # some hardware has none that could be switched off
            disable_all([name])
        _set(route, name, state="up")

    with undo:
        with network_error(f"the interface {name} cannot be lent to a lab"):
            in_thread(move_in)
            lab.netlink(begin)
        yield


def require_free(name: str) -> str:
    """The hardware address of an interface of this machine that could be lent.
    Raises NetworkError: there is none of that name, or the machine itself uses it.
    """

    def look() -> tuple[str, list[str]]:
        with IPRoute() as route:
            link = _link(route, name)
        return str(link.get("address")), uses_of(link)

    mac, uses = in_thread(look)
    if uses:
        raise NetworkError(
            f"the machine itself uses the interface {name}: {', '.join(uses)}",
            "name an interface that is cabled to the tester only",
        )
    return mac


def _set(route: IPRoute, name: str, **changed: Any) -> None:
    route.link("set", index=_link(route, name)["index"], **changed)


def _link(route: IPRoute, name: str) -> Any:
    for link in route.get_links():
        if link.get("ifname") == name:
            return link
    raise NetworkError(f"this machine has no interface {name}", "see `ip link` for those it has")


OVERHEAD_BYTES = 50
"""What VXLAN over IPv4 adds to an IP packet: the inner Ethernet header, and headers of VXLAN, UDP and IP."""
_UDP_PORT = 4789  # IANA's


@dataclasses.dataclass(frozen=True)
class Tunnel:
    """One end of a wire over the network."""

    number: int  # of the wire, 1 to 2^24 - 1 (its VXLAN network identifier); the same at both ends, and no other wire's
    # here, there: IPv4 addresses of the two machines
    here: str
    there: str


WireEnd = Tunnel | str
"""A tunnel's end, or an interface of this machine that is cabled and that nothing else uses."""


def wire_ends(wires: Iterable[int | str], here: str, there: str) -> list[WireEnd]:
    """Ends on the machine ``here`` of wires that are known by a number, or by an interface's name."""
    return [wire if isinstance(wire, str) else Tunnel(wire, here, there) for wire in wires]


@contextlib.contextmanager
def wire_in(namespace: Namespace, end: WireEnd, *, mtu: int = 1500) -> Iterator[str]:
    """The interface of a wire's end by its name, up in a namespace during the block; a tunnel goes with the namespace.

    A cable has a carrier once both machines have taken their ends: both do so before they :func:`join` them.
    """
    if isinstance(end, str):
        with lent(namespace, end):
            yield end
    else:
        yield _dig(namespace, end, mtu)


def join(namespace: Namespace, port: str, wire: str) -> None:
    """Hand everything that comes in at an interface over to that of a wire, and the other way round.
    Raises NetworkError: it cannot be, or there is no carrier.
    """
    bridge = LinuxBridge(namespace)
    bridge.add_bridge(f"br-{port}", [port, wire])
    bridge.hand_over()


def require_room(end: WireEnd, nics: Iterable[Nic]) -> None:
    """Refuse a tunnel to this machine itself, or one through which whole frames would not fit.

    The kernel would send each of them in two parts.
    """
    if isinstance(end, str):
        return
    if ":" in end.here + end.there:
        raise NetworkError(
            f"a tunnel from {end.here} to {end.there} needs IPv4",
            "give the hosts IPv4 addresses in [fleet], or cable them to each other and name the interfaces in "
            "fleet.pair.cables",
        )
    if end.here == end.there:
        raise NetworkError(
            f"both ends of a wire would be at {end.here}, and a machine has no wire to itself",
            "put the tester on another machine; for trying, its worker into another network namespace",
        )
    needed = max(nic.mtu for nic in nics) + OVERHEAD_BYTES
    if (mtu := path_mtu(end.there)) < needed:
        raise NetworkError(
            f"the path to {end.there} carries IP packets of {mtu} bytes, and a wire over it needs {needed}",
            f"set an MTU of at least {needed} on the interfaces of both hosts, or cable the hosts to each other and "
            "name the interfaces in fleet.pair.cables",
        )


def path_mtu(address: str) -> int:
    """The largest IP packet that this machine sends to an address, in bytes, as far as its own interface decides."""

    def look() -> int:
        with IPRoute() as route:
            [found] = route.route("get", dst=address)
            [link] = route.get_links(found.get("oif"))
            return int(link.get("mtu"))

    try:
        return in_thread(look)
    except (NetlinkError, OSError, ValueError) as error:
        raise NetworkError(f"there is no way to {address}: {error}") from error


def _dig(namespace: Namespace, tunnel: Tunnel, mtu: int) -> str:
    """The tunnel's interface, made in the wires' namespace; its packets go through this process's own."""
    name = f"vx-{tunnel.number:06x}"
    wanted = {"vxlan_id": tunnel.number, "vxlan_local": tunnel.here, "vxlan_group": tunnel.there}
    wanted |= {"vxlan_port": _UDP_PORT, "vxlan_learning": 0}

    def make() -> None:
        with namespace.descriptor() as inside, IPRoute() as route:
            add = functools.partial(route.link, "add", ifname=name, kind="vxlan", mtu=mtu, net_ns_fd=inside, **wanted)
            with_a_free_name(name, add)

    words = f"a wire from {tunnel.here} to {tunnel.there} cannot be made"
    remedy = "the kernel needs its module vxlan; or cable the hosts to each other and name the interfaces in "
    with network_error(words, remedy + "fleet.pair.cables"):
        in_thread(make)
        namespace.netlink(lambda route: bring_up(route, [name]))
    return name
