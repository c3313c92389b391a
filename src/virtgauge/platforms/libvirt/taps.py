"""A guest's interfaces in its lab, where libvirt's daemon, which lives on the host's network, makes or opens them."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import itertools
import os
import socket
import struct
from collections.abc import Iterable, Sequence

from pyroute2 import IPRoute, NetlinkError

from virtgauge.network.links import with_a_free_name
from virtgauge.network.namespace import Namespace, in_thread
from virtgauge.network.nic import NetworkError, Nic
from virtgauge.network.offloads import disable_all

_TUNSETIFF, _TUNSETPERSIST = 0x400454CA, 0x400454CB
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000

_numbers = itertools.count()


class LabDevices:
    """The host's ends of a guest's interfaces: on the host's network for libvirt, then in the lab.

    Attributes:
        names: on the host's network, one for each interface; they begin with the scope's tag, for the reclaim.
    """

    def __init__(self, tag: str, lab: Namespace | None, nics: Sequence[Nic]) -> None:
        self._lab, self._nics = lab, nics
        self.names = [f"{tag}n{next(_numbers):x}" for _ in nics]
        self._in_lab: list[str] = []
        """Their names there, as far as they are."""

    def make_taps(self) -> None:
        """Make taps that stay, down, for libvirt's daemon to open by their names.

        Raises:
            NetworkError: this user may make none.
        """

        def inside() -> None:
            for name in self.names:
                descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
                try:
                    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
                    fcntl.ioctl(descriptor, _TUNSETPERSIST, 1)
                finally:
                    os.close(descriptor)

        try:
            in_thread(inside)
        except OSError as error:
            raise NetworkError(f"no tap can be made: {error.strerror}", "run virtgauge as root (sudo)") from error

    def move_into_lab(self) -> None:
        """Move what libvirt's daemon has opened or made into the lab, named after the ports, and up.

        Taps come there without having been up: the host's network sees none of their frames.

        Raises:
            NetworkError: a port's name is taken, or the kernel refuses.
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

        try:
            in_thread(leave)
            lab.netlink(arrive)
        except (NetlinkError, OSError) as error:
            raise NetworkError(f"an interface cannot be put into the lab: {error}") from error

    def remove(self) -> None:
        """Remove them wherever they are by now; those already gone are no error."""
        if not self.names:
            return

        def from_host() -> None:
            with IPRoute() as route:
                _remove(route, self.names)

        in_thread(from_host)
        if self._lab is not None and self._in_lab:
            with contextlib.suppress(OSError):  # the lab is gone, and with it what was there
                self._lab.netlink(lambda route: _remove(route, self._in_lab))


def _remove(route: IPRoute, names: Iterable[str]) -> None:
    for name in names:
        with contextlib.suppress(NetlinkError, OSError):
            route.link("del", index=socket.if_nametoindex(name))
