"""What bounds, delays and loses frames that leave by an interface: token buckets, and netem where the kernel has it."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import socket
from typing import Any, Literal

from pyroute2 import IPRoute, NetlinkError

from virtgauge.network import NetworkError
from virtgauge.network.namespace import Namespace, network_error

_ROOT, _CLASS, _LEAF = 0x10000, 0x10001, 0x20000
_TC_H_ROOT = 0xFFFFFFFF
LONGEST_BYTES = 1514
_FEWEST_IN_BUCKET, _FEWEST_IN_QUEUE = 2, 64


@dataclasses.dataclass(frozen=True)
class Bucket:
    """A token bucket with a queue in front of it; the kernel counts frames with their Ethernet header."""

    kind: Literal["tbf", "htb"]  # of the kernel's queueing discipline: ``tbf``, or a class of ``htb``
    rate_bps: float  # at which tokens come, in bit/s; less than 2^35
    burst_bytes: int  # that it holds; they pass at once, and of ``htb`` a frame more
    limit_bytes: int  # of the queue, of ``htb`` in full frames; what is more is dropped

    @classmethod
    def of(cls, kind: Literal["tbf", "htb"], rate_bps: float, burst_us: float, queue_ms: float) -> Bucket:
        """With depth and queue as times at full rate; two full frames and 64 at least."""
        return cls(
            kind=kind,
            rate_bps=rate_bps,
            burst_bytes=max(_FEWEST_IN_BUCKET * LONGEST_BYTES, round(rate_bps * burst_us * 1e-6 / 8)),
            limit_bytes=max(_FEWEST_IN_QUEUE * LONGEST_BYTES, round(rate_bps * queue_ms * 1e-3 / 8)),
        )


@dataclasses.dataclass(frozen=True)
class Impairment:
    """What netem does to frames."""

    delay_us: int  # each is held for
    loss: float  # part that is lost
    limit_frames: int  # that can be held; what is more is dropped


def shape(namespace: Namespace, interface: str, bucket: Bucket) -> None:
    """Let frames leave by a token bucket, in place of whatever was there; read back.
    Raises NetworkError: the kernel has no such discipline, or sets something else.
    """

    def apply(route: IPRoute) -> None:
        index = socket.if_nametoindex(interface)
        _clear(route, index)
        rate = round(bucket.rate_bps / 8)
        if bucket.kind == "tbf":
            limits = {"rate": rate, "burst": bucket.burst_bytes, "limit": bucket.limit_bytes}
            route.tc("add", "tbf", index=index, handle=_ROOT, **limits)
        else:
            route.tc("add", "htb", index=index, handle=_ROOT, default=_CLASS & 0xFFFF)
            # The class may send no more than its own rate: there is nobody to borrow from.
            depth = {"burst": bucket.burst_bytes, "cburst": bucket.burst_bytes, "quantum": LONGEST_BYTES}
            route.tc("add-class", "htb", index=index, handle=_CLASS, parent=_ROOT, rate=rate, ceil=rate, **depth)
            frames = bucket.limit_bytes // LONGEST_BYTES  # netlink's library has no queue that counts bytes
            route.tc("add", "pfifo", index=index, handle=_LEAF, parent=_CLASS, limit=frames)
        found = _rate(route, index, bucket.kind)
        if found != rate:
            raise NetworkError(f"{interface} is shaped to {(found or 0) * 8:g} bit/s, not to {rate * 8:g}")

    _run(namespace, interface, apply, f"{bucket.kind} of {bucket.rate_bps:g} bit/s")


def impair(namespace: Namespace, interface: str, impairment: Impairment) -> None:
    """Delay and lose frames that leave, in place of whatever was there."""

    def apply(route: IPRoute) -> None:
        index = socket.if_nametoindex(interface)
        _clear(route, index)
        values = {"delay": impairment.delay_us, "loss": impairment.loss * 100, "limit": impairment.limit_frames}
        route.tc("add", "netem", index=index, handle=_ROOT, **values)

    _run(namespace, interface, apply, "netem")


def has_netem(namespace: Namespace) -> bool:
    """Whether the kernel has netem, or a module of it that can be loaded: tried on the namespace's own loopback."""
    try:
        impair(namespace, "lo", Impairment(delay_us=1, loss=0.0, limit_frames=10))
    except NetworkError:
        return False
    namespace.netlink(lambda route: _clear(route, socket.if_nametoindex("lo")))
    return True


def dropped_frames(namespace: Namespace, interface: str) -> int:
    """Frames that the interface's shaper has dropped since it was set.  Raises NetworkError: it has none."""

    def read(route: IPRoute) -> int | None:
        root = _root(route, socket.if_nametoindex(interface))
        return None if root is None else int(root.get_nested("TCA_STATS2", "TCA_STATS_QUEUE")["drops"])

    with network_error(f"the counters of {interface} cannot be read"):
        drops = namespace.netlink(read)
    if drops is None:
        raise NetworkError(f"{interface} of {namespace.name} is not shaped", "shape it before it is counted")
    return drops


def _run(namespace: Namespace, interface: str, apply: Any, what: str) -> None:
    try:
        namespace.netlink(apply)
    except (NetlinkError, OSError) as error:
        number = error.code if isinstance(error, NetlinkError) else error.errno
        remedy = "load the kernel's module sch_*, or do without" if number == errno.ENOENT else None
        raise NetworkError(f"{interface} of {namespace.name} cannot have {what}: {error}", remedy) from error


def _clear(route: IPRoute, index: int) -> None:
    with contextlib.suppress(NetlinkError):  # there is none
        route.tc("del", index=index, parent=_TC_H_ROOT)


def _root(route: IPRoute, index: int) -> Any:
    """The interface's own queueing discipline; None where it has none but the kernel's default."""
    found = [one for one in route.get_qdiscs(index=index) if one["index"] == index and one["handle"] == _ROOT]
    return found[0] if found else None


def _rate(route: IPRoute, index: int, kind: str) -> int | None:
    if kind == "tbf":
        root = _root(route, index)
        parameters = None if root is None else root.get_nested("TCA_OPTIONS", "TCA_TBF_PARMS")
        return None if parameters is None else int(parameters["rate"])
    for one in route.get_classes(index=index):
        if one["handle"] == _CLASS:
            wide = one.get_nested("TCA_OPTIONS", "TCA_HTB_RATE64")
            return int(wide or one.get_nested("TCA_OPTIONS", "TCA_HTB_PARMS")["rate"])
    return None
