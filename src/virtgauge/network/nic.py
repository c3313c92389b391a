"""What a guest's network interface shall be; refused here before anything is made of it."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from typing import Any

from virtgauge.errors import VirtgaugeError

NAME_LIMIT = 15  # Characters in the name of an interface of Linux (IFNAMSIZ less its end)

_NAME_PATTERN = re.compile(r"[A-Za-z0-9_.-]+")
_MAC_PATTERN = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")
_MTU_RANGE = (68, 65521)  # the least that IPv4 allows; the most that a tap does


class NetworkError(VirtgaugeError):
    """A network was asked for that cannot be made; what there was of it is removed again."""


@dataclasses.dataclass(frozen=True)
class Route:
    """A route of the guest."""

    to: str  # destination with its prefix length (``10.1.0.0/16``), or ``default``
    via: str | None = None  # the next router; None where the destination is on the link

    def __post_init__(self) -> None:
        if self.to != "default":
            _checked(ipaddress.IPv4Network, self.to, "a route's destination", "10.1.0.0/16 or default")
        if self.via is not None:
            _checked(ipaddress.IPv4Address, self.via, "a route's next router", "10.0.0.254")


@dataclasses.dataclass(frozen=True)
class Neighbour:
    """A neighbour whose hardware address is known, so that none is ever asked for."""

    address: str
    mac: str

    def __post_init__(self) -> None:
        _checked(ipaddress.IPv4Address, self.address, "a neighbour's address", "10.0.0.254")
        check_mac(self.mac)


@dataclasses.dataclass(frozen=True)
class Nic:
    """One network interface of a guest, and the name of the link's other end in the lab.

    The order of a guest's interfaces is the order in which they are given: ``eth0``, ``eth1`` … where the guest shares
    the host's kernel or is a sandbox.  A virtual machine numbers them by itself; there an interface is known by its
    hardware address.

    Raises:
        NetworkError: one of them is not what it must be.
    """

    port: str  # name of the link's other end in the lab's namespace
    mac: str  # of the guest's end
    addresses: tuple[str, ...] = ()  # IPv4, with prefix length
    # routes, neighbours: of the guest, through this interface
    routes: tuple[Route, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    mtu: int = 1500  # largest IP packet, in bytes

    def __post_init__(self) -> None:
        check_name(self.port)
        check_mac(self.mac)
        for address in self.addresses:
            if "/" not in address:
                raise NetworkError(f"the address {address!r} has no prefix length", "write it as in 10.0.0.1/24")
            _checked(ipaddress.IPv4Interface, address, "an address", "10.0.0.1/24")
        if not _MTU_RANGE[0] <= self.mtu <= _MTU_RANGE[1]:
            raise NetworkError(f"an MTU of {self.mtu} bytes is not possible", "choose {} to {}".format(*_MTU_RANGE))

    def request(self) -> dict[str, Any]:
        """As the agent of a guest with a network stack of its own is asked for it (docs/protocol.md)."""
        asked = dataclasses.asdict(self)
        del asked["port"]
        return asked


def check_nics(nics: tuple[Nic, ...]) -> None:
    """Refuse interfaces that could not stand side by side.

    Raises:
        NetworkError: two of them have the same port, hardware address or address.
    """
    for what, values in (
        ("port", [nic.port for nic in nics]),
        ("hardware address", [nic.mac.lower() for nic in nics]),
        ("address", [address.partition("/")[0] for nic in nics for address in nic.addresses]),
    ):
        twice = {value for value in values if values.count(value) > 1}
        if twice:
            raise NetworkError(f"two interfaces have the {what} {min(twice)}", "give each its own")


def check_name(name: str) -> None:
    """Refuse what Linux does not take as an interface's name.  Raises NetworkError: with the limit."""
    if len(name) > NAME_LIMIT or not _NAME_PATTERN.fullmatch(name) or name in (".", "..", "lo", "all", "default"):
        raise NetworkError(
            f"an interface cannot be named {name!r}",
            f"use at most {NAME_LIMIT} letters, digits, dots, dashes and underscores",
        )


def check_mac(mac: str) -> None:
    """Refuse what is not the hardware address of one station.

    Raises:
        NetworkError: it is malformed, a group's address, or zero.
    """
    example = "52:54:00:00:00:01"
    if not _MAC_PATTERN.fullmatch(mac):
        raise NetworkError(f"{mac!r} is no hardware address", f"write six bytes as in {example}")
    if int(mac[:2], 16) & 1 or not int(mac.replace(":", ""), 16):
        raise NetworkError(f"{mac} does not name one station", f"use a unicast address as {example}")


def _checked(kind: type, text: str, what: str, example: str) -> None:
    try:
        kind(text)
    except ValueError as error:
        raise NetworkError(f"{what} is {text!r}, which is no IPv4 one: {error}", f"write it as in {example}") from error
