"""The interfaces of a nested lab's dom0: taps that exist as long as the lab, and are lent to the guests' labs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import threading

from pyroute2 import IPRoute, NetlinkError

from virtgauge.host.scope import Scope
from virtgauge.network import NetworkError, Nic
from virtgauge.network.links import open_tap, with_a_free_name
from virtgauge.network.namespace import Namespace


@dataclasses.dataclass(frozen=True)
class PooledTap:
    """One of them.

    Attributes:
        number: in the pool.
        mac: of the interface in dom0.
        home: its name in the pool's namespace.
    """

    number: int
    mac: str
    home: str


class TapPool:
    """Taps in a namespace of their own, moved under the name of a port into a guest's lab and back.

    QEMU has a network card for each from its start; a machine that runs Xen takes no new ones.
    """

    def __init__(self, scope: Scope, name: str, size: int) -> None:
        """Make the taps.

        Raises:
            NetworkError: this user may not.
        """
        self.namespace = Namespace(scope, name)
        self.taps = [PooledTap(number, f"52:54:00:7e:00:{number:02x}", f"spare{number}") for number in range(size)]
        self.descriptors: list[int] = []
        self._lock = threading.Lock()
        self._free = list(self.taps)
        try:
            for tap in self.taps:
                self.descriptors += open_tap(self.namespace, Nic(tap.home, tap.mac))
        except BaseException:
            self.close()
            raise

    def lend(self, lab: Namespace, nic: Nic, removal: contextlib.ExitStack) -> PooledTap:
        """Move a tap into a lab.

        Args:
            lab: gets it, up, named after the port.
            nic: names port and MTU.
            removal: gets what takes it back.

        Raises:
            NetworkError: none is left, or the port's name is taken.
        """
        with self._lock:
            if not self._free:
                raise NetworkError(
                    f"the {len(self.taps)} interfaces of the nested Xen lab are all in use",
                    "measure fewer guests, or with fewer interfaces, at a time",
                )
            tap = self._free.pop()
        try:
            _move(self.namespace, tap.home, lab, nic.port, nic.mtu)
        except BaseException:
            self._give_back(tap)
            raise
        removal.callback(self._take_back, tap, lab, nic.port)
        return tap

    def close_descriptors(self) -> None:
        """Leave the taps to QEMU, which has inherited them; with it they go."""
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors.clear()

    def close(self) -> None:
        """Remove what is not QEMU's.  Idempotent."""
        self.close_descriptors()
        self.namespace.close()

    def _take_back(self, tap: PooledTap, lab: Namespace, port: str) -> None:
        # A lab that was removed first has taken the tap with it: that one is lost, as long as this pool lives.
        with contextlib.suppress(NetworkError, OSError):
            _move(lab, port, self.namespace, tap.home, Nic(tap.home, tap.mac).mtu)
            self._give_back(tap)

    def _give_back(self, tap: PooledTap) -> None:
        with self._lock:
            self._free.append(tap)


def _move(source: Namespace, name: str, target: Namespace, new_name: str, mtu: int) -> None:
    def leave(route: IPRoute) -> None:
        index = route.link_lookup(ifname=name)
        if not index:
            raise NetworkError(f"{source.name} has no interface {name}", "close guests before their lab")
        with target.descriptor() as there:
            move = functools.partial(route.link, "set", index=index[0], net_ns_fd=there, ifname=new_name)
            with_a_free_name(new_name, move)

    def settle(route: IPRoute) -> None:
        [index] = route.link_lookup(ifname=new_name)
        route.link("set", index=index, mtu=mtu, state="up")

    try:
        source.netlink(leave)
        target.netlink(settle)
    except (NetlinkError, OSError) as error:
        raise NetworkError(f"the tap {name} cannot become {new_name} of {target.name}: {error}") from error
