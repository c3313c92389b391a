"""What carries the frames of a QEMU guest's interfaces: taps, macvtaps, or a switch that QEMU itself calls."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator

from virtgauge.network.macvtap import open_macvtap
from virtgauge.network.nic import NetworkError
from virtgauge.platforms.base import GuestSpec, LaunchError
from virtgauge.platforms.local import OpenTaps, Tap, open_taps
from virtgauge.platforms.qemu.tuning import Tuning


def tuned_links(tuning: Tuning, removal: contextlib.ExitStack) -> OpenTaps:
    """How a guest's links are opened; what of them outlives its process is gone after ``removal``."""
    queues = tuning.nic_queues or 1
    if tuning.vhost_user:
        return functools.partial(_of_a_switch, len(tuning.vhost_user))
    if tuning.nic_backend == "macvtap":
        return functools.partial(_macvtaps, queues, removal)
    return functools.partial(open_taps, queues=queues)


@contextlib.contextmanager
def _of_a_switch(sockets: int, spec: GuestSpec) -> Iterator[list[Tap]]:
    if spec.nics and len(spec.nics) != sockets:
        said = f"vhost_user names {sockets} sockets, and the suite gives the guest {len(spec.nics)} interfaces"
        raise LaunchError("network", f"{said}; name one for each")
    yield [Tap((), nic.mac, nic.mtu) for nic in spec.nics]


@contextlib.contextmanager
def _macvtaps(queues: int, removal: contextlib.ExitStack, spec: GuestSpec) -> Iterator[list[Tap]]:
    taps: list[Tap] = []
    try:
        for nic in spec.nics:
            assert spec.lab is not None
            try:
                descriptors, remove = open_macvtap(spec.lab, nic, queues)
            except NetworkError as error:
                raise LaunchError("network", str(error)) from error
            removal.callback(remove)
            taps.append(Tap(descriptors, nic.mac, nic.mtu))
        yield taps
    finally:
        for descriptor in (one for tap in taps for one in tap.descriptors):
            os.close(descriptor)
