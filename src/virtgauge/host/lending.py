"""Interfaces of this machine that are lent to a laboratory, and given back as they were even after a kill -9."""

from __future__ import annotations

import array
import contextlib
import dataclasses
import fcntl
import ipaddress
import json
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from virtgauge.host.process import LIBC, checked, in_thread
from virtgauge.host.tag import is_own_file

_SIOCETHTOOL = 0x8946
_GET_FEATURES, _SET_FEATURES = 0x3A, 0x3B  # ``linux/ethtool.h``
_FEATURE_WORDS = 8  # 32 features each; the kernel has two, and says how many it fills
CLONE_NEWNET = 0x40000000

HOME = "-home"  # After a scope's tag: the name of the namespace that what it was lent belongs to

_Result = TypeVar("_Result")


def ask_ethtool(interface: str, request: array.array[int]) -> None:
    """Hand a request to an interface of the calling thread's namespace; the answer is in its place.
    Raises OSError: there is no such interface, or it cannot.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCETHTOOL, struct.pack("16sP16x", interface.encode(), request.buffer_info()[0]))


def features_of(interface: str) -> list[tuple[int, int]]:
    """What of an interface's features can be changed, and what of it is wanted, 32 bits each.  Raises OSError: none."""
    request = array.array("I", [_GET_FEATURES, _FEATURE_WORDS, *([0] * 4 * _FEATURE_WORDS)])
    ask_ethtool(interface, request)
    words = [request[2 + 4 * number : 6 + 4 * number] for number in range(min(request[1], _FEATURE_WORDS))]
    return [(available, wanted) for available, wanted, _, _ in words]


_BESIDE_IT = ("vlan", "macvlan", "macvtap", "ipvlan", "ipvtap")


def uses_of(link: Any) -> list[str]:
    """What the machine uses an interface for, in words, by its link in the calling thread's namespace."""
    from pyroute2 import IPRoute

    name = link.get("ifname")
    with IPRoute() as route:
        # an address that an interface gives itself is no use of it
        found = [one for one in route.get_addr(index=link["index"]) if one["family"] == 2 or one["scope"] == 0]
        addresses = [str(one.get("address")) for one in found]
        above = [one for one in route.get_links() if one.get("link") == link["index"]]
    uses = [f"it has an address ({address})" for address in addresses]
    if (ours := os.environ.get("SSH_CONNECTION", "").split()[2:3]) and ours[0] in addresses:
        uses.append("your ssh login comes by it")
    routes = [network for through, network in read_routes(_ROUTES.read_text()) if through == name]
    if any(not network.prefixlen for network in routes):
        uses.append("it carries the default route")
    elif routes and not addresses:
        uses.append(f"it carries the route to {routes[0]}")
    if link.get("master"):
        uses.append("it is part of a bridge or a bond")
    if on_it := [one.get("ifname") for one in above if one.get_nested("IFLA_LINKINFO", "IFLA_INFO_KIND") in _BESIDE_IT]:
        uses.append(f"{', '.join(on_it)} is made of it")
    return uses


_ROUTES = Path("/proc/thread-self/net/route")


def read_routes(text: str) -> list[tuple[str, ipaddress.IPv4Network]]:
    """Interface and destination of every route in ``/proc/net/route``."""
    found = []
    for fields in (line.split() for line in text.splitlines()[1:]):
        to, mask = (int.from_bytes(bytes.fromhex(fields[column]), "little") for column in (1, 7))
        found.append((fields[0], ipaddress.IPv4Network((to, mask.bit_count()))))
    return found


@dataclasses.dataclass(frozen=True)
class Loan:
    """An interface, where it is and where it belongs, and how it was."""

    name: str
    lab: str  # the file that keeps alive the namespace that it is lent to
    home: str  # the same of the namespace that it belongs to
    up: bool
    features: tuple[tuple[int, int], ...]  # as :func:`features_of` has them

    def record(self, scope_folder: Path) -> Path:
        """Write down what is to be done, before anything is; :func:`give_back` reads it."""
        record = scope_folder / f"lent-{self.name}.json"
        record.write_text(json.dumps(dataclasses.asdict(self)))
        return record

    def _come_back(self) -> bool:
        from pyroute2 import IPRoute

        with Path(self.home).open() as home, IPRoute() as route:
            found = route.link_lookup(ifname=self.name)
            for index in found:
                route.link("set", index=index, net_ns_fd=home.fileno())
            return bool(found)

    def _become_as_it_was(self, came: bool) -> None:
        """What came back by itself may have got a use since, and stays as it is then."""
        from pyroute2 import IPRoute

        with IPRoute() as route:
            for link in [one for one in route.get_links() if one.get("ifname") == self.name]:
                if came or not uses_of(link):
                    words = [word for available, wanted in self.features for word in (available, wanted & available)]
                    with contextlib.suppress(OSError):
                        ask_ethtool(self.name, array.array("I", [_SET_FEATURES, len(self.features), *words]))
                    route.link("set", index=link["index"], state="up" if self.up else "down")

    def give_back(self) -> list[str]:
        """A line for people.  A hardware interface whose laboratory is gone has come back by itself.
        Raises OSError, NetlinkError: it could not be given back.
        """
        if not Path(self.lab).exists() and not Path(self.home).exists():
            return []  # the machine was started anew
        came = False
        with contextlib.suppress(FileNotFoundError):
            came = _inside(self.lab, self._come_back)
        _inside(self.home, lambda: self._become_as_it_was(came))
        return [f"gave the interface {self.name} back"] if came else []


def give_back(record: Path) -> list[str]:
    """Give back an interface by its record, which stays where that fails; what was done, a line for people each."""
    from pyroute2 import NetlinkError

    if not is_own_file(record):
        return []
    lines: list[str] = []
    try:
        with contextlib.suppress(json.JSONDecodeError):  # half-written: nothing was lent yet
            lines = Loan(**json.loads(record.read_text())).give_back()
        record.unlink()
    except (NetlinkError, OSError, TypeError, ValueError) as error:
        return [f"could not give the interface {record.stem.removeprefix('lent-')} back: {error}"]
    return lines


def give_all_back(scope_folder: Path) -> list[str]:
    """Give back all that a scope was lent; lines for people, also of what could not be given back."""
    return [line for record in _records(scope_folder) for line in give_back(record)]


def is_lent_something(scope_folder: Path) -> bool:
    """Whether something could not be given back yet: it would be lost with the namespaces that its record names."""
    return bool(_records(scope_folder))


def _records(scope_folder: Path) -> list[Path]:
    # another user's folder or record is none: he may have made it a link to one of ours
    return [one for one in sorted(scope_folder.glob("lent-*.json")) if is_own_file(scope_folder) and is_own_file(one)]


def _inside(namespace: str, work: Callable[[], _Result]) -> _Result:
    """Do work in a thread that enters a namespace and ends with it."""

    def enter() -> _Result:
        with Path(namespace).open() as opened:
            checked(LIBC.setns(opened.fileno(), CLONE_NEWNET))
        return work()

    return in_thread(enter)
