"""Networks made for guests: namespaces, links and switches, none of them joined to the machine's own.

What the kernel refuses, or has not, is a NetworkError where something is made or set, and the kernel's own error where
it is read or removed, unless a function says otherwise.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from pydantic import Field

from virtgauge.errors import VirtgaugeError

# Checked where another machine asks for an interface; what this one asks for, the kernel refuses by itself.
_BYTE = r"(25[0-5]|2[0-4]\d|1?\d?\d)"
Port = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,15}$")]
Address = Annotated[str, Field(pattern=rf"^{_BYTE}(\.{_BYTE}){{3}}$")]
Network = Annotated[str, Field(pattern=rf"^{_BYTE}(\.{_BYTE}){{3}}/(3[0-2]|[12]?\d)$")]
Mac = Annotated[str, Field(pattern=r"^[0-9A-Fa-f][02468aceACE](:[0-9A-Fa-f]{2}){5}$")]


class NetworkError(VirtgaugeError):
    """A network was asked for that cannot be made; what there was of it is removed again."""


@dataclasses.dataclass(frozen=True)
class Route:
    """A route of the guest."""

    to: str  # destination with its prefix length (``10.1.0.0/16``), or ``default``
    via: Address | None = None  # the next router; None where the destination is on the link


@dataclasses.dataclass(frozen=True)
class Neighbour:
    """A neighbour whose hardware address is known, so that none is ever asked for."""

    address: Address
    mac: Mac


@dataclasses.dataclass(frozen=True)
class Nic:
    """One network interface of a guest, and the name of the link's other end in the lab.

    The order of a guest's interfaces is the order in which they are given: ``eth0``, ``eth1`` … where the guest shares
    the host's kernel or is a sandbox.  A virtual machine numbers them by itself; there an interface is known by its
    hardware address.
    """

    port: Port  # name of the link's other end in the lab's namespace
    mac: Mac  # of the guest's end
    addresses: tuple[Network, ...] = ()  # IPv4, with prefix length
    routes: tuple[Route, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    # largest IP packet, in bytes: from the least that IPv4 allows to the most that a tap does
    mtu: Annotated[int, Field(ge=68, le=65521)] = 1500

    def request(self) -> dict[str, Any]:
        """As the agent of a guest with a network stack of its own is asked for it (docs/protocol.md)."""
        asked = dataclasses.asdict(self)
        del asked["port"]
        return asked
