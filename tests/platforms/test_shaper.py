"""Shaping and counting of a namespace's interfaces: what is set is read back, and what cannot be is said."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from virtgauge.host.scope import Scope
from virtgauge.network import Neighbour, NetworkError, Nic
from virtgauge.network.links import LinkCounters, connect
from virtgauge.network.namespace import Namespace
from virtgauge.network.shaper import Bucket, Impairment, dropped_frames, has_netem, impair, shape

pytestmark = pytest.mark.slow

HERE, THERE = "10.61.0.1", "10.61.0.2"
SENT, PAYLOAD, FRAME = 2000, 1000, 1042
"""So many that the queue is full, though this process may stand still for a second while it sends them."""


@pytest.fixture
def lab(scope: Scope) -> Iterator[Namespace]:
    """A namespace with the interface ``out``, and an end that takes whatever comes."""
    with Namespace(scope, "lab") as lab, Namespace(scope, "end") as end:
        neighbour = Neighbour(HERE, "02:00:00:00:00:01")
        connect(lab, end, [Nic("out", "02:00:00:00:00:02", (f"{THERE}/24",), neighbours=(neighbour,))])

        def address(route) -> None:
            index = socket.if_nametoindex("out")
            route.link("set", index=index, address=neighbour.mac)
            route.addr("add", index=index, address=HERE, prefixlen=24)
            route.neigh("replace", ifindex=index, dst=THERE, lladdr="02:00:00:00:00:02", state=0x80)

        lab.netlink(address)
        yield lab


def send(lab: Namespace) -> None:
    """A burst of datagrams."""
    with lab.run(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8_000_000)
        for _ in range(SENT):
            sender.sendto(b"x" * PAYLOAD, (THERE, 9))


@pytest.mark.parametrize("kind", ["tbf", "htb"])
def test_frames_leave_at_the_rate_and_what_the_queue_does_not_hold_is_dropped_and_counted(lab: Namespace, kind) -> None:
    shape(lab, "out", Bucket(kind, 34e9, 400_000, 10_000_000))
    shape(lab, "out", Bucket(kind, 8e6, 3028, 100 * 1514))  # in place of the first
    counters = LinkCounters(lab)
    before, began = counters.read("out"), time.monotonic()
    send(lab)
    dropped = dropped_frames(lab, "out")
    assert 0 < dropped < SENT
    while (now := counters.read("out")).tx_frames - before.tx_frames < SENT - dropped:
        assert time.monotonic() - began < 30
        time.sleep(0.005)
    seconds = time.monotonic() - began
    passed = now.tx_bytes - before.tx_bytes
    assert passed == (SENT - dropped) * FRAME
    assert passed * 8 / seconds < 1.05 * 8e6  # never faster; slower on a machine that stands still meanwhile
    counters.close()
    with pytest.raises(ValueError, match="closed"):
        counters.read("out")


def test_what_is_not_there_is_neither_shaped_nor_counted(lab: Namespace) -> None:
    with pytest.raises(NetworkError, match="eth9"):
        shape(lab, "eth9", Bucket.of("tbf", 1e6, 100, 10))
    with pytest.raises(NetworkError, match="shape it before"):
        dropped_frames(lab, "out")
    counters = LinkCounters(lab)
    with pytest.raises(NetworkError, match="no interface eth9"):
        counters.read("eth9")
    counters.close()


def test_netem_works_where_the_kernel_has_it_and_is_refused_with_a_remedy_where_it_has_not(lab: Namespace) -> None:
    if has_netem(lab):
        impair(lab, "out", Impairment(delay_us=1000, loss=1.0, limit_frames=100))
        counters = LinkCounters(lab)
        before = counters.read("out").tx_frames
        send(lab)
        assert counters.read("out").tx_frames == before  # all of it was lost
        counters.close()
    else:
        with pytest.raises(NetworkError, match="cannot have netem") as caught:
            impair(lab, "out", Impairment(delay_us=1000, loss=1.0, limit_frames=100))
        assert caught.value.remedy is not None
