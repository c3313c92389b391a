"""The links of a guest whose kernel is a process of this host: taps, which the process inherits."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator

from virtgauge.network.links import open_tap
from virtgauge.network.nic import NetworkError
from virtgauge.platforms.base import GuestSpec, LaunchError


@dataclasses.dataclass(frozen=True)
class Tap:
    """A guest's link.

    Attributes:
        descriptor: the open tap.
        mac: hardware address of the guest's interface on it.
        mtu: the longest packet.
    """

    descriptor: int
    mac: str
    mtu: int


@contextlib.contextmanager
def open_taps(spec: GuestSpec) -> Iterator[list[Tap]]:
    """The guest's links, open in its lab until its process has its own copies; they are gone when that ends.

    Raises:
        LaunchError: one cannot be made.
    """
    taps: list[Tap] = []
    try:
        for nic in spec.nics:
            assert spec.lab is not None
            try:
                taps.append(Tap(open_tap(spec.lab, nic), nic.mac, nic.mtu))
            except NetworkError as error:
                raise LaunchError("network", str(error)) from error
        yield taps
    finally:
        for tap in taps:
            os.close(tap.descriptor)
