"""The machine's own interfaces, lent to a lab: a tester with real NICs is cabled to them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

from pyroute2 import IPRoute, NetlinkError

from virtgauge.network.namespace import Namespace, in_thread
from virtgauge.network.nic import NetworkError, check_name


def lend(lab: Namespace, name: str) -> Callable[[], None]:
    """Move an interface of the machine into a lab, up and under its own name.

    A hardware interface comes back by itself when the namespace goes, which is what happens after a kill -9.

    Returns:
        what gives it back, as it was; it can be called twice.

    Raises:
        NetworkError: there is none of that name, the machine itself uses it, or the kernel does not let it go.
    """
    check_name(name)
    try:
        was_up = in_thread(lambda: _move_in(lab, name))
    except (NetlinkError, OSError) as error:
        raise NetworkError(f"the interface {name} cannot be lent to a lab: {error}") from error
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    state = [own]

    def give_back() -> None:
        if not state:
            return
        descriptor = state.pop()
        with contextlib.suppress(NetlinkError, OSError):  # gone with its driver, or with the lab already
            lab.netlink(lambda route: _move(route, name, descriptor))
        os.close(descriptor)
        with contextlib.suppress(NetlinkError, OSError):
            in_thread(lambda: _set_up(name, was_up))

    return give_back


def _move_in(lab: Namespace, name: str) -> bool:
    with IPRoute() as route:
        link = _link(route, name)
        if any(True for _ in route.get_addr(index=link["index"], family=2)) or link.get("master"):
            raise NetworkError(
                f"the machine itself uses the interface {name}: it has an address or is part of a bridge",
                "name an interface that is cabled to the tester only",
            )
        with lab.descriptor() as inside:
            _move(route, name, inside)
    lab.netlink(lambda inner: inner.link("set", index=_link(inner, name)["index"], state="up"))
    return bool(link["state"] == "up")


def _move(route: IPRoute, name: str, namespace: int) -> None:
    route.link("set", index=_link(route, name)["index"], net_ns_fd=namespace)


def _set_up(name: str, up: bool) -> None:
    with IPRoute() as route:
        route.link("set", index=_link(route, name)["index"], state="up" if up else "down")


def _link(route: IPRoute, name: str) -> Any:
    for link in route.get_links():
        if link.get("ifname") == name:
            return link
    raise NetworkError(f"this machine has no interface {name}", "see `ip link` for those it has")
